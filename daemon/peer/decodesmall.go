package peer

import "github.com/kvpipe/kvpipe/daemon/transfer"

// The messages of a few numbers.

// decodeXfer reads a message that names a transfer and nothing else.
func decodeXfer(what string, body []byte, id *transfer.XferID) error {
	f := fields{what: what, b: body}
	for f.next() {
		if f.num == 1 {
			*id = transfer.XferID(f.uint())
		}
	}
	return f.err
}

func decodeNeedLayout(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgNeedLayout)
	f := fields{what: "need_layout", b: body}
	end := uint32(0)
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			end = f.uint32()
		case 3:
			m.Digests = append(m.Digests, f.digest(f.bytes("digests", len(transfer.RankRef{}.Digest))))
			if len(m.Digests) > maxRanks {
				f.fail("need_layout names more than %d layouts", maxRanks)
			}
		}
	}
	if m.End = transfer.End(end); uint32(m.End) != end || m.End != transfer.Producer && m.End != transfer.Consumer {
		f.fail("need_layout.end %d", end)
	}
	return m, f.err
}

func decodeRefuse(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgRefuse)
	f := fields{what: "refuse", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Cause = f.cause()
		case 3:
			m.Retry = duration(f.uint())
		}
	}
	f.needReason(m.Cause)
	return m, f.err
}

func decodeGo(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgGo)
	f := fields{what: "go", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Seg = f.uint32()
		}
	}
	return m, f.err
}

func decodeSent(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgSent)
	f := fields{what: "sent", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Incarnation = f.uint()
		case 3:
			m.Segs = f.uint32()
		}
	}
	return m, f.err
}

func decodeResend(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgResend)
	f := fields{what: "resend", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Seg = f.uint32()
		case 3:
			m.Attempt = f.uint32()
		case 4:
			m.Slices = f.uints("slices", m.Slices, maxResend)
		}
	}
	return m, f.err
}

func decodeEnd(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgEnd)
	f := fields{what: "end", b: body}
	status := uint32(0)
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			status = f.uint32()
		case 3:
			m.Cause = f.cause()
		case 4:
			m.Incarnation = f.uint()
		}
	}
	if status < uint32(transfer.Done) || status > uint32(transfer.WasCancelled) {
		f.fail("end.status %d", status)
	}
	m.Status = transfer.Status(status)
	return m, f.err
}

func decodeAbort(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgAbort)
	f := fields{what: "abort", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Cause = f.cause()
		}
	}
	f.needReason(m.Cause)
	return m, f.err
}

func decodeKeyAck(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgKeyAck)
	f := fields{what: "key_ack", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.ID = f.uint()
		case 2:
			m.Cause = f.cause()
		}
	}
	return m, f.err
}

// cause reads a Cause. A newer peer's reason that this daemon does not know becomes Unavailable and keeps its text.
func (f *fields) cause() (c transfer.Cause) {
	in := f.message("cause")
	for in.next() {
		switch in.num {
		case 1:
			if r := in.uint(); r <= uint64(transfer.Closed) {
				c.Reason = transfer.Reason(r)
			} else {
				c.Reason = transfer.Unavailable
			}
		case 2:
			c.Text = in.text("text", maxText, nil)
		}
	}
	f.err = in.err
	return c
}

// needReason requires a failure's reason of a message that ends or delays a transfer. OK would read as if it were done.
func (f *fields) needReason(c transfer.Cause) {
	if c.Reason == transfer.OK {
		f.fail("%s.cause.reason 0, must be that of a failure", f.what)
	}
}
