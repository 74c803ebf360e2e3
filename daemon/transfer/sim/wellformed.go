package sim

import "github.com/kvpipe/kvpipe/daemon/transfer"

// maxTime is the longest time that a mad node may ask for, and that its peers give it: the end of a run has to wait
// for all of it.
const maxTime = 8 * second

// wellFormed brings a made-up message within what a codec lets through, which machines do not have to judge. nil:
// that cannot be done.
func wellFormed(msg transfer.Msg) transfer.Msg {
	ok := true
	switch m := msg.(type) {
	case *transfer.MsgLayout:
		ok = m.Layout != nil
	case *transfer.MsgTake:
		ok = soundTake(m) && soundKey(m.Key, m.Token)
	case *transfer.MsgNeedLayout:
		ok = m.End == transfer.Producer || m.End == transfer.Consumer
	case *transfer.MsgRefuse:
		ok = soundCause(&m.Cause)
		m.Retry = within(m.Retry)
	case *transfer.MsgEnd:
		soundCause(&m.Cause)
		ok = m.Status >= transfer.Done && m.Status <= transfer.WasCancelled
	case *transfer.MsgAbort:
		ok = soundCause(&m.Cause)
	case *transfer.MsgKey:
		ok = soundKey(m.Key, m.Token)
		m.For = within(m.For)
	case *transfer.MsgKeyAck:
		soundCause(&m.Cause)
	case *transfer.MsgSeek:
		ok = m.Match >= transfer.MatchNext && m.Match <= transfer.MatchDecline && m.Name != "" && len(m.Token) <= 32
		if m.Take != nil {
			own := *m.Take
			m.Take, ok = &own, soundTake(&own) && ok
		}
		m.Keep, m.Deadline = within(m.Keep), within(m.Deadline)
	case *transfer.MsgFound:
		ok = m.Bytes < 1<<32 && (len(m.Key) == 0) == (len(m.Token) == 0) && len(m.Token) <= 32
	case *transfer.MsgSeekRefuse:
		ok = soundCause(&m.Cause)
		m.Retry = within(m.Retry)
	}
	if !ok {
		return nil
	}
	return msg
}

func soundTake(m *transfer.MsgTake) bool {
	m.Deadline = within(m.Deadline)
	return m.Engine != "" && m.Parts >= 1 && m.Parts <= 256 && m.Part < m.Parts
}

func soundKey(key, token []byte) bool {
	return len(key) > 0 && len(key) <= 256 && len(token) >= 16 && len(token) <= 32
}

// soundCause gives a cause its text. It says whether the cause has a reason, which one that ends something must have.
func soundCause(c *transfer.Cause) bool {
	c.Reason = min(c.Reason, transfer.Closed)
	c.Text = madWords
	return c.Reason != transfer.OK
}

func within(d transfer.Time) transfer.Time { return min(d, maxTime) }
