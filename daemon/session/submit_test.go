package session_test

import (
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// inBothModes runs a test with a reader for each session, and with one poller for all.
func inBothModes(t *testing.T, f func(t *testing.T, n *node), change ...func(*session.Config)) {
	for _, mode := range []string{"event", "busy"} {
		t.Run(mode, func(t *testing.T) {
			f(t, start(t, func(c *session.Config) {
				c.PollMode = mode
				for _, do := range change {
					do(c)
				}
			}))
		})
	}
}

var token = []byte("0123456789abcdef")

// everyOp is each operation with all of its fields set.
func everyOp() []transfer.Op {
	blocks := []layout.BlockList{
		{Group: 0, FirstToken: 32, NTokens: 48, IDs: []uint32{7, 8, layout.NoBlock}},
		{Group: 5, NTokens: 9, IDs: []uint32{3, 4, 5, layout.NoBlock, layout.NoBlock, 0, 1, 9}},
		{Group: 63, IDs: []uint32{}},
	}
	return []transfer.Op{
		&transfer.OfferOp{Key: []byte("key"), Token: token, Content: []byte("digest"), Trace: "trace", Lease: 5e9, Consumers: 3, After: 9, Sealed: true, Blocks: blocks},
		&transfer.OfferOp{Key: []byte{0}, Token: token, Content: []byte{}, Consumers: 1},
		&transfer.ExtendOp{Target: 1, After: 5 << 16, Sealed: true, Layered: true, Blocks: blocks},
		&transfer.SealOp{Target: 2},
		&transfer.WithdrawOp{Target: 3},
		&transfer.CancelOp{Target: 4},
		&transfer.TakeOp{Key: []byte("key"), Token: token, Content: []byte("d"), Trace: "tr", Peer: "node-b", TakeID: 77, Part: 1, Parts: 2, After: 1, Layered: true,
			LayerSlot: 3, Timeout: 1e9, Blocks: blocks},
		&transfer.TakeOp{Key: []byte("key"), Token: token, Content: []byte{}, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 1},
		&transfer.WatchOp{Key: []byte("key"), Token: token, Trace: "t", Peer: "p", Timeout: 3},
		&transfer.DropOp{Key: []byte("key"), Token: token, Timeout: 4},
		&transfer.BindOp{Kind: transfer.BindSend, Name: "pipe", Token: token, Capacity: 1 << 20, Linger: 5e9},
		&transfer.BindOp{Kind: transfer.BindSelect, Name: "buffer", Token: []byte{}, Peer: "node-b"},
		&transfer.PutOp{Target: 5, Form: transfer.MatchNext, Bytes: 9, Meta: []byte("meta"), Key: []byte{}, Blocks: []layout.BlockList{{NTokens: 9, IDs: []uint32{4, 5, 0}}}},
		&transfer.PutOp{Target: 5, Form: transfer.MatchPrefix, Meta: []byte{}, Key: []byte{}, Tokens: []uint32{7, 1 << 31, 7}},
		&transfer.PutOp{Target: 5, Form: transfer.MatchKey, Meta: []byte("m"), Key: []byte("key")},
		&transfer.GetOp{Target: 6, Match: transfer.MatchNext, Room: 9, Seq: 12, Key: []byte{}, Timeout: 1e9, Blocks: []layout.BlockList{{NTokens: 9, IDs: []uint32{1, 2, 3}}}},
		&transfer.GetOp{Target: 6, Match: transfer.MatchExact, Key: []byte{}, Tokens: []uint32{1, 2}, Timeout: 2},
		&transfer.GetOp{Target: 6, Match: transfer.MatchKey, Key: []byte("key"), Timeout: 3},
		&transfer.GetOp{Target: 6, Match: transfer.MatchDecline, Seq: 77, Key: []byte{}, Timeout: 4},
	}
}

// TestALongRecordIsRefusedUnseen: a record that is longer than any that is valid costs nothing but its refusal. The longest ones that are valid are
// accepted.
func TestALongRecordIsRefusedUnseen(t *testing.T) {
	const area = 64 << 20
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{Role: transfer.Endpoint, Records: area})
		pages := func() int64 {
			t.Helper()
			i, err := sys.Identify(c.RingC)
			noErr(t, err)
			return i.Allocated
		}
		submit := func(user uint64, e ring.SQE) {
			t.Helper()
			e.UserData = user
			c.Rings.SubmitRaw(e)
			noErr(t, c.Wake())
		}
		before := pages() // whoever reads of a record brings its pages
		for user, op := range []uint8{ring.OpOffer, ring.OpPut, ring.OpNop, 99} {
			submit(uint64(user+1), ring.SQE{Op: op, RecLen: area, LayerSlot: ring.NoSlot})
			done, err := c.Wait()
			noErr(t, err)
			if transfer.Reason(done.Reason) != transfer.Invalid || !strings.Contains(done.Text, "split it") {
				t.Errorf("operation %d: %+v", op, done)
			}
		}
		if read := pages() - before; read > 1<<20 {
			t.Errorf("%d bytes of records were read before they were refused", read)
		}
		submit(9, ring.SQE{Op: ring.OpNop, RecLen: area, RecOff: 8}) // such a record is nowhere, however long it may be
		cause, err := c.Bye()
		noErr(t, err)
		if cause.Reason != transfer.Invalid || !strings.Contains(cause.Text, "must be 8-byte aligned and not wrap") {
			t.Errorf("%+v", cause)
		}
	})

	ids := make([]uint32, layout.MaxIDs)
	for i := range ids {
		ids[i] = uint32(2 * i)
	}
	take := &transfer.TakeOp{Key: make([]byte, 256), Token: make([]byte, 32), Content: make([]byte, 64), Trace: strings.Repeat("t", 64), Peer: strings.Repeat("p", 255), TakeID: 1, LayerSlot: transfer.NoSlot}
	for i := range layout.MaxGroups / 2 { // every other list is encoded as runs
		const each = layout.MaxIDs / (layout.MaxGroups / 2)
		take.Blocks = append(take.Blocks, layout.BlockList{Group: uint32(2 * i)}, layout.BlockList{Group: uint32(2*i + 1), IDs: ids[i*each : (i+1)*each]})
	}
	put := &transfer.PutOp{Target: 1, Form: transfer.MatchPrefix, Bytes: 1, Meta: make([]byte, ring.MaxMeta), Tokens: make([]uint32, ring.MaxTokens), Blocks: []layout.BlockList{{NTokens: 1, IDs: ids}}}
	for _, op := range []transfer.Op{take, put} {
		e, rec := sessiontest.Encode(op)
		e.RecLen = uint32(len(rec))
		if _, err := session.Decode(&e, rec, 1); err != nil {
			t.Errorf("%T of %d bytes: %v", op, len(rec), err)
		}
	}
}

