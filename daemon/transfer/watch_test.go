package transfer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// watched is a node on which one engine watches keys that another one offers.
type watched struct {
	m    *transfer.Machine
	now  transfer.Time
	user uint64
}

func newWatched(t *testing.T, cfg transfer.Config) *watched {
	n := uint64(0)
	cfg.Node, cfg.Random = "a", func() uint64 { n++; return n << 32 }
	w := &watched{m: transfer.New(cfg), now: 1}
	for id, engine := range map[transfer.SessionID]string{1: "p", 3: "d"} {
		w.step(transfer.SessionOpened{Session: id, Engine: engine, Instance: "i", Role: transfer.Worker, Credits: 1000})
		w.step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
	}
	return w
}

// step returns how many watches heard of their offer.
func (w *watched) step(ev transfer.Event) (heard int) {
	for _, e := range w.m.Step(w.now, ev) {
		if c, ok := e.(transfer.Complete); ok && c.Kind == transfer.KindWatch && c.Reason == transfer.OK {
			heard++
		}
	}
	return heard
}

var watchToken = []byte("0123456789abcdef")

func (w *watched) watch(key string) int {
	w.user++
	return w.step(transfer.Submit{Session: 3, UserData: w.user, Op: &transfer.WatchOp{Key: []byte(key), Token: watchToken, Timeout: 600 * transfer.Second}})
}

func (w *watched) offer(key string) int {
	w.user++
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(w.user % 32)}}}
	return w.step(transfer.Submit{Session: 1, UserData: w.user, Op: &transfer.OfferOp{Key: []byte(key), Token: watchToken, Blocks: blocks, Sealed: true}})
}

// wait lets seconds pass.
func (w *watched) wait(seconds int) (heard int) {
	for range seconds {
		w.now += transfer.Second
		heard += w.step(transfer.Tick{})
	}
	return heard
}

// TestAWatchIsNotForgotten: it waits for as long as it says, however short a while keys are remembered.
func TestAWatchIsNotForgotten(t *testing.T) {
	w := newWatched(t, transfer.Config{TombstoneFor: 10 * transfer.Second})
	if w.watch("k")+w.wait(35) != 0 {
		t.Fatal("nothing is offered, and a watch heard of it")
	}
	if n := w.offer("k"); n != 1 {
		t.Errorf("%d watches hear of the offer at once, want 1", n)
	}
}

// TestWatchesAreBounded: who is one too many to be remembered hears of the offer when it asks again, and notes of the past make room.
func TestWatchesAreBounded(t *testing.T) {
	w := newWatched(t, transfer.Config{MaxTombstones: 3})
	for _, key := range []string{"k", "l"} {
		if w.watch(key)+w.watch(key)+w.watch(key) != 0 {
			t.Fatal("nothing is offered, and a watch heard of it")
		}
		if n := w.offer(key); n != 2 {
			t.Errorf("%d of 3 watches of %q hear of the offer at once, want 2", n, key)
		}
		if n := w.wait(2); n != 1 {
			t.Errorf("%d more watches of %q hear of it, want 1", n, key)
		}
		w.wait(120)
	}
}

// TestAnsweredWatchesMakeRoom: at once, not when what was remembered of them would have been forgotten.
func TestAnsweredWatchesMakeRoom(t *testing.T) {
	w := newWatched(t, transfer.Config{MaxTombstones: 20})
	for i := range 100 {
		key := fmt.Sprint("k", i)
		for range 5 {
			w.watch(key)
		}
		if n := w.offer(key); n != 5 {
			t.Fatalf("offer %d: %d of 5 watches hear of it at once", i, n)
		}
	}
}

// peerWatches has a peer watch a key.
func (w *watched) peerWatches(node string, epoch, id uint64, key string) {
	w.step(transfer.PeerMsg{Node: node, Epoch: epoch, Msg: &transfer.MsgKey{ID: id, Engine: "e", Key: []byte(key), Token: watchToken, For: 600 * transfer.Second}})
}

// TestWatchesOfOneNodeLeaveRoom: whoever watches what never comes is not heard at once, and all others are.
func TestWatchesOfOneNodeLeaveRoom(t *testing.T) {
	w := newWatched(t, transfer.Config{MaxTombstones: 512})
	w.step(transfer.PeerUp{Node: "mad", Epoch: 1})
	for id := range uint64(1024) {
		w.peerWatches("mad", 1, id, fmt.Sprint("mad ", id%4))
	}
	w.watch("k")
	if n := w.offer("k"); n != 1 {
		t.Errorf("%d watches hear of the offer at once, want 1", n)
	}
}

