package peer

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// The kinds of Frame, by their field numbers in peer.proto.
const (
	kindHello      protowire.Number = 2
	kindHeartbeat  protowire.Number = 3
	kindClose      protowire.Number = 4
	kindLayout     protowire.Number = 10
	kindTake       protowire.Number = 11
	kindNeedLayout protowire.Number = 12
	kindParked     protowire.Number = 13
	kindRefuse     protowire.Number = 14
	kindGrant      protowire.Number = 15
	kindGo         protowire.Number = 16
	kindSent       protowire.Number = 17
	kindResend     protowire.Number = 18
	kindEnd        protowire.Number = 19
	kindEndAck     protowire.Number = 20
	kindAbort      protowire.Number = 21
	kindKey        protowire.Number = 22
	kindKeyAck     protowire.Number = 23
	kindSeek       protowire.Number = 24
	kindFound      protowire.Number = 25
	kindSeekParked protowire.Number = 26
	kindSeekRefuse protowire.Number = 27
	kindUnbind     protowire.Number = 28
	kindUnbindAck  protowire.Number = 29
)

// appendMsg appends a message of the machine as a frame. runs: the peer understands runs of ids. On error dst is
// returned unchanged.
func appendMsg(dst []byte, epoch uint64, m transfer.Msg, runs bool) ([]byte, error) {
	f := framer{writer: writer{b: dst, runs: runs}, from: len(dst)}
	w := &f.writer
	switch m := m.(type) {
	case *transfer.MsgLayout:
		f.start(epoch, kindLayout, 34+m.Layout.EncodedLen())
		digest := m.Layout.Digest()
		w.bytes(1, digest[:])
		w.bytes(2, m.Layout.Encode())
	case *transfer.MsgTake:
		f.start(epoch, kindTake, 128+w.guess(m.Blocks))
		putTake(w, m)
	case *transfer.MsgNeedLayout:
		f.start(epoch, kindNeedLayout, 16+34*len(m.Digests))
		w.uint(1, uint64(m.Xfer))
		w.uint(2, uint64(m.End))
		for i := range m.Digests {
			w.element(3, m.Digests[i][:])
		}
	case *transfer.MsgParked:
		f.start(epoch, kindParked, 0)
		w.uint(1, uint64(m.Xfer))
	case *transfer.MsgRefuse:
		f.start(epoch, kindRefuse, 16+len(m.Cause.Text))
		w.uint(1, uint64(m.Xfer))
		putCause(w, 2, m.Cause)
		w.uint(3, uint64(m.Retry))
	case *transfer.MsgGrant:
		f.start(epoch, kindGrant, 128+len(m.Inline)+w.guess(m.Blocks))
		putGrant(w, m)
	case *transfer.MsgGo:
		f.start(epoch, kindGo, 0)
		w.uint(1, uint64(m.Xfer))
		w.uint(2, uint64(m.Seg))
	case *transfer.MsgSent:
		f.start(epoch, kindSent, 0)
		w.uint(1, uint64(m.Xfer))
		w.uint(2, m.Incarnation)
		w.uint(3, uint64(m.Segs))
	case *transfer.MsgResend:
		f.start(epoch, kindResend, 16+2*len(m.Slices))
		putResend(w, m)
	case *transfer.MsgEnd:
		f.start(epoch, kindEnd, 16+len(m.Cause.Text))
		w.uint(1, uint64(m.Xfer))
		w.uint(2, uint64(m.Status))
		putCause(w, 3, m.Cause)
		w.uint(4, m.Incarnation)
	case *transfer.MsgEndAck:
		f.start(epoch, kindEndAck, 0)
		w.uint(1, uint64(m.Xfer))
	case *transfer.MsgAbort:
		f.start(epoch, kindAbort, 16+len(m.Cause.Text))
		w.uint(1, uint64(m.Xfer))
		putCause(w, 2, m.Cause)
	case *transfer.MsgKey:
		f.start(epoch, kindKey, 128)
		putKey(w, m)
	case *transfer.MsgKeyAck:
		f.start(epoch, kindKeyAck, 16+len(m.Cause.Text))
		w.uint(1, m.ID)
		putCause(w, 2, m.Cause)
	default:
		if !f.putEnds(epoch, m) {
			return dst, fmt.Errorf("no frame for %T", m)
		}
	}
	return f.finish()
}

// framer writes a frame: its length, the epoch, and the fields of one kind.
type framer struct {
	writer
	from int
	body open
}

// start begins a frame of that kind. guess is about the length of its fields.
func (f *framer) start(epoch uint64, kind protowire.Number, guess int) {
	f.b = append(f.b, 0, 0, 0, 0)
	f.uint(1, epoch)
	f.body = f.begin(kind, guess)
}

