package transfer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestLimits: what the configuration bounds is refused with the limit in words, or cut to it.
func TestLimits(t *testing.T) {
	const start = transfer.Time(1)
	m := transfer.New(transfer.Config{
		Node: "a", Random: func() uint64 { return 1 }, MaxOffers: 1, MaxOps: 3, MaxLease: 2 * transfer.Second, MaxTimeout: 3 * transfer.Second,
		OfferWait: 3600 * transfer.Second,
	})
	m.Step(start, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	m.Step(start, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	user := uint64(0)
	blocks := func() []layout.BlockList { return []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(user)}}} }
	// ends submits an operation, lets time go on to just before and then to the given moment, and returns its end.
	ends := func(op transfer.Op, at transfer.Time) (end transfer.Complete) {
		t.Helper()
		user++
		look := func(now transfer.Time, ev transfer.Event) {
			for _, e := range m.Step(now, ev) {
				if c, ok := e.(transfer.Complete); ok && c.UserData == user {
					end = c
				}
			}
		}
		look(start, transfer.Submit{Session: 1, UserData: user, Op: op})
		if at > start {
			look(at-1, transfer.Tick{})
			if end.Status != 0 {
				t.Fatalf("%T ended before %d: %+v", op, at, end)
			}
			look(at, transfer.Tick{})
		}
		return end
	}
	refused := func(op transfer.Op, text string) {
		t.Helper()
		if c := ends(op, start); c.Status != transfer.Failed || c.Reason != transfer.Quota || !strings.Contains(c.Text, text) {
			t.Errorf("%T: %+v, want a refusal with %q", op, c, text)
		}
	}
	token := []byte("0123456789abcdef")
	take := func(key string) transfer.Op {
		return &transfer.TakeOp{Key: []byte(key), Token: token, TakeID: user + 1, LayerSlot: transfer.NoSlot, Timeout: 3600 * transfer.Second, Blocks: blocks()}
	}
	offer := func(key string) transfer.Op {
		return &transfer.OfferOp{Key: []byte(key), Token: token, Sealed: true, Lease: 3600 * transfer.Second, Blocks: blocks()}
	}
	ends(offer("lasts"), start)
	lasts := user
	refused(offer("second"), "this session has 1 offers, the limit is limits.offers = 1")
	ends(take("none"), start)
	ends(take("none too"), start)
	refused(take("one too many"), "3 operations that are not released, the limit is limits.inflight = 3")
	ends(&transfer.WithdrawOp{Target: lasts}, start)
	if c := ends(offer("next"), start); c.Status != 0 {
		t.Errorf("the offer before is withdrawn, and the next one ended at once: %+v", c)
	}

	for _, c := range []struct {
		op     func(string) transfer.Op
		at     transfer.Time
		reason transfer.Reason
	}{
		{offer, start + 2*transfer.Second, transfer.Expired},
		{take, start + 3*transfer.Second, transfer.Timeout},
	} {
		m = transfer.New(transfer.Config{
			Node: "a", Random: func() uint64 { return 1 }, MaxLease: 2 * transfer.Second, MaxTimeout: 3 * transfer.Second, OfferWait: 3600 * transfer.Second,
		})
		m.Step(start, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
		m.Step(start, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
		if end := ends(c.op("k"), c.at); end.Status != transfer.Failed || end.Reason != c.reason {
			t.Errorf("%+v, want reason %d at %d", end, c.reason, c.at)
		}
	}
}

// TestACutLeaseIsTold: what is left of it is shown, the log has it once for each session, and its end does not advise to ask for more.
func TestACutLeaseIsTold(t *testing.T) {
	now := transfer.Time(1)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxLease: 600 * transfer.Second})
	var said []string
	var ended []string
	step := func(ev transfer.Event) {
		for _, e := range m.Step(now, ev) {
			switch e := e.(type) {
			case transfer.Log:
				if e.Level >= 0 {
					said = append(said, fmt.Sprint(e.Level, e.Text, e.Attrs))
					if !e.Often { // a client may come and go all the time, and have a lease cut each time
						t.Errorf("%q is said each time", e.Text)
					}
				}
			case transfer.Complete:
				ended = append(ended, e.Text)
			}
		}
	}
	block := uint32(0)
	offer := func(session transfer.SessionID, lease transfer.Time) {
		block++
		step(transfer.Submit{Session: session, UserData: uint64(block), Op: &transfer.OfferOp{
			Key: fmt.Append(nil, block), Token: []byte("0123456789abcdef"), Sealed: true, Lease: lease,
			Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{block}}},
		}})
	}
	for id := transfer.SessionID(1); id <= 2; id++ {
		step(transfer.SessionOpened{Session: id, Engine: fmt.Sprint("e", id), Instance: "i", Role: transfer.Worker, Credits: 1000})
		step(transfer.LayoutSet{Session: id, Layout: oneRank(t)})
		offer(id, 600*transfer.Second)
		if len(said) != int(id)-1 {
			t.Fatalf("said %q", said)
		}
		offer(id, 3600*transfer.Second)
		offer(id, 1800*transfer.Second)
	}
	const words = "4a lease was cut to offers.max_lease, and so are all longer ones of this session[engine e%d instance i rank 0 asked 1h0m0s granted 10m0s]"
	if want := []string{fmt.Sprintf(words, 1), fmt.Sprintf(words, 2)}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	for _, o := range m.Snapshot().Offers {
		if o.Lease != 600*transfer.Second {
			t.Errorf("offer %s shows a lease of %d", o.Key, o.Lease)
		}
	}
	now += 600 * transfer.Second
	step(transfer.Tick{})
	if len(ended) != 6 {
		t.Fatalf("%d offers ended, want 6: %q", len(ended), ended)
	}
	for _, text := range ended {
		if !strings.Contains(text, "its lease of 10m0s ran out and nobody renewed it; offer it again, and have it taken sooner: leases are cut to offers.max_lease") {
			t.Errorf("an end says %q", text)
		}
	}
}

