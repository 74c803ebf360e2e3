package transfer_test

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// asking is a machine of which a session asks node b for something.
type asking struct {
	tb   testing.TB
	m    *transfer.Machine
	xfer transfer.XferID
	end  string // what the operation's end says
}

func newAsking(tb testing.TB, role transfer.Role) *asking {
	a := &asking{tb: tb, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})}
	a.step(1, transfer.PeerUp{Node: "b", Epoch: 1, Hints: []string{"b"}})
	a.step(1, transfer.SessionOpened{Session: 1, Engine: "e", Role: role, Credits: 1000})
	a.step(1, transfer.LayoutSet{Session: 1, Layout: arena(tb, 4)})
	return a
}

func (a *asking) step(now transfer.Time, ev transfer.Event) {
	for _, e := range a.m.Step(now, ev) {
		switch e := e.(type) {
		case transfer.Complete:
			a.end = e.Text
		case transfer.Send:
			switch msg := e.Msg.(type) {
			case *transfer.MsgTake:
				a.xfer = msg.Xfer
			case *transfer.MsgSeek:
				a.xfer = msg.Xfer
			}
		}
	}
}

func (a *asking) hears(msg transfer.Msg) {
	a.step(2, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: msg})
}

// TestALateOperationSaysWhatItsPeerSaidLast: who put it off knows better than this node what it waited for, until it says that it waits.
func TestALateOperationSaysWhatItsPeerSaidLast(t *testing.T) {
	drains := transfer.Cause{Reason: transfer.Unavailable, Text: "b drains"}
	take := func(a *asking) {
		a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
			Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: blocksOf(0, 10),
		}})
	}
	ask := func(kind transfer.BindKind, match transfer.Match) func(*asking) {
		return func(a *asking) {
			a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.BindOp{Kind: kind, Name: "p", Peer: "b"}})
			a.step(1, transfer.Submit{Session: 1, UserData: 2, Op: &transfer.GetOp{
				Target: 1, Match: match, Room: 10, Timeout: transfer.Second, Blocks: blocksOf(0, 10),
			}})
		}
	}
	get, query := ask(transfer.BindRecv, transfer.MatchNext), ask(transfer.BindSelect, transfer.MatchAny)
	for name, c := range map[string]struct {
		role   transfer.Role
		submit func(*asking)
		hears  func(transfer.XferID) []transfer.Msg
		want   string
	}{
		"a take that is put off": {transfer.Worker, take, func(x transfer.XferID) []transfer.Msg {
			return []transfer.Msg{&transfer.MsgRefuse{Xfer: x, Cause: drains, Retry: 1}}
		}, `key "k": nothing was granted within 1s; node "b" said last: b drains`},
		"a take that waits there since": {transfer.Worker, take, func(x transfer.XferID) []transfer.Msg {
			return []transfer.Msg{&transfer.MsgRefuse{Xfer: x, Cause: drains, Retry: 1}, &transfer.MsgParked{Xfer: x}}
		}, "the offer is not there"},
		"a get that is put off": {transfer.Endpoint, get, func(x transfer.XferID) []transfer.Msg {
			return []transfer.Msg{&transfer.MsgSeekRefuse{Xfer: x, Cause: drains, Retry: 1}}
		}, `pipe "p" on node "b": that node said last: b drains`},
		"a query that is put off": {transfer.Endpoint, query, func(x transfer.XferID) []transfer.Msg {
			return []transfer.Msg{&transfer.MsgSeekRefuse{Xfer: x, Cause: drains, Retry: 1}}
		}, `buffer "p" on node "b": nothing came within 1s; that node said last: b drains`},
		"a get that waits there since": {transfer.Endpoint, get, func(x transfer.XferID) []transfer.Msg {
			return []transfer.Msg{&transfer.MsgSeekRefuse{Xfer: x, Cause: drains, Retry: 1}, &transfer.MsgSeekParked{Xfer: x}}
		}, "no sender opened it"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsking(t, c.role)
			c.submit(a)
			for _, msg := range c.hears(a.xfer) {
				a.hears(msg)
			}
			if a.step(2*transfer.Second, transfer.Tick{}); !strings.Contains(a.end, c.want) {
				t.Errorf("ended with %q, want %q", a.end, c.want)
			}
		})
	}
}

// TestWhatAPeerSaidEndsWithItsChannel: on the next one there may be another daemon.
func TestWhatAPeerSaidEndsWithItsChannel(t *testing.T) {
	a := newAsking(t, transfer.Worker)
	a.step(1, transfer.Submit{Session: 1, UserData: 1, Op: &transfer.TakeOp{
		Key: []byte("k"), Token: anyToken, TakeID: 1, Peer: "b", LayerSlot: transfer.NoSlot, Timeout: transfer.Second, Blocks: blocksOf(0, 10),
	}})
	a.hears(&transfer.MsgRefuse{Xfer: a.xfer, Cause: transfer.Cause{Reason: transfer.Unavailable, Text: "b drains"}, Retry: 1})
	a.step(3, transfer.PeerDown{Node: "b", Epoch: 1})
	a.step(4, transfer.PeerUp{Node: "b", Epoch: 2, Hints: []string{"b"}})
	if a.step(2*transfer.Second, transfer.Tick{}); !strings.Contains(a.end, "the offer is not there") {
		t.Errorf("ended with %q", a.end)
	}
}

// TestATakeThatItsOwnRankHoldsUpSaysSo: of a rank that does not come to where its blocks are free.
func TestATakeThatItsOwnRankHoldsUpSaysSo(t *testing.T) {
	w := newTaker(t, 0)
	user, x := w.take(5 << 16)
	w.piece(x, 0, 1, true, nil)
	w.now += 2 * transfer.Second
	w.step(transfer.Tick{})
	w.fenced()
	if c := w.ends[user]; c.Reason != transfer.Timeout || !strings.Contains(c.Text, "rank 0 of this engine did not reach after = 0x50000 within 1s: its progress is 0x0") {
		t.Errorf("the take: %+v", c)
	}
}
