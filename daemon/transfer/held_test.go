package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestHeldLimits: what a session has waiting for ranks that are not back after a restart is bounded, in number and in block ids; and
// what ends while it waits makes room.
func TestHeldLimits(t *testing.T) {
	const start, minute = transfer.Time(1), 60 * transfer.Second
	ids := make([]uint32, layout.MaxIDs)
	big := func(timeout transfer.Time) transfer.Op {
		return &transfer.TakeOp{Key: []byte("k"), Timeout: timeout, Blocks: []layout.BlockList{{NTokens: layout.MaxIDs, IDs: ids}}}
	}
	for _, c := range []struct {
		name string
		op   func(timeout transfer.Time) transfer.Op
		fit  int
	}{
		{"block ids", big, 16},
		{"submissions", func(timeout transfer.Time) transfer.Op { return &transfer.TakeOp{Key: []byte("k"), Timeout: timeout} }, 65536},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxBlockIDs: 16 * layout.MaxIDs})
			m.Step(start, transfer.Awaited{Sessions: []transfer.AwaitedSession{{Engine: "e", Instance: "i", Role: transfer.Worker, Layout: true}}, For: minute})
			m.Step(start, transfer.SessionOpened{Session: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Credits: 1000})
			user := uint64(0)
			submit := func(op transfer.Op) []transfer.Effect {
				user++
				return m.Step(start, transfer.Submit{Session: 1, UserData: user, Op: op})
			}
			for i := range c.fit {
				timeout := minute
				if i < 3 {
					timeout = transfer.Second
				}
				if end := ended(submit(c.op(timeout))); len(end) != 0 {
					t.Fatalf("submission %d: %+v", i, end)
				}
			}
			end := ended(submit(c.op(minute)))
			if len(end) != 1 || end[0].Reason != transfer.Quota || !strings.Contains(end[0].Text, "wait for 1 ranks") || !strings.Contains(end[0].Text, "limits.block_ids = 16777216") {
				t.Fatalf("one too many: %+v", end)
			}
			if end := ended(m.Step(start+transfer.Second, transfer.Tick{})); len(end) != 3 || end[0].Reason != transfer.Timeout {
				t.Fatalf("at the deadline of three: %+v", end)
			}
			if end := ended(submit(c.op(minute))); len(end) != 0 {
				t.Errorf("there is room again: %+v", end)
			}
		})
	}
}

func ended(effects []transfer.Effect) (out []transfer.Complete) {
	for _, e := range effects {
		if c, ok := e.(transfer.Complete); ok {
			out = append(out, c)
		}
	}
	return out
}
