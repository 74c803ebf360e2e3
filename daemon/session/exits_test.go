package session

import (
	"runtime"
	"sync"
	"testing"
)

// TestExits: a user whose descriptors do not close has few threads at it, and is a crowd of its own alone.
func TestExits(t *testing.T) {
	x := newExits()
	release, inside := make(chan struct{}), make(chan struct{}, maxLingering)
	var all sync.WaitGroup
	for range maxLingering {
		all.Go(func() {
			x.drop(1, func() {
				inside <- struct{}{}
				<-release
			})
		})
	}
	for range maxClosing {
		<-inside
	}
	x.drop(2, func() {}) // does not wait for those
	for mine := 0; mine < maxLingering; mine, _, _ = x.crowded(1) {
		runtime.Gosched() // until all have come
	}
	if _, _, crowd := x.crowded(1); !crowd {
		t.Error("a user with as many as it may have is no crowd")
	}
	if mine, _, crowd := x.crowded(2); crowd || mine != 0 {
		t.Errorf("another user has %d, and is a crowd: %t", mine, crowd)
	}
	if len(inside) != 0 {
		t.Errorf("%d more than %d are at it", len(inside), maxClosing)
	}
	close(release)
	all.Wait()
	if mine, total, crowd := x.crowded(1); mine != 0 || total != 0 || crowd || len(x.users) != 0 {
		t.Errorf("%d of %d linger after the end, of %d users", mine, total, len(x.users))
	}
}
