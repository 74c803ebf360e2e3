package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatASenderLeavesIsLookedAtOnce: however many of its items were withdrawn while they were received, and end one after the other when
// it is gone.
func TestWhatASenderLeavesIsLookedAtOnce(t *testing.T) {
	const taken = 200
	cost := func(others int) time.Duration {
		var last func()
		defer func() { last() }()
		return leastOf10(func(int) func() {
			e := newEnds(t, func(c *transfer.Config) { c.AtOnce = 0 })
			tx, rx := e.open(1, send), e.open(2, recv)
			var fences []transfer.Leg
			step := func(ev transfer.Event) int { return e.slowly(ev, &fences) }
			var puts []uint64
			for i := range uint32(taken) {
				puts = append(puts, e.put(1, tx, i, 10, ""))
				e.users++
				step(transfer.Submit{Session: 2, UserData: e.users, Op: &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Seq: uint64(i), Room: 10, Timeout: 1e9, Blocks: blocksOf(i, 10)}})
			}
			for range others {
				e.put(1, tx, taken, 10, "")
			}
			for _, put := range puts {
				e.users++
				step(transfer.Submit{Session: 1, UserData: e.users, Op: &transfer.CancelOp{Target: put}})
			}
			if len(fences) != taken {
				t.Fatalf("%d fences, want %d", len(fences), taken)
			}
			left := step(transfer.SessionClosed{Session: 1, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
			last = func() {
				if left += step(transfer.Fenced{Leg: fences[taken-1]}); left != others {
					t.Errorf("%d items are left behind, want %d", left, others)
				}
			}
			return func() {
				for _, leg := range fences[:taken-1] {
					left += step(transfer.Fenced{Leg: leg})
				}
				if left != 0 {
					t.Fatalf("%d items are said to be left behind, with a leg to be fenced", left)
				}
			}
		})
	}
	if few, many := cost(10), cost(5000); many > 20*few {
		t.Errorf("%d fences take %v where a sender leaves 10 items behind, and %v where it leaves 5000", taken, few, many)
	}
}

// slowly tells the machine something while bytes are on their way until their fence, and that takes its time at producers: their fences are
// noted and not answered. It returns how many offers or items are left behind.
func (e *ends) slowly(ev transfer.Event, fences *[]transfer.Leg) (left int) {
	for queue := []transfer.Event{ev}; len(queue) > 0; queue = queue[1:] {
		for _, eff := range e.m.Step(e.now, queue[0]) {
			switch eff := eff.(type) {
			case transfer.MakePlan:
				queue = append(queue, transfer.Planned{Leg: eff.Leg, Seg: eff.Seg, Transport: "local", Slices: 1, Bytes: 10})
			case transfer.Fence:
				if eff.Leg.End == transfer.Producer {
					*fences = append(*fences, eff.Leg)
				} else {
					queue = append(queue, transfer.Fenced{Leg: eff.Leg})
				}
			case transfer.SessionOrphaned:
				left += len(eff.Keep)
			}
		}
	}
	return left
}

// TestWhatADeadEngineLeavesIsLookedAtOnce: however many of its finished offers outlive it, and however many others were withdrawn while they
// were taken, and end one after the other when it is gone.
func TestWhatADeadEngineLeavesIsLookedAtOnce(t *testing.T) {
	const taken = 200
	cost := func(others int) time.Duration {
		var last func()
		defer func() { last() }()
		return leastOf10(func(int) func() {
			e := newEnds(t, func(c *transfer.Config) { c.AtOnce, c.OrphanLease = 0, 60*transfer.Second })
			for id, engine := range map[transfer.SessionID]string{1: "e", 2: "f"} {
				e.step(transfer.SessionOpened{Session: id, Engine: engine, Role: transfer.Worker, Credits: 65536})
				e.step(transfer.LayoutSet{Session: id, Layout: arena(t, taken+1)})
			}
			var fences []transfer.Leg
			step := func(ev transfer.Event) int { return e.slowly(ev, &fences) }
			offer := func(key string, block uint32) uint64 {
				return e.submit(1, &transfer.OfferOp{Key: []byte(key), Token: anyToken, Sealed: true, Consumers: 2, Blocks: blocksOf(block, 10)})
			}
			var offers []uint64
			for i := range uint32(taken) {
				key := fmt.Sprint("taken ", i)
				offers = append(offers, offer(key, i))
				e.users++
				step(transfer.Submit{Session: 2, UserData: e.users, Op: &transfer.TakeOp{Key: []byte(key), Token: anyToken, TakeID: e.users, LayerSlot: transfer.NoSlot, Blocks: blocksOf(i, 10)}})
			}
			for i := range others {
				offer(fmt.Sprint("other ", i), taken)
			}
			step(transfer.Submit{Session: 2, UserData: 1 << 20, Op: &transfer.TakeOp{Key: []byte("other 0"), Token: anyToken, TakeID: 1 << 20, LayerSlot: transfer.NoSlot, Blocks: blocksOf(taken, 10)}})
			for _, user := range offers {
				e.users++
				step(transfer.Submit{Session: 1, UserData: e.users, Op: &transfer.CancelOp{Target: user}})
			}
			if len(fences) != taken {
				t.Fatalf("%d fences, want %d", len(fences), taken)
			}
			left := step(transfer.SessionClosed{Session: 1, Died: true, Cause: transfer.Cause{Reason: transfer.PeerGone, Text: "killed"}})
			last = func() {
				if left += step(transfer.Fenced{Leg: fences[taken-1]}); left != others {
					t.Errorf("%d offers are left behind, want %d, one of which is being taken", left, others)
				}
			}
			return func() {
				for _, leg := range fences[:taken-1] {
					left += step(transfer.Fenced{Leg: leg})
				}
				if left != 0 {
					t.Fatalf("%d offers are said to be left behind, with a leg to be fenced", left)
				}
			}
		})
	}
	if few, many := cost(10), cost(3000); many > 20*few {
		t.Errorf("%d fences take %v where 10 offers outlive an engine, and %v where 3000 do", taken, few, many)
	}
}
