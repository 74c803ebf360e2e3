package transfer_test

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestUnbindingWhatWaitsForNothingCostsLittle: however much others wait for. A peer may say so of ends that it never had, by the thousand.
func TestUnbindingWhatWaitsForNothingCostsLittle(t *testing.T) {
	cost := func(waiting int) (least time.Duration) {
		m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 << 32 }})
		m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
		m.Step(1, transfer.PeerUp{Node: "mad", Epoch: 2})
		for x := range waiting {
			m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgSeek{
				Xfer: transfer.XferID(x), Bind: uint64(x), Name: "p", Buffer: true, Match: transfer.MatchAny, Deadline: transfer.Second,
			}})
		}
		for run := range 10 {
			start := time.Now()
			for i := range 1000 {
				m.Step(1, transfer.PeerMsg{Node: "mad", Epoch: 2, Msg: &transfer.MsgUnbind{Bind: uint64(run*1000 + i), Name: "q"}})
			}
			if d := time.Since(start); run == 0 || d < least {
				least = d
			}
		}
		return least
	}
	if alone, among := cost(0), cost(4096); among > 10*alone {
		t.Errorf("1000 ends that wait for nothing are closed in %v, and in %v while 4096 others wait", alone, among)
	}
}
