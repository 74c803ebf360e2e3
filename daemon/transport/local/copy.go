package local

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/blockcopy"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// work is a copy worker. It has its own thread with a low priority, since a goroutine that copies for long would keep
// others from their processor. It runs near the memory that it writes: it begins at spot, and leaves it when there is
// work only elsewhere. The thread ends with the worker.
func (t *Transport) work(spot int) {
	runtime.LockOSThread()
	// Fails where a policy forbids it, which only costs latency.
	_ = sys.SetThreadNice(t.cfg.Nice)
	w := worker{queue: &t.queue, wake: t.sink.Wake, held: make([]ended, 0, batch), longest: longest}
	defer w.flush()
	seat := t.cfg.Places.Seat()
	defer seat.Leave()
	w.sit(&seat, spot)
	for tk := w.queue.pop(&w); tk != nil; tk = w.queue.pop(&w) {
		at := tk.spot
		w.sit(&seat, at)
		start := time.Now()
		if n := w.do(tk); n > 0 {
			t.rate.sample(n, time.Since(start))
			t.rate.count(n)
			seat.Moved(at, n)
		}
	}
}

// worker copies slices and reports their ends.
type worker struct {
	copier
	queue   *queue
	wake    func()        // has the driver process the reports
	held    []ended       // copied but not reported, all of one leg
	since   time.Time     // when the first of held ended
	longest time.Duration // once this long after since, the next slice to end has all of held reported
	at      int           // its spot
	round   int           // the last roll call that it answered
}

// sit moves the worker to a spot, and reports what it holds first.
func (w *worker) sit(seat *place.Seat, spot int) {
	if spot != place.Anywhere && spot != seat.At() {
		w.flush()
		seat.Take(spot)
	}
	w.at = seat.At()
}

// ended is a slice that was copied, and the outcome for each end.
type ended struct {
	tk           *task
	sent, landed transfer.Cause
}

// A worker reports slices of a leg together while more of them follow: each report wakes the driver, whose thread takes
// the processor from a worker if there is one worker for each processor. It reports batch slices at once, or fewer if
// one ends at least longest after the first. It holds back less than the machine's window, so it has work meanwhile.
const (
	batch   = 8
	longest = time.Millisecond
)

// do copies a slice, unless it was fenced, and sees to its report. It returns how many bytes it copied.
func (w *worker) do(tk *task) uint64 {
	if len(w.held) > 0 && w.held[0].tk.Leg() != tk.Leg() {
		w.flush()
	}
	n, sent, landed, inside := w.copy(tk)
	if !inside || !tk.Leave() { // a fence has reported it, perhaps in Leave
		w.queue.recycle(tk)
		w.wake()
		return n
	}
	now := time.Now()
	if len(w.held) == 0 {
		w.since = now
	}
	w.held = append(w.held, ended{tk, sent, landed})
	if len(w.held) == batch || now.Sub(w.since) >= w.longest || landed.Reason != transfer.OK {
		w.flush()
	}
	return n
}

// flush reports what was copied. It wakes the driver only after all reports: the driver takes the worker's processor,
// and wants the locks.
func (w *worker) flush() {
	if len(w.held) == 0 {
		return
	}
	for i := range w.held {
		e := &w.held[i]
		e.tk.EndBoth(e.sent, e.landed)
		w.queue.recycle(e.tk)
	}
	clear(w.held)
	w.held = w.held[:0]
	w.wake()
}

// copier copies slices. It keeps its buffers, of transport.AtATime runs at most. For one goroutine.
type copier struct {
	pairs []plan.PairRun
	runs  []blockcopy.Run
}

// do copies a slice, unless it was fenced, reports its end and returns how many bytes it copied.
func (c *copier) do(tk *task) uint64 {
	n, sent, landed, inside := c.copy(tk)
	if inside {
		tk.EndBoth(sent, landed)
	}
	return n
}

// copy enters a slice and copies it. It returns the bytes copied, the outcome for each end, and whether it is still
// inside the slice; if not, a fence has ended the slice.
func (c *copier) copy(tk *task) (n uint64, sent, landed transfer.Cause, inside bool) {
	if !tk.Enter() {
		return 0, sent, landed, false
	}
	n, sent, landed, stopped := c.move(tk.job.Plan, int(tk.job.Key.Slice), tk.job.Mem, tk.dst, tk.Leg().Cancelled())
	if stopped && !tk.Leave() {
		return 0, sent, landed, false
	}
	return n, sent, landed, true
}

