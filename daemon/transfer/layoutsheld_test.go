package transfer_test

import (
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestLayoutsOfAPeerAreBounded: whoever tells of new layouts all the time has this node keep what the last of them take, and no more.
func TestLayoutsOfAPeerAreBounded(t *testing.T) {
	m := transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }})
	m.Step(1, transfer.PeerUp{Node: "b", Epoch: 1})
	before, most := heapInUse(), 0
	for i := range 1000 {
		m.Step(1, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: layoutMsg(withViews(t, uint64(i+1), 2000))})
		if i%50 == 49 {
			most = max(most, heapInUse()-before)
		}
	}
	if most > 80<<20 {
		t.Errorf("layouts of a peer take up to %d bytes", most)
	}
	t.Logf("layouts of a peer take up to %d bytes", most)
	runtime.KeepAlive(m)
}