// TestBlockIDsOnTheirWay: while the machine has not judged what a session submitted, few bytes keep no more block ids in memory than the session may
// have, besides those of one operation. What is more waits in the ring, and nothing of it is lost.
func TestBlockIDsOnTheirWay(t *testing.T) {
	const limit, each, most = 1000, 400, 3 // operations
	inBothModes(t, func(t *testing.T, n *node) {
		n.SetLimits(session.Limits{BlockIDs: 10}) // what was accepted before stays
		busy(n)
		c := n.dial(sessiontest.Options{Role: transfer.Endpoint})
		ids := make([]uint32, each)
		for i := range ids {
			ids[i] = uint32(i)
		}
		blocks := []layout.BlockList{{NTokens: each, IDs: ids}}
		ops := []transfer.Op{
			&transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: blocks},
			&transfer.ExtendOp{Target: 1, Blocks: blocks},
			&transfer.TakeOp{Key: []byte("key"), Token: token, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Blocks: blocks},
			&transfer.PutOp{Target: 1, Form: transfer.MatchNext, Bytes: each, Blocks: blocks},
			&transfer.GetOp{Target: 1, Match: transfer.MatchNext, Room: each, Seq: 1, Blocks: blocks},
		}
		submitted := func() int { return count[transfer.Submit](n) }
		var users []uint64
		for i := range 4 * len(ops) {
			user, err := c.Submit(ops[i%len(ops)])
			noErr(t, err)
			users = append(users, user)
		}
		for i, user := range users {
			eventually(t, func() bool { return submitted() >= min(i+most, len(users)) }, "%d are submitted", submitted)
			if got := submitted(); got > i+most {
				t.Fatalf("%d are submitted while %d are released, want at most %d", got, i, i+most)
			}
			n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: user, Status: transfer.Done})
			_, _, err := c.WaitFor(user)
			noErr(t, err)
		}
	}, func(c *session.Config) { c.Limits.BlockIDs = limit })
}

// TestBlockIDsOfTheDead: nor does a client that dies with a full ring, and what it published is not lost.
func TestBlockIDsOfTheDead(t *testing.T) {
	const limit, each, most, published = 1000, 400, 3, 20
	inBothModes(t, func(t *testing.T, n *node) {
		busy(n)
		c := n.dial(sessiontest.Options{})
		op := &transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, each)}}}
		n.publishes(c, 1, published, op)
		c.Kill()
		submitted := func() int { return count[transfer.Submit](n) }
		for i := range published {
			eventually(t, func() bool { return submitted() >= min(i+most, published) }, "%d are submitted", submitted)
			if got := submitted(); got > i+most {
				t.Fatalf("%d are submitted while %d are released, want at most %d", got, i, i+most)
			}
			n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: 1 + uint64(i), Status: transfer.Done})
		}
		wait[transfer.SessionClosed](n, nil)
	}, func(c *session.Config) { c.Limits.BlockIDs = limit })
}

