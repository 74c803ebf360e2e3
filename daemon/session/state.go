package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// state is what outlives the daemon: who has sessions, and by what they prove it. It lies in a file that is replaced as a whole,
// before a client hears that its session is open. What sessions own is not in it: clients bring that along.
type state struct {
	path string // "": nothing is kept

	mu      sync.Mutex
	all     map[transfer.SessionID]remembered // of now, and of before the restart
	had     map[instanceKey][]uint32          // of each instance that has sessions: the ranks that it has, or had
	past    map[engineKey][]string            // instances that were replaced, of engines that have sessions
	patient bool                              // who has not come back is still awaited
	changes uint64

	write   sync.Mutex // one at a time
	written uint64     // changes that are in the file
}

// remembered is one session in the file.
type remembered struct {
	Session  transfer.SessionID `json:"session"`
	Engine   string             `json:"engine"`
	Instance string             `json:"instance"`
	Owner    string             `json:"owner"`
	Role     transfer.Role      `json:"role"`
	Rank     uint32             `json:"rank"`
	Layout   bool               `json:"layout"`
	Secret   string             `json:"secret_sha256"`
	Changed  bool               `json:"changed,omitempty"` // a scheduler's, some of whose submissions may be about other ranks than there are
	// As which its client came back to the daemon, by that secret. It may have heard of no other name when the daemon ended.
	Was       transfer.SessionID `json:"was,omitempty"`
	WasSecret string             `json:"was_secret_sha256,omitempty"`

	before  bool     // of the daemon before, and not back yet
	resumed bool     // it brought submissions
	live    *session // nil: before
}

type instanceKey struct{ engine, owner, instance string }

func (r *remembered) key() instanceKey { return instanceKey{r.Engine, r.Owner, r.Instance} }

func newState(path string) *state {
	return &state{path: path, all: map[transfer.SessionID]remembered{}, had: map[instanceKey][]uint32{}, past: map[engineKey][]string{}, patient: true}
}

// maxHad bounds the ranks that are remembered of an instance: of one that has or had more than these, no operation is about all of them.
const maxHad = transfer.MaxRanks + 1

// knows notes ranks of an instance.
func (st *state) knows(key instanceKey, ranks ...uint32) {
	for _, r := range ranks {
		if len(st.had[key]) < maxHad && !slices.Contains(st.had[key], r) {
			st.had[key] = append(st.had[key], r)
		}
	}
}

// tidy forgets the ranks of instances, and the past of engines, without sessions.
func (st *state) tidy() {
	live, engines := map[instanceKey]bool{}, map[engineKey]bool{}
	for _, r := range st.all {
		live[r.key()], engines[engineKey{r.Engine, r.Owner}] = true, true
	}
	maps.DeleteFunc(st.had, func(key instanceKey, _ []uint32) bool { return !live[key] })
	maps.DeleteFunc(st.past, func(key engineKey, past []string) bool { return !engines[key] || len(past) == 0 })
}

// put notes a session, in place of the one that it resumes, and of those that it makes obsolete: of its rank, of older instances. Who had a
// layout before is about to set it again, perhaps to the daemon after this one. It returns what was known of it.
func (st *state) put(s *session, resumes transfer.SessionID, secret *[32]byte, past []string) (k known) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changes++
	st.past[engineKey{s.who.Engine, s.who.Owner}] = past
	old, _ := st.named(resumes)
	if old.hasSecret(secret) { // a session of this daemon may come again as another rank
		delete(st.all, old.Session)
	}
	if k.resumed = old.provedBy(secret, &s.who); !k.resumed {
		old = remembered{}
	} else if old.before {
		s.formerly = &old
	}
	layout := old.Layout
	for id, r := range st.all {
		same := r.Instance == s.who.Instance
		if r.Engine != s.who.Engine || r.Owner != s.who.Owner || same && !r.before {
			continue
		}
		if rank := s.who.Role == transfer.Worker && r.Role == transfer.Worker && r.Rank == s.who.Rank; rank || !same {
			layout = layout || same && r.Layout
			delete(st.all, id)
		}
	}
	key := instanceKey{s.who.Engine, s.who.Owner, s.who.Instance}
	k.changed = old.Changed
	r := remembered{
		Changed: old.Changed, resumed: k.resumed, live: s,
		Session: s.id, Engine: s.who.Engine, Instance: s.who.Instance, Owner: s.who.Owner, Role: s.who.Role, Rank: s.who.Rank, Layout: layout, Secret: hashOf(&s.secret),
	}
	if k.resumed {
		r.Was, r.WasSecret = resumes, hashOf(secret)
	}
	st.all[s.id] = r
	k.had = slices.Clone(st.had[key])
	if s.who.Role == transfer.Worker {
		st.knows(key, s.who.Rank)
	}
	st.tidy()
	return k
}

