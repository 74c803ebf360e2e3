package transfer

// putOff has a take asked for again in a moment, as if it had not come: it cannot be kept here now. An item that was
// found for it stays reserved meanwhile.
func (v *serve) putOff(m *Machine, cause Cause) {
	m.unpark(v)
	v.forget(m)
	if k := v.seeker; k != nil {
		m.arm(&k.deadline, k, wakeDeadline, k.takeBy(m))
	}
	m.send(v.peer, &MsgRefuse{Xfer: v.leg.id.Xfer, Cause: cause, Retry: m.cfg.Resend})
}
