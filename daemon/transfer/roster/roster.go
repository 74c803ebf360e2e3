// Package roster is who has sessions with a daemon, as far as that daemon and the one after it have to know: which instance of an engine is
// the live one and which must not come back, whose sessions are awaited after a restart, and which ranks are others than before. It decides
// alone; where it is written down, and how clients prove who they are, is for daemon/session. Like the machine it has no I/O, lock or clock.
package roster

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Roster is what outlives the daemon: who has sessions, and by what they prove it. What sessions own is not in it: clients bring that along.
type Roster struct {
	all     map[transfer.SessionID]Session // of now, and of before the restart
	had     map[instance][]uint32          // of each instance that has sessions: the ranks that it has, or had
	past    map[Engine][]string            // instances that were replaced, of engines that have sessions
	lost    []instance                     // of which somebody was given up, oldest first
	patient bool                           // who has not come back is still awaited
}

// Session is one in the roster, as it is in the file.
type Session struct {
	ID       transfer.SessionID `json:"session"`
	Engine   string             `json:"engine"`
	Instance string             `json:"instance"`
	Owner    string             `json:"owner"`
	Role     transfer.Role      `json:"role"`
	Rank     uint32             `json:"rank"`
	Layout   bool               `json:"layout"`
	Secret   string             `json:"secret_sha256"`
	Changed  bool               `json:"changed,omitempty"` // a scheduler's, some of whose submissions may be about other ranks than there are
	// As which its client came to the daemon, by that secret. It may have heard of no other name when the daemon ended.
	Was       transfer.SessionID `json:"was,omitempty"`
	WasSecret string             `json:"was_secret_sha256,omitempty"`

	before   bool     // of the daemon before, and not back yet
	resumed  bool     // it brought submissions
	client   Client   // nil: before
	formerly *Session // as which it came back
}

// Client is what a session of this daemon's is asked.
type Client interface {
	// Submitted says whether it has submitted anything to this daemon.
	Submitted() bool
}

// Engine is whose instances replace each other.
type Engine struct{ Name, Owner string }

type instance struct {
	Engine
	name string
}

func (s *Session) engine() Engine     { return Engine{s.Engine, s.Owner} }
func (s *Session) instance() instance { return instance{s.engine(), s.Instance} }

// New returns a roster that knows nobody.
func New() *Roster {
	return &Roster{all: map[transfer.SessionID]Session{}, had: map[instance][]uint32{}, past: map[Engine][]string{}, patient: true}
}

// Return is what a client says that had a session before: its number, and the hash of the secret that it shows. The zero one had none.
type Return struct {
	ID    transfer.SessionID
	Proof [sha256.Size]byte
}

// Known is what is known of a session that is opened.
type Known struct {
	Had     []uint32 // ranks of its instance
	Resumed bool     // it is one of before
	Changed bool
}

// Put notes a session, in place of the one that it resumes, and of those that it makes obsolete: of its rank, of older instances. Who had a
// layout before is about to set it again, perhaps to the daemon after this one. past are the instances that its engine had before. Another
// follows, once the machine knows of the session.
func (r *Roster) Put(s Session, c Client, back Return, past []string) (k Known) {
	r.past[s.engine()] = past
	r.lost = slices.DeleteFunc(r.lost, func(l instance) bool { return l.Engine == s.engine() && l.name != s.Instance })
	old, _ := r.named(back, &s)
	if old.hasSecret(back) { // a session of this daemon may come again as another rank
		delete(r.all, old.ID)
	}
	if k.Resumed = old.provedBy(back, &s); !k.Resumed {
		old = Session{}
	} else if old.before {
		s.formerly = &old
	}
	if back.ID != 0 {
		s.Was, s.WasSecret = back.ID, hex.EncodeToString(back.Proof[:])
	}
	s.Layout = old.Layout
	for id, o := range r.all {
		same := o.Instance == s.Instance
		if o.engine() != s.engine() || same && !o.before {
			continue
		}
		if rank := s.Role == transfer.Worker && o.Role == transfer.Worker && o.Rank == s.Rank; rank || !same {
			s.Layout = s.Layout || same && o.Layout
			delete(r.all, id)
		}
	}
	k.Changed = old.Changed
	s.Changed, s.resumed, s.client, s.before = old.Changed, k.Resumed, c, false
	if s.Role == transfer.Scheduler && back.ID != 0 && !k.Resumed { // what it brings is of a time of which nothing is known
		s.Changed = true
	}
	r.all[s.ID] = s
	k.Had = slices.Clone(r.had[s.instance()])
	if s.Role == transfer.Worker {
		r.knows(s.instance(), s.Rank)
	}
	r.tidy()
	return k
}

