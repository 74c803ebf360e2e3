package transfer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// stranded is a machine whose sessions watch keys of peer "b", which is not reached.
type stranded struct {
	m     *transfer.Machine
	users uint64
}

func newStranded(sessions int) *stranded {
	w := &stranded{m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})}
	for s := range sessions {
		w.m.Step(1, transfer.SessionOpened{Session: transfer.SessionID(s + 1), Engine: fmt.Sprint(s), Role: transfer.Worker, Credits: 1 << 40})
	}
	return w
}

func (w *stranded) watch(s transfer.SessionID) uint64 {
	w.users++
	w.m.Step(1, transfer.Submit{Session: s, UserData: w.users, Op: &transfer.WatchOp{Key: []byte("k"), Token: anyToken, Peer: "b", Timeout: 60 * transfer.Second}})
	return w.users
}

func (w *stranded) cancel(s transfer.SessionID, user uint64) {
	w.m.Step(1, transfer.Submit{Session: s, UserData: 1 << 40, Op: &transfer.CancelOp{Target: user}})
}

// TestEndingWhatWaitsForAPeerCostsLittle: however many others wait for it.
func TestEndingWhatWaitsForAPeerCostsLittle(t *testing.T) {
	cost := func(others int) time.Duration {
		w := newStranded(others + 1)
		for s := range others {
			for range 4000 {
				w.watch(transfer.SessionID(s + 2))
			}
		}
		return leastOf10(func(int) func() {
			var users []uint64
			for range 1000 {
				users = append(users, w.watch(1))
			}
			return func() {
				for _, user := range users {
					w.cancel(1, user)
				}
			}
		})
	}
	if alone, among := cost(0), cost(16); among > 10*alone {
		t.Errorf("1000 watches of a peer that is not reached are cancelled in %v, and in %v while 64000 others wait", alone, among)
	}
}

// TestWhoWaitsForAPeerDepartsInOrder: in which they came, without those that have ended.
func TestWhoWaitsForAPeerDepartsInOrder(t *testing.T) {
	for _, every := range []int{1, 2, 50} { // of how many one goes on waiting
		w := newStranded(1)
		var users []uint64
		for range 200 {
			users = append(users, w.watch(1))
		}
		wait := 0
		for i, user := range users {
			if i%every == 0 {
				wait++
			} else {
				w.cancel(1, user)
			}
		}
		w.watch(1)
		var ids []uint64 // of operations, ascending
		for _, e := range w.m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1}) {
			if s, ok := e.(transfer.Send); ok {
				if k, ok := s.Msg.(*transfer.MsgKey); ok {
					ids = append(ids, k.ID)
				}
			}
		}
		if len(ids) != wait+1 || !slices.IsSorted(ids) {
			t.Errorf("watches %v are sent, want %d in the order in which they came", ids, wait+1)
		}
	}
}
