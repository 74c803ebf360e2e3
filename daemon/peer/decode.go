package peer

import (
	"math"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Limits of what a peer may say; the same numbers as for a client's operations.
const (
	maxKey, minToken, maxToken = 256, 16, 32
	maxContent, maxTrace       = 64, 64
	maxID, maxText             = 128, 4096
	maxRanks, maxParts         = 1024, 256
	maxInline                  = 64 << 10
)

// decode turns a frame into a machine's message, or says what is malformed about it. It is the last to see a peer's raw numbers:
// lengths, counts and enumerations are in range afterwards; meaning is the machine's business.
func decode(f *peerpb.Frame) (transfer.Msg, error) {
	switch k := f.Kind.(type) {
	case *peerpb.Frame_Layout:
		d, err := digest(k.Layout.Digest)
		if err != nil {
			return nil, err
		}
		return &transfer.MsgLayout{Digest: d, Blob: k.Layout.Blob}, nil
	case *peerpb.Frame_Take:
		return decodeTake(k.Take)
	case *peerpb.Frame_NeedLayout:
		n := k.NeedLayout
		m := &transfer.MsgNeedLayout{Xfer: transfer.XferID(n.Xfer), End: transfer.End(n.End)}
		if n.End != uint32(transfer.Producer) && n.End != uint32(transfer.Consumer) {
			return nil, malformed("need_layout.end %d", n.End)
		}
		if len(n.Digests) > maxRanks {
			return nil, malformed("need_layout names %d layouts, limit %d", len(n.Digests), maxRanks)
		}
		for _, b := range n.Digests {
			d, err := digest(b)
			if err != nil {
				return nil, err
			}
			m.Digests = append(m.Digests, d)
		}
		return m, nil
	case *peerpb.Frame_Parked:
		return &transfer.MsgParked{Xfer: transfer.XferID(k.Parked.Xfer)}, nil
	case *peerpb.Frame_Refuse:
		c, err := decodeCause(k.Refuse.Cause)
		return &transfer.MsgRefuse{Xfer: transfer.XferID(k.Refuse.Xfer), Cause: c, Retry: duration(k.Refuse.RetryNs)}, err
	case *peerpb.Frame_Grant:
		return decodeGrant(k.Grant)
	case *peerpb.Frame_Go:
		return &transfer.MsgGo{Xfer: transfer.XferID(k.Go.Xfer), Seg: k.Go.Seg}, nil
	case *peerpb.Frame_Sent:
		return &transfer.MsgSent{Xfer: transfer.XferID(k.Sent.Xfer), Incarnation: k.Sent.Incarnation, Segs: k.Sent.Segs}, nil
	case *peerpb.Frame_Resend:
		r := k.Resend
		return &transfer.MsgResend{Xfer: transfer.XferID(r.Xfer), Seg: r.Seg, Attempt: r.Attempt, Slices: r.Slices}, nil
	case *peerpb.Frame_End:
		c, err := decodeCause(k.End.Cause)
		if s := transfer.Status(k.End.Status); s < transfer.Done || s > transfer.WasCancelled || uint32(s) != k.End.Status {
			return nil, malformed("end.status %d", k.End.Status)
		}
		return &transfer.MsgEnd{Xfer: transfer.XferID(k.End.Xfer), Status: transfer.Status(k.End.Status), Cause: c, Incarnation: k.End.Incarnation}, err
	case *peerpb.Frame_EndAck:
		return &transfer.MsgEndAck{Xfer: transfer.XferID(k.EndAck.Xfer)}, nil
	case *peerpb.Frame_Abort:
		c, err := decodeCause(k.Abort.Cause)
		return &transfer.MsgAbort{Xfer: transfer.XferID(k.Abort.Xfer), Cause: c}, err
	case *peerpb.Frame_Key:
		return decodeKey(k.Key)
	case *peerpb.Frame_KeyAck:
		c, err := decodeCause(k.KeyAck.Cause)
		return &transfer.MsgKeyAck{ID: k.KeyAck.Id, Cause: c}, err
	}
	return nil, malformed("unknown kind %T", f.Kind)
}

func decodeTake(t *peerpb.Take) (transfer.Msg, error) {
	switch {
	case t.Parts < 1 || t.Parts > maxParts || t.Part >= t.Parts:
		return nil, malformed("take part %d of %d, limit %d", t.Part, t.Parts, maxParts)
	case len(t.Engine) == 0 || len(t.Engine) > maxID || len(t.Instance) > maxID:
		return nil, malformed("take from an engine name of %d bytes, instance of %d, limit %d", len(t.Engine), len(t.Instance), maxID)
	}
	if err := checkKey(t.Key, t.Token, t.Content, t.Trace); err != nil {
		return nil, err
	}
	m := &transfer.MsgTake{
		Xfer: transfer.XferID(t.Xfer), Engine: t.Engine, Instance: t.Instance, TakeID: t.TakeId, Part: int(t.Part), Parts: int(t.Parts),
		Key: t.Key, Token: t.Token, Content: t.Content, Trace: t.Trace, Layered: t.Layered, Deadline: duration(t.DeadlineNs),
	}
	var err error
	if m.Ranks, err = decodeRanks(t.Ranks); err != nil {
		return nil, err
	}
	budget := layout.MaxIDs
	if m.Blocks, err = decodeLists(t.Blocks, &budget); err != nil {
		return nil, err
	}
	m.BlocksBy, err = decodeBy(t.BlocksBy, &budget)
	return m, err
}

func decodeGrant(g *peerpb.Grant) (transfer.Msg, error) {
	switch {
	case len(g.Engine) > maxID:
		return nil, malformed("grant from an engine name of %d bytes, limit %d", len(g.Engine), maxID)
	case len(g.Inline) > maxInline:
		return nil, malformed("inline payload of %d bytes, limit %d", len(g.Inline), maxInline)
	case len(g.Transport) > 32:
		return nil, malformed("transport name of %d bytes", len(g.Transport))
	}
	m := &transfer.MsgGrant{
		Xfer: transfer.XferID(g.Xfer), Seg: g.Seg, Incarnation: g.Incarnation, Engine: g.Engine, Whole: g.Whole, Tokens: g.Tokens, Last: g.Last,
		Layered: g.Layered, Transport: g.Transport, Slices: g.Slices, Bytes: g.Bytes, HasInline: g.HasInline, Inline: g.Inline, InlineCRC: g.InlineCrc,
	}
	var err error
	if m.Ranks, err = decodeRanks(g.Ranks); err != nil {
		return nil, err
	}
	budget := layout.MaxIDs
	if m.Blocks, err = decodeLists(g.Blocks, &budget); err != nil {
		return nil, err
	}
	m.BlocksBy, err = decodeBy(g.BlocksBy, &budget)
	return m, err
}

func decodeKey(k *peerpb.Key) (transfer.Msg, error) {
	if len(k.Engine) > maxID {
		return nil, malformed("key from an engine name of %d bytes, limit %d", len(k.Engine), maxID)
	}
	if err := checkKey(k.Key, k.Token, nil, k.Trace); err != nil {
		return nil, err
	}
	return &transfer.MsgKey{ID: k.Id, Drop: k.Drop, Engine: k.Engine, Key: k.Key, Token: k.Token, Trace: k.Trace, For: duration(k.ForNs)}, nil
}

func checkKey(key, token, content []byte, trace string) error {
	switch {
	case len(key) == 0 || len(key) > maxKey:
		return malformed("key of %d bytes, limit 1 to %d", len(key), maxKey)
	case len(token) < minToken || len(token) > maxToken:
		return malformed("token of %d bytes, limit %d to %d", len(token), minToken, maxToken)
	case len(content) > maxContent:
		return malformed("content digest of %d bytes, limit %d", len(content), maxContent)
	case len(trace) > maxTrace:
		return malformed("trace of %d bytes, limit %d", len(trace), maxTrace)
	}
	return nil
}

func decodeRanks(in []*peerpb.RankRef) ([]transfer.RankRef, error) {
	if len(in) > maxRanks {
		return nil, malformed("%d ranks, limit %d", len(in), maxRanks)
	}
	out := make([]transfer.RankRef, len(in))
	for i, r := range in {
		d, err := digest(r.GetDigest())
		if err != nil {
			return nil, err
		}
		out[i] = transfer.RankRef{Rank: r.Rank, Digest: d}
	}
	return out, nil
}

// decodeLists expands block lists; budget bounds their ids over the whole message.
func decodeLists(in []*peerpb.BlockList, budget *int) ([]layout.BlockList, error) {
	if len(in) > layout.MaxGroups {
		return nil, malformed("%d block lists, limit %d", len(in), layout.MaxGroups)
	}
	out := make([]layout.BlockList, len(in))
	for i, b := range in {
		if int64(b.GetCount()) > int64(*budget) {
			return nil, malformed("more than %d block ids in one message", layout.MaxIDs)
		}
		*budget -= int(b.Count)
		ids, err := layout.DecodeIDs(b.Ids, int(b.Count))
		if err != nil {
			return nil, malformed("block list of group %d: %v", b.Group, err)
		}
		out[i] = layout.BlockList{Group: b.Group, FirstToken: b.FirstToken, NTokens: b.Ntokens, IDs: ids}
	}
	return out, nil
}

func decodeBy(in []*peerpb.RankBlocks, budget *int) (map[uint32][]layout.BlockList, error) {
	if len(in) == 0 {
		return nil, nil
	}
	if len(in) > maxRanks {
		return nil, malformed("block lists of %d ranks, limit %d", len(in), maxRanks)
	}
	out := make(map[uint32][]layout.BlockList, len(in))
	for _, r := range in {
		lists, err := decodeLists(r.GetBlocks(), budget)
		if err != nil {
			return nil, err
		}
		if _, twice := out[r.Rank]; twice {
			return nil, malformed("block lists of rank %d twice", r.Rank)
		}
		out[r.Rank] = lists
	}
	return out, nil
}

func digest(b []byte) (d [32]byte, err error) {
	if len(b) != len(d) {
		return d, malformed("layout digest of %d bytes, want %d", len(b), len(d))
	}
	copy(d[:], b)
	return d, nil
}

func decodeCause(c *peerpb.Cause) (transfer.Cause, error) {
	if c == nil {
		return transfer.Cause{}, nil
	}
	if c.Reason > uint32(transfer.Closed) {
		return transfer.Cause{}, malformed("reason %d", c.Reason)
	}
	if len(c.Text) > maxText {
		return transfer.Cause{}, malformed("text of %d bytes, limit %d", len(c.Text), maxText)
	}
	return transfer.Cause{Reason: transfer.Reason(c.Reason), Text: c.Text}, nil
}

// duration keeps a peer's durations within what sums of them can hold: 30 days.
func duration(ns uint64) transfer.Time {
	const most = 30 * 24 * 3600 * 1e9
	return transfer.Time(min(ns, uint64(most), math.MaxInt64))
}