// TestPeerHoldsNoMore: what a peer asks for is kept up to a limit, and more of it once some has ended.
func TestPeerHoldsNoMore(t *testing.T) {
	token := []byte("0123456789abcdef")
	now := transfer.Time(1)
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxHeld: 8, MaxEnds: 2})
	m.Step(now, transfer.PeerUp{Node: "b", Epoch: 1})
	answer := func(msg transfer.Msg) (last transfer.Msg) {
		for _, e := range m.Step(now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg}) {
			if s, ok := e.(transfer.Send); ok {
				last = s.Msg
			}
		}
		return last
	}
	some := func(ids int) []layout.BlockList {
		return []layout.BlockList{{NTokens: uint32(ids), IDs: make([]uint32, ids)}}
	}
	var xfer transfer.XferID
	seek := func(bind uint64, tokens, ids int) transfer.Msg {
		xfer++
		return answer(&transfer.MsgSeek{
			Xfer: xfer, Bind: bind, Buffer: true, Name: "n", Match: transfer.MatchExact, Tokens: make([]uint32, tokens), Room: 1, Deadline: 1e9,
			Take: &transfer.MsgTake{Engine: "e", Parts: 1, Blocks: some(ids)},
		})
	}
	take := func(ids int) transfer.Msg {
		xfer++
		return answer(&transfer.MsgTake{Xfer: xfer, Engine: "e", Parts: 1, Key: []byte("k"), Token: token, Blocks: some(ids), Deadline: 1e9})
	}
	waits := func(msg transfer.Msg) {
		t.Helper()
		switch msg.(type) {
		case *transfer.MsgSeekParked, *transfer.MsgParked:
		default:
			t.Errorf("%#v, want it to wait", msg)
		}
	}
	refused := func(msg transfer.Msg, text string) {
		t.Helper()
		var cause transfer.Cause
		var retry transfer.Time
		switch msg := msg.(type) {
		case *transfer.MsgSeekRefuse:
			cause, retry = msg.Cause, msg.Retry
		case *transfer.MsgRefuse:
			cause, retry = msg.Cause, msg.Retry
		}
		if cause.Reason != transfer.Quota || !strings.Contains(cause.Text, text) || retry == 0 {
			t.Errorf("%#v, want it to be asked again, for %q", msg, text)
		}
	}

	waits(seek(1, 2, 1))
	waits(take(1))
	refused(seek(1, 4, 1), "has the size of 4 block ids, this would be 5 more; the limit is 8 for both together")
	refused(take(5), "has the size of 4 block ids, this would be 5 more; the limit is 8 for both together")
	waits(take(4))
	now += 3 * transfer.Second
	m.Step(now, transfer.Tick{}) // their time is over
	waits(seek(1, 8, 0))
	now += 3 * transfer.Second
	m.Step(now, transfer.Tick{})

	waits(seek(2, 1, 0))
	refused(seek(3, 1, 0), "2 receiving ends")
	waits(seek(1, 1, 0))
	for bind := range uint64(100) { // one that is not here is not remembered as closed
		answer(&transfer.MsgUnbind{Bind: 10 + bind, Buffer: true, Name: "n"})
	}
	answer(&transfer.MsgUnbind{Bind: 1, Buffer: true, Name: "n"})
	now += 60 * transfer.Second
	m.Step(now, transfer.Tick{})
	waits(seek(3, 1, 0))
}

