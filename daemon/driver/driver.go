// Package driver owns the transfer machine. One goroutine at a time has the turn: it feeds the machine events and
// executes its effects. Only here do the machine, the sessions, the peers and the transports meet; each of them sees
// only its own seam.
package driver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/damper"
	"github.com/kvpipe/kvpipe/internal/reuse"
)

// Sessions is what the driver needs from the local clients. No method blocks on a client.
type Sessions interface {
	Complete(transfer.Complete) // a Ring follows
	Ring()
	Granted(transfer.Granted)
	Rouse(transfer.Rouse)
	LayerReady(transfer.LayerReady)
	WatchProgress(transfer.WatchProgress)
	EndSession(transfer.EndSession)
	SessionOrphaned(transfer.SessionOrphaned)
	Brought(transfer.Brought)
	SessionDrained(transfer.SessionID)
	RegionDrained(transfer.RegionDrained)
	// Resolve returns the bytes of a run in a session's region. ok is false when the region is gone or too small. The
	// bytes stay mapped until SessionDrained or RegionDrained.
	Resolve(s transfer.SessionID, r plan.Run) (b []byte, ok bool)
}

// Peers is what the driver needs from the channels. No method blocks.
type Peers interface {
	Dial(hint string)
	// Queue queues a message for the next Flush. A message that can wait may go out a moment after that; more says that
	// others of its kind follow.
	Queue(node string, epoch uint64, msg transfer.Msg, more bool)
	Flush()
	// Barred says why the node at the other end of a channel does not allow a transport; "": it does.
	Barred(node, transport string) (why string)
}

// Machine is the part of transfer.Machine that the driver runs.
type Machine interface {
	Step(now transfer.Time, ev transfer.Event) []transfer.Effect
}

// Config is what New needs. All fields but Known, Node, Payloads, Only and Log are required.
type Config struct {
	Machine    Machine
	Sessions   Sessions
	Peers      Peers
	Transports []transport.Transport // best first
	Known      []string              // transports of this build, whether allowed or not
	Node       string                // this node, whose configuration allows them
	Inline     uint64                // segments of at most this many bytes ride inside the grant
	Payloads   *reuse.Buffers        // of segments that ride inside the grant, in and out
	PlanInline int                   // plans of at most this many block ids are made at once, others by a worker
	Planners   int                   // planning workers
	// Only names the one transport by which blocks of a session may leave; "": the best one. nil: any session may use
	// any.
	Only func(transfer.SessionID) string
	Log  *slog.Logger
}

// Driver runs the machine on one goroutine at a time: that of Run, or one that calls Flush or Pass. Any goroutine may
// call Event and Queue.
type Driver struct {
	cfg   Config
	log   *slog.Logger
	queue queue
	turn  turn
	start time.Time
	timer *time.Timer
	legs  map[transfer.Leg]*leg
	plans plans
	batch []item           // being handled
	own   []transfer.Event // the event that step handles, and the answers of its effects
	at    int              // the one of own that the machine was told last
	runs  []plan.Run       // scratch
	clock transfer.Time    // the machine's time; read again after anything that takes long
	now   trial
	told  map[string]*damper.Flow // by text

	lively lively
	bell   bell
}

// New returns a driver that does nothing until Run.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Planners < 1 {
		cfg.Planners = 1
	}
	d := &Driver{cfg: cfg, log: cfg.Log, start: time.Now(), legs: map[transfer.Leg]*leg{}, told: map[string]*damper.Flow{}}
	d.queue.init()
	d.plans.init()
	d.turn.init()
	d.lively.init()
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	return d
}

// Event queues an event. It never blocks. Events of one goroutine keep their order.
func (d *Driver) Event(ev transfer.Event) { d.queue.push(item{ev: ev}); d.turn.nudge() }

// Queue is Event that wakes nobody. The caller must call Flush or Wake soon.
func (d *Driver) Queue(ev transfer.Event) { d.queue.push(item{ev: ev}) }

// Wake leaves what is queued to the goroutine that has the turn, or to that of Run.
func (d *Driver) Wake() { d.turn.nudge() }

