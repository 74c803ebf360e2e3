package damper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestDamper: the first is said at once, and then one for each gap.
func TestDamper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Damper
		for round := range 3 {
			if !d.Due() {
				t.Fatalf("round %d: not said", round)
			}
			if time.Sleep(Gap - time.Nanosecond); d.Due() {
				t.Fatalf("round %d: said again too soon", round)
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

// TestEach: one does not keep what is about another from being said, and nobody is remembered who has not been heard of for a while.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e Each
		for i := range 100 {
			name := fmt.Sprint(i)
			said := 0
			for range 3 * burst {
				if e.Due(name) {
					said++
				}
			}
			if said != burst {
				t.Fatalf("of %s it is said %d times, want %d", name, said, burst)
			}
		}
		time.Sleep(Gap)
		if !e.Due("7") {
			t.Error("not said of one that was quiet")
		}
		if n := len(e.said); n != 1 {
			t.Errorf("%d are remembered, want 1", n)
		}
	})
}

// TestFlow: a burst is told, then one each second, which says how many were not.
func TestFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flow
		wants := func(tell bool, untold int) {
			t.Helper()
			if told, n := f.Due(); told != tell || n != untold {
				t.Fatalf("told %v after %d that were not, want %v after %d", told, n, tell, untold)
			}
		}
		burst := func() {
			t.Helper()
			for range flowBurst {
				wants(true, 0)
			}
		}
		burst()
		for range 7 {
			wants(false, 0)
		}
		time.Sleep(flowEvery)
		wants(true, 7)
		wants(false, 0)
		time.Sleep(3 * flowEvery / 2)
		wants(true, 1)
		wants(false, 0)
		time.Sleep(flowEvery / 2) // what is left of a second counts
		wants(true, 1)
		time.Sleep(flowBurst * flowEvery)
		burst()
		wants(false, 0)
	})
}