// Another is called for each session that was put, after the machine was told of it: a worker's that was not one of before is another one. What
// schedulers of its instance had submitted is not about it; what they submit from now on is. It says whether anything changed.
func (r *Roster) Another(who *Session, k Known) (changed bool) {
	if who.Role != transfer.Worker || k.Resumed {
		return false
	}
	for id, s := range r.all {
		if s.Role == transfer.Scheduler && s.instance() == who.instance() && (s.client == nil || s.resumed || s.client.Submitted()) {
			s.Changed, changed = true, true
			r.all[id] = s
		}
	}
	return changed
}

// maxHad bounds the ranks that are remembered of an instance: of one that has or had more than these, no operation is about all of them.
const maxHad = transfer.MaxRanks + 1

// knows notes ranks of an instance.
func (r *Roster) knows(key instance, ranks ...uint32) {
	for _, rank := range ranks {
		if len(r.had[key]) < maxHad && !slices.Contains(r.had[key], rank) {
			r.had[key] = append(r.had[key], rank)
		}
	}
}

// tidy forgets the ranks of instances, and the past of engines, without sessions that are there or may still come.
func (r *Roster) tidy() {
	live, engines := map[instance]bool{}, map[Engine]bool{}
	for _, s := range r.all {
		live[s.instance()], engines[s.engine()] = true, true
	}
	for _, l := range r.lost {
		live[l], engines[l.Engine] = true, true
	}
	maps.DeleteFunc(r.had, func(key instance, _ []uint32) bool { return !live[key] })
	maps.DeleteFunc(r.past, func(key Engine, past []string) bool { return !engines[key] || len(past) == 0 })
}

// HasLayout notes that a session comes back with one. It says whether there is such a session.
func (r *Roster) HasLayout(id transfer.SessionID) bool {
	s, ok := r.all[id]
	if ok {
		s.Layout = true
		r.all[id] = s
	}
	return ok
}

// Leave is for a session that is over. Who lost its connection alone (again) may never have heard that it was back, and comes again as who it
// was. It says whether there was such a session.
func (r *Roster) Leave(id transfer.SessionID, again bool) bool {
	s, ok := r.all[id]
	if ok && again && s.formerly != nil && r.patient {
		old := *s.formerly
		old.Changed = old.Changed || s.Changed
		r.all[old.ID] = old
	}
	return r.Drop(id)
}

// Drop forgets a session that does not come back. It says whether there was one.
func (r *Roster) Drop(id transfer.SessionID) bool {
	_, ok := r.all[id]
	if ok {
		delete(r.all, id)
		r.tidy()
	}
	return ok
}