// handling keeps what sessions want done once the machine has handled what they passed on.
type handling struct {
	mu    sync.Mutex
	after []func()
}

func (h *handling) config(c *session.Config) {
	c.After = func(f func()) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.after = append(h.after, f)
	}
}

// asked returns how many times a session has asked.
func (h *handling) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.after)
}

// handled says that everything which was passed on is handled.
func (h *handling) handled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.after {
		f()
	}
	h.after = nil
}

// TestLargeSubmissionsGoOneByOne: what takes the machine milliseconds is passed on only when what came before it from the same session has been
// handled, so that others, whose submissions are handled in between, wait for one of them and not for a queue of them. Small ones are
// passed on together.
func TestLargeSubmissionsGoOneByOne(t *testing.T) {
	var h handling
	inBothModes(t, func(t *testing.T, n *node) {
		defer h.handled()
		busy(n)
		c := n.dial(sessiontest.Options{})
		submit := func(ops, ids int) (users []uint64) {
			t.Helper()
			op := &transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, ids)}}}
			for range ops {
				user, err := c.Submit(op)
				noErr(t, err)
				users = append(users, user)
			}
			return users
		}
		passed := func() int { return count[transfer.Submit](n) }
		oneByOne := func(before, large int) {
			t.Helper()
			for i := range large {
				eventually(t, func() bool { return passed() >= before+i+1 }, "%d are submitted", passed)
				noErr(t, c.Ping())
				if got := passed(); got > before+i+1 {
					t.Fatalf("%d large ones are passed on while %d are handled", got-before, i)
				}
				eventually(t, func() bool { return h.asked() > 0 }, "the session asks %d times when it is handled", h.asked)
				h.handled()
			}
		}
		const small, large = 100, 5
		few := submit(small, 100)
		eventually(t, func() bool { return passed() == small }, "%d are submitted", passed)
		noErr(t, c.Ping())
		eventually(t, func() bool { return h.asked() == 1 }, "the session asks %d times when they are handled", h.asked)
		h.handled()
		many := submit(large, 400000)
		oneByOne(small, large)

		// What ends a large one, of a few bytes, has the machine let go of all of it.
		const extended = 4
		for range extended {
			_, err := c.Submit(&transfer.ExtendOp{Target: few[0], Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, 100000)}}})
			noErr(t, err)
			eventually(t, func() bool { return h.asked() > 0 }, "the session asks %d times when it is handled", h.asked)
			h.handled()
		}
		for i, user := range append(many, few...) {
			var op transfer.Op = &transfer.WithdrawOp{Target: user}
			if i%2 == 0 {
				op = &transfer.CancelOp{Target: user}
			}
			_, err := c.Submit(op)
			noErr(t, err)
		}
		oneByOne(small+large+extended, large+1)
		eventually(t, func() bool { return passed() == 2*(small+large)+extended }, "%d are submitted", passed)
	}, h.config)
}

// TestWhatNamesNoBlocksFollowsALargeSubmission: it does not wait until that is handled, such as what seals a large offer. Else it would wait for the
// next look at the session, and so would whoever takes the offer.
func TestWhatNamesNoBlocksFollowsALargeSubmission(t *testing.T) {
	var h handling
	inBothModes(t, func(t *testing.T, n *node) {
		busy(n)
		c := n.dial(sessiontest.Options{})
		offer, err := c.Submit(&transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, 400000)}}})
		noErr(t, err)
		_, err = c.Submit(&transfer.SealOp{Target: offer})
		noErr(t, err)
		passed := func() int { return count[transfer.Submit](n) }
		eventually(t, func() bool { return passed() == 2 }, "%d are submitted while the first is not handled", passed)
		h.handled()
	}, h.config)
}

// TestSubmissionsOnTheirWay: operations that name no block are passed on no faster than they are handled, either: a queue may hold tens of thousands.
func TestSubmissionsOnTheirWay(t *testing.T) {
	const published, most = 3000, 1024
	var h handling
	inBothModes(t, func(t *testing.T, n *node) {
		defer h.handled()
		busy(n)
		c := n.dial(sessiontest.Options{SQ: 4096, CQ: 8192})
		n.publishes(c, 1, published, &transfer.CancelOp{Target: 1 << 40})
		noErr(t, c.Wake())
		passed := func() int { return count[transfer.Submit](n) }
		eventually(t, func() bool { return passed() >= most }, "%d are submitted", passed)
		eventually(t, func() bool { return n.Stalls(transfer.SessionID(c.Welcome.Session)) }, "%d are submitted", passed)
		if got := passed(); got != most {
			t.Fatalf("%d are passed on while none is handled, want %d", got, most)
		}
		eventually(t, func() bool { h.handled(); return passed() == published }, "%d are submitted", passed)
	}, h.config)
}

