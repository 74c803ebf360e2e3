package session

import (
	"os"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// CauseOf and Unseen are for tests of what clients are told, MaxMapped of how many regions they may have.
var (
	CauseOf = causeOf
	Unseen  = unseen

	MaxMapped = maxMapped
)

// RingMemory is what sessions' rings may take, for tests of several owners.
type RingMemory struct{ ringMemory }

func NewRingMemory() *RingMemory { return new(RingMemory) }

func (r *RingMemory) Take(owner string, n, limit uint64) error { return r.take(owner, n, limit) }
func (r *RingMemory) GiveBack(owner string, n uint64)          { r.giveBack(owner, n) }
func (r *RingMemory) Used() uint64                             { return r.used() }

// Has says whether anything of a session is left.
func (v *Server) Has(id transfer.SessionID) bool { return v.find(id) != nil }

// Beware is what the watch does when a client of a user blocks its completion eventfd, and Apart says whether a session is woken apart then.
func (v *Server) Beware(uid uint32)                      { v.beware(uid) }
func (v *Server) Apart(id transfer.SessionID) (yes bool) { return v.find(id).apart.Load() }

// Lingering is how many connections of a user are held up in closing what it sent, or wait for their turn.
func (v *Server) Lingering(uid uint32) int {
	mine, _, _ := v.exits.crowded(uid)
	return mine
}

// Wary is whom a server distrusts.
type Wary struct{ wary }

// MaxWary is how many users that are.
const MaxWary = maxWary

func (w *Wary) Add(uid uint32)     { w.add(uid) }
func (w *Wary) Of(uid uint32) bool { return w.of(uid) }
func (w *Wary) Users() int         { return len(w.users) }

// Stalls says whether a session's submissions wait until it collects.
func (v *Server) Stalls(id transfer.SessionID) bool { return v.find(id).stalled.Load() }

// Visit is one round of the poller.
func (v *Server) Visit() bool { return newPoller(v).visit() }

// Arm is what the poller does before it sleeps; true: it does not, for there is something to do.
func (v *Server) Arm() bool { return newPoller(v).arm() }

// Died is what a session that lost its connection says of its process, whose end closes ended.
func Died(pid int, pidfd *os.File, ended chan struct{}) bool {
	s := &session{
		srv: &Server{cfg: Config{ProcRoot: sys.ProcRoot}, forced: make(chan struct{})},
		who: identity{PID: pid}, cause: transfer.Cause{Reason: transfer.PeerGone},
	}
	s.process.Store(&process{pidfd, ended})
	return s.died()
}
