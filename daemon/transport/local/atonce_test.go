package local

import (
	"bytes"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// ends is the memory of a plan whose two ends are different.
type ends struct{ src, dst *transporttest.Memory }

func (e ends) Src(r plan.Run) ([]byte, bool) { return e.src.Src(r) }
func (e ends) Dst(r plan.Run) ([]byte, bool) { return e.dst.Dst(r) }

// TestMovedAtOnceIsAllOrNotSaid: that a plan was moved is said only if every byte is in place.
func TestMovedAtOnceIsAllOrNotSaid(t *testing.T) {
	shape := transporttest.Blocks(t, 4, 4096, 4096)
	for what, c := range map[string]struct {
		most   uint64
		spoil  func(e *ends)
		copied bool
	}{
		"good":                   {shape.Plan.Bytes(), func(*ends) {}, true},
		"too much for that":      {shape.Plan.Bytes() - 1, func(*ends) {}, false},
		"source is gone":         {shape.Plan.Bytes(), func(e *ends) { e.src = transporttest.NewMemory(t) }, false},
		"destination is gone":    {shape.Plan.Bytes(), func(e *ends) { e.dst = transporttest.NewMemory(t) }, false},
		"source has no pages":    {shape.Plan.Bytes(), func(e *ends) { e.src.Protect(t, sys.ProtNone) }, false},
		"destination takes none": {shape.Plan.Bytes(), func(e *ends) { e.dst.Protect(t, sys.ProtRead) }, false},
	} {
		tr, err := New(Config{Workers: 1, Sink: transporttest.NewRecorder(), AtOnce: c.most})
		if err != nil {
			t.Fatal(err)
		}
		e := ends{transporttest.NewMemory(t, shape.Src...), transporttest.NewMemory(t, shape.Dst...)}
		e.src.Fill(1)
		c.spoil(&e)
		if got := tr.MoveNow(shape.Plan, e); got != c.copied {
			t.Errorf("%s: moved is %v", what, got)
		}
		for i := range shape.Plan.Slices() {
			for _, p := range shape.Plan.Pairs(i, nil) {
				if from, _ := e.src.Src(p.Src()); c.copied {
					if to, _ := e.dst.Dst(p.Dst()); !bytes.Equal(from, to) {
						t.Errorf("%s: slice %d has the wrong bytes", what, i)
					}
				}
			}
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTinyPiecesAreNotMovedAtOnce: everybody waits meanwhile, and each piece takes as long as many bytes.
func TestTinyPiecesAreNotMovedAtOnce(t *testing.T) {
	for n, want := range map[int]bool{1 << 10: true, 2 << 10: false, DefaultAtOnce: false} {
		sink := transporttest.NewRecorder()
		tr, err := New(Config{Workers: 1, Sink: sink})
		if err != nil {
			t.Fatal(err)
		}
		shape := transporttest.Bytes(t, n)
		e := ends{transporttest.NewMemory(t, shape.Src...), transporttest.NewMemory(t, shape.Dst...)}
		if got := tr.MoveNow(shape.Plan, e); got != want {
			t.Errorf("%d single bytes: moved at once is %v", n, got)
		}
		tr.atOnce = copier{}
		key := transfer.SliceKey{Leg: transfer.Leg{Xfer: 1, End: transfer.Consumer}}
		tr.Expect(transport.Job{Key: key, Plan: shape.Plan, Mem: e})
		key.End = transfer.Producer
		tr.Post(transport.Job{Key: key, Plan: shape.Plan, Mem: e})
		if got := tr.atOnce.pairs != nil; got != want {
			t.Errorf("a slice of %d single bytes: copied by who posts it is %v", n, got)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
