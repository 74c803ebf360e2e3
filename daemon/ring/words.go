package ring

import (
	"fmt"
	"sync/atomic"
)

// Words are the words of a session that belong to neither queue. They are safe for concurrent use.
type Words struct {
	progress *atomic.Uint64 // ring_c
	wait     *atomic.Uint64 // ring_d
	closed   *atomic.Uint32 // ring_d
	beat     *atomic.Uint64 // ring_d
}

// NewWords works on the memory of the two rings.
func NewWords(ringC, ringD []byte) *Words {
	return &Words{
		progress: word64(ringC, offProgress),
		wait:     word64(ringD, offProgressWait),
		closed:   word32(ringD, offClosed),
		beat:     word64(ringD, offHeartbeat),
	}
}

// Progress returns the progress that the client has published.
func (w *Words) Progress() (v uint64, err error) {
	err = guard(func() { v = w.progress.Load() })
	return v, err
}

// WaitProgress asks the client to ring when its progress reaches v; 0 withdraws that. Read Progress after it.
func (w *Words) WaitProgress(v uint64) { w.wait.Store(v) }

// Close tells the client that the session has ended, and why (nonzero).
func (w *Words) Close(reason uint32) { w.closed.Store(reason) }

// Beat publishes the daemon's sign of life: its monotonic time in milliseconds.
func (w *Words) Beat(ms uint64) { w.beat.Store(ms) }

// Layers are the slots in which the progress of takes is published. One goroutine at a time may use them.
type Layers struct {
	area []byte
	n    uint32
}

// NewLayers works on the memory of ring_d.
func NewLayers(g *Geometry, ringD []byte) *Layers {
	return &Layers{area: area(ringD, g.layers, int(g.Layers)*LayerSlotSize), n: g.Layers}
}

// Len returns how many slots there are.
func (l *Layers) Len() uint32 { return l.n }

// Set publishes in slot that ready layers of the take userData are in place.
func (l *Layers) Set(slot uint32, userData uint64, ready uint32) error {
	return l.write(slot, userData, func(at int) { word32(l.area, at+8).Store(ready) })
}

// Grant publishes in slot that bytes of the take userData may have been written. Call it before the first of them can
// be.
func (l *Layers) Grant(slot uint32, userData uint64) error {
	return l.write(slot, userData, func(at int) { word32(l.area, at+12).Store(1) })
}

func (l *Layers) write(slot uint32, userData uint64, set func(at int)) error {
	if slot >= l.n {
		return fmt.Errorf("layer slot %d: there are %d", slot, l.n)
	}
	at := int(slot) * LayerSlotSize
	owner := word64(l.area, at)
	return guard(func() {
		if owner.Load() != userData {
			// The client trusts the rest once it sees its own number here, so the old values must be gone by then.
			word32(l.area, at+8).Store(0)
			word32(l.area, at+12).Store(0)
			owner.Store(userData)
		}
		set(at)
	})
}
