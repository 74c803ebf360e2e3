package memory

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestFewRegionsAreWarmedAtOnce: however many are registered together, warming them takes a few threads. A region that waits for its turn
// can be removed at once. All others get theirs.
func TestFewRegionsAreWarmedAtOnce(t *testing.T) {
	const page, regions = 4096, 3 * warmAtOnce
	fd := memfd(t, page, good)
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(Limits{})
		var mu sync.Mutex
		warmed := map[*byte]bool{} // by the first byte: it is done
		step := make(chan struct{})
		pool.populate = func(b []byte) error {
			mu.Lock()
			warmed[&b[0]] = false
			mu.Unlock()
			<-step
			mu.Lock()
			warmed[&b[0]] = true
			mu.Unlock()
			return nil
		}
		s := NewSpace(pool, "")
		defer s.Close()
		for range regions {
			_, err := s.Register(fd, page)
			noErr(t, err)
		}
		synctest.Wait()
		if n := len(warmed); n != warmAtOnce {
			t.Errorf("%d of %d regions are being warmed, want %d", n, regions, warmAtOnce)
		}
		for _, r := range *s.regions.Load() {
			if _, begun := warmed[&r.whole[0]]; !begun {
				noErr(t, s.Remove(r.id))
				break
			}
		}
		close(step)
		synctest.Wait()
		for _, r := range *s.regions.Load() {
			if r != nil && !warmed[&r.whole[0]] {
				t.Errorf("region %#x was not warmed", uint64(r.id))
			}
		}
	})
}
