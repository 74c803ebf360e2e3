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
