package transfer

// bereft is how an operation ends that lost a session, or its memory, in the words for all others that hear of it: they know neither what that
// session calls its regions, nor that it was not their own that is over. reason is that of a session that is gone.
func (m *Machine) bereft(s *session, key string, cause Cause, reason Reason, advice string) Cause {
	who := s.called()
	switch {
	case s.closed || s.ended != nil:
		return because(reason, "key %s: %s of engine %q on node %q is gone: %s; %s", short(key), who, s.engine.key.name, m.cfg.Node, cause.Text, advice)
	case cause.Reason == Unavailable:
		return because(Unavailable, "key %s: memory of %s of engine %q on node %q was invalidated while the operation used it; %s",
			short(key), who, s.engine.key.name, m.cfg.Node, advice)
	}
	return because(reason, "key %s: memory of %s of engine %q on node %q was unregistered while the operation used it; %s",
		short(key), who, s.engine.key.name, m.cfg.Node, advice)
}
