package session

import "github.com/kvpipe/kvpipe/daemon/transfer"

// Has says whether anything of a session is left.
func (v *Server) Has(id transfer.SessionID) bool { return v.find(id) != nil }
