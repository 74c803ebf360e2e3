package sim

import (
	"fmt"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// describeEnds writes a message about pipes and lookup buffers; "": it is none.
func describeEnds(msg transfer.Msg) string {
	switch m := msg.(type) {
	case *transfer.MsgSeek:
		return fmt.Sprintf("Seek x%d bind=%d home=%d base=%d %q match=%d seq=%d key=%s tokens=%v room=%d%s", uint32(m.Xfer), uint32(m.Bind), uint32(m.Home), m.Base,
			m.Name, m.Match, short(m.Seq), m.Key, m.Tokens, m.Room, describeBrought(m.Take))
	case *transfer.MsgFound:
		return fmt.Sprintf("Found x%d home=%d base=%d item=%d bytes=%d matched=%d key=%s%s", uint32(m.Xfer), uint32(m.Home), m.Base, uint32(m.Item), m.Bytes, m.Matched, ownKey(m.Key),
			map[bool]string{true: " taken"}[m.Taken])
	case *transfer.MsgSeekParked:
		return fmt.Sprintf("SeekParked x%d home=%d base=%d why=%d", uint32(m.Xfer), uint32(m.Home), m.Base, m.Why)
	case *transfer.MsgSeekRefuse:
		return fmt.Sprintf("SeekRefuse x%d%s", uint32(m.Xfer), describeCause(m.Cause))
	case *transfer.MsgUnbind:
		return fmt.Sprintf("Unbind bind=%d %q", uint32(m.Bind), m.Name)
	case *transfer.MsgUnbindAck:
		return fmt.Sprintf("UnbindAck bind=%d", uint32(m.Bind))
	}
	return ""
}

// describeBrought writes the take that comes with a seek.
func describeBrought(t *transfer.MsgTake) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" into=%s", describeBlocks(t.Blocks, nil))
}

// describeEnd writes an operation of an end; "": it is none.
func describeEnd(op transfer.Op) string {
	switch o := op.(type) {
	case *transfer.BindOp:
		return fmt.Sprintf("Bind kind=%d name=%q peer=%q capacity=%d linger=%v token=%q", o.Kind, o.Name, o.Peer, o.Capacity, o.Linger/ms, o.Token)
	case *transfer.PutOp:
		return fmt.Sprintf("Put target=%d form=%d bytes=%d meta=%q key=%s tokens=%v blocks=%s", o.Target, o.Form, o.Bytes, o.Meta, o.Key, o.Tokens, describeBlocks(o.Blocks, nil))
	case *transfer.GetOp:
		return fmt.Sprintf("Get target=%d match=%d seq=%d key=%s tokens=%v room=%d timeout=%v blocks=%s", o.Target, o.Match, short(o.Seq), o.Key, o.Tokens, o.Room, o.Timeout/ms,
			describeBlocks(o.Blocks, nil))
	}
	return ""
}

// describeGot writes what a get brought.
func describeGot(e transfer.Complete) string {
	if e.Got == nil {
		return ""
	}
	what := " got"
	if e.Short {
		what = " short"
	}
	return fmt.Sprintf("%s=%d bytes=%d matched=%d meta=%q", what, uint32(e.Got.Item), e.Got.Bytes, e.Got.Matched, e.Got.Meta)
}

// short leaves out of an item's number what its daemon drew at random.
func short(n uint64) uint64 { return n & (1<<32 - 1) }

// ownKey leaves out the prefix that all items' keys have.
func ownKey(key []byte) string { return strings.TrimPrefix(string(key), transfer.ReservedPrefix) }
