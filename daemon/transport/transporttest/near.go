package transporttest

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/place/placetest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Near moves transfers whose destinations lie on the two nodes of m in turn, between transports that have m's Places,
// and then closes the transports. It fails unless a thread on the CPUs of the destination's node reports each slice
// landed, and no thread is left with CPUs other than Go's. Set streams for transports whose two ends are two threads:
// the source then lies on node 0, and neither end may keep a thread at a node while there is nothing to move.
func Near(t *testing.T, m *placetest.Machine, p *Pair, streams bool) {
	t.Helper()
	const transfers = 6
	var mu sync.Mutex
	from := map[transfer.XferID]map[string]int{}
	p.DstSink.queued = func(ev transfer.Event) {
		landed, ok := ev.(transfer.SliceLanded)
		if !ok {
			return
		}
		cpus := placetest.Here(t)
		mu.Lock()
		defer mu.Unlock()
		if from[landed.Key.Xfer] == nil {
			from[landed.Key.Xfer] = map[string]int{}
		}
		from[landed.Key.Xfer][cpus]++
	}
	s := Blocks(t, 24, 64<<10, 64<<10)
	src := NewMemory(t, s.Src...)
	if streams {
		m.Put(src.ranks[0], 0)
	}
	var hands []*hand
	for i := range transfers {
		h := p.beginIn(t, s, src, NewMemory(t, s.Dst...))
		m.Put(h.dst.ranks[0], i%2)
		h.expect()
		h.postAll()
		hands = append(hands, h)
	}
	n := s.Plan.Slices()
	for i, h := range hands {
		h.landAll()
		h.fence()
		mu.Lock()
		if got, want := from[h.cons.Xfer], m.CPUs[i%2]; got[want] != n || len(got) != 1 {
			t.Errorf("slices of transfer %d landed from CPUs %v, want %d from %s", i, got, n, want)
		}
		mu.Unlock()
	}
	for start := time.Now(); streams && placed(m); runtime.Gosched() {
		if time.Since(start) > patience {
			t.Errorf("threads are kept by who waits for something to move: %+v", m.Places.Spots())
			break
		}
	}
	p.Close()
	for _, at := range m.Places.Spots() {
		want := transfers / 2 * n
		if streams && at.Node == 0 {
			want += transfers * n
		}
		if at.Threads != 0 || at.Slices != uint64(want) || at.Bytes != uint64(want)<<16 {
			t.Errorf("left at a node: %+v; want no thread, %d slices", at, want)
		}
	}
	if all := placetest.Threads(t); len(all) != 1 || all[m.All] == 0 {
		t.Errorf("threads are left on CPUs %v, want %s alone", all, m.All)
	}
}

// placed says whether a thread is at one of the nodes.
func placed(m *placetest.Machine) bool {
	return slices.ContainsFunc(m.Places.Spots(), func(at place.Spot) bool { return at.Threads != 0 })
}
