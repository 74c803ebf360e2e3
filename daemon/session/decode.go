package session

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Defaults and limits of times. 0 in an entry means the default; the machine has the defaults of leases.
const (
	defaultTake  = transfer.Time(30 * time.Second)
	defaultWatch = transfer.Time(30 * time.Second)
	defaultDrop  = transfer.Time(5 * time.Second)
	maxTimeout   = transfer.Time(30 * 24 * time.Hour)
)

// maxRecord is no less than the longest record that is valid has: the header and texts of an operation, its tokens, and
// groups of block ids, each of which is a run of its own.
const maxRecord = 4<<10 + 4*ring.MaxTokens + layout.MaxGroups*(ring.RecGroupSize+8) + layout.MaxIDs*8

// Decode judges a submission and its record, which are private copies, and returns the operation asked for, nil for
// NOP. A record of more than maxRecord bytes need not be given: it is refused unseen. The result shares no memory with
// rec. Errors are refusals. Whether ids are known and the operation makes sense is for the machine to judge.
func Decode(e *ring.SQE, rec []byte, layerSlots uint32) (op transfer.Op, err error) {
	again := e.Flags == ring.SQEAgain && (e.Op == ring.OpOffer || e.Op == ring.OpTake)
	if e.Flags != 0 && !again || e.Reserved0 != 0 || e.Reserved1 != 0 || e.Reserved2 != 0 {
		return nil, invalid("flags is %d and reserved fields are %d, %d, %d: must be 0, but for flag %d of what offers and takes", e.Flags, e.Reserved0, e.Reserved1, e.Reserved2, ring.SQEAgain)
	}
	if e.TimeoutNS > math.MaxInt64 || transfer.Time(e.TimeoutNS) > maxTimeout {
		if e.Op == ring.OpOffer {
			return nil, invalid("lease is %s, the limit is %s: ask for less, consumers that wait renew it", span(e.TimeoutNS), span(uint64(maxTimeout)))
		}
		return nil, invalid("timeout is %s, the limit is %s: every operation has a deadline", span(e.TimeoutNS), span(uint64(maxTimeout)))
	}
	timeout := transfer.Time(e.TimeoutNS)
	switch {
	case e.RecLen > maxRecord:
		return nil, invalid("rec_len is %d: no operation has more than %d: split it, the limit is %d block ids", e.RecLen, maxRecord, layout.MaxIDs)
	case hasRecord(e.Op) && len(rec) == 0:
		return nil, invalid("rec_len is 0: operation %d needs a record", e.Op)
	case !hasRecord(e.Op) && len(rec) > 0:
		return nil, invalid("rec_len is %d: operation %d takes no record, so it must be 0", len(rec), e.Op)
	case hasTarget(e.Op) && e.Target == 0:
		return nil, invalid("target is 0: operation %d needs the user_data of what it acts on", e.Op)
	case !hasTarget(e.Op) && e.Target != 0:
		return nil, invalid("target is %d: operation %d takes none, so it must be 0", e.Target, e.Op)
	}
	switch e.Op {
	case ring.OpNop:
		return nil, nil
	case ring.OpOffer:
		return decodeOffer(rec, timeout, again)
	case ring.OpExtend:
		return decodeExtend(rec, e.Target)
	case ring.OpSeal:
		return &transfer.SealOp{Target: e.Target}, nil
	case ring.OpWithdraw:
		return &transfer.WithdrawOp{Target: e.Target}, nil
	case ring.OpTake:
		if e.LayerSlot != ring.NoSlot && e.LayerSlot >= layerSlots {
			return nil, invalid("layer_slot is %d, the session has %d", e.LayerSlot, layerSlots)
		}
		return decodeTake(rec, e.LayerSlot, or(timeout, defaultTake), again)
	case ring.OpCancel:
		return &transfer.CancelOp{Target: e.Target}, nil
	case ring.OpBind:
		if timeout != 0 {
			return nil, invalid("timeout is %s: an end stays open until it is closed, so it must be 0", span(e.TimeoutNS))
		}
		return decodeBind(rec)
	case ring.OpPut:
		if timeout != 0 {
			return nil, invalid("timeout is %s: an item stays until it is received or withdrawn, so it must be 0", span(e.TimeoutNS))
		}
		return decodePut(rec, e.Target)
	case ring.OpGet:
		return decodeGet(rec, e.Target, or(timeout, defaultTake))
	case ring.OpWatch:
		return decodeWatch(rec, or(timeout, defaultWatch))
	case ring.OpDrop:
		w, err := decodeWatch(rec, or(timeout, defaultDrop))
		if err != nil {
			return nil, err
		}
		d := transfer.DropOp(*w)
		return &d, nil
	}
	return nil, invalid("operation %d is not known: WELCOME's ops says which are", e.Op)
}

