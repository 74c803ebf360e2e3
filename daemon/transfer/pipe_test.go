package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// ends is one machine with ends of pipes and lookup buffers, whose driver does at once what it is asked for.
type ends struct {
	tb       testing.TB
	m        *transfer.Machine
	now      transfer.Time
	done     []transfer.Complete // not looked at yet
	fail     bool                // slices fail
	moves    int                 // by MoveNow
	planSize uint32              // of what is planned
	users    uint64
	tick     transfer.Time
	// How often memory of a session that is over was left behind, and given back.
	orphaned, drained int
}

const block = 256 // bytes of an arena's block

func newEnds(tb testing.TB, change func(*transfer.Config)) *ends {
	n := uint64(0)
	c := transfer.Config{Node: "a", AtOnce: 64, Random: func() uint64 { n += 0x9e3779b97f4a7c15; return n }}
	if change != nil {
		change(&c)
	}
	return &ends{tb: tb, m: transfer.New(c), now: 1}
}

// arena is the layout of an end's memory: a token is a byte.
func arena(tb testing.TB, blocks uint64) *layout.Layout {
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: blocks, BlockStride: block, TokenStride: 1, HeadStride: 1, ContentBytes: 1,
		Kind: layout.Paged, BlockSize: block, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "kvpipe", Value: "bytes"}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (e *ends) step(ev transfer.Event) {
	queue := []transfer.Event{ev}
	for i := 0; i < len(queue); i++ {
		for _, eff := range e.m.Step(e.now, queue[i]) {
			switch eff := eff.(type) {
			case *transfer.MoveNow:
				e.moves++
				if eff.Granted.Slot != transfer.NoSlot {
					e.tb.Errorf("a grant is asked for: %+v", eff.Granted)
				}
				queue = append(queue, transfer.MovedNow{OK: !e.fail, Bytes: uint64(eff.Dst[0].NTokens)})
			case transfer.Yield:
				queue = append(queue, transfer.Resume{})
			case transfer.MakePlan:
				n := uint32(0)
				if len(eff.Src) > 0 {
					n = eff.Src[0].NTokens
				}
				queue = append(queue, transfer.Planned{Leg: eff.Leg, Seg: eff.Seg, Transport: "local", Slices: min(n, 1), Bytes: uint64(n), Size: e.planSize})
			case transfer.Post:
				landed, cause := eff.Keys[0], transfer.Cause{}
				landed.End = transfer.Consumer
				if e.fail {
					cause = transfer.Cause{Reason: transfer.Invalid, Text: "the copy failed"}
				}
				queue = append(queue, transfer.SliceSent{Key: eff.Keys[0]}, transfer.SliceLanded{Key: landed, Cause: cause})
			case transfer.Fence:
				queue = append(queue, transfer.Fenced{Leg: eff.Leg})
			case transfer.Complete:
				e.done = append(e.done, eff)
			case *transfer.Complete:
				e.done = append(e.done, *eff)
			case transfer.SessionOrphaned:
				e.orphaned++
			case transfer.SessionDrained:
				e.drained++
			case transfer.ArmTimer:
				e.tick = eff.At
			}
		}
	}
}

// open makes a session with an arena and binds it.
func (e *ends) open(id transfer.SessionID, op *transfer.BindOp) uint64 {
	e.step(transfer.SessionOpened{Session: id, Engine: "e", Owner: "o", Role: transfer.Endpoint, Credits: 1000})
	e.step(transfer.LayoutSet{Session: id, Layout: arena(e.tb, 1024)})
	return e.submit(id, op)
}

func (e *ends) submit(s transfer.SessionID, op transfer.Op) uint64 {
	e.users++
	e.step(transfer.Submit{Session: s, UserData: e.users, Op: op})
	return e.users
}

// blocks cover n bytes of an arena from block first on.
func blocksOf(first uint32, n int) []layout.BlockList {
	if n == 0 {
		return nil
	}
	l := layout.BlockList{NTokens: uint32(n)}
	for i := range (n + block - 1) / block {
		l.IDs = append(l.IDs, first+uint32(i))
	}
	return []layout.BlockList{l}
}

