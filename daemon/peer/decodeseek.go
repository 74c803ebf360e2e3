package peer

import (
	"math"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Limits on what a peer may say about pipes and lookup buffers, with the same numbers as for a client's operations.
const (
	maxName   = 256
	maxMeta   = 720
	maxTokens = 262144
	maxItem   = math.MaxUint32 // bytes
)

func decodeSeek(body []byte, known *stores) (transfer.Msg, error) {
	m := new(transfer.MsgSeek)
	f := fields{what: "seek", b: body}
	match := uint32(0)
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Bind = f.uint()
		case 3:
			m.Home = f.uint()
		case 4:
			m.Base = f.uint()
		case 5:
			m.Buffer = f.bool()
		case 6:
			m.Name = f.text("name", maxName, known)
		case 7:
			m.Token = f.own("token", maxToken)
		case 8:
			match = f.uint32()
		case 9:
			m.Seq = f.uint()
		case 10:
			m.Key = f.own("key", maxKey)
		case 11:
			m.Tokens = f.uints("tokens", m.Tokens, maxTokens)
		case 12:
			m.Room = f.uint()
		case 13:
			m.Keep = duration(f.uint())
		case 14:
			m.Deadline = duration(f.uint())
		case 15:
			in := f.message("seek.take")
			m.Take = in.take(known)
			f.err = in.err
		}
	}
	if m.Match = transfer.Match(match); match < uint32(transfer.MatchNext) || match > uint32(transfer.MatchDecline) {
		f.fail("seek.match %d", match)
	}
	if m.Name == "" {
		f.fail("seek without a name")
	}
	return m, f.err
}

func decodeFound(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgFound)
	f := fields{what: "found", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Home = f.uint()
		case 3:
			m.Base = f.uint()
		case 4:
			m.Item = f.uint()
		case 5:
			m.Bytes = f.uint()
		case 6:
			m.Capacity = f.uint()
		case 7:
			m.Matched = f.uint()
		case 8:
			m.Meta = f.own("meta", maxMeta)
		case 9:
			m.Key = f.own("key", maxKey)
		case 10:
			m.Token = f.own("token", maxToken)
		case 11:
			m.Taken = f.bool()
		}
	}
	if m.Bytes > maxItem {
		f.fail("found.bytes %d, limit %d", m.Bytes, maxItem)
	}
	if (len(m.Key) == 0) != (len(m.Token) == 0) {
		f.fail("found.key of %d bytes and token of %d: both or neither", len(m.Key), len(m.Token))
	}
	return m, f.err
}

func decodeSeekParked(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgSeekParked)
	f := fields{what: "seek_parked", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Home = f.uint()
		case 3:
			m.Base = f.uint()
		case 4:
			m.Why = uint8(min(f.uint(), 255))
		}
	}
	return m, f.err
}

func decodeSeekRefuse(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgSeekRefuse)
	f := fields{what: "seek_refuse", b: body}
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

func decodeUnbind(body []byte, known *stores) (transfer.Msg, error) {
	m := new(transfer.MsgUnbind)
	f := fields{what: "unbind", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.Bind = f.uint()
		case 2:
			m.Buffer = f.bool()
		case 3:
			m.Name = f.text("name", maxName, known)
		}
	}
	return m, f.err
}

func decodeUnbindAck(body []byte) (transfer.Msg, error) {
	m := new(transfer.MsgUnbindAck)
	f := fields{what: "unbind_ack", b: body}
	for f.next() {
		if f.num == 1 {
			m.Bind = f.uint()
		}
	}
	return m, f.err
}
