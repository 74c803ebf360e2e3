package session

import "github.com/kvpipe/kvpipe/daemon/transfer"

// CauseOf and Unseen are for tests of what clients are told.
var (
	CauseOf = causeOf
	Unseen  = unseen
)

// Has says whether anything of a session is left.
func (v *Server) Has(id transfer.SessionID) bool { return v.find(id) != nil }