// known is what the state says of a session that is opened.
type known struct {
	had     []uint32 // ranks of its instance
	resumed bool     // it is one of before
	changed bool
}

// another notes that a worker came to an instance, and was not one of before. What schedulers had submitted is not about it; the machine
// knows of it already, so what they submit from now on is.
func (st *state) another(who *identity) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changes++
	key := instanceKey{who.Engine, who.Owner, who.Instance}
	for id, r := range st.all {
		if r.Role == transfer.Scheduler && r.key() == key && (r.live == nil || r.resumed || r.live.count.submissions.Load() > 0) {
			r.Changed = true
			st.all[id] = r
		}
	}
}

// hasLayout notes that a session comes back with one.
func (st *state) hasLayout(id transfer.SessionID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if r, ok := st.all[id]; ok {
		r.Layout = true
		st.all[id] = r
		st.changes++
	}
}

// leave is for a session that is over. Who lost its connection alone may never have heard that it was back, and comes again as who it was.
func (st *state) leave(s *session, again bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r, ok := st.all[s.id]
	if ok && again && s.formerly != nil && st.patient {
		old := *s.formerly
		old.Changed = old.Changed || r.Changed
		st.all[old.Session] = old
		st.changes++
	}
	st.forget(s.id)
}

// drop forgets a session that does not come back.
func (st *state) drop(id transfer.SessionID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.forget(id)
}

func (st *state) forget(id transfer.SessionID) {
	if _, ok := st.all[id]; ok {
		delete(st.all, id)
		st.tidy()
		st.changes++
	}
}

// awaited lists who is not back yet, in the order in which they came.
func (st *state) awaited() []remembered {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []remembered
	for _, r := range st.all {
		if r.before {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, bySession)
	return out
}

// giveUp forgets who is not back by now.
func (st *state) giveUp() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.patient = false
	for id, r := range st.all {
		if r.before {
			delete(st.all, id)
			st.changes++
		}
	}
	st.tidy()
}

// named finds a session by the name that its client has for it.
func (st *state) named(id transfer.SessionID) (r remembered, known bool) {
	if r, known = st.all[id]; known {
		return r, true
	}
	for _, r := range st.all {
		if r.before && r.Was == id && id != 0 {
			return r, true
		}
	}
	return remembered{}, false
}

// heir finds the session as which one of before came back.
func (st *state) heir(id transfer.SessionID, secret *[32]byte) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range st.all {
		if r.live != nil && r.Was == id && r.hasSecret(secret) {
			return r.live
		}
	}
	return nil
}

// mayResume judges who wants to come back. A session that is not known is a new one.
func (st *state) mayResume(id transfer.SessionID, secret *[32]byte, who *identity) error {
	st.mu.Lock()
	r, known := st.named(id)
	st.mu.Unlock()
	if !known {
		return nil
	}
	if !r.provedBy(secret, who) {
		return refuse(transfer.Denied, "session %#x is not yours to resume", uint64(id))
	}
	return nil
}

// provedBy says whether a client that says this is the session's.
func (r *remembered) provedBy(secret *[32]byte, who *identity) bool {
	return r.hasSecret(secret) && r.Owner == who.Owner &&
		r.Engine == who.Engine && r.Instance == who.Instance && r.Role == who.Role && r.Rank == who.Rank
}

// hasSecret: both are its client's alone.
func (r *remembered) hasSecret(secret *[32]byte) bool {
	sum := sha256.Sum256(secret[:])
	is := func(hash string) bool {
		want, err := hex.DecodeString(hash)
		return err == nil && subtle.ConstantTimeCompare(sum[:], want) == 1
	}
	return is(r.Secret) || is(r.WasSecret)
}

func hashOf(secret *[32]byte) string {
	sum := sha256.Sum256(secret[:])
	return hex.EncodeToString(sum[:])
}
