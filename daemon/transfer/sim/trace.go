package sim

import (
	"fmt"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// describe writes an event or an effect on one line, without what a reader does not need.
func describe(x any) string {
	switch x := x.(type) {
	case transfer.Submit:
		return fmt.Sprintf("Submit session=%d user=%d %s", x.Session, x.UserData, describeOp(x.Op))
	case transfer.PeerUp:
		return fmt.Sprintf("PeerUp{Node:%s Epoch:%d Hints:%v}", x.Node, x.Epoch, x.Hints)
	case transfer.PeerMsg:
		return fmt.Sprintf("PeerMsg from=%s epoch=%d %s", x.Node, x.Epoch, describeMsg(x.Msg))
	case transfer.Send:
		more := ""
		if x.More {
			more = ", more follow"
		}
		return fmt.Sprintf("Send to=%s epoch=%d %s%s", x.Node, x.Epoch, describeMsg(x.Msg), more)
	case transfer.SliceSent:
		return fmt.Sprintf("SliceSent %s%s", describeKey(x.Key), describeCause(x.Cause))
	case transfer.SliceLanded:
		return fmt.Sprintf("SliceLanded %s%s", describeKey(x.Key), describeCause(x.Cause))
	case transfer.Post:
		keys := make([]string, len(x.Keys))
		for i, k := range x.Keys {
			keys[i] = describeKey(k)
		}
		return fmt.Sprintf("Post %s over %s", strings.Join(keys, ", "), x.Transport)
	case transfer.Planned:
		return fmt.Sprintf("Planned %s seg=%d slices=%d bytes=%d inline=%v%s%s", describeLeg(x.Leg), x.Seg, x.Slices, x.Bytes, x.Inline, describeRuns(" missing=", x.Missing), describeCause(x.Cause))
	case transfer.MakePlan:
		return fmt.Sprintf("MakePlan %s seg=%d src=%s dst=%s layered=%v whole=%v", describeLeg(x.Leg), x.Seg, describeBlocks(x.Src, x.SrcBy), describeBlocks(x.Dst, nil), x.Layered, x.Whole)
	case *transfer.MoveNow:
		return fmt.Sprintf("MoveNow src=%s dst=%s whole=%v", describeBlocks(x.Src, nil), describeBlocks(x.Dst, nil), x.Whole)
	case transfer.Expect:
		return fmt.Sprintf("Expect %s seg=%d over %s", describeLeg(x.Leg), x.Seg, x.Transport)
	case transfer.ReadInline:
		return fmt.Sprintf("ReadInline %s seg=%d", describeLeg(x.Leg), x.Seg)
	case transfer.WriteInline:
		return fmt.Sprintf("WriteInline %s seg=%d bytes=%d", describeLeg(x.Leg), x.Seg, len(x.Data))
	case transfer.InlineRead:
		return fmt.Sprintf("InlineRead %s seg=%d bytes=%d%s", describeLeg(x.Leg), x.Seg, len(x.Data), describeCause(x.Cause))
	case transfer.InlineWritten:
		return fmt.Sprintf("InlineWritten %s seg=%d%s", describeLeg(x.Leg), x.Seg, describeCause(x.Cause))
	case transfer.Fence:
		return "Fence " + describeLeg(x.Leg)
	case transfer.Fenced:
		return "Fenced " + describeLeg(x.Leg) + describeCause(x.Cause)
	case transfer.Forget:
		return "Forget " + describeLeg(x.Leg)
	case *transfer.Complete:
		return describe(*x)
	case transfer.Complete:
		more := ""
		if x.More {
			more = " MORE"
		}
		return fmt.Sprintf("Complete session=%d user=%d op=%d %s%s bytes=%d%s%s%s", x.Session, x.UserData, x.Op, statuses[x.Status], more, x.Bytes, describeGot(x),
			describeRuns(" failed=", x.Failed), describeCause(transfer.Cause{Reason: x.Reason, Text: x.Text}))
	case transfer.SessionClosed:
		died := ""
		if x.Died {
			died = fmt.Sprintf(" died progress=%#x", x.Progress)
		}
		return fmt.Sprintf("SessionClosed session=%d%s%s", x.Session, died, describeCause(x.Cause))
	case transfer.SessionOrphaned:
		keep := make([]string, len(x.Keep))
		for i, b := range x.Keep {
			keep[i] = describeBlocks(b, nil)
		}
		return fmt.Sprintf("SessionOrphaned session=%d keep=%s", x.Session, strings.Join(keep, ";"))
	case transfer.LayoutSet:
		return fmt.Sprintf("LayoutSet session=%d", x.Session)
	case transfer.ArmTimer:
		return fmt.Sprintf("ArmTimer %.3fms", float64(x.At)/1e6)
	case transfer.Log:
		return fmt.Sprintf("Log %q %v", x.Text, x.Attrs)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", x, x), "transfer.")
}

var statuses = map[transfer.Status]string{
	transfer.Done: "DONE", transfer.Failed: "FAILED", transfer.WasCancelled: "CANCELLED",
	transfer.Released: "RELEASED", transfer.Quarantined: "QUARANTINED",
}

var reasons = [...]string{"OK", "INVALID", "NOT_FOUND", "EXPIRED", "DENIED", "INCOMPATIBLE", "BUSY", "QUOTA", "TIMEOUT", "CANCELLED",
	"PEER_GONE", "RESTARTED", "UNAVAILABLE", "CORRUPT", "CLOSED"}

func describeCause(c transfer.Cause) string {
	if c.Reason == transfer.OK {
		return ""
	}
	return fmt.Sprintf(" %s: %s", reasons[c.Reason], c.Text)
}

func describeLeg(l transfer.Leg) string {
	end := "producer"
	if l.End == transfer.Consumer {
		end = "consumer"
	}
	if l.Peer == "" {
		return fmt.Sprintf("%s:x%d", end, uint32(l.Xfer))
	}
	return fmt.Sprintf("%s:x%d(%s,%d)", end, uint32(l.Xfer), l.Peer, l.Epoch)
}

func describeKey(k transfer.SliceKey) string {
	s := fmt.Sprintf("%s/%d.%d", describeLeg(k.Leg), k.Seg, k.Slice)
	if k.Attempt > 0 {
		s += fmt.Sprintf("#%d", k.Attempt)
	}
	return s
}

func describeBlocks(all []layout.BlockList, by map[uint32][]layout.BlockList) string {
	var parts []string
	for _, b := range all {
		group := ""
		if b.Group > 0 {
			group = fmt.Sprintf("group%d:", b.Group)
		}
		parts = append(parts, fmt.Sprintf("%s%d+%d%v", group, b.FirstToken, b.NTokens, b.IDs))
	}
	for rank := uint32(0); int(rank) < 8; rank++ {
		if lists, ok := by[rank]; ok {
			parts = append(parts, fmt.Sprintf("rank%d:%s", rank, describeBlocks(lists, nil)))
		}
	}
	return strings.Join(parts, ",")
}

func describeRuns(label string, runs []layout.Run) string {
	if len(runs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(label)
	for i, r := range runs {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d+%d", r.First, r.Count)
	}
	return b.String()
}

func describeOp(op transfer.Op) string {
	if s := describeEnd(op); s != "" {
		return s
	}
	switch o := op.(type) {
	case *transfer.OfferOp:
		return fmt.Sprintf("Offer key=%s consumers=%d after=%#x sealed=%v layered=%v blocks=%s", o.Key, o.Consumers, o.After, o.Sealed, o.Layered, describeBlocks(o.Blocks, nil))
	case *transfer.ExtendOp:
		return fmt.Sprintf("Extend target=%d after=%#x sealed=%v layered=%v blocks=%s", o.Target, o.After, o.Sealed, o.Layered, describeBlocks(o.Blocks, nil))
	case *transfer.TakeOp:
		return fmt.Sprintf("Take key=%s peer=%q id=%d part=%d/%d after=%#x layered=%v timeout=%v blocks=%s", o.Key, o.Peer, o.TakeID, o.Part, o.Parts, o.After, o.Layered, o.Timeout/ms, describeBlocks(o.Blocks, nil))
	case *transfer.WatchOp:
		return fmt.Sprintf("Watch key=%s peer=%q", o.Key, o.Peer)
	case *transfer.DropOp:
		return fmt.Sprintf("Drop key=%s peer=%q", o.Key, o.Peer)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", op, op), "*transfer.")
}

func describeMsg(msg transfer.Msg) string {
	if s := describeEnds(msg); s != "" {
		return s
	}
	switch m := msg.(type) {
	case *transfer.MsgLayout:
		return "Layout"
	case *transfer.MsgNeedLayout:
		return fmt.Sprintf("NeedLayout x%d", uint32(m.Xfer))
	case *transfer.MsgTake:
		return fmt.Sprintf("Take x%d key=%s engine=%s id=%d part=%d/%d dst=%s", uint32(m.Xfer), ownKey(m.Key), m.Engine, m.TakeID, m.Part, m.Parts, describeBlocks(m.Blocks, nil))
	case *transfer.MsgParked:
		return fmt.Sprintf("Parked x%d", uint32(m.Xfer))
	case *transfer.MsgRefuse:
		return fmt.Sprintf("Refuse x%d%s", uint32(m.Xfer), describeCause(m.Cause))
	case *transfer.MsgGrant:
		return fmt.Sprintf("Grant x%d seg=%d inc=%d last=%v slices=%d inline=%v tokens=%d", uint32(m.Xfer), m.Seg, uint32(m.Incarnation), m.Last, m.Slices, m.HasInline, m.Tokens)
	case *transfer.MsgGo:
		return fmt.Sprintf("Go x%d seg=%d", uint32(m.Xfer), m.Seg)
	case *transfer.MsgSent:
		return fmt.Sprintf("Sent x%d inc=%d segs=%d", uint32(m.Xfer), uint32(m.Incarnation), m.Segs)
	case *transfer.MsgResend:
		return fmt.Sprintf("Resend x%d seg=%d attempt=%d slices=%v", uint32(m.Xfer), m.Seg, m.Attempt, m.Slices)
	case *transfer.MsgEnd:
		return fmt.Sprintf("End x%d inc=%d %s%s", uint32(m.Xfer), uint32(m.Incarnation), statuses[m.Status], describeCause(m.Cause))
	case *transfer.MsgEndAck:
		return fmt.Sprintf("EndAck x%d", uint32(m.Xfer))
	case *transfer.MsgAbort:
		return fmt.Sprintf("Abort x%d%s", uint32(m.Xfer), describeCause(m.Cause))
	case *transfer.MsgKey:
		return fmt.Sprintf("Key id=%d key=%s drop=%v", m.ID, m.Key, m.Drop)
	case *transfer.MsgKeyAck:
		return fmt.Sprintf("KeyAck id=%d%s", m.ID, describeCause(m.Cause))
	}
	return fmt.Sprintf("%T", msg)
}
