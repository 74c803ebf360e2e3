package transfer_test

import (
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
			step := func(ev transfer.Event) (left int) { // bytes are on their way until their fence, and that takes its time at the sender
				for queue := []transfer.Event{ev}; len(queue) > 0; queue = queue[1:] {
					for _, eff := range e.m.Step(e.now, queue[0]) {
						switch eff := eff.(type) {
						case transfer.MakePlan:
							queue = append(queue, transfer.Planned{Leg: eff.Leg, Seg: eff.Seg, Transport: "local", Slices: 1, Bytes: 10})
						case transfer.Fence:
							if eff.Leg.End == transfer.Producer {
								fences = append(fences, eff.Leg)
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