// TestAWatchOfAnotherChannelIsNotAnswered: the daemon that asked may have been restarted since, and mean another watch by that number.
func TestAWatchOfAnotherChannelIsNotAnswered(t *testing.T) {
	w := newWatched(t, transfer.Config{})
	w.step(transfer.PeerUp{Node: "b", Epoch: 1})
	w.peerWatches("b", 1, 7, "k")
	w.peerWatches("b", 1, 8, "k")
	w.step(transfer.PeerDown{Node: "b", Epoch: 1})
	w.step(transfer.PeerUp{Node: "b", Epoch: 2})
	w.peerWatches("b", 2, 7, "other")
	w.peerWatches("b", 2, 8, "k")
	var heard []uint64
	w.user++
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}
	for _, e := range w.m.Step(w.now, transfer.Submit{Session: 1, UserData: w.user, Op: &transfer.OfferOp{Key: []byte("k"), Token: watchToken, Blocks: blocks, Sealed: true}}) {
		if s, ok := e.(transfer.Send); ok {
			if a, ok := s.Msg.(*transfer.MsgKeyAck); ok {
				heard = append(heard, a.ID)
			}
		}
	}
	if !slices.Equal(heard, []uint64{8}) {
		t.Errorf("watches %d are answered, want 8 alone: 7 is of a key that nobody offered", heard)
	}
}

// TestEachWatchIsAnsweredOnce: however often it is asked for, and whatever number others have.
func TestEachWatchIsAnsweredOnce(t *testing.T) {
	w := newWatched(t, transfer.Config{})
	for _, node := range []string{"b", "c"} {
		w.step(transfer.PeerUp{Node: node, Epoch: 1})
		w.peerWatches(node, 1, 7, "k")
		w.peerWatches(node, 1, 7, "k")
	}
	heard := map[string]int{}
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}
	for _, e := range w.m.Step(w.now, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{Key: []byte("k"), Token: watchToken, Blocks: blocks, Sealed: true}}) {
		if s, ok := e.(transfer.Send); ok {
			heard[s.Node]++
		}
	}
	if heard["b"] != 1 || heard["c"] != 1 {
		t.Errorf("answers: %v, want one to each node", heard)
	}
}

// TestWhatWaitsAtOneKeyIsBounded: a peer's watches and drops of what never comes, however many it has names for.
func TestWhatWaitsAtOneKeyIsBounded(t *testing.T) {
	w := newWatched(t, transfer.Config{})
	w.step(transfer.PeerUp{Node: "mad", Epoch: 1})
	for id := range uint64(300) {
		w.peerWatches("mad", 1, id, "k")
		w.step(transfer.PeerMsg{Node: "mad", Epoch: 1, Msg: &transfer.MsgKey{ID: id, Drop: true, Engine: fmt.Sprint(id), Key: []byte("k"), Token: watchToken}})
	}
	heard := 0
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{1}}}
	for _, e := range w.m.Step(w.now, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{
		Key: []byte("k"), Token: watchToken, Blocks: blocks, Sealed: true, Consumers: 1000,
	}}) {
		if _, ok := e.(transfer.Send); ok {
			heard++
		}
	}
	if drops := w.m.Snapshot().Offers[0].Consumed; heard != 256 || drops != 256 {
		t.Errorf("%d watches and %d drops were remembered, want 256 each", heard, drops)
	}
}

// peerDrops has a peer drop a key, and returns how that is answered.
func (w *watched) peerDrops(node, engine, key string, token []byte) (why transfer.Reason) {
	msg := &transfer.MsgKey{ID: 1, Drop: true, Engine: engine, Key: []byte(key), Token: token}
	for _, e := range w.m.Step(w.now, transfer.PeerMsg{Node: node, Epoch: 1, Msg: msg}) {
		if s, ok := e.(transfer.Send); ok {
			why = s.Msg.(*transfer.MsgKeyAck).Cause.Reason
		}
	}
	return why
}

