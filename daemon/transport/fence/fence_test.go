package fence

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

var cancelled = transfer.Cause{Reason: transfer.Cancelled, Text: "test"}

func key(i int) transfer.SliceKey { return transfer.SliceKey{Slice: uint32(i)} }

// TestModel drives a leg through every order of calls and holds it against the rules: one report per slice, none after the
// fence stands, the fence stands as soon as nobody is inside, and nobody enters after it was asked for.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports := map[uint32]int{}
		stands := false
		l := NewLeg(func(k transfer.SliceKey, _, _ transfer.Cause) {
			if stands {
				t.Fatalf("slice %d reported after the fence", k.Slice)
			}
			reports[k.Slice]++
		})
		const n = 4
		var slices [n]Slice
		var inside, open [n]bool
		begun, fenced := 0, false
		names := [n]int{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "slice")
			s := &slices[i]
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if open[i] {
					continue
				}
				begun++
				if got := l.Add(s, key(begun)); got == fenced {
					t.Fatalf("Add is %v with the leg fenced: %v", got, fenced)
				} else if got {
					open[i], names[i] = true, begun
				}
			case 1:
				if s.leg == nil || inside[i] {
					continue
				}
				want := open[i]
				if got := s.Enter(); got != want {
					t.Fatalf("Enter is %v, want %v", got, want)
				}
				inside[i] = want
			case 2:
				if !inside[i] {
					continue
				}
				if got := s.Leave(); got == fenced {
					t.Fatalf("Leave is %v with the leg fenced: %v", got, fenced)
				}
				inside[i], open[i] = false, !fenced
			case 3:
				if s.leg == nil {
					continue
				}
				s.End(transfer.Cause{})
				inside[i], open[i] = false, false
			case 4:
				l.Fence(cancelled, func() { stands = true })
				fenced = true
				for k := range open {
					open[k] = inside[k]
				}
			case 5:
				if got := l.Cancelled().Load(); got != fenced {
					t.Fatalf("Cancelled is %v, want %v", got, fenced)
				}
			}
			busy := false
			for _, in := range inside {
				busy = busy || in
			}
			if want := fenced && !busy; stands != want {
				t.Fatalf("the fence stands: %v, want %v", stands, want)
			}
		}
		for i, name := range names {
			want := 1
			if open[i] || name == 0 {
				want = 0
			}
			if got := reports[uint32(name)]; got != want {
				t.Fatalf("slice %d was reported %d times, want %d", name, got, want)
			}
		}
	})
}

// TestRace fences while workers are inside: after the fence the memory is the test's alone, which -race confirms.
func TestRace(t *testing.T) {
	for range 300 {
		memory := make([]byte, 8)
		var mu sync.Mutex
		reports := 0
		l := NewLeg(func(transfer.SliceKey, transfer.Cause, transfer.Cause) {
			mu.Lock()
			reports++
			mu.Unlock()
		})
		var workers sync.WaitGroup
		const n = 4
		for i := range n {
			var s Slice
			if !l.Add(&s, key(i)) {
				t.Fatal("Add before the fence")
			}
			workers.Add(1)
			go func() {
				defer workers.Done()
				for range 5 {
					if !s.Enter() {
						return
					}
					memory[i]++
					if !s.Leave() {
						return
					}
				}
				s.End(transfer.Cause{})
			}()
		}
		stands := make(chan struct{})
		l.Fence(cancelled, func() { close(stands) })
		<-stands
		clear(memory)
		mu.Lock()
		if reports != n {
			t.Fatalf("%d reports before the fence stood, want %d", reports, n)
		}
		mu.Unlock()
		workers.Wait()
		for _, b := range memory {
			if b != 0 {
				t.Fatal("memory was touched after the fence")
			}
		}
	}
}