func (e *ends) put(s transfer.SessionID, bind uint64, first uint32, n int, meta string) uint64 {
	return e.submit(s, &transfer.PutOp{Target: bind, Form: transfer.MatchNext, Bytes: uint64(n), Meta: []byte(meta), Blocks: blocksOf(first, n)})
}

func (e *ends) get(s transfer.SessionID, bind uint64, seq uint64, first uint32, room int) uint64 {
	return e.submit(s, &transfer.GetOp{Target: bind, Match: transfer.MatchNext, Seq: seq, Room: uint64(room), Timeout: 1e9, Blocks: blocksOf(first, room)})
}

// ended takes the completion of an operation off the list; nil: there is none yet.
func (e *ends) ended(user uint64) *transfer.Complete {
	for i, c := range e.done {
		if c.UserData == user {
			e.done = append(e.done[:i:i], e.done[i+1:]...)
			return &c
		}
	}
	return nil
}

// is checks how operations ended: with which status and, unless done, which word in the text.
func (e *ends) is(user uint64, status transfer.Status, reason transfer.Reason, says string) *transfer.Complete {
	e.tb.Helper()
	c := e.ended(user)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Text, says) {
		e.tb.Fatalf("operation %d ended %+v, want status %d, reason %d, %q", user, c, status, reason, says)
	}
	return c
}

func (e *ends) isDone(user uint64) *transfer.Complete {
	e.tb.Helper()
	return e.is(user, transfer.Done, transfer.OK, "")
}

func (e *ends) runs(users ...uint64) {
	e.tb.Helper()
	for _, u := range users {
		if c := e.ended(u); c != nil {
			e.tb.Fatalf("operation %d has ended: %+v", u, c)
		}
	}
}

// pass lets the clock run to the next timer, up to d from now.
func (e *ends) pass(d transfer.Time) {
	for end := e.now + d; e.now < end; {
		next := end
		if e.tick > e.now {
			next = min(e.tick, end)
		}
		e.now, e.tick = next, 0
		e.step(transfer.Tick{})
	}
}

var send = &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20}
var recv = &transfer.BindOp{Kind: transfer.BindRecv, Name: "p"}

// TestPipeOrder: items come in order, whoever is first, and each ends at both ends.
func TestPipeOrder(t *testing.T) {
	e := newEnds(t, nil)
	tx, rx := e.open(1, send), e.open(2, recv)
	early := e.get(2, rx, 0, 0, 1000)
	e.runs(early)
	first := e.put(1, tx, 0, 300, "first")
	if c := e.isDone(early); c.Bytes != 300 || c.Got == nil || string(c.Got.Meta) != "first" || c.Got.Bytes != 300 || c.Got.Capacity != 1<<20 {
		t.Errorf("got %+v of %+v", c.Got, c)
	}
	e.isDone(first)
	second, none, third := e.put(1, tx, 10, 256, "second"), e.put(1, tx, 0, 0, "none"), e.put(1, tx, 20, 1, "third")
	late := e.get(2, rx, 3, 0, 1000)
	if c := e.isDone(late); string(c.Got.Meta) != "third" || c.Bytes != 1 {
		t.Errorf("item 3 is %+v", c.Got)
	}
	e.isDone(third)
	e.runs(second, none)
	if c := e.isDone(e.get(2, rx, 2, 0, 0)); string(c.Got.Meta) != "none" || c.Short {
		t.Errorf("item 2 is %+v", c)
	}
	e.isDone(none)
	e.isDone(e.get(2, rx, 1, 0, 1000))
	e.isDone(second)
	if e.moves != 3 || len(e.done) != 0 {
		t.Errorf("%d moves at once, and further completions: %v", e.moves, e.done)
	}
	e.is(e.get(2, rx, 1, 0, 1000), transfer.Failed, transfer.Invalid, "item 1 is not there any more")
}

