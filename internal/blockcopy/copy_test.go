package blockcopy

import (
	"bytes"
	"errors"
	"math/rand"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// model copies runs one after the other, as the language does.
func model(runs []Run) {
	for _, r := range runs {
		copy(r.Dst, r.Src)
	}
}

// lengths covers every border that the implementation knows, and around them.
var lengths = rapid.OneOf(
	rapid.IntRange(0, 3*line),
	rapid.IntRange(minRun-line, minRun+line),
	rapid.IntRange(page-line, page+line),
	rapid.IntRange(0, 5*page),
	rapid.IntRange(minTotal-line, minTotal+line),
	rapid.IntRange(Quantum-line, Quantum+line),
	rapid.Map(rapid.IntRange(0, 80), func(n int) int { return n * 1024 }),
)

// Any list of runs, at any alignment, against the model: the destination is
// compared whole, so a byte written outside of the runs shows too.
func TestModel(t *testing.T) {
	const size = 2 << 20
	eachKernel(t, func(t *testing.T, k kernel) {
		src, got, want := make([]byte, size), make([]byte, size), make([]byte, size)
		rand.New(rand.NewSource(3)).Read(src)
		rapid.Check(t, func(t *rapid.T) {
			canary := byte(rapid.Uint8().Draw(t, "canary"))
			copy(got, bytes.Repeat([]byte{canary}, size))
			copy(want, got)
			var mine, plain []Run
			total := 0
			for off, s := 0, 0; ; {
				off += rapid.IntRange(0, 2*line).Draw(t, "gap")
				s += rapid.IntRange(0, 2*line).Draw(t, "source gap")
				n := lengths.Draw(t, "length")
				if max(off, s)+n > size || len(mine) > 30 {
					break
				}
				mine = append(mine, Run{got[off : off+n], src[s : s+n]})
				plain = append(plain, Run{want[off : off+n], src[s : s+n]})
				off, s, total = off+n, s+n, total+n
			}
			// Blocks lie in no order, on either side.
			perm := rapid.Permutation(mine).Draw(t, "order")
			done, err := copyRuns(k, perm, nil)
			if err != nil || done != int64(total) {
				t.Fatalf("copied %d of %d bytes: %v", done, total, err)
			}
			model(plain)
			if !bytes.Equal(got, want) {
				t.Fatalf("byte %d differs", firstDifference(got, want))
			}
		})
	})
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// Every alignment of both ends and lengths around each border, one by one.
func TestAlignments(t *testing.T) {
	eachKernel(t, func(t *testing.T, k kernel) {
		src, dst := make([]byte, 4*page), make([]byte, 4*page)
		rand.New(rand.NewSource(4)).Read(src)
		// A second, large run makes the list large enough for the kernel.
		filler := Run{make([]byte, minTotal), make([]byte, minTotal)}
		for so := range line {
			for _, do := range []int{0, 1, 7, 8, 31, 32, 33, 63} {
				for _, n := range []int{minRun, minRun + 1, minRun + 63, page - 1, page, page + 65, 3*page - 1} {
					clear(dst)
					d, s := dst[do:do+n], src[so:so+n]
					if _, err := copyRuns(k, []Run{{d, s}, filler}, nil); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(d, s) || !zero(dst[:do]) || !zero(dst[do+n:]) {
						t.Fatalf("source offset %d, destination offset %d, %d bytes: wrong", so, do, n)
					}
				}
			}
		}
	})
}

func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func FuzzCopy(f *testing.F) {
	f.Add([]byte("some bytes"), uint8(1), uint8(63), uint32(40000))
	f.Add([]byte{0, 255}, uint8(0), uint8(0), uint32(Quantum+1))
	f.Add([]byte{1}, uint8(33), uint8(2), uint32(minTotal))
	f.Fuzz(func(t *testing.T, pattern []byte, so, do uint8, n32 uint32) {
		n := int(n32 % (2*Quantum + page))
		src := bytes.Repeat(append(pattern, 17), (int(so)+n)/(len(pattern)+1)+1)[so:][:n]
		for _, k := range kernels() {
			dst := make([]byte, int(do)+n+line)
			if _, err := copyRuns(k, []Run{{dst[do:][:n], src}}, nil); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(dst[do:][:n], src) || !zero(dst[:do]) || !zero(dst[int(do)+n:]) {
				t.Fatalf("%s: wrong bytes", k.String())
			}
		}
	})
}

func TestLengthsMustAgree(t *testing.T) {
	b := make([]byte, 100)
	if err := Copy(b[:50], b[50:99]); err == nil {
		t.Error("50 bytes were copied from 49")
	}
	if done, err := CopyRuns([]Run{{b[:10], b[10:20]}, {b[:1], b[10:12]}}, nil); err == nil || done != 0 {
		t.Errorf("%d bytes, %v: a bad list must be refused before the first byte", done, err)
	}
}

func TestEmptyLists(t *testing.T) {
	if err := Copy(nil, nil); err != nil {
		t.Error(err)
	}
	empty := make([]Run, 3*batchRuns)
	big := Run{make([]byte, 3*Quantum), make([]byte, 3*Quantum)}
	for _, runs := range [][]Run{nil, empty, append(empty, big), append([]Run{big}, empty...)} {
		want := int64(0)
		for _, r := range runs {
			want += int64(len(r.Dst))
		}
		if done, err := CopyRuns(runs, nil); err != nil || done != want {
			t.Errorf("%d bytes of %d, %v", done, want, err)
		}
	}
}

func TestStop(t *testing.T) {
	eachKernel(t, func(t *testing.T, k kernel) {
		src, dst := make([]byte, 8*Quantum), make([]byte, 8*Quantum)
		var stop atomic.Bool
		stop.Store(true)
		if done, err := copyRuns(k, []Run{{dst, src}}, &stop); done != 0 || !errors.Is(err, ErrStopped) {
			t.Errorf("stopped before it began: %d, %v", done, err)
		}
		// Stopped in the middle, seen from another goroutine: what it says is
		// copied is copied, and it stands at a batch's border.
		for i := range src {
			src[i] = byte(i>>8) | 1
		}
		stop.Store(false)
		runs := make([]Run, 0, 8*64)
		for i := range cap(runs) {
			n := len(src) / cap(runs)
			runs = append(runs, Run{dst[i*n : (i+1)*n], src[i*n : (i+1)*n]})
		}
		begun := make(chan struct{})
		go func() {
			<-begun
			stop.Store(true)
		}()
		close(begun)
		for {
			done, err := copyRuns(k, runs, &stop)
			if !bytes.Equal(dst[:done], src[:done]) || done%Quantum != 0 {
				t.Fatalf("%d bytes are said to be copied, and are not", done)
			}
			if errors.Is(err, ErrStopped) {
				break
			}
			if err != nil || done != int64(len(src)) {
				t.Fatal(done, err)
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		return // the race detector allocates on its own account
	}
	src, dst := make([]byte, 4*Quantum), make([]byte, 4*Quantum)
	small := make([]Run, 100)
	for i := range small {
		small[i] = Run{dst[i*100 : i*100+100], src[i*100 : i*100+100]}
	}
	var stop atomic.Bool
	eachKernel(t, func(t *testing.T, k kernel) {
		runs := []Run{{dst[1:], src[:len(src)-1]}}
		for _, runs := range [][]Run{runs, small} {
			if n := testing.AllocsPerRun(10, func() {
				if _, err := copyRuns(k, runs, &stop); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}
	})
	if n := testing.AllocsPerRun(10, func() {
		if Copy(dst, src) != nil {
			t.Error("copy failed")
		}
	}); n != 0 {
		t.Errorf("Copy: %v allocations", n)
	}
}
