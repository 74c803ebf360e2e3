package metrics

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestScrapesShareASnapshot: however many scrape, snapshots take a small part of the time, and none is shown that is old.
func TestScrapesShareASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, takes := 0, 50*time.Millisecond
		c := New(func(context.Context) (Snapshot, error) {
			<-time.After(takes)
			taken++
			return Snapshot{Sessions: taken}, nil
		})
		look := func(want int) {
			t.Helper()
			if s, err := c.recent.get(t.Context()); err != nil || s.Sessions != want {
				t.Errorf("snapshot %d (%v), want the one of number %d", s.Sessions, err, want)
			}
		}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { look(1) })
		}
		all.Wait()
		<-time.After(9 * takes)
		look(1)
		<-time.After(takes)
		look(2)

		<-time.After(time.Second)
		takes = 3 * time.Second
		look(3)
		<-time.After(maxAge)
		look(4)
	})
}

// TestScrapeOfADaemonThatStandsStill: who waits for another's snapshot waits no longer than for one of his own, and an error is nobody else's.
func TestScrapeOfADaemonThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		still := true
		c := New(func(ctx context.Context) (Snapshot, error) {
			if still {
				<-ctx.Done()
			}
			return Snapshot{}, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), scrapeTimeout)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := c.recent.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want that the time is over", err)
				}
			})
		}
		all.Wait()
		still = false
		if _, err := c.recent.get(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
