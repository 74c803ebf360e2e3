package transfer

// reserve sets credits aside for the completions of an operation.
func (s *session) reserve(n int) {
	s.credits -= n
	s.reserved += n
}

// crowded words the refusal when n credits cannot be reserved. The client can do something about it: reserved credits
// come back when operations are released, those of written completions when these are collected.
func (s *session) crowded(n int) Cause {
	uncollected := s.ring - s.credits - s.reserved
	advice := "wait for some of the operations"
	if uncollected > s.reserved {
		advice = "collect completions (poll)"
	}
	return because(Quota, "the completion ring of %s has cq_entries = %d, of which %d are reserved for operations that are not released and %d completions were not collected, this needs %d: %s, or open the session with more cq_entries",
		s.called(), s.ring, s.reserved, uncollected, n, advice)
}

// refuse answers a submission that is not accepted.
func (m *Machine) refuse(s *session, sub *Submit, cause Cause) {
	if in, put := sub.Op.(*PutOp); put {
		m.breakPipe(s, in, cause)
	}
	m.endUnbegun(s, sub, Failed, cause)
}

// endUnbegun completes a submission that does not begin.
func (m *Machine) endUnbegun(s *session, sub *Submit, status Status, cause Cause) {
	m.tell(s, Complete{Session: s.id, UserData: sub.UserData, Tag: sub.Tag, Kind: KindOf(sub.Op), Op: m.newOp(), Status: status, Reason: cause.Reason, Text: cause.Text})
}

// answer completes a small submission that is done at once.
func (m *Machine) answer(s *session, sub *Submit) {
	m.tell(s, Complete{Session: s.id, UserData: sub.UserData, Tag: sub.Tag, Kind: KindOf(sub.Op), Op: m.newOp(), Status: Done})
}

// tell sends a completion for which no credit was reserved; it waits until the client has collected others.
func (m *Machine) tell(s *session, c Complete) {
	switch {
	case !s.alive() || m.frozen && c.Status == Failed:
	case s.credits > 0 && len(s.owed) == 0:
		m.spend(s, c)
	case len(s.owed) < maxOwed+2*m.mostItems && s.role == Endpoint || len(s.owed) < maxOwed:
		s.owed = append(s.owed, c)
	default:
		m.endSession(s, because(Quota, "%d answers wait because the session does not collect its completions", len(s.owed)))
	}
}

// owe sends a completion of an operation that reserved no credits, or lets it wait for one. There may be as many of
// these as there are items, however late the client collects them.
func (m *Machine) owe(s *session, c Complete) {
	if s.credits > 0 && len(s.owed) == 0 {
		m.spend(s, c)
		return
	}
	s.owed = append(s.owed, c)
}

func (m *Machine) creditsReturned(ev CreditsReturned) {
	if s := m.sessions[ev.Session]; s != nil && !s.closed {
		m.credit(s, ev.N)
	}
}

// credit gives credits back; what is owed comes first.
func (m *Machine) credit(s *session, n int) {
	s.credits += n
	for s.credits > 0 && len(s.owed) > 0 {
		c := s.owed[0]
		s.owed[0] = Complete{}
		s.owed = s.owed[1:]
		m.spend(s, c)
	}
}

// spend sends a completion, for which it uses up a free credit.
func (m *Machine) spend(s *session, c Complete) {
	s.credits--
	c.Last = s.credits == 0
	m.emit(c)
}
