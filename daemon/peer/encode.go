package peer

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// encode turns a machine's message into a frame. Field for field; peer.proto says what they mean.
func encode(epoch uint64, m transfer.Msg) (*peerpb.Frame, error) {
	f := &peerpb.Frame{Epoch: epoch}
	switch m := m.(type) {
	case *transfer.MsgLayout:
		f.Kind = &peerpb.Frame_Layout{Layout: &peerpb.Layout{Digest: m.Digest[:], Blob: m.Blob}}
	case *transfer.MsgTake:
		f.Kind = &peerpb.Frame_Take{Take: &peerpb.Take{
			Xfer: uint64(m.Xfer), Engine: m.Engine, Instance: m.Instance, TakeId: m.TakeID, Part: uint32(m.Part), Parts: uint32(m.Parts),
			Key: m.Key, Token: m.Token, Content: m.Content, Trace: m.Trace, Layered: m.Layered, Ranks: encodeRanks(m.Ranks),
			Blocks: encodeLists(m.Blocks), BlocksBy: encodeBy(m.BlocksBy), DeadlineNs: uint64(m.Deadline),
		}}
	case *transfer.MsgNeedLayout:
		n := &peerpb.NeedLayout{Xfer: uint64(m.Xfer), End: uint32(m.End)}
		for i := range m.Digests {
			n.Digests = append(n.Digests, m.Digests[i][:])
		}
		f.Kind = &peerpb.Frame_NeedLayout{NeedLayout: n}
	case *transfer.MsgParked:
		f.Kind = &peerpb.Frame_Parked{Parked: &peerpb.Parked{Xfer: uint64(m.Xfer)}}
	case *transfer.MsgRefuse:
		f.Kind = &peerpb.Frame_Refuse{Refuse: &peerpb.Refuse{Xfer: uint64(m.Xfer), Cause: encodeCause(m.Cause), RetryNs: uint64(m.Retry)}}
	case *transfer.MsgGrant:
		f.Kind = &peerpb.Frame_Grant{Grant: &peerpb.Grant{
			Xfer: uint64(m.Xfer), Seg: m.Seg, Incarnation: m.Incarnation, Engine: m.Engine, Whole: m.Whole, Ranks: encodeRanks(m.Ranks),
			Blocks: encodeLists(m.Blocks), BlocksBy: encodeBy(m.BlocksBy), Tokens: m.Tokens, Last: m.Last, Layered: m.Layered,
			Transport: m.Transport, Slices: m.Slices, Bytes: m.Bytes, HasInline: m.HasInline, Inline: m.Inline, InlineCrc: m.InlineCRC,
		}}
	case *transfer.MsgGo:
		f.Kind = &peerpb.Frame_Go{Go: &peerpb.Go{Xfer: uint64(m.Xfer), Seg: m.Seg}}
	case *transfer.MsgSent:
		f.Kind = &peerpb.Frame_Sent{Sent: &peerpb.Sent{Xfer: uint64(m.Xfer), Incarnation: m.Incarnation, Segs: m.Segs}}
	case *transfer.MsgResend:
		f.Kind = &peerpb.Frame_Resend{Resend: &peerpb.Resend{Xfer: uint64(m.Xfer), Seg: m.Seg, Attempt: m.Attempt, Slices: m.Slices}}
	case *transfer.MsgEnd:
		f.Kind = &peerpb.Frame_End{End: &peerpb.End{Xfer: uint64(m.Xfer), Status: uint32(m.Status), Cause: encodeCause(m.Cause), Incarnation: m.Incarnation}}
	case *transfer.MsgEndAck:
		f.Kind = &peerpb.Frame_EndAck{EndAck: &peerpb.EndAck{Xfer: uint64(m.Xfer)}}
	case *transfer.MsgAbort:
		f.Kind = &peerpb.Frame_Abort{Abort: &peerpb.Abort{Xfer: uint64(m.Xfer), Cause: encodeCause(m.Cause)}}
	case *transfer.MsgKey:
		f.Kind = &peerpb.Frame_Key{Key: &peerpb.Key{
			Id: m.ID, Drop: m.Drop, Engine: m.Engine, Key: m.Key, Token: m.Token, Trace: m.Trace, ForNs: uint64(m.For),
		}}
	case *transfer.MsgKeyAck:
		f.Kind = &peerpb.Frame_KeyAck{KeyAck: &peerpb.KeyAck{Id: m.ID, Cause: encodeCause(m.Cause)}}
	default:
		return nil, fmt.Errorf("no frame for %T", m)
	}
	return f, nil
}

func encodeCause(c transfer.Cause) *peerpb.Cause {
	if c.Reason == transfer.OK && c.Text == "" {
		return nil
	}
	return &peerpb.Cause{Reason: uint32(c.Reason), Text: c.Text}
}

func encodeRanks(in []transfer.RankRef) []*peerpb.RankRef {
	out := make([]*peerpb.RankRef, len(in))
	for i := range in {
		out[i] = &peerpb.RankRef{Rank: in[i].Rank, Digest: in[i].Digest[:]}
	}
	return out
}

func encodeLists(in []layout.BlockList) []*peerpb.BlockList {
	out := make([]*peerpb.BlockList, len(in))
	for i := range in {
		b := &in[i]
		out[i] = &peerpb.BlockList{
			Group: b.Group, FirstToken: b.FirstToken, Ntokens: b.NTokens, Count: uint32(len(b.IDs)), Ids: layout.AppendIDs(nil, b.IDs),
		}
	}
	return out
}

func encodeBy(in map[uint32][]layout.BlockList) []*peerpb.RankBlocks {
	var out []*peerpb.RankBlocks
	for rank, lists := range in {
		out = append(out, &peerpb.RankBlocks{Rank: rank, Blocks: encodeLists(lists)})
	}
	return out
}
