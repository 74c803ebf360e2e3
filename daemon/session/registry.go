package session

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// registry knows which instance of each engine is live. The machine ends the sessions of older instances.
type registry struct{ *roster.Lives[*session] }

func newRegistry() registry { return registry{roster.NewLives[*session]()} }

func (id *identity) engine() roster.Engine { return roster.Engine{Name: id.Engine, Owner: id.Owner} }

// join finds the instance for a new session and counts the session in. A session that comes back (resumes) was there
// before the instance that is live now.
func (r registry) join(s *session, resumes bool) error {
	if s.who.Role == transfer.Endpoint {
		return nil // it has no instance
	}
	name, mates, err := r.Judge(s.who.engine(), s.who.Instance, resumes)
	if err != nil {
		return refuse(transfer.Closed, "%v", err)
	}
	if name == "" {
		name = newInstance()
	}
	if err := fits(s, name, mates); err != nil {
		return err
	}
	r.Join(s.who.engine(), name, s, resumes)
	s.who.Instance = name
	return nil
}

// occupied says that another session has the place. That one may be about to go.
type occupied struct {
	by *session
	error
}

func (o *occupied) Unwrap() error { return o.error }

// fits returns why a session cannot join the ranks that are there, or nil.
func fits(s *session, instance string, mates map[*session]struct{}) error {
	if s.who.Role != transfer.Worker {
		return nil
	}
	for o := range mates {
		if o.who.Role != transfer.Worker {
			continue
		}
		if o.who.Rank == s.who.Rank {
			return &occupied{by: o, error: refuse(transfer.Busy,
				"rank %d of instance %q of engine %q has a session already (pid %d): close it, or start with a new instance",
				s.who.Rank, instance, s.who.Engine, o.who.PID)}
		}
		if o.who.TPWorld != s.who.TPWorld || o.who.PPWorld != s.who.PPWorld {
			return refuse(transfer.Incompatible, "tp_world and pp_world are %d and %d, those of rank %d of the same instance %d and %d: must be equal",
				s.who.TPWorld, s.who.PPWorld, o.who.Rank, o.who.TPWorld, o.who.PPWorld)
		}
	}
	return nil
}

// leave frees the session's rank. awaited says that other sessions of its instance are still awaited.
func (r registry) leave(s *session, awaited bool) {
	if s.who.Role != transfer.Endpoint {
		r.Leave(s.who.engine(), s.who.Instance, s, awaited)
	}
}

func newInstance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "auto-" + hex.EncodeToString(b[:])
}
