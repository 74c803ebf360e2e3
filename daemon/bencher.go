package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// bencher has the daemon's own sessions, which measure transports: for kvpipectl bench here, and for that of peers.
type bencher struct {
	node  string
	to    *sink
	peers interface {
		Send(node string, epoch uint64, msg transfer.Msg)
		Secure(node string, epoch uint64) bool
	}
	allowed  func(transport string) bool
	draining func() bool   // this node takes no new work
	lease    time.Duration // benchLease, except in tests

	asking sync.Mutex         // held while this node measures
	making sync.Mutex         // held while a measurement for a peer begins; taken before mu
	stop   context.Context    // ends with the daemon
	end    context.CancelFunc // ends stop
	wg     sync.WaitGroup
	next   atomic.Uint64

	sessions atomic.Pointer[map[transfer.SessionID]*benchSession] // replaced, never changed: copy workers look here

	mu       sync.Mutex
	closed   bool
	serving  map[benchName]*benchServed
	requests map[string]int // requests of peers that are under way, by node
	underWay int            // all of them
}

func newBencher(node string, to *sink, allowed func(string) bool) *bencher {
	b := &bencher{node: node, to: to, allowed: allowed, lease: benchLease, serving: map[benchName]*benchServed{}, requests: map[string]int{}}
	b.stop, b.end = context.WithCancel(context.Background())
	b.sessions.Store(&map[transfer.SessionID]*benchSession{})
	return b
}

// scope returns ctx, ended early when the daemon stops.
func (b *bencher) scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(b.stop, func() { cancel(errStopping) })
	return ctx, func() { forget(); cancel(nil) }
}

// open makes a session of n blocks of that shape. measures says that somebody waits for the results of its operations.
func (b *bencher) open(s benchSpec, n int, measures bool) (*benchSession, error) {
	x, err := newBenchSession(ownSession|transfer.SessionID(b.next.Add(1)), s, n)
	if err != nil {
		return nil, err
	}
	if measures {
		x.results = make(chan result, benchCredits)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(errStopping, sys.Munmap(x.mem))
	}
	b.change(func(m map[transfer.SessionID]*benchSession) { m[x.id] = x })
	if err := x.open(b.to.Event, s); err != nil {
		b.change(func(m map[transfer.SessionID]*benchSession) { delete(m, x.id) })
		return nil, errors.Join(err, sys.Munmap(x.mem))
	}
	return x, nil
}

// close ends a session and gives its memory back. It waits until the session's transfers are fenced.
func (b *bencher) close(x *benchSession) {
	b.to.Event(transfer.SessionClosed{Session: x.id, Cause: transfer.Cause{Reason: transfer.Closed, Text: "the measurement is over"}})
	<-x.drained
	b.unmap(x)
}

// unmap gives a session's memory back, once however often it is called.
func (b *bencher) unmap(x *benchSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if (*b.sessions.Load())[x.id] == nil {
		return
	}
	b.change(func(m map[transfer.SessionID]*benchSession) { delete(m, x.id) })
	_ = sys.Munmap(x.mem)
}

// change replaces the table of sessions. The caller holds mu.
func (b *bencher) change(f func(map[transfer.SessionID]*benchSession)) {
	m := make(map[transfer.SessionID]*benchSession)
	for id, x := range *b.sessions.Load() {
		m[id] = x
	}
	f(m)
	b.sessions.Store(&m)
}

func (b *bencher) find(id transfer.SessionID) *benchSession { return (*b.sessions.Load())[id] }

// complete, resolve, drained and only answer the driver for the daemon's own sessions.
func (b *bencher) complete(c transfer.Complete) {
	b.to.Event(transfer.CreditsReturned{Session: c.Session, N: 1})
	x := b.find(c.Session)
	switch {
	case x == nil:
	case x.results == nil:
		b.ended(c)
	default:
		x.told(c)
	}
}

func (b *bencher) resolve(id transfer.SessionID, r plan.Run) ([]byte, bool) {
	if x := b.find(id); x != nil {
		return x.resolve(r.Region, r.Off, r.Len)
	}
	return nil, false
}

func (b *bencher) drained(id transfer.SessionID) {
	if x := b.find(id); x != nil {
		close(x.drained)
	}
}

func (b *bencher) only(id transfer.SessionID) string {
	if !isOwn(id) {
		return ""
	}
	if x := b.find(id); x != nil {
		return x.transport
	}
	return ""
}

// finish ends all measurements, this node's and those it serves. It waits until their memory is given back, which needs
// the driver to run, or until ctx ends.
func (b *bencher) finish(ctx context.Context) error {
	b.end()
	b.mu.Lock()
	b.closed = true
	for _, s := range b.serving {
		b.dismiss(s)
	}
	b.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		b.asking.Lock() // whoever measures has left by then
		defer b.asking.Unlock()
		b.wg.Wait()
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("memory of measurements is not fenced: %w", ctx.Err())
	}
}

// release unmaps what finish could not. Nothing may move bytes any more.
func (b *bencher) release() {
	for _, x := range *b.sessions.Load() {
		select {
		case <-x.drained:
		default:
			close(x.drained)
		}
		b.unmap(x)
	}
	b.wg.Wait()
}