// TestRings: slices that are used again and again, in one leg after another, are in the ring of the leg they are in exactly while
// they are idle, whatever else happens while a fence reports.
func TestRings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 5
		var legs [2]*Leg
		var slices [n]Slice
		check := func() {
			for i, l := range legs {
				if l == nil {
					continue
				}
				in := 0
				for s := l.idle.next; s != &l.idle; s = s.next {
					if s.leg != l || s.state != idle || s.next.prev != s || in == n {
						t.Fatalf("leg %d: slice %+v is in its ring", i, s)
					}
					in++
				}
				for k := range slices {
					if s := &slices[k]; s.leg == l && s.state == idle {
						in--
					} else if s.state != idle && (s.next != nil || s.prev != nil) {
						t.Fatalf("slice %+v is in a ring", s)
					}
				}
				if in != 0 {
					t.Fatalf("leg %d: %d more slices in its ring than are idle", i, in)
				}
			}
		}
		var act func(depth int)
		renew := func(i, depth int) {
			legs[i] = NewLeg(func(transfer.SliceKey, transfer.Cause, transfer.Cause) {
				if check(); depth < 2 {
					act(depth + 1) // a worker, between two reports
				}
			})
		}
		act = func(depth int) {
			s := &slices[rapid.IntRange(0, n-1).Draw(t, "slice")]
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if s.state == ended {
					legs[rapid.IntRange(0, 1).Draw(t, "leg")].Add(s, key(0))
				}
			case 1:
				if s.state != busy && s.leg != nil {
					s.Enter()
				}
			case 2:
				if s.state == busy {
					s.Leave()
				}
			case 3:
				if s.leg != nil {
					s.End(transfer.Cause{})
				}
			case 4, 5:
				i := rapid.IntRange(0, 1).Draw(t, "leg")
				l, stands := legs[i], false
				l.Fence(cancelled, func() { stands = true })
				if stands && legs[i] == l {
					renew(i, depth)
				}
			}
		}
		renew(0, 0)
		renew(1, 0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			act(0)
			check()
		}
	})
}

// TestFenceTwice: whoever fences a leg again waits for the same.
func TestFenceTwice(t *testing.T) {
	l := NewLeg(func(transfer.SliceKey, transfer.Cause, transfer.Cause) {})
	var s Slice
	l.Add(&s, key(0))
	s.Enter()
	calls := 0
	l.Fence(cancelled, func() { calls++ })
	l.Fence(cancelled, func() { calls++ })
	if calls != 0 {
		t.Fatal("the fence stands while somebody is inside")
	}
	s.Leave()
	if calls != 2 {
		t.Fatalf("%d of 2 fences stand", calls)
	}
	l.Fence(cancelled, func() { calls++ })
	if calls != 3 {
		t.Fatal("a fence of a fenced leg does not stand at once")
	}
}

// TestCauses: both ends may fare differently, and the fence's cause is what it was given.
func TestCauses(t *testing.T) {
	var sent, landed transfer.Cause
	l := NewLeg(func(_ transfer.SliceKey, s, d transfer.Cause) { sent, landed = s, d })
	var s Slice
	l.Add(&s, key(0))
	s.EndBoth(transfer.Cause{}, transfer.Cause{Reason: transfer.Corrupt})
	if sent.Reason != transfer.OK || landed.Reason != transfer.Corrupt {
		t.Errorf("sent %+v, landed %+v", sent, landed)
	}
	l.Add(&s, key(1))
	l.Fence(cancelled, func() {})
	if sent != cancelled || landed != cancelled {
		t.Errorf("fenced: sent %+v, landed %+v", sent, landed)
	}
}

// TestASliceCutShortSaysSo: a slice that a worker is inside of ends with the cause of the leg's first fence once the worker leaves, and not
// as if all of it had been moved.
func TestASliceCutShortSaysSo(t *testing.T) {
	var sent, landed transfer.Cause
	l := NewLeg(func(_ transfer.SliceKey, s, d transfer.Cause) { sent, landed = s, d })
	var s Slice
	l.Add(&s, key(0))
	s.Enter()
	l.Fence(cancelled, func() {})
	l.Fence(transfer.Cause{Reason: transfer.Closed}, func() {})
	s.Leave()
	if sent != cancelled || landed != cancelled {
		t.Errorf("sent %+v, landed %+v, want %+v", sent, landed, cancelled)
	}
}

// TestOpenSlice: a slice that has not ended cannot be begun again, in its own leg or in another.
func TestOpenSlice(t *testing.T) {
	report := func(transfer.SliceKey, transfer.Cause, transfer.Cause) {}
	l := NewLeg(report)
	var s Slice
	l.Add(&s, key(0))
	for _, leg := range []*Leg{l, NewLeg(report)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a slice was begun twice")
				}
			}()
			leg.Add(&s, key(1))
		}()
	}
	s.End(transfer.Cause{})
	if !l.Add(&s, key(1)) {
		t.Error("a slice that has ended cannot be begun again")
	}
	l.Fence(cancelled, func() {})
}
