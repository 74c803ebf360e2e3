package blockcopy

import (
	"bytes"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// wantFault checks that err is a fault on one side of a run, at offset off or
// behind it: the runtime's copy does not begin at the beginning.
func wantFault(t *testing.T, err error, side Side, run, off int) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("error %v, want a *Fault", err)
	}
	if f.Side != side || f.Run != run || f.Off < off {
		t.Fatalf("%+v (%v), want the %v of run %d at offset %d or more", f, f, side, run, off)
	}
	if !strings.Contains(f.Error(), side.String()) {
		t.Errorf("message %q does not name the %v", f, side)
	}
}

func TestTruncatedMemory(t *testing.T) {
	const size, cut = 1 << 20, 600 << 10
	eachKernel(t, func(t *testing.T, k kernel) {
		healthy, _ := shared(t, size)
		for i := range healthy {
			healthy[i] = byte(i >> 9)
		}
		broken, shrink := shared(t, size)
		shrink(cut)
		_, err := copyRuns(k, []Run{{healthy, broken}}, nil)
		wantFault(t, err, SideSource, 0, cut)
		for i := range healthy {
			healthy[i] = byte(i >> 9)
		}
		done, err := copyRuns(k, []Run{{broken, healthy}}, nil)
		wantFault(t, err, SideDestination, 0, cut)
		if done != cut/Quantum*Quantum || !bytes.Equal(broken[:done], healthy[:done]) {
			t.Errorf("%d bytes are said to be copied, and are not", done)
		}
	})
}

// The run at fault is named among others in flight with it, so that only its
// block is reported as failed.
func TestFaultNamesTheRun(t *testing.T) {
	const block, n = 8 << 10, 64
	eachKernel(t, func(t *testing.T, k kernel) {
		src, _ := shared(t, n*block)
		dst, _ := shared(t, n*block)
		runs := make([]Run, n)
		for i := range runs {
			at := (i * 37 % n) * block
			runs[i] = Run{dst[at : at+block], src[i*block : (i+1)*block]}
		}
		for _, bad := range []int{0, 1, 30, 31, 32, n - 1} {
			for _, side := range []Side{SideSource, SideDestination} {
				b := runs[bad].Src
				if side == SideDestination {
					b = runs[bad].Dst
				}
				protect(t, b[page:], sys.ProtNone)
				_, err := copyRuns(k, runs, nil)
				protect(t, b[page:], sys.ProtWrite)
				wantFault(t, err, side, bad, page)
			}
		}
		if _, err := copyRuns(k, runs, nil); err != nil {
			t.Fatal(err)
		}
	})
}

func protect(t *testing.T, b []byte, p sys.Prot) {
	t.Helper()
	if err := sys.Protect(b, p); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyDestination(t *testing.T) {
	src, _ := shared(t, minTotal)
	dst, _ := shared(t, minTotal)
	protect(t, dst, sys.ProtRead)
	eachKernel(t, func(t *testing.T, k kernel) {
		_, err := copyRuns(k, []Run{{dst, src}}, nil)
		wantFault(t, err, SideDestination, 0, 0)
	})
}

func TestSmallCopyIsGuarded(t *testing.T) {
	ok, _ := shared(t, page)
	bad, err := sys.MmapAnon(page, sys.ProtNone)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sys.Munmap(bad); err != nil {
			t.Error(err)
		}
	}()
	for _, n := range []int{1, 8, 100, page} {
		wantFault(t, Copy(ok[:n], bad[:n]), SideSource, 0, 0)
		wantFault(t, Copy(bad[:n], ok[:n]), SideDestination, 0, 0)
	}
}

// Faults in a row, while the collector runs and other goroutines allocate and
// check what they allocated: recovering must not harm anything.
func TestManyFaultsUnderGC(t *testing.T) {
	const faults, size = 400, 128 << 10
	var stop atomic.Bool
	var collections atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := byte(0); !stop.Load(); i++ {
				b := bytes.Repeat([]byte{i}, 10000)
				runtime.Gosched()
				if b[0] != i || b[9999] != i {
					t.Error("memory of another goroutine was damaged")
					return
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			runtime.GC()
			collections.Add(1)
		}
	})
	eachKernel(t, func(t *testing.T, k kernel) {
		a, _ := shared(t, size)
		b, shrink := shared(t, size)
		first := collections.Load()
		for i := 0; i < faults || collections.Load() < first+10; i++ {
			shrink(i * 317 % (size - page)) // the rest of a page that is cut stays
			run := Run{a, b}
			if i%2 == 1 {
				run = Run{b, a}
			}
			if _, err := copyRuns(k, []Run{run}, nil); err == nil {
				t.Fatalf("fault %d was not seen", i)
			}
			shrink(size)
			if _, err := copyRuns(k, []Run{run}, nil); err != nil {
				t.Fatalf("after fault %d: %v", i, err)
			}
		}
	})
	stop.Store(true)
	wg.Wait()
}

// A fault outside of a copy is a bug of this process and must stay fatal: the
// goroutine's setting is put back, also after a fault.
func TestSettingIsRestored(t *testing.T) {
	bad, shrink := shared(t, page)
	shrink(0)
	for _, want := range []bool{false, true} {
		before := debug.SetPanicOnFault(want)
		_ = Copy(make([]byte, page), bad)
		if got := debug.SetPanicOnFault(before); got != want {
			t.Errorf("the setting became %v, was %v", got, want)
		}
	}
}

// A panic that is not a fault is a bug and is not swallowed.
func TestOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); r != "bug" {
			t.Errorf("recovered %v", r)
		}
	}()
	c := cursor{}
	_ = c.fault("bug")
	t.Error("the panic was swallowed")
}

func TestUnknownAddress(t *testing.T) {
	c := cursor{runs: []Run{{make([]byte, 10), make([]byte, 10)}}}
	err := c.fault(fakeFault{})
	var f *Fault
	if !errors.As(err, &f) || f.Run != -1 || f.Side != SideUnknown || f.Addr != 0xdead000 {
		t.Errorf("%+v", err)
	}
}

type fakeFault struct{}

func (fakeFault) Error() string { return "fault" }
func (fakeFault) Addr() uintptr { return 0xdead000 }
