package sys

import (
	"testing"
	"time"
)

// TestNap: it sleeps as long as it is told to. A signal may cut one short, hardly ten.
func TestNap(t *testing.T) {
	const long = time.Millisecond
	for range 10 {
		start := time.Now()
		Nap(long)
		if time.Since(start) >= long {
			return
		}
	}
	t.Errorf("none of ten naps took %s", long)
}
