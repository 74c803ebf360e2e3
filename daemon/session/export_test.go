package session

import "github.com/kvpipe/kvpipe/daemon/transfer"

// CauseOf and Unseen are for tests of what clients are told.
var (
	CauseOf = causeOf
	Unseen  = unseen
)

// Has says whether anything of a session is left.
func (v *Server) Has(id transfer.SessionID) bool { return v.find(id) != nil }

// Stalls says whether a session's submissions wait until it collects.
func (v *Server) Stalls(id transfer.SessionID) bool { return v.find(id).stalled.Load() }

// Arm is what the poller does before it sleeps; true: it does not, for there is something to do.
func (v *Server) Arm() bool { return newPoller(v).arm() }
