// Package driver owns the transfer machine: one goroutine at a time, whose turn it is, feeds it events and executes its effects.
// It is the only place where the machine, the sessions, the peers and the transports meet; each of them sees only its own seam.
package driver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Sessions is what the driver asks of the local clients. No method blocks on a client.
type Sessions interface {
	Complete(transfer.Complete) // Ring follows
	Ring()
	Granted(transfer.Granted)
	Rouse(transfer.Rouse)
	LayerReady(transfer.LayerReady)
	WatchProgress(transfer.WatchProgress)
	EndSession(transfer.EndSession)
	SessionOrphaned(transfer.SessionOrphaned)
	SessionDrained(transfer.SessionID)
	RegionDrained(transfer.RegionDrained)
	// Resolve returns the bytes of a run in a session's region. ok is false when the region is not there or smaller. The bytes
	// stay mapped until SessionDrained or RegionDrained.
	Resolve(s transfer.SessionID, r plan.Run) (b []byte, ok bool)
}

// Peers is what the driver asks of the channels. No method blocks.
type Peers interface {
	Dial(hint string)
	// Queue sends a message, at the next Flush at the latest; a moment later if more, when others of its kind follow.
	Queue(node string, epoch uint64, msg transfer.Msg, more bool)
	Flush()
	// Barred says why a node that has a channel does not let a transport be used; "": it does.
	Barred(node, transport string) (why string)
}

// Machine is the part of transfer.Machine that the driver runs.
type Machine interface {
	Step(now transfer.Time, ev transfer.Event) []transfer.Effect
}

// Config is what New needs. All fields but Known, Node, Only and Log are required.
type Config struct {
	Machine    Machine
	Sessions   Sessions
	Peers      Peers
	Transports []transport.Transport // best first
	Known      []string              // transports of this build, also those that are not allowed
	Node       string                // whose configuration allows them
	Inline     uint64                // segments of at most this many bytes ride inside the grant
	PlanInline int                   // block ids up to which a plan is made at once instead of by a worker
	Planners   int                   // planning workers
	// Only names the one transport by which blocks of a session may leave; "": the best. nil: no session is special.
	Only func(transfer.SessionID) string
	Log  *slog.Logger
}

// Driver runs the machine: one goroutine at a time, that of Run or one that calls Flush. Event and Queue may be called from any.
type Driver struct {
	cfg   Config
	log   *slog.Logger
	queue queue
	turn  turn
	start time.Time
	timer *time.Timer
	legs  map[transfer.Leg]*leg
	plans plans
	batch []item           // being worked off
	own   []transfer.Event // answers of the step at hand
	runs  []plan.Run       // scratch
	clock transfer.Time    // what the machine is told; read again after what takes long
	now   trial

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
	d := &Driver{cfg: cfg, log: cfg.Log, start: time.Now(), legs: map[transfer.Leg]*leg{}}
	d.queue.init()
	d.plans.init()
	d.turn.init()
	d.lively.init()
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	return d
}

// Event queues what happened; it never blocks. Order is kept per calling goroutine.
func (d *Driver) Event(ev transfer.Event) { d.queue.push(item{ev: ev}); d.turn.nudge() }

// Queue is Event without waking anybody: the caller calls Flush or Wake soon.
func (d *Driver) Queue(ev transfer.Event) { d.queue.push(item{ev: ev}) }

// Wake has what is queued worked off by whoever is at it, or by the goroutine of Run.
func (d *Driver) Wake() { d.turn.nudge() }

// Flush works off what is queued, on the calling goroutine if nobody is at it, which saves waking another one: the larger part of
// a small hand-over's time. Call it without locks that effects may want, and not from threads of low priority.
func (d *Driver) Flush() {
	d.lively.stir()
	d.Pass()
}

// Pass is Flush for who polls, or is busy moving bytes: nobody waits for the next event so closely that the runtime should be kept
// awake for it, or it is anyway.
func (d *Driver) Pass() { d.turn.take(d.drain, d.queue.empty) }

// Do has whoever's turn it is run f between two events, where the machine may be read, and returns after it. An error
// means that the driver stopped or ctx ended first, in which case f may not run.
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

// Now is the machine's clock.
func (d *Driver) Now() transfer.Time { return transfer.Time(time.Since(d.start)) }

// Run executes until ctx ends. Sessions, peers and transports have to be closed after it, not before.
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

// drain works off the queue, up to a bound after which the goroutine of Run goes on: a caller of Flush has other things to do.
// more: something is left.
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
		d.cfg.Peers.Flush() // a write and a wake-up for all that these events had to say, instead of one for each message
	}
	return !d.queue.empty()
}

// step feeds one event and whatever its effects answer at once. The machine reuses its effects, so an answer waits in own
// until all of them were executed.
func (d *Driver) step(ev transfer.Event) {
	d.answer(ev)
	d.flush()
}

// flush runs the events in own, and those that they cause.
func (d *Driver) flush() {
	for i := 0; i < len(d.own); i++ {
		if i == 0 || d.bell.owes {
			d.clock = d.Now()
			d.ring()
		}
		effects := d.cfg.Machine.Step(d.clock, d.own[i])
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
		d.own[i] = nil
	}
	d.own = d.own[:0]
}

// lastWord is what only confirms to a peer that all is over: clients hear of that first, since a send is a system call.
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

// answer is how an effect that is done at once reports: the event is the next one.
func (d *Driver) answer(ev transfer.Event) { d.own = append(d.own, ev) }

// QueueFunc is Post without waking anybody: the caller calls Flush or Wake soon.
func (d *Driver) QueueFunc(f func()) { d.queue.push(item{fn: f}) }

// Post has whoever's turn it is run f between two events, some time after it returns.
func (d *Driver) Post(f func()) { d.queue.push(item{fn: f}); d.turn.nudge() }