// move copies a slice. It returns the bytes copied, the outcome for each end, and whether *stop ended it.
func (c *copier) move(of *plan.Plan, slice int, from, to transport.Memory, stop *atomic.Bool) (n uint64, sent, landed transfer.Cause, stopped bool) {
	defer c.forget()
	for all := of.Slice(slice).Bytes; n < all; {
		sent, landed, ok := c.resolve(of, slice, n, from, to)
		if !ok {
			return n, sent, landed, false
		}
		done, err := blockcopy.CopyRuns(c.runs, stop)
		c.forget()
		n += uint64(done)
		if err != nil {
			sent, landed = causes(err)
			return n, sent, landed, errors.Is(err, blockcopy.ErrStopped)
		}
	}
	return n, transfer.Cause{}, transfer.Cause{}, false
}

// forget drops the references to memory, so that no stale mapping looks alive.
func (c *copier) forget() {
	clear(c.runs)
	c.runs = c.runs[:0]
}

// all copies every slice of a plan. False: not all of it was copied.
func (c *copier) all(p *plan.Plan, mem transport.Memory, r *rate) bool {
	for i := range p.Slices() {
		n, sent, landed, _ := c.move(p, i, mem, mem, nil)
		r.count(n)
		if sent.Reason != transfer.OK || landed.Reason != transfer.OK {
			return false
		}
	}
	return true
}

// spot finds where the destination of a slice lies. For the goroutine that posts.
func (t *Transport) spot(of *plan.Plan, slice int, to transport.Memory) int {
	if t.cfg.Places == nil {
		return place.Anywhere
	}
	t.first = of.DstFirst(slice, t.first[:0])
	b, ok := to.Dst(t.first[0])
	if !ok {
		return place.Anywhere // the worker finds and reports this
	}
	return t.cfg.Places.Of(b)
}

// resolve finds the memory of a slice's next runs, from byte at on. It looks up successive runs of the same two regions
// at once: with small blocks, a look-up for each run took a twentieth of a copy's time.
func (c *copier) resolve(of *plan.Plan, slice int, at uint64, from, to transport.Memory) (sent, landed transfer.Cause, ok bool) {
	c.pairs = of.PairsFrom(slice, at, transport.AtATime, c.pairs[:0])
	for rest := c.pairs; len(rest) > 0; {
		src, dst, n := hulls(rest)
		s, ok := from.Src(src)
		if !ok || uint64(len(s)) != src.Len {
			cause := transport.Gone("source", src)
			return cause, cause, false
		}
		d, ok := to.Dst(dst)
		if !ok || uint64(len(d)) != dst.Len {
			return transfer.Cause{}, transport.Gone("destination", dst), false
		}
		for i := range rest[:n] {
			c.runs = append(c.runs, blockcopy.Run{Dst: rest[i].Dst().In(dst, d), Src: rest[i].Src().In(src, s)})
		}
		rest = rest[n:]
	}
	return transfer.Cause{}, transfer.Cause{}, true
}

// hulls returns the smallest runs that cover both ends of the first n pairs; n is how many lie in the same two regions.
func hulls(pairs []plan.PairRun) (src, dst plan.Run, n int) {
	src, dst = pairs[0].Src(), pairs[0].Dst()
	for n = 1; n < len(pairs); n++ {
		s, ok := src.Hull(pairs[n].Src())
		if !ok {
			break
		}
		d, ok := dst.Hull(pairs[n].Dst())
		if !ok {
			break
		}
		src, dst = s, d
	}
	return src, dst, n
}

// causes returns the outcome of a copy for each end. A fault at the destination is no failure of the source, but bytes
// that could not be read are missing at the destination too.
func causes(err error) (sent, landed transfer.Cause) {
	if err == nil {
		return transfer.Cause{}, transfer.Cause{}
	}
	bad := transfer.Cause{Reason: transfer.Corrupt, Text: err.Error()}
	var fault *blockcopy.Fault
	if errors.As(err, &fault) && fault.Side == blockcopy.SideDestination {
		return transfer.Cause{}, bad
	}
	return bad, bad
}
