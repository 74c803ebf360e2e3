package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestComings: a burst is told, then one each second, which says how many were not; what one user does costs another nothing.
func TestComings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c comings
		wants := func(uid uint32, tell bool, untold int) {
			t.Helper()
			if told, n := c.due(uid); told != tell || n != untold {
				t.Fatalf("told %v after %d that were not, want %v after %d", told, n, tell, untold)
			}
		}
		burst := func() {
			t.Helper()
			for range comingsBurst {
				wants(1000, true, 0)
			}
		}
		burst()
		for range 7 {
			wants(1000, false, 0)
		}
		wants(1001, true, 0)
		time.Sleep(comingsEvery)
		wants(1000, true, 7)
		wants(1000, false, 0)
		time.Sleep(3 * comingsEvery / 2)
		wants(1000, true, 1)
		wants(1000, false, 0)
		time.Sleep(comingsEvery / 2) // what is left of a second counts
		wants(1000, true, 1)
		time.Sleep(comingsBurst * comingsEvery)
		burst()
		wants(1000, false, 0)
	})
}
