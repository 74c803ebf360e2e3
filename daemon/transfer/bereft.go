package transfer

// bereft words the end of an operation that lost a session or its memory, for all others that hear of it. They do not
// know what that session calls its regions, and have to be told that it is not their own session that is over. reason
// applies if the session is gone or its memory was unregistered; invalidated memory is always Unavailable.
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
