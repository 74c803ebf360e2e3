package sys

import (
	"testing"
	"time"
)

// TestNap: it may be cut short by a signal, but does not fail to come back.
func TestNap(t *testing.T) {
	for start := time.Now(); time.Since(start) < time.Millisecond; {
		Nap(100 * time.Microsecond)
	}
}
