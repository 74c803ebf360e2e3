package local

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// desk is a worker without a thread, and legs whose reports it counts.
type desk struct {
	worker
	shape    transporttest.Shape
	src, dst transport.Memory
	reported []transfer.XferID
	woken    []int // how many were reported when somebody was woken
	causes   []transfer.Cause
}

// looked is a source that is asked for once a worker is inside a slice.
type looked struct {
	transport.Memory
	then func()
}

func (l looked) Src(r plan.Run) ([]byte, bool) {
	l.then()
	return l.Memory.Src(r)
}

func newDesk(t *testing.T) *desk {
	d := &desk{shape: transporttest.Blocks(t, 2*batch, 64<<10, 64<<10)}
	d.worker = worker{queue: &queue{}, wake: func() { d.woken = append(d.woken, len(d.reported)) }, longest: time.Hour, at: place.Anywhere}
	d.queue.init(0)
	d.src, d.dst = transporttest.NewMemory(t, d.shape.Src...), transporttest.NewMemory(t, d.shape.Dst...)
	return d
}

func (d *desk) leg() *fence.Leg {
	return fence.NewLeg(func(key transfer.SliceKey, sent, landed transfer.Cause) {
		d.reported = append(d.reported, key.Xfer)
		d.causes = append(d.causes, landed)
	})
}

// copySlice has the worker copy slice i of a leg.
func (d *desk) copySlice(t *testing.T, l *fence.Leg, xfer transfer.XferID, i uint32) {
	t.Helper()
	tk := d.queue.spare()
	key := transfer.SliceKey{Leg: transfer.Leg{Xfer: xfer}, Slice: i}
	if !l.Add(&tk.Slice, key) {
		t.Fatal("the leg is fenced")
	}
	tk.job, tk.dst = transport.Job{Key: key, Plan: d.shape.Plan, Mem: d.src}, d.dst
	d.do(tk)
}

// TestReportsTogether: reports of a leg come a batch at a time, and none waits for another leg's bytes or for work.
func TestReportsTogether(t *testing.T) {
	d := newDesk(t)
	one, two := d.leg(), d.leg()
	for i := range uint32(batch) {
		if len(d.reported) != 0 {
			t.Fatalf("%d reports after %d slices, of batches of %d", len(d.reported), i, batch)
		}
		d.copySlice(t, one, 1, i)
	}
	if want := []int{batch}; !slices.Equal(d.woken, want) {
		t.Fatalf("somebody was woken at %v reports, want %v", d.woken, want)
	}
	d.reported = nil
	d.copySlice(t, one, 1, batch)
	d.copySlice(t, two, 2, 0)
	if want := []transfer.XferID{1}; !slices.Equal(d.reported, want) {
		t.Fatalf("reports of transfers %v, want %v: the first one must not wait for the second", d.reported, want)
	}
	d.flush()
	if want := []transfer.XferID{1, 2}; !slices.Equal(d.reported, want) {
		t.Fatalf("reports of transfers %v, want %v", d.reported, want)
	}
}

// TestNoReportIsHeldForLong: of slices that take long, few are held.
func TestNoReportIsHeldForLong(t *testing.T) {
	d := newDesk(t)
	synctest.Test(t, func(t *testing.T) {
		l := d.leg()
		for i := range uint32(6) {
			d.copySlice(t, l, 1, i)
			time.Sleep(d.longest / 2)
		}
		if want := []int{3, 6}; !slices.Equal(d.woken, want) {
			t.Errorf("somebody was woken at %v reports, want %v", d.woken, want)
		}
	})
}

// TestFencedSliceIsToldAtOnce: what a worker reports for a fence by leaving waits for no other worker that is still inside.
func TestFencedSliceIsToldAtOnce(t *testing.T) {
	d := newDesk(t)
	l := d.leg()
	other := d.queue.spare()
	if !l.Add(&other.Slice, transfer.SliceKey{Leg: transfer.Leg{Xfer: 1}, Slice: 1}) || !other.Enter() {
		t.Fatal("the leg is fenced")
	}
	stands := false
	d.src = looked{d.src, func() { l.Fence(stopped, func() { stands = true }) }}
	d.copySlice(t, l, 1, 0)
	if want := []int{1}; !slices.Equal(d.woken, want) || stands {
		t.Errorf("somebody was woken at %v reports, want %v; the fence stands: %v", d.woken, want, stands)
	}
	other.Leave()
	if !stands {
		t.Error("the fence does not stand although nobody is inside")
	}
}

// TestFenceWithReportsHeld: a fence waits for nobody and reports what was copied and not reported yet, once.
func TestFenceWithReportsHeld(t *testing.T) {
	d := newDesk(t)
	l := d.leg()
	d.copySlice(t, l, 1, 0)
	d.copySlice(t, l, 1, 1)
	stands := false
	l.Fence(stopped, func() { stands = true })
	if !stands {
		t.Error("the fence waits for slices that nobody is inside of")
	}
	d.flush()
	if len(d.causes) != 2 || d.causes[0].Reason != transfer.Cancelled || d.causes[1].Reason != transfer.Cancelled {
		t.Errorf("reports %v, want two, cancelled", d.causes)
	}
}

// TestFailureIsReportedAtOnce, and what was copied before it.
func TestFailureIsReportedAtOnce(t *testing.T) {
	d := newDesk(t)
	l := d.leg()
	d.copySlice(t, l, 1, 0)
	d.dst = transporttest.NewMemory(t) // no region at all
	d.copySlice(t, l, 1, 1)
	if len(d.causes) != 2 || d.causes[0].Reason != transfer.OK || d.causes[1].Reason != transfer.Unavailable {
		t.Errorf("reports %v, want one that is good and one that is not", d.causes)
	}
}

// TestTinyBlocksNeedNoLargeBuffers: a slice of very many runs is copied some of them at a time, so it costs a worker no more memory
// than others, neither while it is copied nor afterwards, and little time: anybody may wait for it.
func TestTinyBlocksNeedNoLargeBuffers(t *testing.T) {
	d := newDesk(t)
	d.shape = transporttest.Bytes(t, 1<<18)
	src, dst := transporttest.NewMemory(t, d.shape.Src...), transporttest.NewMemory(t, d.shape.Dst...)
	d.src, d.dst = src, dst
	check := func(what string, want transfer.Reason) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d.copySlice(t, d.leg(), 1, 0)
		runtime.ReadMemStats(&after)
		d.flush()
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d bytes are allocated for it", what, n)
		}
		if got := d.causes[len(d.causes)-1]; got.Reason != want {
			t.Fatalf("%s: %+v", what, got)
		}
		if n := max(cap(d.pairs), cap(d.runs)); n > 2*transport.AtATime {
			t.Errorf("%s: the worker keeps room for %d runs, want %d at most", what, n, 2*transport.AtATime)
		}
	}
	check("copied", transfer.OK)
	for _, r := range d.shape.Plan.Pairs(0, nil) {
		from, _ := src.Src(r.Src())
		if to, _ := dst.Dst(r.Dst()); !bytes.Equal(to, from) {
			t.Fatalf("%+v is not copied", r)
		}
	}
	src.Protect(t, sys.ProtNone)
	check("not readable", transfer.Corrupt)
	d.dst = transporttest.NewMemory(t) // no region at all
	check("gone", transfer.Unavailable)
}