// TestPipeShort: an item for which there is no room stays next, until it is taken, declined, or its time is over.
func TestPipeShort(t *testing.T) {
	e := newEnds(t, nil)
	tx, rx := e.open(1, send), e.open(2, recv)
	put := e.put(1, tx, 0, 3000, "big")
	c := e.isDone(e.get(2, rx, 0, 0, 1000))
	if !c.Short || c.Bytes != 0 || c.Got.Bytes != 3000 || c.Got.Item == 0 || string(c.Got.Meta) != "big" {
		t.Fatalf("%+v of %+v", c.Got, c)
	}
	other := e.get(2, rx, 1, 600, 10)
	item := func(match transfer.Match, room int) uint64 {
		return e.submit(2, &transfer.GetOp{Target: rx, Match: match, Seq: c.Got.Item, Room: uint64(room), Timeout: 1e9, Blocks: blocksOf(0, room)})
	}
	if again := e.isDone(item(transfer.MatchItem, 2000)); !again.Short {
		t.Errorf("2000 bytes of room: %+v", again)
	}
	e.isDone(item(transfer.MatchDecline, 0))
	e.is(item(transfer.MatchItem, 4000), transfer.Failed, transfer.NotFound, "is not reserved for this end")
	if again := e.isDone(e.get(2, rx, 0, 0, 1000)); !again.Short {
		t.Errorf("what was declined is %+v", again)
	}
	e.pass(2e9)
	e.is(other, transfer.Failed, transfer.Timeout, "nothing was put into it")
	e.is(item(transfer.MatchItem, 4000), transfer.Failed, transfer.NotFound, "is not reserved for this end")
	e.runs(put)
	if c = e.isDone(e.get(2, rx, 0, 0, 0)); !c.Short {
		t.Errorf("asked for its size, item 0 is %+v", c)
	}
	if got := e.isDone(item(transfer.MatchItem, 4000)); got.Short || got.Bytes != 3000 {
		t.Errorf("with room: %+v", got)
	}
	e.isDone(put)
}

// TestPipeBySlices: what is not moved at once is moved like every take, and goes back when that fails.
func TestPipeBySlices(t *testing.T) {
	for _, atOnce := range []int{0, 64} {
		e := newEnds(t, func(c *transfer.Config) { c.AtOnce = atOnce })
		tx, rx := e.open(1, send), e.open(2, recv)
		put := e.put(1, tx, 0, 3000, "")
		e.fail = true
		e.is(e.get(2, rx, 0, 0, 4000), transfer.Failed, transfer.Invalid, "the copy failed")
		e.runs(put)
		e.fail = false
		if c := e.isDone(e.get(2, rx, 0, 0, 4000)); c.Bytes != 3000 || c.Got == nil {
			t.Errorf("%+v", c)
		}
		e.isDone(put)
		none := e.put(1, tx, 0, 0, "none")
		e.isDone(e.get(2, rx, 1, 0, 0))
		e.isDone(none)
		if s := e.m.Snapshot(); len(s.Offers)+len(s.Transfers)+s.HoldsShared+s.HoldsExclusive > 0 {
			t.Errorf("left behind: %+v", s)
		}
	}
}

