package sim

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestBroken is the test of the test: a machine that leaves out a guard has to be caught.
func TestBroken(t *testing.T) {
	for _, tc := range []struct {
		name  string
		opts  Options
		seeds uint64
		says  string // of several things that go wrong then, the one that has to be noticed
	}{
		{"fence", Options{Broken: transfer.Broken{Fence: true}}, 100, ""},
		{"take over a take", Options{Broken: transfer.Broken{Hold: true}}, 300, "(take): a conflicting hold was granted over blocks of a take"},
		{"take over an offer", Options{Broken: transfer.Broken{Hold: true}}, 300, "(take): a conflicting hold was granted over blocks of an offer"},
		{"offer over a take", Options{Broken: transfer.Broken{Hold: true}}, 300, "(offer): a conflicting hold was granted over blocks of a take"},
		{"ranks that are told too early that none is written", Options{Broken: transfer.Broken{Ranks: transfer.KindTake}}, 300, "after it was told that none of"},
		{"ranks that are told too early that none is read", Options{Broken: transfer.Broken{Ranks: transfer.KindOffer}}, 3000, "was read after it was told"},
		{"any token of a take", Options{Broken: transfer.Broken{Stranger: true}}, 300, "bytes are granted, and its token is not the offer's"},
		{"any token of a watch", Options{Broken: transfer.Broken{Stranger: true}}, 1000, "(watch): done, and its token is not the offer's"},
		{"any content digest", Options{Broken: transfer.Broken{Stranger: true}}, 300, "its content digest is not the offer's"},
		{"any layout", Options{Broken: transfer.Broken{Stranger: true}}, 300, "its model is not the offer's"},
		{"lease that does not end", Options{Broken: transfer.Broken{Lease: true}}, 100, "it stands, and nobody"},
		{"watch that renews nothing", Options{Broken: transfer.Broken{Interest: true}}, 100, "renewed nothing"},
		{"watch of nothing that is done", Options{Broken: transfer.Broken{Interest: true}}, 100, "and nothing is offered"},
		{"drop that does nothing", Options{Broken: transfer.Broken{Interest: true}}, 100, "a drop of key"},
		{"drop that is forgotten", Options{Broken: transfer.Broken{Interest: true}}, 1000, "an early drop"},
		{"commit", Options{Broken: transfer.Broken{Commit: true}}, 100, ""},
		{"take over a take in another group", Options{Broken: transfer.Broken{Groups: true}}, 300, "(take): a conflicting hold was granted over blocks of a take"},
		{"offer over a take in another group", Options{Broken: transfer.Broken{Groups: true}}, 300, "(offer): a conflicting hold was granted over blocks of a take"},
		{"take that lacks blocks of another group", Options{Broken: transfer.Broken{Groups: true}}, 300, "wrong bytes"},
		{"bytes of all ranks that each is told", Options{Broken: transfer.Broken{Count: true}}, 100, "bytes came, and"},
		{"incarnation", Options{Broken: transfer.Broken{Incarnation: true}}, 3000, ""},
		{"part that counts twice", Options{Broken: transfer.Broken{Twice: true}}, 1000, "consumers are"},
		{"parts that are counted for each node", Options{Broken: transfer.Broken{Apart: true}}, 1000, "have all their parts"},
		{"engine that waits for itself", Options{Broken: transfer.Broken{Apart: true}}, 1000, "for others"},
		{"part that is forgotten when another one fails", Options{Broken: transfer.Broken{Parts: true}}, 1000, "have all their parts"},
		{"late slice", Options{Broken: transfer.Broken{LateSlice: true}}, 3000, ""},
		{"pipe that goes on behind a gap", Options{Ends: true, Broken: transfer.Broken{Gap: true}}, 100, ""},
		{"any token of a rank", Options{Ragged: true, Broken: transfer.Broken{Stranger: true}}, 1000, "its ranks do not agree"},
		{"any token of an end", Options{Ends: true, Ragged: true, Broken: transfer.Broken{Stranger: true}}, 300, "and its token is not that of p"},
		{"pipe that was closed before a receiver came and is forgotten", Options{Ends: true, Ragged: true, Broken: transfer.Broken{Unheard: true}}, 1000, "its first receiver is not told so"},
		{"item that does not go back", Options{Ends: true, Broken: transfer.Broken{Return: true}}, 100, ""},
		{"item in doubt that goes back", Options{Ends: true, Broken: transfer.Broken{Doubt: true}}, 3000, ""},
		{"word that does not count after a long outage", Options{Ends: true, Broken: transfer.Broken{Outage: true}}, 300, "was received twice"},
		{"unfinished", Options{Broken: transfer.Broken{Unfinished: true}}, 300, ""},
		{"offer of a scheduler whose successor had come", Options{Unrest: true, Broken: transfer.Broken{Heir: true}}, 1000, "whose successor"},
		{"rank that has left and is not missing", Options{Unrest: true, Broken: transfer.Broken{Absent: true}}, 300, "which it was for, is not there"},
		{"rank of an engine on several nodes that has left and is not missing", Options{Unrest: true, Broken: transfer.Broken{Absent: true}}, 3000, "nodes): done, and rank"},
		{"offer of a rank that was replaced", Options{Unrest: true, Broken: transfer.Broken{Outdated: true}}, 300, "was read although no offer holds it"},
		{"take into a rank that was replaced", Options{Unrest: true, Broken: transfer.Broken{Outdated: true}}, 1000, "which no take holds"},
		{"offer that waits for a rank and is its successor's", Options{Unrest: true, Broken: transfer.Broken{Successor: true}}, 1000, "was read although no offer holds it"},
		{"take that waits for a rank and is its successor's", Options{Unrest: true, Broken: transfer.Broken{Successor: true}}, 1000, "which no take holds"},
		{"offer without the ranks that are not back", Options{Unrest: true, Broken: transfer.Broken{Joined: true}}, 1000, "wrong bytes"},
		{"older instance that is let in", Options{Unrest: true, Lapse: Older}, 300, "which came back, ended session"},
		{"ranks that are forgotten when they leave", Options{Unrest: true, Lapse: Left}, 1000, "is not there"},
		{"ranks that are forgotten to have changed", Options{Unrest: true, Lapse: Changes}, 1000, "was read although no offer holds it"},
		{"rank that is taken for the one before", Options{Unrest: true, Lapse: Pretender}, 1000, "which no take holds"},
		{"rank that is not kept for who is awaited", Options{Unrest: true, Lapse: Squatter}, 300, "had come in its place and is awaited"},
		{"what was submitted without a daemon and is about the rank that has come meanwhile", Options{Unrest: true, Lapse: Fresh}, 1000, ""},
		{"what is read late and is about the rank that has come meanwhile", Options{Unrest: true, Lapse: Behind}, 300, ""},
		{"configuration that is read again and changes what needs a restart", Options{Lapse: Reread}, 300, "ended"},
		{"memory that is given up while operations go on", Options{Broken: transfer.Broken{Asleep: true}}, 300, "has its memory back before it was told"},
		{"take that was moved at once in part", Options{Broken: transfer.Broken{Torn: true}}, 1000, "wrong bytes"},
		{"node that is heard about others' takes", Options{Mad: true, Broken: transfer.Broken{Sender: true}}, 300, "a mad node ended it, which has no part in it"},
		{"take that lacks blocks and is spoiled", Options{Ragged: true, Broken: transfer.Broken{Spoiled: true}}, 1000, "wrong bytes"},
		{"ranks with blocks of different sizes", Options{Ragged: true, Broken: transfer.Broken{Uneven: true}}, 1000, "wrong bytes"},
		{"ranks that extend by different tokens", Options{Ragged: true, Broken: transfer.Broken{Step: true}}, 1000, "which the offer has"},
		{"transport that lands after its fence", Options{Late: true}, 100, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := uint64(1); seed <= tc.seeds; seed++ {
				o := tc.opts
				o.Seed = seed
				if err := New(o).Run(); err != nil && strings.Contains(err.Error(), tc.says) {
					t.Logf("caught by seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("%d seeds did not notice", tc.seeds)
		})
	}
}

// TestPanic: so has one that panics, and where it did is told.
func TestPanic(t *testing.T) {
	_, err := live(Options{Seed: 1}, func(c *Cluster) { c.nodes[0].event(second, nil) })
	if err == nil || !strings.Contains(err.Error(), "panic: transfer: unknown event <nil>") || !strings.Contains(err.Error(), "transfer/machine.go") {
		t.Errorf("the run ended with %v", err)
	}
}
