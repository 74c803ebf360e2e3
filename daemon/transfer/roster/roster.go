// Package roster decides who has sessions with a daemon, as far as that daemon and the next one have to know: which
// instance of an engine is live and which must not come back, whose sessions are awaited after a restart, and which
// ranks were replaced by others. It only decides: daemon/session writes the result down and checks how clients prove
// who they are. Like the machine it has no I/O, lock or clock.
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

// Roster is what outlives the daemon: who has sessions, and how they prove it. It does not have what sessions own:
// clients bring that along.
type Roster struct {
	all     map[transfer.SessionID]Session // of this daemon, and those of the one before that are not back
	had     map[instance][]uint32          // for each instance with sessions: the ranks that it has or had
	past    map[Engine][]string            // replaced instances of engines that have sessions
	lost    []instance                     // instances of which a session was given up, oldest first
	patient bool                           // sessions that have not come back are still awaited
}

// Session is one session in the roster, as stored in the file.
type Session struct {
	ID       transfer.SessionID `json:"session"`
	Engine   string             `json:"engine"`
	Instance string             `json:"instance"`
	Owner    string             `json:"owner"`
	Role     transfer.Role      `json:"role"`
	Rank     uint32             `json:"rank"`
	Layout   bool               `json:"layout"`
	Secret   string             `json:"secret_sha256"`
	Changed  bool               `json:"changed,omitempty"` // a scheduler, some of whose submissions may be about replaced ranks
	GaveUp   bool               `json:"gave_up,omitempty"` // a scheduler that may still bring submissions about memory which was given up
	// Was is the name under which the client came to this daemon, and WasSecret is the hash of the secret it showed
	// then. If the daemon ends early, the client may never have learned a newer name.
	Was       transfer.SessionID `json:"was,omitempty"`
	WasSecret string             `json:"was_secret_sha256,omitempty"`

	before   bool     // a session of the daemon before that is not back yet
	resumed  bool     // continues an earlier session, with its submissions
	brought  bool     // brings no more of them
	client   Client   // nil while before is set
	formerly *Session // the session that it continues, if that was awaited
}

// Client answers questions about a session of this daemon.
type Client interface {
	// Submitted says whether it has submitted anything to this daemon.
	Submitted() bool
}

// Engine identifies an engine. Instances with equal keys replace each other.
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

// Return is what a returning client says: its earlier session's number and the hash of the secret that it shows. The
// zero value is a client that had none.
type Return struct {
	ID    transfer.SessionID
	Proof [sha256.Size]byte
}

// Known is what the roster knows about a session that is being opened.
type Known struct {
	Had     []uint32 // ranks that its instance had before
	Resumed bool     // it continues an earlier session
	Changed bool     // what it brings along may be about other ranks, or about what their memory held before
}