// Away lists who is not back yet, in the order in which they came.
func (r *Roster) Away() []Session {
	var out []Session
	for _, s := range r.all {
		if s.before {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, bySession)
	return out
}

// Awaits says whether somebody of an instance is not back yet.
func (r *Roster) Awaits(key Engine, name string) bool {
	for _, s := range r.all {
		if s.before && s.engine() == key && s.Instance == name {
			return true
		}
	}
	return false
}

func bySession(a, b Session) int { return cmp.Compare(a.ID, b.ID) }

// Awaited is what the machine has to know of them before anybody comes.
func (r *Roster) Awaited(long transfer.Time) transfer.Awaited {
	a := transfer.Awaited{For: long}
	for _, s := range r.Away() {
		a.Sessions = append(a.Sessions, transfer.AwaitedSession{
			Engine: s.Engine, Instance: s.Instance, Owner: s.Owner, Role: s.Role, Rank: s.Rank, Layout: s.Layout,
		})
	}
	return a
}

// GiveUp forgets who is not back by now. It says whether there was anybody. They may come back all the same, each in its own time, and are
// new ones then, but which ranks their instances had stays known: what its scheduler asks for is not done with the first of them alone.
func (r *Roster) GiveUp() bool {
	away := r.Away()
	r.patient = false
	for _, s := range away {
		delete(r.all, s.ID)
		r.loses(s.instance())
	}
	r.tidy()
	return len(away) > 0
}

// What is known of who may never come is bounded.
const (
	maxLost      = 256     // instances
	maxLostRanks = 1 << 16 // of all of them
)

// loses notes that sessions of an instance are not awaited any more.
func (r *Roster) loses(key instance) {
	if slices.Contains(r.lost, key) {
		return
	}
	ranks := len(r.had[key])
	for _, l := range r.lost {
		ranks += len(r.had[l])
	}
	r.lost = append(r.lost, key)
	for len(r.lost) > maxLost || len(r.lost) > 1 && ranks > maxLostRanks {
		ranks -= len(r.had[r.lost[0]])
		r.lost = r.lost[1:]
	}
}

// named finds a session by the name that its client has for it. By which it came, clients choose: no name of one engine's is another's.
func (r *Roster) named(back Return, who *Session) (found Session, known bool) {
	if found, known = r.all[back.ID]; known || back.ID == 0 {
		return found, known
	}
	for _, s := range r.all {
		if s.before && s.Was == back.ID && s.engine() == who.engine() && (!known || s.hasSecret(back)) {
			found, known = s, true
		}
	}
	return found, known
}

// OwnerOf is the owner of the engine's session that a client has the secret of; "": there is none.
func (r *Roster) OwnerOf(back Return, engine string) string {
	if back.ID == 0 { // most clients had none
		return ""
	}
	for id, s := range r.all {
		if s.Engine == engine && (id == back.ID || s.Was == back.ID) && s.hasSecret(back) {
			return s.Owner
		}
	}
	return ""
}

// Heir finds the session of this daemon as which one of before came; nil: there is none.
func (r *Roster) Heir(back Return) Client {
	if back.ID == 0 {
		return nil
	}
	for _, s := range r.all {
		if s.client != nil && s.Was == back.ID && s.hasSecret(back) {
			return s.client
		}
	}
	return nil
}

// MayResume judges who wants to come back. A session that is not known is a new one.
func (r *Roster) MayResume(back Return, who *Session) bool {
	s, known := r.named(back, who)
	return !known || s.provedBy(back, who)
}

// Kept says whether a rank is kept for a session that is awaited, from a client that had another one before: who came after it is to have the
// place, as if it were there already.
func (r *Roster) Kept(s *Session, back Return) bool {
	if old, _ := r.named(back, s); s.Role != transfer.Worker || back.ID == 0 || old.provedBy(back, s) {
		return false
	}
	for _, o := range r.all {
		if o.before && o.Role == transfer.Worker && o.Rank == s.Rank && o.instance() == s.instance() {
			return true
		}
	}
	return false
}

// provedBy says whether a client that says this is the session's.
func (s *Session) provedBy(back Return, who *Session) bool {
	return s.hasSecret(back) && s.engine() == who.engine() && s.Instance == who.Instance && s.Role == who.Role && s.Rank == who.Rank
}

// hasSecret: both are its client's alone.
func (s *Session) hasSecret(back Return) bool {
	is := func(hash string) bool {
		want, err := hex.DecodeString(hash)
		return err == nil && subtle.ConstantTimeCompare(back.Proof[:], want) == 1
	}
	return is(s.Secret) || is(s.WasSecret)
}
