package daemon

import (
	"github.com/kvpipe/kvpipe/daemon/driver"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// sink is what everybody reports to. It hands on to the driver, which is made last because it needs them all, what is not the
// benchmark's.
type sink struct {
	driver *driver.Driver
	bench  *bencher
	tally  *tally
}

// Event and Queue are those of the driver.
func (s *sink) Event(ev transfer.Event) {
	if !s.caught(ev) {
		s.driver.Event(ev)
	}
}

func (s *sink) Queue(ev transfer.Event) {
	if !s.caught(ev) {
		s.driver.Queue(ev)
	}
}

func (s *sink) Flush() { s.driver.Flush() }

// After is the driver's QueueFunc.
func (s *sink) After(f func()) { s.driver.QueueFunc(f) }

func (s *sink) Wake() { s.driver.Wake() }

func (s *sink) Pass() { s.driver.Pass() }

// moved is the sink of transports.
type moved struct{ *sink }

func (m moved) Flush() { m.Pass() }

// caught takes out what the machine need not see, and counts what it does not.
func (s *sink) caught(ev transfer.Event) bool {
	switch ev := ev.(type) {
	case transfer.PeerMsg:
		if msg, ok := ev.Msg.(*transfer.MsgKey); ok {
			return s.bench.asked(ev.Node, ev.Epoch, msg)
		}
	case transfer.SessionClosed:
		if !isOwn(ev.Session) {
			s.tally.sessionEnded(ev.Cause.Reason)
		}
	}
	return false
}

// router gives the machine's effects to whose session they concern: a client's, or one of the daemon's own.
type router struct {
	clients *session.Server
	bench   *bencher
	tally   *tally
}

// ownSession marks the sessions that the daemon holds with itself: clients' ids begin with an epoch that lacks the bit.
const ownSession = transfer.SessionID(ownEpoch) << 32

func isOwn(id transfer.SessionID) bool { return id&ownSession != 0 }

func (r *router) Complete(c transfer.Complete) {
	if isOwn(c.Session) {
		r.bench.complete(c)
		return
	}
	r.clients.Complete(c) // who waits for it comes first
	r.tally.completed(&c)
}

func (r *router) Ring() { r.clients.Ring() }

func (r *router) Resolve(id transfer.SessionID, run plan.Run) ([]byte, bool) {
	if isOwn(id) {
		return r.bench.resolve(id, run)
	}
	return r.clients.Resolve(id, run)
}

func (r *router) SessionDrained(id transfer.SessionID) {
	if isOwn(id) {
		r.bench.drained(id)
		return
	}
	r.clients.SessionDrained(id)
}

// The daemon's own sessions have no layer slots and progress, remove no region, do not wait to be told to end, and leave nothing behind.

func (r *router) Granted(e transfer.Granted)                 { r.clients.Granted(e) }
func (r *router) Rouse(e transfer.Rouse)                     { r.clients.Rouse(e) }
func (r *router) SessionOrphaned(e transfer.SessionOrphaned) { r.clients.SessionOrphaned(e) }
func (r *router) LayerReady(e transfer.LayerReady)           { r.clients.LayerReady(e) }
func (r *router) WatchProgress(e transfer.WatchProgress)     { r.clients.WatchProgress(e) }
func (r *router) RegionDrained(e transfer.RegionDrained)     { r.clients.RegionDrained(e) }
func (r *router) EndSession(e transfer.EndSession)           { r.clients.EndSession(e) }
