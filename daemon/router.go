package daemon

import (
	"github.com/kvpipe/kvpipe/daemon/driver"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// sink is what everybody reports to. It hands on all events that are not for the bencher to the driver, which is made
// last because it needs all others.
type sink struct {
	driver *driver.Driver
	bench  *bencher
	tally  *tally
}

// Event and Queue are those of the driver, for all that is not caught.
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

// moved is the sink of the transports.
type moved struct{ *sink }

func (m moved) Flush() { m.Pass() }

// caught handles what the machine need not see, and reports whether it did. It also counts what the machine does not
// count.
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

// router passes each effect of the machine to the session that it concerns: a client's, or one of the daemon's own.
type router struct {
	clients *session.Server
	bench   *bencher
	tally   *tally
}

// ownSession marks the sessions that the daemon holds with itself. Ids of clients begin with an epoch, which lacks this
// bit.
const ownSession = transfer.SessionID(ownEpoch) << 32

func isOwn(id transfer.SessionID) bool { return id&ownSession != 0 }

func (r *router) Complete(c transfer.Complete) {
	if isOwn(c.Session) {
		r.bench.complete(c)
		return
	}
	r.clients.Complete(c) // first, since somebody waits for it
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

// The daemon's own sessions have no layer slots and no progress. They remove no region, are not told to end, and leave
// nothing behind.

func (r *router) Granted(e transfer.Granted)                 { r.clients.Granted(e) }
func (r *router) Rouse(e transfer.Rouse)                     { r.clients.Rouse(e) }
func (r *router) SessionOrphaned(e transfer.SessionOrphaned) { r.clients.SessionOrphaned(e) }
func (r *router) Brought(e transfer.Brought)                 { r.clients.Brought(e) }
func (r *router) LayerReady(e transfer.LayerReady)           { r.clients.LayerReady(e) }
func (r *router) WatchProgress(e transfer.WatchProgress)     { r.clients.WatchProgress(e) }
func (r *router) RegionDrained(e transfer.RegionDrained)     { r.clients.RegionDrained(e) }
func (r *router) EndSession(e transfer.EndSession)           { r.clients.EndSession(e) }