// dropped offers something under a key, to many, and returns how many drops of it had come before.
func (w *watched) dropped(key string, token []byte) int {
	w.user++
	blocks := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(w.user % 32)}}}
	w.step(transfer.Submit{Session: 1, UserData: w.user, Op: &transfer.OfferOp{Key: []byte(key), Token: token, Blocks: blocks, Sealed: true, Consumers: 1000}})
	for _, o := range w.m.Snapshot().Offers {
		if o.Key == key {
			return o.Consumed
		}
	}
	return 0
}

// TestDropsAreBounded: what comes before its offer counts with the keys that are remembered. Who is one too many is told so, and what others
// had dropped is not forgotten for it.
func TestDropsAreBounded(t *testing.T) {
	const most = 100
	w := newWatched(t, transfer.Config{MaxTombstones: most})
	w.step(transfer.PeerUp{Node: "b", Epoch: 1})
	w.step(transfer.PeerUp{Node: "mad", Epoch: 1})
	for i := range 3 {
		w.peerDrops("b", fmt.Sprint(i), "b", watchToken)
	}
	refused, all := 0, 0
	for i := range 10 * most {
		if w.peerDrops("mad", fmt.Sprint(i), fmt.Sprint("mad ", i%5), watchToken) == transfer.Quota {
			refused++
		}
	}
	for i := range 50 * most { // with another token each
		if w.peerDrops("mad", "e", "mad", fmt.Append(nil, "0123456789abcdef", i)) == transfer.Quota {
			refused++
		}
	}
	for i := range 5 {
		all += w.dropped(fmt.Sprint("mad ", i), watchToken)
	}
	if all > most || refused == 0 {
		t.Errorf("%d drops of one peer were remembered, want %d at most; %d were refused", all, most, refused)
	}
	if n := w.dropped("b", watchToken); n != 3 {
		t.Errorf("%d drops of another one were remembered, want 3", n)
	}
}

// TestADropOfTheNextOfferIsRemembered: an offer under the key has ended, and one with another token is still to come.
func TestADropOfTheNextOfferIsRemembered(t *testing.T) {
	w := newWatched(t, transfer.Config{})
	w.step(transfer.PeerUp{Node: "b", Epoch: 1})
	w.end(1, "k")
	next := []byte("fedcba9876543210")
	for _, token := range [][]byte{watchToken, next} {
		if why := w.peerDrops("b", "e", "k", token); why != transfer.OK {
			t.Errorf("a drop is answered %s", why)
		}
	}
	if n := w.dropped("k", next); n != 1 {
		t.Errorf("%d drops of the next offer count, want 1", n)
	}
}

// TestAWatchOfAPeerThatCannotBeReached ends as a take does.
func TestAWatchOfAPeerThatCannotBeReached(t *testing.T) {
	w := newWatched(t, transfer.Config{})
	w.step(transfer.Submit{Session: 3, Op: &transfer.WatchOp{Key: []byte("k"), Peer: "b", Token: watchToken, Timeout: 20 * transfer.Second}})
	w.step(transfer.DialFailed{Hint: "b", Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "peer b at h:1: connection refused"}})
	w.now += 20 * transfer.Second
	for _, e := range w.m.Step(w.now, transfer.Tick{}) {
		if e, ok := e.(transfer.Complete); ok && e.Kind == transfer.KindWatch {
			if want := `peer "b" was not reached within 20s: at h:1: connection refused`; e.Reason != transfer.PeerGone || e.Text != want {
				t.Errorf("the watch ended %s: %s\nwant %s", e.Reason, e.Text, want)
			}
			return
		}
	}
	t.Error("the watch has not ended")
}

// TestAWatchThatHearsNothingSaysWhere: without a peer it is about this node. Keys of the daemons' own say nothing to anybody.
func TestAWatchThatHearsNothingSaysWhere(t *testing.T) {
	for _, c := range []struct{ key, peer, want string }{
		{"k", "", `nothing was offered under key "k" on node "a", this one, within 20s`},
		{"k", "b", `peer "b" did not answer about key "k" within 20s: no answer`},
		{transfer.ReservedPrefix + "k", "b", `peer "b" did not answer within 20s: no answer`},
	} {
		w := newWatched(t, transfer.Config{})
		w.step(transfer.Submit{Session: 3, Op: &transfer.WatchOp{Key: []byte(c.key), Peer: c.peer, Token: watchToken, Timeout: 20 * transfer.Second}})
		w.now += 20 * transfer.Second
		ended := false
		for _, e := range w.m.Step(w.now, transfer.Tick{}) {
			if e, ok := e.(transfer.Complete); ok && e.Kind == transfer.KindWatch {
				ended = true
				if e.Reason != transfer.Timeout || e.Text != c.want {
					t.Errorf("the watch ended %s: %s\nwant %s", e.Reason, e.Text, c.want)
				}
			}
		}
		if !ended {
			t.Errorf("the watch of %q at %q has not ended", c.key, c.peer)
		}
	}
}

