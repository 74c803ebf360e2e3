package transporttest

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Memory holds the regions of one side's ranks, one region per rank. It is a transport.Memory for either side.
type Memory struct {
	ranks [][]byte
	gone  atomic.Bool // the regions were unregistered
}

// NewMemory maps one region per size. They are unmapped when the test ends.
func NewMemory(t testing.TB, sizes ...uint64) *Memory {
	t.Helper()
	return newMemory(t, sizes, func(n int) ([]byte, error) { return sys.MmapAnon(n, sys.ProtWrite) })
}

// sharedMemory is NewMemory with memfds, as clients use.
func sharedMemory(t testing.TB, sizes ...uint64) *Memory {
	t.Helper()
	return newMemory(t, sizes, func(n int) ([]byte, error) {
		fd, err := sys.MemfdCreate("transporttest", int64(n), sys.MemfdOptions{Prefault: true})
		if err != nil {
			return nil, err
		}
		defer sys.Close(fd)
		return sys.Mmap(fd, n, sys.ProtWrite)
	})
}

func newMemory(t testing.TB, sizes []uint64, mmap func(int) ([]byte, error)) *Memory {
	m := &Memory{}
	for _, n := range sizes {
		b, err := mmap(int(n+4095) &^ 4095)
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
			binary.LittleEndian.PutUint64(b[i:], x)
		}
	}
}

// Set writes the same byte everywhere.
func (m *Memory) Set(c byte) {
	for _, b := range m.ranks {
		setBytes(b, c)
	}
}

func setBytes(b []byte, c byte) {
	b[0] = c
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// Protect changes the access to the pages.
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
