package session

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Awaited returns who had sessions with the previous daemon and is expected back. The machine has to know before
// anybody comes.
func (v *Server) Awaited() transfer.Awaited {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.roster.Awaited(transfer.Time(v.cfg.Await))
}

// awaitReturn forgets, after Config.Await, whoever did not come back.
func (v *Server) awaitReturn() {
	select {
	case <-v.gone:
		return
	case <-time.After(v.cfg.Await):
	}
	v.mu.Lock()
	v.engines.GiveUp(v.state.away())
	v.state.giveUp()
	v.mu.Unlock()
	v.saveState()
}

// remember writes a session to the state file before its client hears of it.
func (v *Server) remember(s *session) {
	if s.who.Role != transfer.Endpoint {
		v.saveState()
	}
}

// dismiss forgets a session, unless it was told to come back or is already back by another connection. The caller holds
// mu.
func (v *Server) dismiss(s *session) {
	if s.cause.Reason != transfer.Unavailable && s.ender != byAnother {
		v.state.leave(s.id, s.cause.Reason == transfer.PeerGone && !s.dead)
	}
}

// Forgetful returns why a daemon after this one would not know of all sessions, or nil. It does not wait for a disk.
func (v *Server) Forgetful() error {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.lacks
}

// saveState logs a failure, but not each time: it is tried again whenever a session comes, goes or has a layout.
func (v *Server) saveState() {
	if err := v.state.save(); err != nil && v.unsaved.Due() {
		v.cfg.Log.Warn("sessions cannot be remembered for a restart", "error", err)
	}
}