// TestPipeEnds: who is told what when one end goes.
func TestPipeEnds(t *testing.T) {
	t.Run("sealed", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, send), e.open(2, recv)
		put, ahead := e.put(1, tx, 0, 10, ""), e.get(2, rx, 1, 0, 10)
		e.isDone(e.submit(1, &transfer.SealOp{Target: tx}))
		e.is(ahead, transfer.Failed, transfer.Closed, "closed by its sender after 1 item")
		e.is(e.put(1, tx, 10, 10, ""), transfer.Failed, transfer.Closed, "is sealed")
		e.runs(put, tx)
		e.isDone(e.get(2, rx, 0, 0, 10))
		e.isDone(put)
		e.isDone(tx)
		e.is(e.get(2, rx, 1, 0, 10), transfer.Failed, transfer.Closed, "everything in it was received")
	})
	t.Run("sender cancels", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, send), e.open(2, recv)
		put, ahead := e.put(1, tx, 0, 10, ""), e.get(2, rx, 1, 0, 10)
		e.isDone(e.submit(1, &transfer.CancelOp{Target: tx}))
		e.is(put, transfer.WasCancelled, transfer.Cancelled, "closed at this end")
		e.is(tx, transfer.WasCancelled, transfer.Cancelled, "")
		e.is(ahead, transfer.Failed, transfer.PeerGone, "its sender is gone")
		e.is(e.get(2, rx, 2, 0, 10), transfer.Failed, transfer.PeerGone, "its sender is gone")
	})
	t.Run("receiver closes, another comes", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, send), e.open(2, recv)
		for range 3 {
			e.put(1, tx, 0, 10, "")
		}
		e.isDone(e.get(2, rx, 0, 0, 10))
		if c := e.isDone(e.get(2, rx, 1, 0, 0)); !c.Short {
			t.Errorf("%+v", c)
		}
		waits := e.get(2, rx, 7, 0, 10)
		e.is(e.open(3, recv), transfer.Failed, transfer.Busy, "has a receiver already")
		e.isDone(e.submit(2, &transfer.CancelOp{Target: rx}))
		e.is(waits, transfer.WasCancelled, transfer.Cancelled, "closed at this end")
		e.is(rx, transfer.WasCancelled, transfer.Cancelled, "")
		again := e.submit(3, recv)
		e.isDone(e.get(3, again, 0, 0, 10))
		e.isDone(e.get(3, again, 1, 0, 10))
		e.is(e.get(3, again, 0, 0, 10), transfer.Failed, transfer.Invalid, "item 0 is not there any more")
	})
	t.Run("session dies", func(t *testing.T) {
		e := newEnds(t, nil)
		_, rx := e.open(1, send), e.open(2, recv)
		waits := e.get(2, rx, 0, 0, 10)
		e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
		e.is(waits, transfer.Failed, transfer.PeerGone, "killed")
		e.step(transfer.SessionClosed{Session: 2, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
		if s := e.m.Snapshot(); len(s.Sessions) > 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// TestPipeRefusals: what is wrong, with the value and what to do.
func TestPipeRefusals(t *testing.T) {
	e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 3 })
	secret := &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1000, Token: []byte("0123456789abcdef")}
	early := e.open(5, recv)
	waits := e.get(5, early, 0, 0, 10)
	tx := e.open(1, secret)
	e.is(waits, transfer.Failed, transfer.Denied, "wrong token")
	e.is(early, transfer.Failed, transfer.Denied, "wrong token")
	e.is(e.open(2, recv), transfer.Failed, transfer.Denied, "wrong token")
	e.is(e.open(3, send), transfer.Failed, transfer.Busy, "has a sender already")
	padded := e.put(1, tx, 0, 1320, "") // five tensors, each of which begins at a multiple of 64
	e.runs(padded)
	e.isDone(e.submit(1, &transfer.CancelOp{Target: padded}))
	e.is(padded, transfer.WasCancelled, transfer.Cancelled, "")
	e.is(e.get(1, tx, 0, 0, 10), transfer.Failed, transfer.Invalid, "sending end")
	e.is(e.submit(1, secret), transfer.Failed, transfer.Invalid, "a session of its own")
	e.is(e.put(1, 999, 0, 10, ""), transfer.Failed, transfer.Closed, "0x3e7")
	e.is(e.submit(1, &transfer.OfferOp{Key: []byte("k"), Token: secret.Token}), transfer.Failed, transfer.Invalid, "knows no offer")
	rx := e.submit(2, &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Token: secret.Token})
	e.is(e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchAny}), transfer.Failed, transfer.Invalid, "match is 2")
	e.is(e.put(2, rx, 0, 10, ""), transfer.Failed, transfer.Invalid, "receiving end")
	e.is(e.submit(2, &transfer.SealOp{Target: rx}), transfer.Failed, transfer.Invalid, `pipe "p": this is a receiving end; its sender seals it`)
	e.open(4, &transfer.BindOp{Kind: transfer.BindOwn, Name: "p", Capacity: 1})
	e.is(e.open(6, &transfer.BindOp{Kind: transfer.BindOwn, Name: "q", Capacity: 1}), transfer.Failed, transfer.Quota, `engine "e" has 3 ends of pipes and lookup buffers, the limit is limits.pipes = 3`)
	e.step(transfer.SessionOpened{Session: 9, Engine: "e", Owner: "o", Role: transfer.Worker, Credits: 10})
	e.is(e.submit(9, secret), transfer.Failed, transfer.Invalid, "role endpoint")
	lonely := e.get(2, rx, 0, 0, 10)
	e.pass(2e9)
	e.is(lonely, transfer.Failed, transfer.Timeout, `pipe "p" on node "a": nothing was put into it`)
	nobody := e.submit(3, &transfer.BindOp{Kind: transfer.BindRecv, Name: "x"})
	_ = nobody
}