// TestItemsOnTheirWay: the same goes for items, of which any number may be submitted.
func TestItemsOnTheirWay(t *testing.T) {
	const limit, most = 10, 4096 + 3*10
	inBothModes(t, func(t *testing.T, n *node) {
		busy(n)
		c := n.dial(sessiontest.Options{Role: transfer.Endpoint, SQ: 8192})
		for range most + 100 {
			_, err := c.Submit(&transfer.PutOp{Target: 1, Form: transfer.MatchAny})
			noErr(t, err)
		}
		submitted := func() int { return count[transfer.Submit](n) }
		eventually(t, func() bool { return submitted() == most }, "%d are submitted", submitted)
		for user := range uint64(100) {
			n.Complete(transfer.Complete{Session: transfer.SessionID(c.Welcome.Session), UserData: 1 + user, Status: transfer.Done})
			if got := submitted(); got > most+int(user)+1 {
				t.Fatalf("%d are submitted while %d are released", got, user+1)
			}
		}
		eventually(t, func() bool { return submitted() == most+100 }, "%d are submitted", submitted)
	}, func(c *session.Config) { c.Limits.Items = limit })
}

// busy has the machine judge nothing.
func busy(n *node) {
	n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
}

// TestEveryOperation: what a client asks for is what the machine hears.
func TestEveryOperation(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{})
		for i, op := range everyOp() {
			e, rec := sessiontest.Encode(op)
			e.UserData, e.Tag = uint64(i)+100, uint64(i)+1<<60
			noErr(t, c.SubmitEntry(e, rec))
			got := wait(n, func(s transfer.Submit) bool { return s.UserData == e.UserData })
			if got.Tag != e.Tag || !reflect.DeepEqual(got.Op, op) {
				t.Errorf("operation %d is %+v, want %+v", i, got.Op, op)
			}
			done, _, err := c.WaitFor(e.UserData)
			noErr(t, err)
			if done.Status != uint16(transfer.Done) || done.Tag != e.Tag {
				t.Errorf("completion %d: %+v", i, done)
			}
		}
	})
}

// TestTimesBeyondTheLimit: refused in the words of who gave them, and for people.
func TestTimesBeyondTheLimit(t *testing.T) {
	const month = uint64(30 * 24 * time.Hour)
	for _, c := range []struct {
		op   transfer.Op
		ns   uint64
		want string
	}{
		{&transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1}, month + 1, "lease is 30.01 days, the limit is 30 days: ask for less"},
		{&transfer.TakeOp{Key: []byte("k"), Token: token, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot}, 2 * month, "timeout is 60 days, the limit is 30 days: every"},
		{&transfer.WatchOp{Key: []byte("k"), Token: token}, math.MaxUint64, "timeout is 213503.99 days, the limit is 30 days"},
		{&transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1}, 1500e6, "timeout is 1.5s: an end stays open"},
		{&transfer.PutOp{Target: 5, Form: transfer.MatchKey, Key: []byte("k")}, 1500e3, "timeout is 1.5ms: an item stays"},
	} {
		e, rec := sessiontest.Encode(c.op)
		e.TimeoutNS = month
		if _, limited := c.op.(*transfer.OfferOp); limited {
			if _, err := session.Decode(&e, rec, 0); err != nil {
				t.Errorf("a lease of 30 days: %v", err)
			}
		}
		e.TimeoutNS = c.ns
		if _, err := session.Decode(&e, rec, 0); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%T for %d ns: %v, want %s", c.op, c.ns, err, c.want)
		}
	}
}

// TestManySubmissions keeps the rings full; every answer comes, in the end in both modes.
func TestManySubmissions(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		const total = 5000
		c := n.dial(sessiontest.Options{SQ: 64, CQ: 128, Records: 1 << 16})
		op := &transfer.WatchOp{Key: []byte("key"), Token: token, Timeout: 1}
		got := 0
		for sent := 0; got < total; {
			if sent < total && sent-got < 32 {
				_, err := c.Submit(op)
				noErr(t, err)
				sent++
				continue
			}
			done, err := c.Wait()
			noErr(t, err)
			if done.Status != uint16(transfer.Done) {
				t.Fatalf("completion %d: %+v", got, done)
			}
			got++
		}
		if credits := sum(n, func(e transfer.CreditsReturned) int { return e.N }); credits > total {
			t.Errorf("%d credits came back of %d", credits, total)
		}
		eventually(t, func() bool { return sum(n, func(e transfer.CreditsReturned) int { return e.N }) == total }, "credits that came back: %d",
			func() int { return sum(n, func(e transfer.CreditsReturned) int { return e.N }) })
	})
}

