package session

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// registry knows which instance of each engine is the live one, so that a session that names none can join it, and a
// process of an instance that was replaced is told so. The machine ends the sessions of the older instance.
type registry struct {
	engines map[engineKey]*engine
	idle    []idle // engines without sessions that have a past, oldest first
}

type engineKey struct{ name, owner string }

type engine struct {
	instance string
	lost     string                // the one that was expected after a restart, and did not come
	sessions map[*session]struct{} // of the live instance, not ending
	past     []string              // instances that were replaced, newest last
	left     int                   // how often the last session of an instance has left
}

// idle is an engine whose last session left, for the left-th time.
type idle struct {
	key  engineKey
	e    *engine
	left int
}

// What clients that restart for ever, under one name or ever new ones, make the daemon remember.
const (
	maxPast  = 64
	keptPast = 8 // over a restart
	maxIdle  = 4096
)

// join finds the instance for a new session and counts the session in. One that comes back (resumes) was there before whoever is live now.
func (r *registry) join(s *session, resumes bool) error {
	if s.who.Role == transfer.Endpoint {
		return nil // of no instance
	}
	key := engineKey{s.who.Engine, s.who.Owner}
	e := r.engines[key]
	if e == nil {
		e = &engine{sessions: map[*session]struct{}{}}
	}
	name := s.who.Instance
	switch {
	case name == "" && e.instance != "":
		name = e.instance
	case name == "":
		name = newInstance()
	case slices.Contains(e.past, name), resumes && e.instance != "" && name != e.instance:
		return refuse(transfer.Closed, "instance %q of engine %q was replaced by %q: stop this process", name, s.who.Engine, cmp.Or(e.instance, e.lost, "a newer one"))
	}
	if name == e.instance {
		if err := e.fits(s); err != nil {
			return err
		}
	} else {
		e.replace(e.instance)
		if !resumes && e.lost != name {
			e.replace(e.lost)
		}
		e.instance, e.lost, e.sessions = name, "", map[*session]struct{}{}
	}
	s.who.Instance = name
	e.sessions[s] = struct{}{}
	r.engines[key] = e
	return nil
}

// replace notes that an instance, if there is one, must not come back.
func (e *engine) replace(instance string) {
	if instance == "" {
		return
	}
	e.past = append(e.past, instance)
	if len(e.past) > maxPast {
		e.past = e.past[1:]
	}
}

// expect makes the instances live that had sessions with the daemon before.
func (r *registry) expect(sessions []remembered, past map[engineKey][]string) {
	for _, s := range sessions {
		r.engines[engineKey{s.Engine, s.Owner}] = &engine{instance: s.Instance, sessions: map[*session]struct{}{}, past: past[engineKey{s.Engine, s.Owner}]}
	}
}

// pastOf is what the state keeps of the past of a session's engine.
func (r *registry) pastOf(s *session) []string {
	past := r.engines[engineKey{s.who.Engine, s.who.Owner}].past
	return slices.Clone(past[max(0, len(past)-keptPast):])
}

// giveUp frees the place of the instances of which nobody came. They may still come back, until another one takes it.
func (r *registry) giveUp(sessions []remembered) {
	for _, s := range sessions {
		key := engineKey{s.Engine, s.Owner}
		if e := r.engines[key]; e != nil && e.instance == s.Instance && len(e.sessions) == 0 {
			e.lost = e.instance
			r.rest(key, e)
		}
	}
}

// occupied says that a session has the rank. It may be about to go.
type occupied struct {
	by *session
	error
}

func (o *occupied) Unwrap() error { return o.error }

// fits says why a session cannot join the ranks that are there.
func (e *engine) fits(s *session) error {
	if s.who.Role != transfer.Worker {
		return nil
	}
	for o := range e.sessions {
		if o.who.Role != transfer.Worker {
			continue
		}
		if o.who.Rank == s.who.Rank {
			return &occupied{by: o, error: refuse(transfer.Busy,
				"rank %d of instance %q of engine %q has a session already (pid %d): close it, or start with a new instance",
				s.who.Rank, e.instance, s.who.Engine, o.who.PID)}
		}
		if o.who.TPWorld != s.who.TPWorld || o.who.PPWorld != s.who.PPWorld {
			return refuse(transfer.Incompatible, "tp_world and pp_world are %d and %d, those of rank %d of the same instance %d and %d: must be equal",
				s.who.TPWorld, s.who.PPWorld, o.who.Rank, o.who.TPWorld, o.who.PPWorld)
		}
	}
	return nil
}

// leave frees the session's rank. An engine without sessions is remembered only if it has a past, and is not the oldest of too many.
func (r *registry) leave(s *session) {
	if s.who.Role == transfer.Endpoint {
		return
	}
	key := engineKey{s.who.Engine, s.who.Owner}
	e := r.engines[key]
	if e == nil || e.instance != s.who.Instance {
		return
	}
	delete(e.sessions, s)
	if len(e.sessions) > 0 {
		return
	}
	if len(e.past) == 0 {
		delete(r.engines, key)
		return
	}
	r.rest(key, e)
}

// rest remembers an engine without sessions.
func (r *registry) rest(key engineKey, e *engine) {
	e.instance = ""
	e.left++
	r.idle = append(r.idle, idle{key, e, e.left})
	if len(r.idle) > maxIdle {
		old := r.idle[0]
		r.idle = r.idle[1:]
		if r.engines[old.key] == old.e && old.e.left == old.left && len(old.e.sessions) == 0 {
			delete(r.engines, old.key)
		}
	}
}

func newInstance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "auto-" + hex.EncodeToString(b[:])
}
