package peer

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// putEnds writes a message about pipes and lookup buffers. False: m is none.
func (f *framer) putEnds(epoch uint64, m transfer.Msg) bool {
	w := &f.writer
	switch m := m.(type) {
	case *transfer.MsgSeek:
		f.start(epoch, kindSeek, 256+2*len(m.Tokens))
		putSeek(w, m)
	case *transfer.MsgFound:
		f.start(epoch, kindFound, 128+len(m.Meta))
		for i, v := range [...]uint64{uint64(m.Xfer), m.Home, m.Base, m.Item, m.Bytes, m.Capacity, m.Matched} {
			w.uint(protowire.Number(i+1), v)
		}
		w.bytes(8, m.Meta)
		w.bytes(9, m.Key)
		w.bytes(10, m.Token)
		w.bool(11, m.Taken)
	case *transfer.MsgSeekParked:
		f.start(epoch, kindSeekParked, 0)
		w.uint(1, uint64(m.Xfer))
		w.uint(2, m.Home)
		w.uint(3, m.Base)
		w.uint(4, uint64(m.Why))
	case *transfer.MsgSeekRefuse:
		f.start(epoch, kindSeekRefuse, 16+len(m.Cause.Text))
		w.uint(1, uint64(m.Xfer))
		putCause(w, 2, m.Cause)
		w.uint(3, uint64(m.Retry))
	case *transfer.MsgUnbind:
		f.start(epoch, kindUnbind, 16+len(m.Name))
		w.uint(1, m.Bind)
		w.bool(2, m.Buffer)
		w.text(3, m.Name)
	case *transfer.MsgUnbindAck:
		f.start(epoch, kindUnbindAck, 0)
		w.uint(1, m.Bind)
	default:
		return false
	}
	return true
}

func putSeek(w *writer, m *transfer.MsgSeek) {
	w.uint(1, uint64(m.Xfer))
	w.uint(2, m.Bind)
	w.uint(3, m.Home)
	w.uint(4, m.Base)
	w.bool(5, m.Buffer)
	w.text(6, m.Name)
	w.bytes(7, m.Token)
	w.uint(8, uint64(m.Match))
	w.uint(9, m.Seq)
	w.bytes(10, m.Key)
	if len(m.Tokens) > 0 {
		o := w.begin(11, 2*len(m.Tokens))
		for _, t := range m.Tokens {
			w.b = protowire.AppendVarint(w.b, uint64(t))
		}
		w.end(o)
	}
	w.uint(12, m.Room)
	w.uint(13, uint64(m.Keep))
	w.uint(14, uint64(m.Deadline))
	if m.Take != nil {
		o := w.begin(15, 128+w.guess(m.Take.Blocks))
		putTake(w, m.Take)
		w.end(o)
	}
}