func (f *framer) finish() ([]byte, error) {
	f.end(f.body)
	n := len(f.b) - f.from - 4
	if n > maxFrame {
		return f.b[:f.from], fmt.Errorf("frame of %d bytes is above the limit of %d", n, maxFrame)
	}
	binary.LittleEndian.PutUint32(f.b[f.from:], uint32(n))
	return f.b, nil
}

func putTake(w *writer, m *transfer.MsgTake) {
	w.uint(1, uint64(m.Xfer))
	w.text(2, m.Engine)
	w.text(3, m.Instance)
	w.uint(4, m.TakeID)
	w.uint(5, uint64(m.Part))
	w.uint(6, uint64(m.Parts))
	w.bytes(7, m.Key)
	w.bytes(8, m.Token)
	w.bytes(9, m.Content)
	w.text(10, m.Trace)
	w.bool(11, m.Layered)
	putRanks(w, 12, m.Ranks)
	putLists(w, 13, m.Blocks)
	w.uint(15, uint64(m.Deadline))
}

func putGrant(w *writer, m *transfer.MsgGrant) {
	w.uint(1, uint64(m.Xfer))
	w.uint(2, uint64(m.Seg))
	w.uint(3, m.Incarnation)
	w.text(4, m.Engine)
	w.bool(5, m.Whole)
	putRanks(w, 6, m.Ranks)
	putLists(w, 7, m.Blocks)
	putBy(w, 8, m.BlocksBy)
	w.uint(9, uint64(m.Tokens))
	w.bool(10, m.Last)
	w.bool(11, m.Layered)
	w.text(12, m.Transport)
	w.uint(13, uint64(m.Slices))
	w.uint(14, m.Bytes)
	w.bool(15, m.HasInline)
	w.bytes(16, m.Inline)
	w.uint(17, uint64(m.InlineCRC))
}

func putResend(w *writer, m *transfer.MsgResend) {
	w.uint(1, uint64(m.Xfer))
	w.uint(2, uint64(m.Seg))
	w.uint(3, uint64(m.Attempt))
	if len(m.Slices) == 0 {
		return
	}
	o := w.begin(4, 2*len(m.Slices))
	for _, s := range m.Slices {
		w.b = protowire.AppendVarint(w.b, uint64(s))
	}
	w.end(o)
}

func putKey(w *writer, m *transfer.MsgKey) {
	w.uint(1, m.ID)
	w.bool(2, m.Drop)
	w.text(3, m.Engine)
	w.bytes(4, m.Key)
	w.bytes(5, m.Token)
	w.text(6, m.Trace)
	w.uint(7, uint64(m.For))
	w.text(8, m.Instance)
}

func putCause(w *writer, num protowire.Number, c transfer.Cause) {
	if c.Reason == transfer.OK && c.Text == "" {
		return
	}
	o := w.begin(num, len(c.Text)+4)
	w.uint(1, uint64(c.Reason))
	w.text(2, c.Text)
	w.end(o)
}

func putRanks(w *writer, num protowire.Number, in []transfer.RankRef) {
	for i := range in {
		o := w.begin(num, 36)
		w.uint(1, uint64(in[i].Rank))
		w.bytes(2, in[i].Digest[:])
		w.end(o)
	}
}

func putLists(w *writer, num protowire.Number, in []layout.BlockList) {
	for i := range in {
		b := &in[i]
		o := w.begin(num, w.guess(in[i:i+1]))
		w.uint(1, uint64(b.Group))
		w.uint(2, uint64(b.FirstToken))
		w.uint(3, uint64(b.NTokens))
		w.uint(4, uint64(len(b.IDs)))
		ids := w.said(b.IDs)
		if len(ids) > 0 {
			o := w.begin(5, 2*len(ids))
			w.b = layout.AppendIDs(w.b, ids)
			w.end(o)
		}
		w.bool(6, len(ids) < len(b.IDs))
		w.end(o)
	}
}

func putBy(w *writer, num protowire.Number, in map[uint32][]layout.BlockList) {
	if len(in) == 0 {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(in)) {
		o := w.begin(num, 8+w.guess(in[rank]))
		w.uint(1, uint64(rank))
		putLists(w, 2, in[rank])
		w.end(o)
	}
}

// said returns the ids to write: only the first of a run, if the peer understands runs.
func (w *writer) said(ids []uint32) []uint32 {
	if w.runs && layout.IsAdjacent(ids) {
		return ids[:1:1]
	}
	return ids
}

// guess estimates the encoded length of lists: ids at random places take two or three bytes.
func (w *writer) guess(lists []layout.BlockList) int {
	n := 0
	for i := range lists {
		n += 16 + 2*len(w.said(lists[i].IDs))
	}
	return n
}