// TestWhatWaitsLeavesRoomForItsTake: GETs that fill what a peer may hold with the takes that they bring do not stand in the way of those.
func TestWhatWaitsLeavesRoomForItsTake(t *testing.T) {
	l := oneRank(t)
	const room = 700 // for the layout of the take and its segment as well
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxHeld: 2 * room})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Endpoint, Credits: 1000})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: l})
	m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: transfer.BindSend, Name: "p", Capacity: 1 << 14}})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
	m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgLayout{Layout: l}})
	for seq := range uint64(2) {
		m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgSeek{
			Xfer: transfer.XferID(seq + 1), Bind: 1, Name: "p", Match: transfer.MatchNext, Seq: seq, Room: 4, Deadline: 1e9,
			Take: &transfer.MsgTake{
				Engine: "f", Parts: 1, Ranks: []transfer.RankRef{{Digest: l.Digest()}}, Blocks: []layout.BlockList{{NTokens: room, IDs: make([]uint32, room)}},
			},
		}})
	}
	var begun bool
	for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 2, Op: &transfer.PutOp{
		Target: 1, Form: transfer.MatchNext, Bytes: 4, Blocks: []layout.BlockList{{NTokens: 4, IDs: []uint32{0, 1, 2, 3}}},
	}}) {
		_, plans := e.(transfer.MakePlan)
		begun = begun || plans
	}
	if !begun {
		t.Error("the take that came with the GET did not begin")
	}
}

// TestARepeatedTakeIsTheOneThatWaits: a peer that repeats a take under another key has not moved it there.
func TestARepeatedTakeIsTheOneThatWaits(t *testing.T) {
	token := []byte("0123456789abcdef")
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: transfer.Worker, Credits: 1000})
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
	for _, key := range []string{"k", "other"} {
		m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgTake{
			Xfer: 1, Engine: "f", Parts: 1, Key: []byte(key), Token: token, Ranks: []transfer.RankRef{{}}, Blocks: blocksOf(0, 1), Deadline: 1e9,
		}})
	}
	for _, e := range m.Step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.OfferOp{
		Key: []byte("k"), Token: token, Sealed: true, Lease: transfer.Second, Blocks: []layout.BlockList{{NTokens: 1, IDs: []uint32{0}}},
	}}) {
		if s, ok := e.(transfer.Send); ok && s.Node == "b" {
			return // its layouts are asked for
		}
	}
	t.Error("the offer came, and the take that waited for it was not served")
}

// TestRanksThatComeAndGoAreBounded: workers of one instance may come under ever other numbers and leave, and each operation looks for all that
// are remembered. What is about all ranks is not done without those that are not.
func TestRanksThatComeAndGoAreBounded(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 40 }})
	open := func(id transfer.SessionID, role transfer.Role, rank uint32) {
		m.Step(1, transfer.SessionOpened{Session: id, Engine: "e", Instance: "i", Role: role, Rank: rank, TPWorld: 1 << 16, Credits: 100})
	}
	open(1, transfer.Worker, 0)
	m.Step(1, transfer.LayoutSet{Session: 1, Layout: oneRank(t)})
	open(2, transfer.Scheduler, transfer.NoRank)
	for rank := uint32(1); rank < 5000; rank++ {
		id := transfer.SessionID(rank + 2)
		open(id, transfer.Worker, rank)
		m.Step(1, transfer.SessionClosed{Session: id, Cause: transfer.Cause{Reason: transfer.Closed}})
	}
	if n := m.Had(1); n != transfer.MaxRanks+1 {
		t.Errorf("%d ranks are remembered, want %d", n, transfer.MaxRanks+1)
	}
	offer := func(id transfer.SessionID, key string) (why transfer.Reason) {
		op := &transfer.OfferOp{Key: []byte(key), Token: anyToken, Sealed: true, Blocks: someBlocks(0, 1)}
		for _, e := range m.Step(1, transfer.Submit{Session: id, UserData: 1, Op: op}) {
			if c, ok := e.(transfer.Complete); ok && c.Session == id {
				why = c.Reason
			}
		}
		return why
	}
	if why := offer(2, "all"); why != transfer.Unavailable {
		t.Errorf("a scheduler's offer, without ranks that have left: %s, want %s", why, transfer.Unavailable)
	}
	if offer(1, "own"); m.Snapshot().Offers[0].State != "joining" {
		t.Errorf("a rank's own offer, without ranks that have left, is %+v", m.Snapshot().Offers[0])
	}
}
