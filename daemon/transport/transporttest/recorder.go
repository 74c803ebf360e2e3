package transporttest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// patience is how long a report may take before a test gives up on it. It measures nothing.
const patience = 2 * time.Minute

// Recorder is a transport.Sink that remembers reports and objects to those that break the rules: a second report of a
// slice, or any report of a leg after its Fenced. Safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	changed sync.Cond
	sent    map[transfer.SliceKey]transfer.Cause
	landed  map[transfer.SliceKey]transfer.Cause
	fenced  map[transfer.Leg]transfer.Cause
	wrong   []string // the first few broken rules
	unnamed int      // how many more there were
	lost    int
	late    bool // patience is over
	hook    func(transfer.Event)
	queued  func(transfer.Event) // called by Queue on the reporting goroutine; may be nil
	lying   []transfer.Event     // queued, not flushed
}

// NewRecorder returns a Recorder without reports.
func NewRecorder() *Recorder {
	r := &Recorder{sent: map[transfer.SliceKey]transfer.Cause{}, landed: map[transfer.SliceKey]transfer.Cause{}, fenced: map[transfer.Leg]transfer.Cause{}}
	r.changed.L = &r.mu
	return r
}

// Event implements transport.Sink.
func (r *Recorder) Event(ev transfer.Event) {
	r.Queue(ev)
	r.Flush()
}

// Queue, Flush and Wake implement transport.Batcher. An event that a transport queues and does not flush is seen late,
// or never.
func (r *Recorder) Queue(ev transfer.Event) {
	if r.queued != nil {
		r.queued(ev)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lying = append(r.lying, ev)
}

// Flush passes on the queued events.
func (r *Recorder) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.lying {
		r.take(ev)
	}
	clear(r.lying)
	r.lying = r.lying[:0]
}

// Wake is Flush: no thread here has a low priority.
func (r *Recorder) Wake() { r.Flush() }

// take notes an event. It is called with the lock held.
func (r *Recorder) take(ev transfer.Event) {
	switch ev := ev.(type) {
	case transfer.SliceSent:
		r.slice(r.sent, "SliceSent", ev.Key, transfer.Producer, ev.Cause)
	case transfer.SliceLanded:
		r.slice(r.landed, "SliceLanded", ev.Key, transfer.Consumer, ev.Cause)
	case transfer.Fenced:
		if before, ok := r.fenced[ev.Leg]; ok && before.Reason == transfer.OK {
			r.object("Fenced of %+v again", ev.Leg)
		}
		r.fenced[ev.Leg] = ev.Cause
	case transfer.LinkLost:
		r.lost++
	default:
		r.object("event %T", ev)
	}
	if r.hook != nil {
		r.hook(ev)
	}
	r.changed.Broadcast()
}

func (r *Recorder) slice(seen map[transfer.SliceKey]transfer.Cause, what string, key transfer.SliceKey, end transfer.End, cause transfer.Cause) {
	if key.End != end {
		r.object("%s of %+v: end must be %d", what, key, end)
	}
	if _, ok := seen[key]; ok {
		r.object("%s of %+v again (%+v)", what, key, cause)
	}
	if c, ok := r.fenced[key.Leg]; ok && c.Reason == transfer.OK {
		r.object("%s of %+v after Fenced", what, key)
	}
	seen[key] = cause
}

// object notes a broken rule. It keeps only a few texts: a test that breaks rules without end should run out of time,
// not exhaust the machine's memory.
func (r *Recorder) object(format string, args ...any) {
	if len(r.wrong) == 5 {
		r.unnamed++
		return
	}
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// wait returns once ok returns true. ok is called with the lock held, after every event.
func (r *Recorder) wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	stop := time.AfterFunc(patience, func() {
		r.mu.Lock()
		r.late = true
		r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer stop.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !ok() && !r.late {
		r.changed.Wait()
	}
	if !ok() {
		t.Fatalf("%s was never reported", what)
	}
}

// Sent waits for a slice's SliceSent.
func (r *Recorder) Sent(t testing.TB, key transfer.SliceKey) (c transfer.Cause) {
	t.Helper()
	r.wait(t, fmt.Sprintf("SliceSent of %+v", key), func() (ok bool) { c, ok = r.sent[key]; return ok })
	return c
}

// Landed waits for a slice's SliceLanded.
func (r *Recorder) Landed(t testing.TB, key transfer.SliceKey) (c transfer.Cause) {
	t.Helper()
	r.wait(t, fmt.Sprintf("SliceLanded of %+v", key), func() (ok bool) { c, ok = r.landed[key]; return ok })
	return c
}

// LandedEither waits until one of two attempts at a slice has landed whole, or the second one has failed, and returns
// its report.
func (r *Recorder) LandedEither(t testing.TB, first, second transfer.SliceKey) (c transfer.Cause) {
	t.Helper()
	r.wait(t, fmt.Sprintf("SliceLanded of %+v or %+v", first, second), func() (ok bool) {
		if c, ok = r.landed[first]; ok && c.Reason == transfer.OK {
			return true
		}
		c, ok = r.landed[second]
		return ok
	})
	return c
}

// Fenced waits for a leg's Fenced with OK.
func (r *Recorder) Fenced(t testing.TB, l transfer.Leg) {
	t.Helper()
	r.wait(t, fmt.Sprintf("Fenced of %+v", l), func() bool { c, ok := r.fenced[l]; return ok && c.Reason == transfer.OK })
}

// LinkLost waits until n links were reported lost.
func (r *Recorder) LinkLost(t testing.TB, n int) {
	t.Helper()
	r.wait(t, fmt.Sprintf("LinkLost number %d", n), func() bool { return r.lost >= n })
}

// HasLanded returns the report of a slice if there is one yet.
func (r *Recorder) HasLanded(key transfer.SliceKey) (c transfer.Cause, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok = r.landed[key]
	return c, ok
}

// Check fails the test if a rule was broken.
func (r *Recorder) Check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wrong {
		t.Error(w)
	}
	if r.unnamed > 0 {
		t.Errorf("and %d more", r.unnamed)
	}
}

// Reset forgets the reports of ended transfers, but not broken rules.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.sent)
	clear(r.landed)
	clear(r.fenced)
}