// TestBuffer: the oldest match first, no waiting behind others, and keys that stay.
func TestBuffer(t *testing.T) {
	e := newEnds(t, nil)
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 20})
	sel := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "b"})
	more := e.open(3, &transfer.BindOp{Kind: transfer.BindSelect, Name: "b"})
	at := uint32(0)
	insert := func(meta string, tokens ...uint32) uint64 {
		form := transfer.MatchPrefix
		if len(tokens) == 0 {
			form = transfer.MatchAny
		}
		at++
		return e.submit(1, &transfer.PutOp{Target: own, Form: form, Bytes: 100, Meta: []byte(meta), Tokens: tokens, Blocks: blocksOf(at, 100)})
	}
	query := func(s transfer.SessionID, match transfer.Match, tokens ...uint32) uint64 {
		at++
		return e.submit(s, &transfer.GetOp{Target: map[transfer.SessionID]uint64{2: sel, 3: more}[s], Match: match, Room: 100, Timeout: 1e9, Tokens: tokens, Blocks: blocksOf(at, 100)})
	}
	got := func(user uint64, meta string, matched uint64) {
		t.Helper()
		if c := e.isDone(user); string(c.Got.Meta) != meta || c.Got.Matched != matched {
			t.Errorf("got %q, %d tokens; want %q, %d", c.Got.Meta, c.Got.Matched, meta, matched)
		}
	}
	never := query(2, transfer.MatchPrefix, 7, 7)
	longer := query(2, transfer.MatchPrefix, 1, 2, 3, 4)
	a := insert("a", 1, 2, 3)
	got(longer, "a", 3)
	e.isDone(a)
	b, c, d := insert("b", 1, 2), insert("c", 1, 2, 3, 4, 5), insert("d")
	got(query(3, transfer.MatchExact, 1, 2, 3, 4, 5), "c", 5)
	got(query(3, transfer.MatchAny), "b", 2)
	got(query(2, transfer.MatchAny), "d", 0)
	for _, u := range []uint64{b, c, d} {
		e.isDone(u)
	}
	e.runs(never)

	key := func(meta string) uint64 {
		at++
		return e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchKey, Bytes: 100, Meta: []byte(meta), Key: []byte("k"), Blocks: blocksOf(at, 100)})
	}
	read := func() uint64 {
		at++
		return e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchKey, Room: 100, Timeout: 1e9, Key: []byte("k"), Blocks: blocksOf(at, 100)})
	}
	waits, too := read(), read()
	one := key("one")
	got(waits, "one", 0)
	got(too, "one", 0)
	got(read(), "one", 0)
	e.runs(one)
	two := key("two")
	e.isDone(one)
	got(read(), "two", 0)
	e.runs(two)
	e.pass(2e9)
	e.is(never, transfer.Failed, transfer.Timeout, `buffer "b" on node "a": no entry matched within 1s`)
	e.isDone(e.submit(1, &transfer.CancelOp{Target: own}))
	e.is(two, transfer.WasCancelled, transfer.Cancelled, "")
}