func sum[E transfer.Event](n *node, f func(E) int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := 0
	for _, ev := range n.events {
		if e, ok := ev.(E); ok {
			all += f(e)
		}
	}
	return all
}

// TestRefusals: what is wrong with one submission fails it, and nothing else.
func TestRefusals(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{Layers: 4})
	offer := func() *transfer.OfferOp {
		return &transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{1, 2}}}}
	}
	take := func() *transfer.TakeOp {
		return &transfer.TakeOp{Key: []byte("k"), Token: token, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 1e9}
	}
	for i, r := range []struct {
		op     func() transfer.Op
		change func(e *ring.SQE, rec []byte) []byte
		says   string
	}{
		{change: func(e *ring.SQE, r []byte) []byte { e.Op = 9; return r }, says: "operation 9"},
		{change: func(e *ring.SQE, r []byte) []byte { e.Flags = 1; return r }, says: "flags is 1"},
		{change: func(e *ring.SQE, r []byte) []byte { e.Reserved2 = 1; return r }, says: "reserved"},
		{change: func(e *ring.SQE, r []byte) []byte { e.TimeoutNS = 1<<63 - 1; return r }, says: "every operation has a deadline"},
		{change: func(e *ring.SQE, r []byte) []byte { e.Target = 5; return r }, says: "target"},
		{change: func(e *ring.SQE, r []byte) []byte { return []byte("x") }, says: "rec_len is 1"},
		{op: func() transfer.Op { return &transfer.SealOp{} }, says: "target"},
		{op: func() transfer.Op { o := offer(); o.Key = nil; return o }, says: "key_len is 0: must be 1 to 256"},
		{op: func() transfer.Op { o := offer(); o.Key = make([]byte, 257); return o }, says: "key_len is 257"},
		{op: func() transfer.Op { o := offer(); o.Token = token[:15]; return o }, says: "token_len is 15: must be 16 to 32"},
		{op: func() transfer.Op { o := offer(); o.Content = make([]byte, 65); return o }, says: "content_len is 65"},
		{op: func() transfer.Op { o := offer(); o.Trace = strings.Repeat("t", 65); return o }, says: "trace_len is 65"},
		{op: func() transfer.Op { o := offer(); o.Trace = "a\x1b[31m"; return o }, says: "unprintable"},
		{op: func() transfer.Op { o := offer(); o.Consumers = 257; return o }, says: "consumers is 257, the limit is 256"},
		{op: func() transfer.Op { o := take(); o.Peer = strings.Repeat("p", 256); return o }, says: "peer_len is 256"},
		{op: func() transfer.Op { o := take(); o.Part = 1; return o }, says: "part is 1 of 1"},
		{op: func() transfer.Op { o := take(); o.Parts = 257; return o }, says: "parts at most 256"},
		{op: func() transfer.Op { o := take(); o.TakeID = 0; return o }, says: "take_id"},
		{op: func() transfer.Op { o := take(); o.LayerSlot = 4; return o }, says: "layer_slot is 4, the session has 4"},
		{op: func() transfer.Op { o := offer(); o.Blocks[0].Group = 64; return o }, says: "group is 64"},
		{op: func() transfer.Op { o := offer(); o.Blocks = append(o.Blocks, o.Blocks[0]); return o }, says: "group 0 is given twice"},
		{op: func() transfer.Op { o := offer(); o.Blocks[0].FirstToken = ^uint32(0); return o }, says: "first_token 4294967295 + ntokens 16"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[0] = 4; return r }, says: "flags are 0x4"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[63] = 1; return r }, says: "reserved"},
		{op: func() transfer.Op { return take() }, change: func(_ *ring.SQE, r []byte) []byte { r[52] = 1; return r }, says: "take: reserved fields are not zero"},
		{op: func() transfer.Op { return take() }, change: func(_ *ring.SQE, r []byte) []byte { r[47] = 1; return r }, says: "take: reserved fields are not zero"},
		{op: func() transfer.Op { return take() }, change: func(_ *ring.SQE, r []byte) []byte { r[42] = 1; return r }, says: "take: reserved fields are not zero"},
		{op: func() transfer.Op { return take() }, change: func(_ *ring.SQE, r []byte) []byte { r[12] = 1; return r }, says: "take: reserved fields are not zero"},
		{op: func() transfer.Op { return take() }, change: func(_ *ring.SQE, r []byte) []byte { r[ring.RecTakeSize-1] = 1; return r }, says: "take: reserved fields are not zero"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { return append(r, 0) }, says: "1 bytes after its last group"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { return r[:63] }, says: "record of 63 bytes"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { return r[:70] }, says: "have 17 bytes, the record has 6 left"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[82] = 1; return r }, says: "padding"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { return r[:90] }, says: "the header of a group"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { return r[:114] }, says: "count is 2 (8 bytes)"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[100] = 3; return r }, says: "form is 3"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[108] = 1; return r }, says: "reserved field is not zero"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte { r[100], r[104] = 2, 1; r[116] = 0; return r }, says: "0 blocks from 1"},
		{op: func() transfer.Op { return offer() }, change: func(_ *ring.SQE, r []byte) []byte {
			r[100], r[104] = 2, 1
			copy(r[116:], []byte{0, 0, 0, 0x7f})
			return r
		}, says: "the limit of one operation is 1048576"},
	} {
		op := transfer.Op(nil)
		if r.op != nil {
			op = r.op()
		}
		e, rec := sessiontest.Encode(op)
		e.UserData, e.Tag = uint64(i)+1, uint64(i)*3
		if r.change != nil {
			rec = r.change(&e, rec)
		}
		noErr(t, c.SubmitEntry(e, rec))
		done, _, err := c.WaitFor(e.UserData)
		noErr(t, err)
		if done.Status != uint16(transfer.Failed) || done.Reason != uint16(transfer.Invalid) || done.Tag != e.Tag || done.More() {
			t.Errorf("%q: %+v", r.says, done)
		}
		if !strings.Contains(done.Text, r.says) {
			t.Errorf("%q does not say %q", done.Text, r.says)
		}
	}
	if count[transfer.Submit](n) != 0 {
		t.Errorf("%d submissions were passed on", count[transfer.Submit](n))
	}
	if i := n.Sessions()[0]; i.Refusals != i.Submissions || i.Refusals == 0 || i.Unread != 0 {
		t.Errorf("counted %+v", i)
	}
}

