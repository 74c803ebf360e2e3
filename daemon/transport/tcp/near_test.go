package tcp

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/place/placetest"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestStreamsAreNear: both directions of a stream go where their memory is, plain and encrypted, and nowhere without a thread to spare.
func TestStreamsAreNear(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		links  int
		secure bool
	}{
		{"plain", Config{CRC: CRCOff}, 2, false},
		{"plain, no spin, checksums", Config{CRC: CRCOn, Spin: -1}, 1, false},
		{"plain, staged", Config{Staged: 1 << 30}, 2, false},
		{"tls", Config{}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := placetest.New(t)
			c.cfg.Places = m.Places
			transporttest.Near(t, m, opener(c.cfg, c.links, c.secure, true)(t), true)
		})
	}
}

// TestConformanceOnTwoNodes: whatever goes wrong, it does so there, too.
func TestConformanceOnTwoNodes(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				return opener(Config{Places: placetest.New(t).Scattered()}, 2, secure, true)(t)
			})
		})
	}
}

// TestNoThreadToSpare: a stream that may not keep a thread does its work where it is.
func TestNoThreadToSpare(t *testing.T) {
	m := placetest.New(t)
	n := near{places: m.Places, lot: &lot{threads: 0}, seat: m.Places.Seat()}
	b := make([]byte, worthMoving)
	m.Put(b, 1)
	var p pieces
	p.iov = append(p.iov, sys.MakeIovec(b))
	if spot := n.move(&p, 0, worthMoving); spot != 1 || n.seat.At() != -1 || placetest.Here(t) != m.All {
		t.Errorf("memory at spot %d, a thread at %d that runs on %s", spot, n.seat.At(), placetest.Here(t))
	}
	n.lot.threads = 1
	if spot := n.move(&p, 0, worthMoving-1); spot != -1 || n.seat.At() != -1 {
		t.Errorf("a small slice asks for its memory: spot %d, at %d", spot, n.seat.At())
	}
	if spot := n.move(&p, 0, worthMoving); spot != 1 || placetest.Here(t) != m.CPUs[1] || !n.lot.full() {
		t.Errorf("memory at spot %d, a thread that runs on %s", spot, placetest.Here(t))
	}
	n.leave()
	if placetest.Here(t) != m.All || n.lot.full() {
		t.Errorf("the thread runs on %s afterwards, and %d are used", placetest.Here(t), n.lot.used.Load())
	}
}
