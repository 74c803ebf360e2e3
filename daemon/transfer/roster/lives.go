package roster

import (
	"cmp"
	"fmt"
	"slices"
)

// Lives knows which instance of each engine is the live one. So a session that names no instance can join the live
// one, and a process of a replaced instance is told that it was replaced. S is a session.
type Lives[S comparable] struct {
	engines map[Engine]*life[S]
	idle    []idle[S] // engines that have a past but no sessions, oldest first
}

type life[S comparable] struct {
	instance string
	lost     string         // the live or last instance, if sessions of it were awaited after a restart and did not come; else ""
	sessions map[S]struct{} // of the live instance, without those that are ending
	past     []string       // replaced instances, newest last
}

// idle is an engine whose last session has left.
type idle[S comparable] struct {
	key  Engine
	life *life[S]
}

// Bounds on what clients that restart for ever, under one name or under new ones, make the daemon remember.
const (
	maxPast = 64
	maxIdle = 4096
	// KeptPast is how many replaced instances of an engine the next daemon is told of.
	KeptPast = 8
)

// NewLives returns a Lives that knows no engine.
func NewLives[S comparable]() *Lives[S] { return &Lives[S]{engines: map[Engine]*life[S]{}} }

// Judge says to which instance a session belongs ("": none is live, so it begins a new one), and returns that
// instance's sessions. A session that comes back (resumes) began before the instance that is live now. So unless it
// belongs to that instance, its own was replaced, and it is refused.
func (l *Lives[S]) Judge(key Engine, name string, resumes bool) (instance string, mates map[S]struct{}, err error) {
	e := l.engines[key]
	switch {
	case e == nil:
		return name, nil, nil
	case name == "":
		name = e.instance
	case slices.Contains(e.past, name), resumes && e.instance != "" && name != e.instance:
		return "", nil, fmt.Errorf("instance %q of engine %q was replaced by %q: stop this process", name, key.Name, cmp.Or(e.instance, e.lost, "a newer one"))
	}
	if name != e.instance {
		return name, nil, nil
	}
	return name, e.sessions, nil
}

// Join adds a session, for which Judge returned that instance.
func (l *Lives[S]) Join(key Engine, name string, s S, resumes bool) {
	e := l.engines[key]
	if e == nil {
		e = &life[S]{sessions: map[S]struct{}{}}
		l.engines[key] = e
	} else if e.instance == "" {
		l.idle = slices.DeleteFunc(l.idle, func(i idle[S]) bool { return i.life == e })
	}
	if name != e.instance {
		if e.replace(e.instance); e.instance == "" && e.lost != name && !resumes {
			e.replace(e.lost)
		}
		if e.lost != name {
			e.lost = ""
		}
		e.instance, e.sessions = name, map[S]struct{}{}
	}
	e.sessions[s] = struct{}{}
}

// replace notes that an instance must not come back; "" is ignored.
func (e *life[S]) replace(instance string) {
	if instance == "" {
		return
	}
	e.past = append(e.past, instance)
	if len(e.past) > maxPast {
		e.past = e.past[1:]
	}
}

// Expect makes the instances live that had sessions with the daemon before. Instances that it had given up are not
// made live, but may come back.
func (l *Lives[S]) Expect(r *Roster) {
	for _, s := range r.Away() {
		l.engines[s.engine()] = &life[S]{instance: s.Instance, sessions: map[S]struct{}{}, past: slices.Clone(r.past[s.engine()])}
	}
	for _, i := range r.lost {
		e := l.engines[i.Engine]
		if e == nil {
			e = &life[S]{sessions: map[S]struct{}{}, past: slices.Clone(r.past[i.Engine])}
			l.engines[i.Engine] = e
			l.rest(i.Engine, e)
		}
		if e.instance == "" || e.instance == i.name {
			e.lost = i.name
		}
	}
}

// Past returns what the next daemon has to know of an engine's past.
func (l *Lives[S]) Past(key Engine) []string {
	past := l.engines[key].past
	return slices.Clone(past[max(0, len(past)-KeptPast):])
}

// GiveUp is told which sessions are not back by now. An instance of which nobody came is no longer live. Its sessions
// may still come back until another instance takes its place.
func (l *Lives[S]) GiveUp(away []Session) {
	for _, s := range away {
		e := l.engines[s.engine()]
		if e == nil || e.instance != s.Instance {
			continue
		}
		if e.lost = e.instance; len(e.sessions) == 0 {
			l.rest(s.engine(), e)
		}
	}
}

// Leave removes a session. As long as others of its instance are awaited, the instance stays live. An engine without
// sessions is remembered only if it has a past or somebody may still come, and only until maxIdle newer ones are
// remembered.
func (l *Lives[S]) Leave(key Engine, instance string, s S, awaited bool) {
	e := l.engines[key]
	if e == nil || e.instance != instance {
		return
	}
	delete(e.sessions, s)
	if len(e.sessions) > 0 || awaited {
		return
	}
	if len(e.past) == 0 && e.lost == "" {
		delete(l.engines, key)
		return
	}
	l.rest(key, e)
}

// rest remembers an engine that has no sessions.
func (l *Lives[S]) rest(key Engine, e *life[S]) {
	e.instance = ""
	l.idle = append(l.idle, idle[S]{key, e})
	if len(l.idle) > maxIdle {
		delete(l.engines, l.idle[0].key)
		l.idle = slices.Delete(l.idle, 0, 1)
	}
}
