package session

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// state is what outlives the daemon: who has sessions. It lies in a file that is replaced as a whole, before a client
// hears that its session is open.
type state struct {
	path string // "": nothing is kept

	mu      sync.Mutex
	roster  *roster.Roster
	changes uint64
	lacks   error                    // why the file does not have what it should; nil: it has
	moved   map[roster.Engine]string // by engine as this daemon sees it: the owner's name that the previous daemon used

	write   sync.Mutex // one at a time
	written uint64     // how many changes are in the file
}

func newState(path string) *state {
	return &state{path: path, roster: roster.New(), moved: map[roster.Engine]string{}}
}

// change lets do work on the roster, and counts a change if do reports one.
func (st *state) change(do func(*roster.Roster) (changed bool)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if do(st.roster) {
		st.changes++
	}
}

// put notes a session and returns what was known of it.
func (st *state) put(s *session, back roster.Return, past []string) (k roster.Known) {
	sum := proofOf(&s.secret)
	st.change(func(r *roster.Roster) bool {
		e := s.who.entry()
		e.ID, e.Secret = s.id, hex.EncodeToString(sum[:])
		k = r.Put(e, s, back, past)
		return true
	})
	return k
}

// another must be called for each session that was put, after the machine was told of it.
func (st *state) another(who *identity, k roster.Known) {
	st.change(func(r *roster.Roster) bool {
		e := who.entry()
		return r.Another(&e, k)
	})
}

// gaveUp must be called before the machine is told that a worker gives memory up, or comes back without it.
func (st *state) gaveUp(who *identity) {
	st.change(func(r *roster.Roster) bool {
		e := who.entry()
		return r.GaveUp(&e)
	})
}

// Brought notes that a scheduler has brought along all that it had submitted before. The next save is soon enough: until
// then it only seems not to have.
func (v *Server) Brought(e transfer.Brought) {
	v.state.change(func(r *roster.Roster) bool { return r.Brought(e.Session) })
}

// hasLayout notes that the session has a layout, and so will bring one when it comes back.
func (st *state) hasLayout(id transfer.SessionID) {
	st.change(func(r *roster.Roster) bool { return r.HasLayout(id) })
}

// leave notes that a session is over. again says that it only lost its connection.
func (st *state) leave(id transfer.SessionID, again bool) {
	st.change(func(r *roster.Roster) bool { return r.Leave(id, again) })
}

// drop forgets a session that does not come back.
func (st *state) drop(id transfer.SessionID) {
	st.change(func(r *roster.Roster) bool { return r.Drop(id) })
}

// forgo forgets the session that a client has given up, if it is the client's.
func (st *state) forgo(back roster.Return) {
	st.change(func(r *roster.Roster) bool { return r.Forgo(back) })
}

// giveUp forgets whoever is not back by now.
func (st *state) giveUp() { st.change((*roster.Roster).GiveUp) }

// away lists the sessions that are not back yet, in the order in which they came.
func (st *state) away() []roster.Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.roster.Away()
}

// kept reports whether a client that comes back has to leave its rank to one that came after it and is awaited, too.
func (st *state) kept(s *session, back roster.Return) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := s.who.entry()
	return st.roster.Kept(&e, back)
}

// heir returns this daemon's session as which an earlier one came back, or nil.
func (st *state) heir(back roster.Return) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	s, _ := st.roster.Heir(back).(*session)
	return s
}

// awaits reports whether other sessions of that instance are not back yet.
func (st *state) awaits(who *identity) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.roster.Awaits(who.engine(), who.Instance)
}

// mayResume judges whether a client may come back as an earlier session. One that is not known counts as new.
func (st *state) mayResume(back roster.Return, who *identity) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if e := who.entry(); !st.roster.MayResume(back, &e) {
		return refuse(transfer.Denied, "session %#x is not yours to resume", uint64(back.ID))
	}
	return nil
}

// entry returns the session as the roster remembers it.
func (id *identity) entry() roster.Session {
	return roster.Session{Engine: id.Engine, Instance: id.Instance, Owner: id.Owner, Role: id.Role, Rank: id.Rank}
}

// Submitted tells the roster whether the session has submitted anything.
func (s *session) Submitted() bool { return s.count.submissions.Load() > 0 || s.outdated.some.Load() }

// back returns what a HELLO says of the session that it resumes.
func back(h *ring.Hello) roster.Return {
	return roster.Return{ID: transfer.SessionID(h.Session), Proof: proofOf(&h.Secret)}
}

func proofOf(secret *[32]byte) [sha256.Size]byte { return sha256.Sum256(secret[:]) }