// TestWhoseReservation: what was reserved for one get of an end, and is for another one by then, is that one's, with what it matched.
func TestWhoseReservation(t *testing.T) {
	e := newEnds(t, nil)
	own, sel := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 16}), e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "b"})
	put := e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchPrefix, Bytes: 1000, Tokens: []uint32{1, 2, 3}, Blocks: blocksOf(0, 1000)})
	get := func(op *transfer.GetOp) uint64 {
		op.Target, op.Timeout = sel, 1e9
		op.Blocks = blocksOf(0, int(op.Room))
		return e.submit(2, op)
	}
	first := e.isDone(get(&transfer.GetOp{Match: transfer.MatchPrefix, Tokens: []uint32{1}}))
	e.pass(2e9)
	second := e.isDone(get(&transfer.GetOp{Match: transfer.MatchPrefix, Tokens: []uint32{1, 2}}))
	if !first.Short || !second.Short || first.Got.Item == second.Got.Item {
		t.Fatalf("both have no room: %+v, %+v", first.Got, second.Got)
	}
	for _, m := range []transfer.Match{transfer.MatchItem, transfer.MatchDecline} {
		e.is(get(&transfer.GetOp{Match: m, Seq: first.Got.Item}), transfer.Failed, transfer.NotFound, "is not reserved for this end")
	}
	if c := e.isDone(get(&transfer.GetOp{Match: transfer.MatchItem, Seq: second.Got.Item, Room: 1000})); c.Short || c.Got.Matched != 2 {
		t.Errorf("with room: %+v of %+v", c.Got, c)
	}
	e.isDone(put)
}

// TestAReceiverThatLeavesOneBehind: what it passes over is kept for it, and counts as the items that nobody has received do.
func TestAReceiverThatLeavesOneBehind(t *testing.T) {
	const most = 8
	e := newEnds(t, func(c *transfer.Config) { c.MaxItems = most })
	tx, rx := e.open(1, send), e.open(2, recv)
	left := e.put(1, tx, 0, 100, "")
	for i := range uint64(most) {
		put := e.put(1, tx, uint32(i)+1, 100, "")
		e.isDone(e.get(2, rx, i+1, 0, 100))
		e.isDone(put)
	}
	e.is(e.put(1, tx, 1, 100, ""), transfer.Failed, transfer.Quota, "its receiver has received 8 items behind one that it has left, the limit is limits.items = 8")
	e.isDone(e.get(2, rx, 0, 0, 100))
	e.isDone(left)
}

// TestManyItems: a buffer holds more items than a session may have operations or credits; their ends come when there is room, also when fewer
// are allowed by then.
func TestManyItems(t *testing.T) {
	const items = 12000 // with the thousand credits of open
	e := newEnds(t, func(c *transfer.Config) { c.MaxItems = items })
	own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 20})
	put := func(i uint32) uint64 {
		return e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchPrefix, Tokens: []uint32{i}})
	}
	for i := range uint32(items) {
		put(i)
	}
	e.is(put(items), transfer.Failed, transfer.Quota, "has 12000 items in its pipe or lookup buffer, the limit is limits.items = 12000")
	e.done = nil
	e.m.Reload(transfer.Config{MaxItems: 1})
	e.isDone(e.submit(1, &transfer.SealOp{Target: own}))
	e.submit(1, &transfer.CancelOp{Target: own})
	for returned := 0; len(e.done) < items+2; { // and the end's own, and the cancel's
		if len(e.done) == returned {
			t.Fatalf("%d of %d ends were told, and no more come", len(e.done), items)
		}
		n := len(e.done) - returned
		returned += n
		e.step(transfer.CreditsReturned{Session: 1, N: n})
	}
}