// Flush handles what is queued, on the calling goroutine if nobody has the turn. That saves waking another goroutine,
// which would be the larger part of a small hand-over's time. Do not call it with locks held that effects may want, nor
// on threads of low priority.
func (d *Driver) Flush() {
	d.lively.stir()
	d.Pass()
}

// Pass is Flush for goroutines that poll or are busy moving bytes: nobody is waiting closely for their next event, or
// the runtime is awake anyway, so it need not be kept lively.
func (d *Driver) Pass() { d.turn.take(d.drain, d.queue.empty) }

// Do runs f between two events, where the machine may be read, and returns after it. The goroutine that has the turn
// runs it. An error means that the driver stopped or ctx ended first; f may then never run.
func (d *Driver) Do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	d.Post(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.queue.stopped:
		return context.Canceled
	}
}

// Now reads the machine's clock.
func (d *Driver) Now() transfer.Time { return transfer.Time(time.Since(d.start)) }

// Run runs the machine until ctx ends. Close sessions, peers and transports after it returns, not before.
func (d *Driver) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range d.cfg.Planners {
		workers.Add(1)
		go func() { defer workers.Done(); d.planWorker() }()
	}
	workers.Go(func() { d.lively.run(d.queue.stopped) })
	defer workers.Wait()
	defer d.plans.close()
	defer d.queue.stop()
	for {
		select {
		case <-d.turn.wake:
			d.Pass()
		case <-d.timer.C:
			d.Event(transfer.Tick{})
		case <-ctx.Done():
			d.turn.end()
			return
		}
	}
}

// drain handles the queue up to a bound, after which the goroutine of Run goes on: a caller of Flush has other things
// to do. more: something is left.
func (d *Driver) drain() (more bool) {
	for n := 0; n < 256; n += len(d.batch) {
		if d.batch = d.queue.take(d.batch); len(d.batch) == 0 {
			return false
		}
		for i := range d.batch {
			d.bell.more = i < len(d.batch)-1
			if d.batch[i].fn != nil {
				d.batch[i].fn()
				d.clock = d.Now()
			} else {
				d.step(d.batch[i].ev)
			}
			d.ring()
			d.batch[i] = item{}
		}
		d.cfg.Peers.Flush() // one write and one wake-up for all messages of these events
	}
	return !d.queue.empty()
}

// step feeds the machine one event, and then the answers of its effects. The machine reuses its effects, so answers
// wait in own until all effects are executed.
func (d *Driver) step(ev transfer.Event) {
	d.answer(ev)
	d.flush()
}

// flush feeds the machine the events in own, and those that they cause.
func (d *Driver) flush() {
	for d.at = 0; d.at < len(d.own); d.at++ {
		if d.at == 0 || d.bell.owes {
			d.clock = d.Now()
			d.ring()
		}
		effects := d.cfg.Machine.Step(d.clock, d.own[d.at])
		late := 0
		for _, e := range effects {
			if lastWord(e) {
				late++
			} else if d.execute(e) {
				d.clock = d.Now()
				d.ring()
			}
		}
		for j := 0; late > 0; j++ {
			if lastWord(effects[j]) {
				d.execute(effects[j])
				late--
			}
		}
		d.own[d.at] = nil
	}
	d.own = d.own[:0]
}

// lastWord says whether a message only confirms to a peer that a transfer is over. Clients hear of that first, since a
// send is a system call.
func lastWord(e transfer.Effect) bool {
	s, ok := e.(transfer.Send)
	if !ok {
		return false
	}
	switch s.Msg.(type) {
	case *transfer.MsgEnd, *transfer.MsgEndAck:
		return true
	}
	return false
}

// answer reports the result of an effect that is done at once. It becomes an event after those that wait in own.
func (d *Driver) answer(ev transfer.Event) { d.own = append(d.own, ev) }

// answerNext is answer for what has to be the machine's next event, whatever waits in own.
func (d *Driver) answerNext(ev transfer.Event) { d.own = slices.Insert(d.own, d.at+1, ev) }

// QueueFunc is Post that wakes nobody. The caller must call Flush or Wake soon.
func (d *Driver) QueueFunc(f func()) { d.queue.push(item{fn: f}) }

// Post runs f between two events, some time later, on the goroutine that then has the turn.
func (d *Driver) Post(f func()) { d.queue.push(item{fn: f}); d.turn.nudge() }
