package local

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvpipe/kvpipe/daemon/place"
)

// order pops everything for a worker at a spot, and returns the spots of the tasks.
func order(q *queue, spot int) (spots []int) {
	for q.count > 0 {
		spots = append(spots, q.pop(&worker{queue: q, at: spot}).spot)
	}
	return spots
}

// TestLanes: a worker takes what is for its spot, and what is for no spot, before it goes elsewhere, but lets nobody wait for ever.
func TestLanes(t *testing.T) {
	var q queue
	q.init(2)
	for _, spot := range []int{1, 0, place.Anywhere, 1, 0} {
		q.push(new(task), spot)
	}
	if got, want := order(&q, 0), []int{0, place.Anywhere, 0, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("a worker at spot 0 takes tasks of spots %v, want %v", got, want)
	}
	for _, spot := range []int{1, 0, place.Anywhere} {
		q.push(new(task), spot)
	}
	if got, want := order(&q, place.Anywhere), []int{place.Anywhere, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("a worker that is nowhere takes tasks of spots %v, want %v", got, want)
	}
	q.push(new(task), 1)
	for range patience + 1 {
		q.push(new(task), 0)
	}
	if got := slices.Index(order(&q, 0), 1); got != patience {
		t.Errorf("%d tasks overtake one of another spot, want %d", got, patience)
	}
}

// TestWhoIsWoken: of the workers with nothing to do, one at the task's spot, else any; each task wakes one.
func TestWhoIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.init(2)
		got := make(chan [2]int, 8) // worker's spot, task's
		for _, at := range []int{0, 0, 1} {
			go func() {
				w := &worker{queue: &q, at: at}
				for tk := q.pop(w); tk != nil; tk = q.pop(w) {
					got <- [2]int{at, tk.spot}
					if tk.spot == at {
						return // busy from now on
					}
				}
			}()
		}
		synctest.Wait()
		for _, want := range [][2]int{{1, 1}, {0, 0}, {0, 1}, {0, 0}} {
			q.push(new(task), want[1])
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("%d workers have taken the task for spot %d", len(got), want[1])
			}
			if w := <-got; w != want {
				t.Errorf("a worker at spot %d took a task of spot %d, want one at %d", w[0], w[1], want[0])
			}
		}
		q.push(new(task), 0)
		synctest.Wait()
		if len(got) != 0 || q.count != 1 {
			t.Errorf("a task was taken by nobody: %d, %d left", len(got), q.count)
		}
		q.close()
	})
}

// TestNobodyIsIdleTwice: whatever pushes and calls come between, who is counted idle waits, and nobody else is.
func TestNobodyIsIdleTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.init(2)
		const workers = 3
		for at := range workers {
			go func() {
				w := &worker{queue: &q, wake: func() {}, at: at % 2}
				for tk := q.pop(w); tk != nil; tk = q.pop(w) {
					w.at = tk.spot // as sit does
				}
			}()
		}
		for range 200 {
			var all sync.WaitGroup
			for spot := range 2 {
				all.Go(func() {
					for range 50 {
						q.push(new(task), spot)
					}
				})
			}
			all.Go(func() {
				for range 50 {
					q.call(workers)
				}
			})
			all.Wait()
			synctest.Wait()
			idle := 0
			for i := range q.lanes {
				idle += q.lanes[i].idle
			}
			if idle != workers || q.count != 0 {
				t.Fatalf("%d of %d workers are idle, %d tasks wait", idle, workers, q.count)
			}
		}
		q.close()
	})
}