// span formats a client's time, any number of nanoseconds, for people. Days are rounded up, so that a time beyond the
// limit also reads as beyond it.
func span(ns uint64) string {
	const day = uint64(24 * time.Hour)
	if ns < day {
		return time.Duration(ns).String()
	}
	hundredths := ns / (day / 100)
	if ns%(day/100) != 0 {
		hundredths++
	}
	return fmt.Sprintf("%g days", float64(hundredths)/100)
}

func hasRecord(op uint8) bool {
	switch op {
	case ring.OpOffer, ring.OpExtend, ring.OpTake, ring.OpWatch, ring.OpDrop, ring.OpBind, ring.OpPut, ring.OpGet:
		return true
	}
	return false
}

func hasTarget(op uint8) bool {
	switch op {
	case ring.OpExtend, ring.OpSeal, ring.OpWithdraw, ring.OpCancel, ring.OpPut, ring.OpGet:
		return true
	}
	return false
}

func or(t, def transfer.Time) transfer.Time {
	if t == 0 {
		return def
	}
	return t
}

func decodeOffer(rec []byte, lease transfer.Time, again bool) (*transfer.OfferOp, error) {
	if len(rec) < ring.RecOfferSize {
		return nil, short("offer", rec, ring.RecOfferSize)
	}
	h := ring.RecOffer{
		Flags: le.Uint32(rec), Consumers: le.Uint32(rec[4:]), After: le.Uint64(rec[8:]),
		KeyLen: le.Uint16(rec[16:]), TokenLen: le.Uint16(rec[18:]), ContentLen: le.Uint16(rec[20:]), TraceLen: le.Uint16(rec[22:]),
		NGroups: le.Uint32(rec[24:]),
	}
	if !zero(rec[28:ring.RecOfferSize]) {
		return nil, invalid("offer: reserved fields are not zero")
	}
	if h.Flags&^(ring.OpSealed|ring.OpLayered) != 0 {
		return nil, invalid("offer: flags are %#x: known are %#x", h.Flags, ring.OpSealed|ring.OpLayered)
	}
	consumers := max(h.Consumers, 1)
	if consumers > maxConsumers {
		return nil, invalid("offer: consumers is %d, the limit is %d", h.Consumers, maxConsumers)
	}
	t, rest, err := decodeTexts(rec[ring.RecOfferSize:], lens{h.KeyLen, h.TokenLen, h.ContentLen, h.TraceLen, 0})
	if err != nil {
		return nil, invalid("offer: %v", err)
	}
	blocks, err := DecodeBlocks(rest, h.NGroups)
	if err != nil {
		return nil, err
	}
	return &transfer.OfferOp{
		Key: t.key, Token: t.token, Content: t.content, Trace: t.trace, Lease: lease, Consumers: int(consumers), After: h.After,
		Sealed: h.Flags&ring.OpSealed != 0, Layered: h.Flags&ring.OpLayered != 0, Again: again, Blocks: blocks,
	}, nil
}

func decodeExtend(rec []byte, target uint64) (*transfer.ExtendOp, error) {
	if len(rec) < ring.RecExtendSize {
		return nil, short("extend", rec, ring.RecExtendSize)
	}
	flags, groups, after := le.Uint32(rec), le.Uint32(rec[4:]), le.Uint64(rec[8:])
	if !zero(rec[16:ring.RecExtendSize]) {
		return nil, invalid("extend: reserved fields are not zero")
	}
	if flags&^(ring.OpSealed|ring.OpLayered) != 0 {
		return nil, invalid("extend: flags are %#x: known are %#x", flags, ring.OpSealed|ring.OpLayered)
	}
	blocks, err := DecodeBlocks(rec[ring.RecExtendSize:], groups)
	if err != nil {
		return nil, err
	}
	return &transfer.ExtendOp{
		Target: target, After: after, Sealed: flags&ring.OpSealed != 0, Layered: flags&ring.OpLayered != 0, Blocks: blocks,
	}, nil
}

