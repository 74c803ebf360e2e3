package transporttest

import (
	"sync/atomic"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Memory is the regions of one side's ranks, one region per rank, and a transport.Memory for either side.
type Memory struct {
	ranks [][]byte
	gone  atomic.Bool // the regions were unregistered
}

// NewMemory maps one region per size; they are unmapped when the test ends.
func NewMemory(t testing.TB, sizes ...uint64) *Memory {
	m := &Memory{}
	for _, n := range sizes {
		b, err := sys.MmapAnon(int(n+4095)&^4095, sys.ProtWrite)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sys.Munmap(b); err != nil {
				t.Error(err)
			}
		})
		m.ranks = append(m.ranks, b)
	}
	return m
}

// Fill writes bytes that differ from place to place and from seed to seed.
func (m *Memory) Fill(seed uint64) {
	for r, b := range m.ranks {
		x := (seed+1)*0x9e3779b97f4a7c15 + uint64(r)
		for i := 0; i+8 <= len(b); i += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			putUint64(b[i:], x)
		}
	}
}

func putUint64(b []byte, x uint64) {
	_ = b[7]
	for i := range 8 {
		b[i] = byte(x >> (8 * i))
	}
}

// Set writes the same byte everywhere.
func (m *Memory) Set(c byte) {
	for _, b := range m.ranks {
		for i := range b {
			b[i] = c
		}
	}
}

// Protect changes what may be done with the pages.
func (m *Memory) Protect(t testing.TB, prot sys.Prot) {
	t.Helper()
	for _, b := range m.ranks {
		if err := sys.Protect(b, prot); err != nil {
			t.Fatal(err)
		}
	}
}

// Src implements transport.Memory.
func (m *Memory) Src(r plan.Run) ([]byte, bool) { return m.find(r) }

// Dst implements transport.Memory.
func (m *Memory) Dst(r plan.Run) ([]byte, bool) { return m.find(r) }

func (m *Memory) find(r plan.Run) ([]byte, bool) {
	if m.gone.Load() || int(r.Rank) >= len(m.ranks) {
		return nil, false
	}
	b := m.ranks[r.Rank]
	if r.Off+r.Len > uint64(len(b)) {
		return nil, false
	}
	return b[r.Off : r.Off+r.Len : r.Off+r.Len], true
}
