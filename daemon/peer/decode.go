package peer

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Limits on what a peer may say, with the same numbers as for a client's operations.
const (
	maxKey, minToken, maxToken = 256, 16, 32
	maxContent, maxTrace       = 64, 64
	maxID, maxText             = 128, 4096
	maxRanks, maxParts         = transfer.MaxRanks, 256
	maxInline                  = 64 << 10
	maxTransport               = 32
	maxResend                  = 1 << 20
)

// decode turns the body of a frame into a message for the machine, or says what is malformed about it. Nobody after it
// sees a peer's raw numbers: lengths, counts and enumerations are then in range. What they mean is the machine's
// business. The message does not refer to body, and its memory is bounded by a small multiple of body's length.
func decode(kind protowire.Number, body []byte, known *stores) (transfer.Msg, error) {
	switch kind {
	case kindLayout:
		return decodeLayout(body)
	case kindTake:
		return decodeTake(body, known)
	case kindNeedLayout:
		return decodeNeedLayout(body)
	case kindParked:
		m := new(transfer.MsgParked)
		return m, decodeXfer("parked", body, &m.Xfer)
	case kindRefuse:
		return decodeRefuse(body)
	case kindGrant:
		return decodeGrant(body, known)
	case kindGo:
		return decodeGo(body)
	case kindSent:
		return decodeSent(body)
	case kindResend:
		return decodeResend(body)
	case kindEnd:
		return decodeEnd(body)
	case kindEndAck:
		m := new(transfer.MsgEndAck)
		return m, decodeXfer("end_ack", body, &m.Xfer)
	case kindAbort:
		return decodeAbort(body)
	case kindKey:
		return decodeKey(body, known)
	case kindKeyAck:
		return decodeKeyAck(body)
	case kindSeek:
		return decodeSeek(body, known)
	case kindFound:
		return decodeFound(body)
	case kindSeekParked:
		return decodeSeekParked(body)
	case kindSeekRefuse:
		return decodeSeekRefuse(body)
	case kindUnbind:
		return decodeUnbind(body, known)
	case kindUnbindAck:
		return decodeUnbindAck(body)
	}
	return nil, malformed("a frame of unknown kind %d", kind)
}

// decodeLayout refuses a blob that is not a layout, since the machine would ask for it again and again. What a layout
// is belongs to the protocol's version, so this hits no honest peer.
func decodeLayout(body []byte) (transfer.Msg, error) {
	f := fields{what: "layout", b: body}
	var d, blob []byte
	for f.next() {
		switch f.num {
		case 1:
			d = f.bytes("digest", 32)
		case 2:
			blob = f.bytes("blob", layout.MaxEncoded)
		}
	}
	digest := f.digest(d)
	if f.err != nil {
		return nil, f.err
	}
	l, err := layout.Decode(blob)
	if err != nil {
		f.fail("layout.blob: %v", err)
	} else if l.Digest() != digest {
		f.fail("layout.digest %x, must be that of its blob, %x", digest, l.Digest())
	}
	return &transfer.MsgLayout{Layout: l}, f.err
}

func decodeTake(body []byte, known *stores) (transfer.Msg, error) {
	f := fields{what: "take", b: body}
	m := f.take(known)
	f.needKey(m.Key, m.Token)
	return m, f.err
}

func (f *fields) take(known *stores) *transfer.MsgTake {
	m := new(transfer.MsgTake)
	budget := layout.MaxIDs
	var part, parts uint32
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Engine = f.text("engine", maxID, known)
		case 3:
			m.Instance = f.text("instance", maxID, known)
		case 4:
			m.TakeID = f.uint()
		case 5:
			part = f.uint32()
		case 6:
			parts = f.uint32()
		case 7:
			m.Key = f.own("key", maxKey)
		case 8:
			m.Token = f.own("token", maxToken)
		case 9:
			m.Content = f.own("content", maxContent)
		case 10:
			m.Trace = f.text("trace", maxTrace, nil)
		case 11:
			m.Layered = f.bool()
		case 12:
			m.Ranks = f.rank(m.Ranks)
		case 13:
			m.Blocks = f.list(m.Blocks, &budget)
		case 15:
			m.Deadline = duration(f.uint())
		}
	}
	if parts < 1 || parts > maxParts || part >= parts {
		f.fail("take.part %d of %d, limit %d", part, parts, maxParts)
	}
	if m.Engine == "" {
		f.fail("take without an engine")
	}
	m.Part, m.Parts = int(part), int(parts)
	return m
}

func decodeGrant(body []byte, known *stores) (transfer.Msg, error) {
	m := new(transfer.MsgGrant)
	f := fields{what: "grant", b: body}
	budget := layout.MaxIDs
	for f.next() {
		switch f.num {
		case 1:
			m.Xfer = transfer.XferID(f.uint())
		case 2:
			m.Seg = f.uint32()
		case 3:
			m.Incarnation = f.uint()
		case 4:
			m.Engine = f.text("engine", maxID, known)
		case 5:
			m.Whole = f.bool()
		case 6:
			m.Ranks = f.rank(m.Ranks)
		case 7:
			m.Blocks = f.list(m.Blocks, &budget)
		case 8:
			m.BlocksBy = f.by(m.BlocksBy, &budget)
		case 9:
			m.Tokens = f.uint32()
		case 10:
			m.Last = f.bool()
		case 11:
			m.Layered = f.bool()
		case 12:
			m.Transport = f.text("transport", maxTransport, known)
		case 13:
			m.Slices = f.uint32()
		case 14:
			m.Bytes = f.uint()
		case 15:
			m.HasInline = f.bool()
		case 16:
			m.Inline = known.payload(f.bytes("inline", maxInline))
		case 17:
			m.InlineCRC = f.uint32()
		}
	}
	return m, f.err
}

func decodeKey(body []byte, known *stores) (transfer.Msg, error) {
	m := new(transfer.MsgKey)
	f := fields{what: "key", b: body}
	for f.next() {
		switch f.num {
		case 1:
			m.ID = f.uint()
		case 2:
			m.Drop = f.bool()
		case 3:
			m.Engine = f.text("engine", maxID, known)
		case 4:
			m.Key = f.own("key", maxKey)
		case 5:
			m.Token = f.own("token", maxToken)
		case 6:
			m.Trace = f.text("trace", maxTrace, nil)
		case 7:
			m.For = duration(f.uint())
		case 8:
			m.Instance = f.text("instance", maxID, known)
		}
	}
	f.needKey(m.Key, m.Token)
	return m, f.err
}

// needKey requires a key, and a token long enough to be hard to guess.
func (f *fields) needKey(key, token []byte) {
	if len(key) == 0 {
		f.fail("%s without a key", f.what)
	}
	if len(token) < minToken {
		f.fail("%s.token of %d bytes, must be %d to %d", f.what, len(token), minToken, maxToken)
	}
}

// duration limits a peer's duration to 30 days, so that sums of durations cannot overflow.
func duration(ns uint64) transfer.Time {
	const most = 30 * 24 * 3600 * 1e9
	return transfer.Time(min(ns, uint64(most), math.MaxInt64))
}