// TestRefusalsCostNoCredit: the machine's credits come back for its own completions alone.
func TestRefusalsCostNoCredit(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{CQ: 16})
	for i := range 100 {
		e := ring.SQE{UserData: uint64(i) + 1, Op: ring.OpNop}
		if i%2 == 1 {
			e.Op = 200
		}
		noErr(t, c.SubmitEntry(e, nil))
		done, _, err := c.WaitFor(e.UserData)
		noErr(t, err)
		if done.Status != uint16(1+i%2) {
			t.Fatalf("completion %d: %+v", i, done)
		}
	}
	ud, err := c.Submit(&transfer.SealOp{Target: 1})
	noErr(t, err)
	_, _, err = c.WaitFor(ud)
	noErr(t, err)
	eventually(t, func() bool { return count[transfer.CreditsReturned](n) > 0 }, "%s", func() string { return "no credit came back" })
	if n := sum(n, func(e transfer.CreditsReturned) int { return e.N }); n != 1 {
		t.Errorf("%d credits came back, want 1", n)
	}
}

// answerWithin has every submission answered, by at most so many completions for each event. Like the machine: never more of them than
// credits.
func answerWithin(n *node, credits, most int, answer transfer.Complete) {
	var held []transfer.Submit
	n.on(func(ev transfer.Event) bool {
		n.mu.Lock()
		switch ev := ev.(type) {
		case transfer.Submit:
			held = append(held, ev)
		case transfer.CreditsReturned:
			credits += ev.N
		}
		now := held[:min(len(held), credits, most)]
		held, credits = held[len(now):], credits-len(now)
		n.mu.Unlock()
		for _, s := range now {
			c := answer
			c.Session, c.UserData = s.Session, s.UserData
			n.Complete(c)
		}
		_, closed := ev.(transfer.SessionClosed)
		return !closed
	})
}

// TestTheLastCreditComesBackAtOnce: operations have reserved all credits but one, and hundreds of refusals go through that one.
func TestTheLastCreditComesBackAtOnce(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		answerWithin(n, 1, 1, transfer.Complete{Status: transfer.Failed, Reason: transfer.Quota, Last: true})
		const all = 400
		c := n.dial(sessiontest.Options{SQ: 512, CQ: 2048})
		for range all {
			_, err := c.Submit(&transfer.SealOp{Target: 1})
			noErr(t, err)
		}
		got := 0
		eventually(t, func() bool {
			for {
				done, err := c.Poll()
				noErr(t, err)
				if done == nil {
					return got == all
				}
				got++
			}
		}, "%d answers came", func() int { return got })
	})
}

