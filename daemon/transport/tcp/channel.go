package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// channelKey names a channel's incarnation.
type channelKey struct {
	peer  string
	epoch uint64
}

// task is a posted slice.
type task struct {
	fence.Slice
	job   transport.Job
	cause transfer.Cause // how it ended, until reported
	next  *task
}

// channel is the links of one peer and epoch, and the slices that wait for a link.
type channel struct {
	channelKey
	t       *Transport
	count   *counters
	ctx     context.Context // ends when the channel is over
	cancel  context.CancelFunc
	running sync.WaitGroup // links

	mu          sync.Mutex
	posted      sync.Cond
	first, last *task
	free        *task
	links       map[int]*link
	sending     int  // slices that links have taken and not given back
	linked      bool // there was a link or one is coming, so LinksDown will come
	down        bool
	sent        rate
	came        arrivals
}

// channel returns the channel of that key, and makes it if need be. It is called with t's lock held.
func (t *Transport) channel(key channelKey) *channel {
	ch := t.channels[key]
	if ch == nil {
		ch = &channel{channelKey: key, t: t, count: t.counters(key.peer), links: map[int]*link{}}
		ch.posted.L = &ch.mu
		ch.ctx, ch.cancel = context.WithCancel(context.Background())
		t.channels[key] = ch
	}
	return ch
}

// forget drops a channel that never had a link and has nothing left to send.
func (t *Transport) forget(ch *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.linked && ch.first == nil && t.channels[ch.channelKey] == ch {
		delete(t.channels, ch.channelKey)
		ch.cancel()
	}
}

// post queues a slice.
func (ch *channel) post(leg *fence.Leg, job transport.Job) {
	ch.mu.Lock()
	tk := ch.free
	if tk != nil {
		ch.free, tk.next = tk.next, nil
	} else {
		tk = new(task)
	}
	tk.job = job
	if !leg.Add(&tk.Slice, job.Key) {
		ch.recycle(tk)
		ch.mu.Unlock()
		ch.t.reportSent(job.Key, stopped, stopped)
		return
	}
	if ch.down {
		ch.mu.Unlock()
		tk.End(channelDown)
		return
	}
	if ch.first == nil {
		ch.first = tk
	} else {
		ch.last.next = tk
	}
	ch.last = tk
	ch.mu.Unlock()
	ch.posted.Signal()
}

// recycle keeps an ended task for reuse. It is called with the lock held.
func (ch *channel) recycle(tk *task) {
	tk.job, tk.cause = transport.Job{}, transfer.Cause{}
	tk.next, ch.free = ch.free, tk
}

// take waits for a slice that l can send. Give it back with done. take calls idle before it waits, and returns nil once
// the link is dead.
func (ch *channel) take(l *link, idle func()) *task {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.first == nil && !l.dead.Load() {
		ch.mu.Unlock()
		idle()
		ch.mu.Lock()
	}
	l.tx.Rest()
	for ch.first == nil && !l.dead.Load() {
		ch.posted.Wait()
	}
	l.tx.Rise()
	if l.dead.Load() {
		return nil
	}
	tk := ch.first
	ch.first, tk.next = tk.next, nil
	ch.sending++
	ch.sent.begin(time.Now())
	return tk
}

// done takes back tasks that have ended. n is how many of their payload bytes the kernel took.
func (ch *channel) done(ended []*task, n int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, tk := range ended {
		ch.recycle(tk)
	}
	ch.sending -= len(ended)
	now := time.Now()
	ch.sent.add(now, n)
	if ch.sending == 0 && ch.first == nil {
		ch.sent.pause(now)
	}
}

// arriving is called when a link begins a slice. arrived notes n bytes that have landed on that link since; more: the
// link has another slice in hand.
func (ch *channel) arriving() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.came.begin(time.Now())
}

func (ch *channel) arrived(n int, more bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.came.add(time.Now(), n, more)
}

// gbps returns the rates of what arrived and of what was sent, in 10^9 bytes a second.
func (ch *channel) gbps() (in, out float64) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.came.settle(time.Now())
	return ch.came.avg / 1e9, ch.sent.avg / 1e9
}

// sweep drops the queued slices of a fenced leg.
func (ch *channel) sweep(leg *fence.Leg) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var kept, last *task
	for tk := ch.first; tk != nil; {
		next := tk.next
		tk.next = nil
		switch {
		case tk.Leg() == leg:
			ch.recycle(tk)
		case kept == nil:
			kept, last = tk, tk
		default:
			last.next, last = tk, tk
		}
		tk = next
	}
	ch.first, ch.last = kept, last
	if kept == nil && ch.sending == 0 {
		ch.sent.since = time.Time{} // if this is not zero yet, there was no link: that says nothing of how fast one is
	}
}

// close ends all links, and all queued slices with cause. When it returns, no goroutine of the channel runs any more.
func (ch *channel) close(cause transfer.Cause) {
	ch.mu.Lock()
	ch.down = true
	ch.cancel()
	links := make([]*link, 0, len(ch.links))
	for _, l := range ch.links {
		links = append(links, l)
	}
	ch.mu.Unlock()
	for _, l := range links {
		l.fail(errChannelOver)
	}
	ch.running.Wait()
	ch.mu.Lock()
	queued := ch.first
	ch.first, ch.last = nil, nil
	ch.mu.Unlock()
	for tk := queued; tk != nil; tk = tk.next {
		tk.End(cause)
	}
}