// TestAnEarlyDropIsRememberedFromWhenItCame: also when an offer under the key had ended, or was watched for, long before, and when it was said
// before. The offer that had ended is forgotten in its time all the same.
func TestAnEarlyDropIsRememberedFromWhenItCame(t *testing.T) {
	next := []byte("fedcba9876543210")
	for name, before := range map[string]func(*watched){
		"nothing":          func(*watched) {},
		"an offer's end":   func(w *watched) { w.end(1, "k") },
		"a watch":          func(w *watched) { w.peerWatches("b", 1, 7, "k") },
		"a drop":           func(w *watched) { w.peerDrops("b", "other", "k", next) },
		"the drop, before": func(w *watched) { w.peerDrops("b", "e", "k", next) },
	} {
		w := newWatched(t, transfer.Config{TombstoneFor: 60 * transfer.Second})
		w.step(transfer.PeerUp{Node: "b", Epoch: 1})
		before(w)
		w.wait(50)
		if why := w.peerDrops("b", "e", "k", next); why != transfer.OK {
			t.Errorf("after %s: a drop is answered %s", name, why)
		}
		w.wait(50)
		if w.expired("k") {
			t.Errorf("after %s: the offer that had ended is remembered for 100 s, want 60 s", name)
		}
		if w.dropped("k", next) == 0 {
			t.Errorf("after %s: a drop is forgotten within 50 s, want 60 s", name)
		}
	}
	w := newWatched(t, transfer.Config{TombstoneFor: 60 * transfer.Second})
	w.step(transfer.PeerUp{Node: "b", Epoch: 1})
	w.end(1, "k")
	w.peerDrops("b", "e", "k", next)
	w.wait(61)
	if n := w.m.Snapshot().Tombstones; n > 0 {
		t.Errorf("%d keys are remembered for longer than 60 s", n)
	}
}

// TestAWatchThatIsOverRenewsNothing: the offer that comes after it ends with its own lease. One that goes on renews it, whatever was before.
func TestAWatchThatIsOverRenewsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		watch func(*watched)
		lease transfer.Time
	}{
		"none":              {func(*watched) {}, 30},
		"it goes on":        {func(w *watched) { w.watch("k"); w.wait(40) }, 600},
		"it was cancelled":  {func(w *watched) { w.watch("k"); w.cancel(3) }, 30},
		"its time was over": {func(w *watched) { w.watchFor("k", 40*transfer.Second); w.wait(41) }, 30},
		"its engine left":   {func(w *watched) { w.watch("k"); w.step(transfer.SessionClosed{Session: 3}) }, 30},
		"one of two was cancelled": {func(w *watched) {
			w.watch("k")
			w.watch("k")
			w.cancel(3)
		}, 600},
		"a peer asked long ago": {func(w *watched) { w.peerWatches("b", 1, 7, "k"); w.wait(20) }, 30},
		"a peer asks still": {func(w *watched) {
			for range 5 {
				w.peerWatches("b", 1, 7, "k")
				w.wait(8)
			}
		}, 600},
	} {
		w := newWatched(t, transfer.Config{})
		w.step(transfer.PeerUp{Node: "b", Epoch: 1})
		c.watch(w)
		w.offer("k")
		if got := w.m.Snapshot().Offers[0].Lease; got != c.lease*transfer.Second {
			t.Errorf("%s: the offer's lease is %d s, want %d s", name, got/transfer.Second, c.lease)
		}
	}
}

func (w *watched) watchFor(key string, d transfer.Time) {
	w.user++
	w.step(transfer.Submit{Session: 3, UserData: w.user, Op: &transfer.WatchOp{Key: []byte(key), Token: watchToken, Timeout: d}})
}

// cancel cancels the session's last operation.
func (w *watched) cancel(s transfer.SessionID) {
	w.step(transfer.Submit{Session: s, UserData: w.user + 1<<32, Op: &transfer.CancelOp{Target: w.user}})
}
