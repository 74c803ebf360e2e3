package sim

import (
	"container/heap"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// event happens at its time. Events at the same time happen in the order in which they were planned.
type event struct {
	at  transfer.Time
	seq uint64
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	old[len(old)-1] = event{}
	*a = old[:len(old)-1]
	return x
}

// after plans do for d from now.
func (c *Cluster) after(d transfer.Time, do func()) {
	c.seq++
	heap.Push(&c.agenda, event{c.now + d, c.seq, do})
}

// run executes everything that is planned up to a time, or until a promise is broken.
func (c *Cluster) run(until transfer.Time) {
	for len(c.agenda) > 0 && c.agenda[0].at <= until && c.broken == nil {
		e := heap.Pop(&c.agenda).(event)
		c.now = e.at
		e.do()
	}
	c.now = max(c.now, until)
}