// TestNothingIsLostWithoutCollecting submits far more than the rings hold and only then collects.
func TestNothingIsLostWithoutCollecting(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		answerWithin(n, 16, 16, transfer.Complete{Status: transfer.Failed, Reason: transfer.Quota, Text: "no"})
		c := n.dial(sessiontest.Options{SQ: 32, CQ: 16})
		sent, got := uint64(0), map[uint64]bool{}
		submit := func() error {
			e := ring.SQE{UserData: sent + 1, Op: ring.OpSeal, Target: 1}
			if sent%3 == 0 {
				e = ring.SQE{UserData: sent + 1, Op: 77}
			}
			err := c.SubmitEntry(e, nil)
			if err == nil {
				sent++
			}
			return err
		}
		for submit() == nil || len(n.Sessions()) > 0 && n.Sessions()[0].SQHead < 16 {
		}
		if sent < 32 {
			t.Fatalf("only %d submissions fit", sent)
		}
		for uint64(len(got)) < sent {
			done, err := c.Wait()
			noErr(t, err)
			if got[done.UserData] {
				t.Fatalf("%d completed twice", done.UserData)
			}
			got[done.UserData] = true
			if sent < 300 {
				_ = submit()
			}
		}
		if sent < 300 {
			t.Fatalf("only %d submissions went through", sent)
		}
	})
}

// TestItemsHoldNobodyUp: a client that had not collected is read on once it has, however many items of its nobody has received.
func TestItemsHoldNobodyUp(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.on(func(ev transfer.Event) bool { _, s := ev.(transfer.Submit); return s })
		c := n.dial(sessiontest.Options{SQ: 64, CQ: 16})
		for range 32 {
			_, err := c.Submit(&transfer.PutOp{Target: 1, Form: transfer.MatchNext})
			noErr(t, err)
		}
		for range 17 { // the last one is not read before the first ones are collected
			_, err := c.Submit(nil)
			noErr(t, err)
		}
		eventually(t, func() bool { return len(n.Sessions()) > 0 && n.Sessions()[0].SQHead == 32+16 }, "%d are read", func() uint32 { return n.Sessions()[0].SQHead })
		for range 17 {
			_, err := c.Wait()
			noErr(t, err)
		}
	})
}

// publishes has a client submit an operation (nil: NOP) so many times, from that user_data on, and ring for none.
func (n *node) publishes(c *sessiontest.Client, userData uint64, times int, op transfer.Op) {
	n.t.Helper()
	for i := range uint64(times) {
		e, rec := sessiontest.Encode(op)
		e.UserData = userData + i
		if _, err := c.Rings.Submit(e, rec); err != nil {
			n.t.Fatal(err)
		}
	}
}

// dies kills a client, and waits until its session is closed.
func (n *node) dies(c *sessiontest.Client) {
	n.t.Helper()
	c.Kill()
	wait(n, func(e transfer.SessionClosed) bool { return e.Session == transfer.SessionID(c.Welcome.Session) })
}

// TestPublishedBeforeDeath: what a client published before it died was submitted, whether it came to ringing or not.
func TestPublishedBeforeDeath(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{SQ: 256})
		const published = 200
		n.publishes(c, 1, published, &transfer.SealOp{Target: 1})
		n.dies(c)
		if got := count[transfer.Submit](n); got != published {
			t.Errorf("%d of %d submissions were read", got, published)
		}
	})
}

// TestPublishedBeforeGoodbye: nor does an end of a pipe that closes lose what it published: its last items, and that they are the last.
func TestPublishedBeforeGoodbye(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		c := n.dial(sessiontest.Options{Role: transfer.Endpoint, SQ: 1024})
		const published = 1000
		n.publishes(c, 1, published, &transfer.PutOp{Target: 1, Form: transfer.MatchNext})
		noErr(t, c.Close())
		if got := count[transfer.Submit](n); got != published {
			t.Errorf("%d of %d submissions were read", got, published)
		}
	})
}

// TestPublishedBeforeDeathOfOneThatCollectedNothing: for a completion that nobody will read there need be no room.
func TestPublishedBeforeDeathOfOneThatCollectedNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		const entries, published = 16, 100
		c := n.dial(sessiontest.Options{SQ: 256, CQ: entries})
		n.publishes(c, 1, entries, nil)
		n.publishes(c, 1+entries, published, &transfer.SealOp{Target: 1})
		n.dies(c)
		if got := count[transfer.Submit](n); got != published {
			t.Errorf("%d of %d submissions were read", got, published)
		}
	})
}