// TestPipeLingers: what was put is received after its sender died or closed its session, for a while.
func TestPipeLingers(t *testing.T) {
	died := transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "the process ended"}}
	t.Run("drained after a death", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, send), e.open(2, recv)
		e.put(1, tx, 0, 300, "a")
		e.put(1, tx, 2, 300, "b")
		ahead := e.get(2, rx, 2, 0, 300)
		e.step(died)
		e.is(ahead, transfer.Failed, transfer.PeerGone, "its sender is gone after 2 items: the process ended")
		e.is(e.open(3, send), transfer.Failed, transfer.Busy, "with 2 items still to be received, for 10s at most")
		if c := e.isDone(e.get(2, rx, 0, 0, 300)); string(c.Got.Meta) != "a" || c.Bytes != 300 {
			t.Errorf("%+v", c)
		}
		e.isDone(e.get(2, rx, 1, 0, 300))
		e.is(e.get(2, rx, 2, 0, 300), transfer.Failed, transfer.PeerGone, "everything that it had put was received")
		if e.orphaned != 1 || e.drained != 1 {
			t.Errorf("memory was left behind %d times and given back %d times", e.orphaned, e.drained)
		}
	})
	t.Run("drained after a seal", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, send), e.open(2, recv)
		e.put(1, tx, 0, 300, "a")
		e.isDone(e.submit(1, &transfer.SealOp{Target: tx}))
		e.step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
		e.isDone(e.get(2, rx, 0, 0, 300))
		e.is(e.get(2, rx, 1, 0, 300), transfer.Failed, transfer.Closed, "everything in it was received")
	})
	t.Run("not received", func(t *testing.T) {
		e := newEnds(t, nil)
		tx, rx := e.open(1, &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20, Linger: 2e9}), e.open(2, recv)
		e.put(1, tx, 0, 300, "a")
		e.step(died)
		e.pass(3e9)
		e.is(e.get(2, rx, 0, 0, 300), transfer.Failed, transfer.PeerGone, "what it had put is lost: 1 item not received within 2s")
		if s := e.m.Snapshot(); e.drained != 1 || s.HoldsShared > 0 {
			t.Errorf("memory was given back %d times: %+v", e.drained, s)
		}
	})
}