// Put adds a session. It replaces the one that it resumes and those that it makes obsolete: of the same rank, and of
// older instances. Layout is kept from a session that had one, because its client is about to set it again, perhaps
// only with the next daemon. past are the earlier instances of its engine. The caller calls Another once the machine
// knows of the session.
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
	k.Changed = old.Changed || old.GaveUp
	s.Changed, s.GaveUp, s.resumed, s.client, s.before = old.Changed, old.GaveUp, k.Resumed, c, false
	if s.Role == transfer.Scheduler && back.ID != 0 && !k.Resumed { // nothing is known of the time from which its submissions are
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

// Another is called for each session that was put, once the machine knows of it. If it is a worker's and continues no
// earlier session, it is another worker than before: what schedulers of its instance submitted earlier is not about
// it, and what they submit from now on is. Another marks those schedulers as changed, and says whether there are any.
func (r *Roster) Another(who *Session, k Known) (changed bool) {
	if who.Role != transfer.Worker || k.Resumed {
		return false
	}
	return r.mark(who, func(s *Session) bool {
		old := s.client == nil || s.resumed || s.client.Submitted()
		s.Changed = s.Changed || old
		return old
	})
}

// GaveUp must be called before the machine is told that a worker gives memory up, or comes back without it. What
// schedulers of its instance have in mind that are away, or have not said all of it yet, may be about what the memory
// held before. They are marked, since the daemon to which they say it may be another one. GaveUp says whether that makes a
// difference.
func (r *Roster) GaveUp(who *Session) (changed bool) {
	return who.Role == transfer.Worker && r.mark(who, func(s *Session) bool {
		was := s.GaveUp
		s.GaveUp = was || s.client == nil || s.resumed && !s.brought
		return s.GaveUp != was
	})
}

// Brought must be called once a scheduler that continues an earlier session has brought along all that it had, and the
// machine has judged that. Brought says whether it had been marked.
func (r *Roster) Brought(id transfer.SessionID) bool {
	s, ok := r.all[id]
	if !ok {
		return false
	}
	was := s.GaveUp
	s.brought, s.GaveUp = true, false
	r.all[id] = s
	return was
}

// mark lets do change the schedulers of an instance, and says whether it has.
func (r *Roster) mark(who *Session, do func(*Session) (changed bool)) (changed bool) {
	for id, s := range r.all {
		if s.Role == transfer.Scheduler && s.instance() == who.instance() && do(&s) {
			r.all[id], changed = s, true
		}
	}
	return changed
}

// knows adds ranks to an instance, as the machine does.
func (r *Roster) knows(key instance, ranks ...uint32) {
	for _, rank := range ranks {
		if len(r.had[key]) < transfer.MaxHad && !slices.Contains(r.had[key], rank) {
			r.had[key] = append(r.had[key], rank)
		}
	}
}

// tidy forgets the ranks of instances and the past of engines that have no session, present or possible.
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

// HasLayout notes that a session has a layout, which it will set again when it comes back. It says whether the
// session exists.
func (r *Roster) HasLayout(id transfer.SessionID) bool {
	s, ok := r.all[id]
	if ok {
		s.Layout = true
		r.all[id] = s
	}
	return ok
}

// Leave removes a session that is over, and says whether there was one. If only its connection was lost (again), its
// client may never have learned that it was back, and will come under its earlier name. So the session that it
// continued is awaited again.
func (r *Roster) Leave(id transfer.SessionID, again bool) bool {
	s, ok := r.all[id]
	if ok && again && s.formerly != nil && r.patient {
		old := *s.formerly
		old.Changed, old.GaveUp = old.Changed || s.Changed, old.GaveUp || s.GaveUp
		r.all[old.ID] = old
	}
	return r.Drop(id)
}

// Drop forgets a session that will not come back. It says whether there was one.
func (r *Roster) Drop(id transfer.SessionID) bool {
	_, ok := r.all[id]
	if ok {
		delete(r.all, id)
		r.tidy()
	}
	return ok
}

// Forgo forgets the session that a client has given up. It says whether there was one that is the client's: another's
// name can be guessed.
func (r *Roster) Forgo(back Return) bool {
	s := r.all[back.ID]
	return s.hasSecret(back) && r.Drop(back.ID)
}

// Away lists the sessions that are not back yet, in the order in which they were opened.
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

// Awaits says whether any session of an instance is not back yet.
func (r *Roster) Awaits(key Engine, name string) bool {
	for _, s := range r.all {
		if s.before && s.engine() == key && s.Instance == name {
			return true
		}
	}
	return false
}

func bySession(a, b Session) int { return cmp.Compare(a.ID, b.ID) }

// Awaited returns what the machine has to know of the awaited sessions before the first comes back.
func (r *Roster) Awaited(long transfer.Time) transfer.Awaited {
	a := transfer.Awaited{For: long}
	for _, s := range r.Away() {
		a.Sessions = append(a.Sessions, transfer.AwaitedSession{
			Engine: s.Engine, Instance: s.Instance, Owner: s.Owner, Role: s.Role, Rank: s.Rank, Layout: s.Layout,
		})
	}
	return a
}

// GiveUp stops awaiting the sessions that are not back by now. It says whether there were any. They may still come
// back, each in its own time, but count as new then. The ranks of their instances stay known, so that what a
// scheduler asks for is not done with only the first of them.
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

// Bounds on what is remembered of instances that may never come back.
const (
	maxLost      = 256     // instances
	maxLostRanks = 1 << 16 // of all of them
)

// loses notes that sessions of an instance are no longer awaited.
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

// named finds a session by the name that its client knows it by. Clients themselves say under which name they came
// (Was), so that name is looked up only within their engine.
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

// OwnerOf returns the owner of the engine's session whose secret the client shows; "" if there is none.
func (r *Roster) OwnerOf(back Return, engine string) string {
	if back.ID == 0 { // most clients had no session before
		return ""
	}
	for id, s := range r.all {
		if s.Engine == engine && (id == back.ID || s.Was == back.ID) && s.hasSecret(back) {
			return s.Owner
		}
	}
	return ""
}

// Heir finds the session of this daemon that continues the one that the client had before; nil if there is none.
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

// MayResume says whether a client may come back as it says. If its session is not known it may: it is a new one.
func (r *Roster) MayResume(back Return, who *Session) bool {
	s, known := r.named(back, who)
	return !known || s.provedBy(back, who)
}

// Kept says whether a returning client must leave its rank to another session that is awaited. That session took the
// place after it, and keeps it as if it were there already.
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

// provedBy says whether the client that says this owns the session and comes in the same role and rank.
func (s *Session) provedBy(back Return, who *Session) bool {
	return s.hasSecret(back) && s.engine() == who.engine() && s.Instance == who.Instance && s.Role == who.Role && s.Rank == who.Rank
}

// hasSecret says whether the client showed one of the session's two secrets. Both are known to its client alone.
func (s *Session) hasSecret(back Return) bool {
	is := func(hash string) bool {
		want, err := hex.DecodeString(hash)
		return err == nil && subtle.ConstantTimeCompare(back.Proof[:], want) == 1
	}
	return is(s.Secret) || is(s.WasSecret)
}
