package session

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// state is what outlives the daemon: who has sessions. It lies in a file that is replaced as a whole, before a client hears that its session
// is open.
type state struct {
	path string // "": nothing is kept

	mu      sync.Mutex
	roster  *roster.Roster
	changes uint64
	moved   map[roster.Engine]string // engines' owners, as the daemon before knew them, by how this one sees them

	write   sync.Mutex // one at a time
	written uint64     // changes that are in the file
}

func newState(path string) *state {
	return &state{path: path, roster: roster.New(), moved: map[roster.Engine]string{}}
}

// change does something to the roster, and counts that it changed.
func (st *state) change(do func(*roster.Roster) (changed bool)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if do(st.roster) {
		st.changes++
	}
}

// put notes a session. It returns what was known of it.
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

// another is for each session that was put, after the machine was told of it.
func (st *state) another(who *identity, k roster.Known) {
	st.change(func(r *roster.Roster) bool {
		e := who.entry()
		return r.Another(&e, k)
	})
}

// hasLayout notes that a session comes back with one.
func (st *state) hasLayout(id transfer.SessionID) {
	st.change(func(r *roster.Roster) bool { return r.HasLayout(id) })
}

// leave is for a session that is over. again: it lost its connection alone.
func (st *state) leave(id transfer.SessionID, again bool) {
	st.change(func(r *roster.Roster) bool { return r.Leave(id, again) })
}

// drop forgets a session that does not come back.
func (st *state) drop(id transfer.SessionID) {
	st.change(func(r *roster.Roster) bool { return r.Drop(id) })
}

// giveUp forgets who is not back by now.
func (st *state) giveUp() { st.change((*roster.Roster).GiveUp) }

// away lists who is not back yet, in the order in which they came.
func (st *state) away() []roster.Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.roster.Away()
}

// kept says whether a client that comes back has to leave its rank to somebody else who does.
func (st *state) kept(s *session, back roster.Return) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := s.who.entry()
	return st.roster.Kept(&e, back)
}

// heir finds the session as which one of before came back.
func (st *state) heir(back roster.Return) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	s, _ := st.roster.Heir(back).(*session)
	return s
}

// awaits says whether others of somebody's instance are not back yet.
func (st *state) awaits(who *identity) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.roster.Awaits(who.engine(), who.Instance)
}

// mayResume judges who wants to come back. A session that is not known is a new one.
func (st *state) mayResume(back roster.Return, who *identity) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if e := who.entry(); !st.roster.MayResume(back, &e) {
		return refuse(transfer.Denied, "session %#x is not yours to resume", uint64(back.ID))
	}
	return nil
}

// entry is who is connected, as it is remembered.
func (id *identity) entry() roster.Session {
	return roster.Session{Engine: id.Engine, Instance: id.Instance, Owner: id.Owner, Role: id.Role, Rank: id.Rank}
}

// Submitted is what the roster asks.
func (s *session) Submitted() bool { return s.count.submissions.Load() > 0 || s.outdated.some.Load() }

// back is what a HELLO says of the session that it resumes.
func back(h *ring.Hello) roster.Return {
	return roster.Return{ID: transfer.SessionID(h.Session), Proof: proofOf(&h.Secret)}
}

func proofOf(secret *[32]byte) [sha256.Size]byte { return sha256.Sum256(secret[:]) }