// TestPublishedBeforeDeathWhileTheMachineIsBusy: large submissions of a client that died go one by one, too, and none of them is lost however
// long others keep the machine from handling them.
func TestPublishedBeforeDeathWhileTheMachineIsBusy(t *testing.T) {
	const published, each, long = 60, 400000, 100 * time.Millisecond // more than a client that is gone waits for what has to be released
	var handled sync.WaitGroup
	n := start(t, func(c *session.Config) {
		c.After = func(f func()) {
			handled.Add(1)
			time.AfterFunc(long, func() { defer handled.Done(); f() })
		}
	})
	c := n.dial(sessiontest.Options{})
	n.publishes(c, 1, published, &transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{
		{NTokens: 1, IDs: []uint32{0}}, {Group: 1, NTokens: 1, IDs: layout.Adjacent(0, each)}, // as a run: few bytes
	}})
	n.dies(c)
	if got := count[transfer.Submit](n); got != published {
		t.Errorf("%d of %d submissions were read", got, published)
	}
	handled.Wait()
}

// TestWhoIsGoneIsNotReadForEver: what never finds room, because nothing of before is released, holds up the end of no session for longer than
// some seconds.
func TestWhoIsGoneIsNotReadForEver(t *testing.T) {
	const limit, each, most, published = 1000, 400, 3, 20
	n := start(t, func(c *session.Config) { c.Limits.BlockIDs = limit })
	busy(n)
	c := n.dial(sessiontest.Options{})
	n.publishes(c, 1, published, &transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, each)}}})
	n.dies(c)
	if got := count[transfer.Submit](n); got != most {
		t.Errorf("%d are submitted, want %d", got, most)
	}
}

// TestCreditsOfTheDead: the machine has all credits of a client back that died with completions uncollected, before it gets what that had still
// published, and the credit of each later completion at once: it refuses nothing for want of them.
func TestCreditsOfTheDead(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.on(func(ev transfer.Event) bool { _, closed := ev.(transfer.SessionClosed); return closed })
		const entries, published = 16, 8
		c := n.dial(sessiontest.Options{SQ: 256, CQ: entries})
		id := transfer.SessionID(c.Welcome.Session)
		for range entries {
			_, err := c.Submit(&transfer.SealOp{Target: 1})
			noErr(t, err)
		}
		eventually(t, func() bool { return n.Sessions()[0].Unread == entries }, "%d are written", func() uint32 { return n.Sessions()[0].Unread })
		n.publishes(c, 100, published, &transfer.SealOp{Target: 1})
		n.dies(c)
		credits := func() (all, before int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			submits := 0
			for _, ev := range n.events {
				switch ev := ev.(type) {
				case transfer.Submit:
					submits++
				case transfer.CreditsReturned:
					if all += ev.N; submits == entries {
						before = all
					}
				}
			}
			return all, before
		}
		if all, before := credits(); before != entries {
			t.Errorf("%d credits are back before the last submissions are read, %d in all, want %d before", before, all, entries)
		}
		back := func() bool { all, _ := credits(); return all == entries+published }
		eventually(t, back, "%d credits are back", func() int { all, _ := credits(); return all })
		n.SessionDrained(id)
	})
}

// TestNoPollingForWhoHasToCollectFirst: what waits in the ring of a client that collects nothing keeps no poller awake, until it collects.
func TestNoPollingForWhoHasToCollectFirst(t *testing.T) {
	n := start(t, nil)
	const entries = 16
	c := n.dial(sessiontest.Options{SQ: 64, CQ: entries})
	id := transfer.SessionID(c.Welcome.Session)
	for range entries + 1 {
		_, err := c.Submit(nil)
		noErr(t, err)
	}
	eventually(t, func() bool { return n.Stalls(id) }, "submissions in its ring do not wait: %v", func() bool { return n.Stalls(id) })
	if n.Arm() {
		t.Error("the poller would go on, with nothing that it may read")
	}
}

// TestWhoHasMoreThanItMay is refused what is more, by the machine, whatever else it has that stays: nothing waits for that.
func TestWhoHasMoreThanItMay(t *testing.T) {
	n := start(t, func(c *session.Config) { c.Limits.BlockIDs = 10 })
	busy(n)
	c := n.dial(sessiontest.Options{})
	for _, ids := range []int{10, 100} {
		_, err := c.Submit(&transfer.OfferOp{Key: []byte("key"), Token: token, Consumers: 1, Blocks: []layout.BlockList{{NTokens: 1, IDs: make([]uint32, ids)}}})
		noErr(t, err)
	}
	eventually(t, func() bool { return count[transfer.Submit](n) == 2 }, "%d are submitted, want 2", func() int { return count[transfer.Submit](n) })
}