func decodeTake(rec []byte, slot uint32, timeout transfer.Time, again bool) (*transfer.TakeOp, error) {
	if len(rec) < ring.RecTakeSize {
		return nil, short("take", rec, ring.RecTakeSize)
	}
	h := ring.RecTake{
		Flags: le.Uint32(rec), Part: le.Uint32(rec[4:]), Parts: le.Uint32(rec[8:]), Reserved0: le.Uint32(rec[12:]),
		TakeID: le.Uint64(rec[16:]), After: le.Uint64(rec[24:]),
		KeyLen: le.Uint16(rec[32:]), TokenLen: le.Uint16(rec[34:]), ContentLen: le.Uint16(rec[36:]), TraceLen: le.Uint16(rec[38:]),
		PeerLen: le.Uint16(rec[40:]), NGroups: le.Uint32(rec[48:]),
	}
	if h.Reserved0 != 0 || !zero(rec[42:48]) || !zero(rec[52:ring.RecTakeSize]) {
		return nil, invalid("take: reserved fields are not zero")
	}
	if h.Flags&^(ring.OpLayered|ring.OpRestarted) != 0 {
		return nil, invalid("take: flags are %#x: known are %#x", h.Flags, uint32(ring.OpLayered|ring.OpRestarted))
	}
	parts := max(h.Parts, 1)
	if parts > maxConsumers || h.Part >= parts {
		return nil, invalid("take: part is %d of %d: must be below parts, and parts at most %d", h.Part, h.Parts, maxConsumers)
	}
	if h.TakeID == 0 {
		return nil, invalid("take: take_id is 0: must name the take")
	}
	t, rest, err := decodeTexts(rec[ring.RecTakeSize:], lens{h.KeyLen, h.TokenLen, h.ContentLen, h.TraceLen, h.PeerLen})
	if err != nil {
		return nil, invalid("take: %v", err)
	}
	blocks, err := DecodeBlocks(rest, h.NGroups)
	if err != nil {
		return nil, err
	}
	return &transfer.TakeOp{
		Key: t.key, Token: t.token, Content: t.content, Trace: t.trace, Peer: t.peer, TakeID: h.TakeID,
		Part: int(h.Part), Parts: int(parts), After: h.After, Layered: h.Flags&ring.OpLayered != 0, LayerSlot: slot,
		Again: again, Restarted: h.Flags&ring.OpRestarted != 0, Timeout: timeout, Blocks: blocks,
	}, nil
}

func decodeWatch(rec []byte, timeout transfer.Time) (*transfer.WatchOp, error) {
	if len(rec) < ring.RecKeySize {
		return nil, short("key", rec, ring.RecKeySize)
	}
	h := ring.RecKey{KeyLen: le.Uint16(rec), TokenLen: le.Uint16(rec[2:]), TraceLen: le.Uint16(rec[4:]), PeerLen: le.Uint16(rec[6:])}
	if !zero(rec[8:ring.RecKeySize]) {
		return nil, invalid("key: reserved fields are not zero")
	}
	t, rest, err := decodeTexts(rec[ring.RecKeySize:], lens{h.KeyLen, h.TokenLen, 0, h.TraceLen, h.PeerLen})
	if err != nil {
		return nil, invalid("key: %v", err)
	}
	if len(rest) != 0 {
		return nil, invalid("key: record has %d bytes too many", len(rest))
	}
	return &transfer.WatchOp{Key: t.key, Token: t.token, Trace: t.trace, Peer: t.peer, Timeout: timeout}, nil
}

func short(what string, rec []byte, want int) error {
	return invalid("%s: record of %d bytes, its header has %d", what, len(rec), want)
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// lens are the lengths of the strings that follow a record's header, in order.
type lens struct{ key, token, content, trace, peer uint16 }

type texts struct {
	key, token, content []byte
	trace, peer         string
}

// decodeTexts copies the strings and skips their padding.
func decodeTexts(b []byte, l lens) (t texts, rest []byte, err error) {
	for _, f := range []struct {
		name          string
		n, least, top uint16
	}{
		{"key_len", l.key, 1, maxKey},
		{"token_len", l.token, minToken, maxToken},
		{"content_len", l.content, 0, maxContent},
		{"trace_len", l.trace, 0, maxTrace},
		{"peer_len", l.peer, 0, maxPeer},
	} {
		if f.n < f.least || f.n > f.top {
			return t, nil, invalid("%s is %d: must be %d to %d", f.name, f.n, f.least, f.top)
		}
	}
	total := int(l.key) + int(l.token) + int(l.content) + int(l.trace) + int(l.peer)
	if total > len(b) {
		return t, nil, invalid("key, token, content, trace and peer have %d bytes, the record has %d left", total, len(b))
	}
	own := append([]byte(nil), b[:total]...)
	cut := func(n uint16) []byte {
		f := own[:n:n]
		own = own[n:]
		return f
	}
	t.key, t.token, t.content = cut(l.key), cut(l.token), cut(l.content)
	if bytes.HasPrefix(t.key, []byte(transfer.ReservedPrefix)) {
		return t, nil, invalid("key begins with %q, which is for the daemons: use another one", transfer.ReservedPrefix)
	}
	trace, peer := cut(l.trace), cut(l.peer)
	if err := ring.CheckText(trace, "trace"); err != nil {
		return t, nil, invalid("%v", err)
	}
	if err := ring.CheckText(peer, "peer"); err != nil {
		return t, nil, invalid("%v", err)
	}
	t.trace, t.peer = string(trace), string(peer)
	rest, err = skipPadding(b, total)
	return t, rest, err
}