// TestPipeUnheard: a pipe that ended with nothing in it, before its receiver came, still tells that receiver so, for a while.
func TestPipeUnheard(t *testing.T) {
	closed := transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}}
	begin := func(change func(*transfer.Config), in *transfer.BindOp) *ends {
		e := newEnds(t, change)
		tx := e.open(1, in)
		e.isDone(e.submit(1, &transfer.SealOp{Target: tx}))
		e.isDone(tx)
		e.step(closed)
		if s := e.m.Snapshot(); len(s.Sessions)+len(s.Pipes) > 0 || e.drained != 1 {
			t.Errorf("left behind: %+v", s)
		}
		return e
	}
	short := &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 20, Linger: 2e9, Token: []byte("0123456789abcdef")}
	told := &transfer.BindOp{Kind: transfer.BindRecv, Name: "p", Token: short.Token}
	t.Run("a receiver that comes later", func(t *testing.T) {
		e := begin(nil, send)
		rx := e.open(2, recv)
		for range 2 {
			e.is(e.get(2, rx, 0, 0, 10), transfer.Failed, transfer.Closed, "was closed by its sender, and everything in it was received")
		}
		e.isDone(e.submit(2, &transfer.CancelOp{Target: rx}))
		e.is(rx, transfer.WasCancelled, transfer.Cancelled, "")
		e.runs(e.get(3, e.open(3, recv), 0, 0, 10)) // it was heard, and this one waits for another sender
	})
	t.Run("a receiver that was there, and had asked for nothing", func(t *testing.T) {
		e := newEnds(t, nil)
		rx, tx := e.open(2, recv), e.open(1, send)
		e.isDone(e.submit(1, &transfer.SealOp{Target: tx}))
		e.step(closed)
		e.is(e.get(2, rx, 0, 0, 10), transfer.Failed, transfer.Closed, "was closed by its sender")
	})
	t.Run("its first item was refused", func(t *testing.T) {
		e := newEnds(t, nil)
		tx := e.open(1, send)
		e.is(e.put(1, tx, 0, 2<<20, ""), transfer.Failed, transfer.Invalid, "does not fit")
		e.step(closed)
		e.is(e.get(2, e.open(2, recv), 0, 0, 10), transfer.Failed, transfer.PeerGone, "an item that was sent was not taken")
	})
	t.Run("the next sender is not kept from the name", func(t *testing.T) {
		e := begin(nil, send)
		tx := e.open(3, send)
		put := e.put(3, tx, 0, 10, "new")
		e.runs(tx, put)
		if c := e.isDone(e.get(2, e.open(2, recv), 0, 0, 10)); string(c.Got.Meta) != "new" {
			t.Errorf("%+v", c)
		}
	})
	t.Run("its linger is over", func(t *testing.T) {
		e := begin(nil, short)
		e.pass(3e9)
		e.runs(e.get(2, e.open(2, told), 0, 0, 10))
	})
	t.Run("another token", func(t *testing.T) {
		e := begin(nil, short)
		e.runs(e.get(3, e.open(3, recv), 0, 0, 10))
		e.is(e.get(2, e.open(2, told), 0, 0, 10), transfer.Failed, transfer.Closed, "was closed by its sender")
	})
	t.Run("no more of an owner are kept than an engine may have ends", func(t *testing.T) {
		e := newEnds(t, func(c *transfer.Config) { c.MaxPipes = 2 })
		for i, name := range []string{"a", "b", "c"} {
			id := transfer.SessionID(i + 1)
			e.step(transfer.SessionOpened{Session: id, Engine: name, Owner: "o", Role: transfer.Endpoint, Credits: 10})
			e.isDone(e.submit(id, &transfer.SealOp{Target: e.submit(id, &transfer.BindOp{Kind: transfer.BindSend, Name: name, Capacity: 1})}))
		}
		e.is(e.get(4, e.open(4, &transfer.BindOp{Kind: transfer.BindRecv, Name: "b"}), 0, 0, 10), transfer.Failed, transfer.Closed, "was closed by its sender")
		e.runs(e.get(5, e.open(5, &transfer.BindOp{Kind: transfer.BindRecv, Name: "c"}), 0, 0, 10))
	})
	t.Run("nor of a user of many owners than four times as many", func(t *testing.T) {
		e := newEnds(t, func(c *transfer.Config) { c.MaxPipes, c.PipeLinger = 1, 2e9 })
		names, id := "abcdef", transfer.SessionID(0)
		ends := func(name rune, user uint32) {
			id++
			e.step(transfer.SessionOpened{Session: id, Engine: "e", Owner: "cgroup " + string(name), User: user, Role: transfer.Endpoint, Credits: 10})
			e.isDone(e.submit(id, &transfer.SealOp{Target: e.submit(id, &transfer.BindOp{Kind: transfer.BindSend, Name: string(name), Capacity: 1})}))
		}
		for range 2 { // what is over does not count
			for i, name := range names {
				ends(name, uint32(i/5)) // the last is another user's
			}
			for i, name := range names {
				id++
				get := e.get(id, e.open(id, &transfer.BindOp{Kind: transfer.BindRecv, Name: string(name)}), 0, 0, 10)
				if i == 4 {
					e.runs(get)
				} else {
					e.is(get, transfer.Failed, transfer.Closed, "was closed by its sender")
				}
				e.step(transfer.SessionClosed{Session: id, Cause: transfer.Cause{Reason: transfer.Closed, Text: "closed"}})
			}
			for _, name := range names[:4] {
				ends(name, 0)
			}
			e.pass(3e9)
		}
	})
}
