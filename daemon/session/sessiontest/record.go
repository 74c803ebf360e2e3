package sessiontest

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Encode turns an operation into a submission and its record, which the daemon's decoder turns back. The leases of
// offers and the timeouts of other operations become timeout_ns. The caller sets UserData and Tag.
func Encode(op transfer.Op) (e ring.SQE, rec []byte) {
	e.LayerSlot = ring.NoSlot
	switch o := op.(type) {
	case nil:
		e.Op = ring.OpNop
	case *transfer.OfferOp:
		e.Op, e.Flags, e.TimeoutNS = ring.OpOffer, again(o.Again), uint64(o.Lease)
		rec = ring.Append(nil, &ring.RecOffer{
			Flags: flags(o.Sealed, o.Layered), Consumers: uint32(o.Consumers), After: o.After, KeyLen: length(o.Key), TokenLen: length(o.Token),
			ContentLen: length(o.Content), TraceLen: length(o.Trace), NGroups: uint32(len(o.Blocks)),
		})
		rec = appendGroups(pad(concat(rec, o.Key, o.Token, o.Content, []byte(o.Trace))), o.Blocks)
	case *transfer.ExtendOp:
		e.Op, e.Target = ring.OpExtend, o.Target
		rec = ring.Append(nil, &ring.RecExtend{Flags: flags(o.Sealed, o.Layered), NGroups: uint32(len(o.Blocks)), After: o.After})
		rec = appendGroups(rec, o.Blocks)
	case *transfer.SealOp:
		e.Op, e.Target = ring.OpSeal, o.Target
	case *transfer.WithdrawOp:
		e.Op, e.Target = ring.OpWithdraw, o.Target
	case *transfer.CancelOp:
		e.Op, e.Target = ring.OpCancel, o.Target
	case *transfer.TakeOp:
		e.Op, e.Flags, e.TimeoutNS, e.LayerSlot = ring.OpTake, again(o.Again), uint64(o.Timeout), o.LayerSlot
		rec = ring.Append(nil, &ring.RecTake{
			Flags: flags(false, o.Layered), Part: uint32(o.Part), Parts: uint32(o.Parts), TakeID: o.TakeID, After: o.After, KeyLen: length(o.Key),
			TokenLen: length(o.Token), ContentLen: length(o.Content), TraceLen: length(o.Trace), PeerLen: length(o.Peer), NGroups: uint32(len(o.Blocks)),
		})
		rec = appendGroups(pad(concat(rec, o.Key, o.Token, o.Content, []byte(o.Trace), []byte(o.Peer))), o.Blocks)
	case *transfer.WatchOp:
		e.Op, e.TimeoutNS = ring.OpWatch, uint64(o.Timeout)
		rec = keyRecord(o.Key, o.Token, o.Trace, o.Peer)
	case *transfer.DropOp:
		e.Op, e.TimeoutNS = ring.OpDrop, uint64(o.Timeout)
		rec = keyRecord(o.Key, o.Token, o.Trace, o.Peer)
	case *transfer.BindOp:
		e.Op = ring.OpBind
		rec = ring.Append(nil, &ring.RecBind{
			Kind: uint32(o.Kind), Capacity: o.Capacity, LingerNS: uint64(o.Linger), NameLen: length(o.Name), TokenLen: length(o.Token), PeerLen: length(o.Peer),
		})
		rec = pad(concat(rec, []byte(o.Name), o.Token, []byte(o.Peer)))
	case *transfer.PutOp:
		e.Op, e.Target = ring.OpPut, o.Target
		rec = ring.Append(nil, &ring.RecPut{
			Form: uint32(o.Form), Bytes: o.Bytes, MetaLen: uint32(len(o.Meta)), KeyLen: uint32(len(o.Key)), NTokens: uint32(len(o.Tokens)), NGroups: uint32(len(o.Blocks)),
		})
		rec = pad(concat(rec, o.Meta, o.Key))
		rec = appendGroups(pad(ring.Append(rec, o.Tokens)), o.Blocks)
	case *transfer.GetOp:
		e.Op, e.Target, e.TimeoutNS = ring.OpGet, o.Target, uint64(o.Timeout)
		rec = ring.Append(nil, &ring.RecGet{
			Match: uint32(o.Match), Room: o.Room, Seq: o.Seq, KeyLen: uint32(len(o.Key)), NTokens: uint32(len(o.Tokens)), NGroups: uint32(len(o.Blocks)),
		})
		rec = pad(concat(rec, o.Key))
		rec = appendGroups(pad(ring.Append(rec, o.Tokens)), o.Blocks)
	default:
		panic(fmt.Sprintf("sessiontest: unknown operation %T", op))
	}
	return e, rec
}

func keyRecord(key, token []byte, trace, peer string) []byte {
	rec := ring.Append(nil, &ring.RecKey{KeyLen: length(key), TokenLen: length(token), TraceLen: length(trace), PeerLen: length(peer)})
	return pad(concat(rec, key, token, []byte(trace), []byte(peer)))
}

func again(is bool) uint8 {
	if is {
		return ring.SQEAgain
	}
	return 0
}

func flags(sealed, layered bool) (f uint32) {
	if sealed {
		f |= ring.OpSealed
	}
	if layered {
		f |= ring.OpLayered
	}
	return f
}

func length[T string | []byte](b T) uint16 { return uint16(len(b)) }

func concat(b []byte, parts ...[]byte) []byte {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func pad(b []byte) []byte {
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// appendGroups writes every other list as runs, so that both forms are used.
func appendGroups(b []byte, lists []layout.BlockList) []byte {
	for i, l := range lists {
		g := ring.RecGroup{Group: l.Group, FirstToken: l.FirstToken, NTokens: l.NTokens, Form: ring.FormIDs, Count: uint32(len(l.IDs))}
		numbers := l.IDs
		if i%2 == 1 {
			numbers = runs(l.IDs)
			g.Form, g.Count = ring.FormRuns, uint32(len(numbers)/2)
		}
		b = ring.Append(b, &g)
		b = pad(ring.Append(b, numbers))
	}
	return b
}

func runs(ids []uint32) (pairs []uint32) {
	for i := 0; i < len(ids); {
		n := 1
		for i+n < len(ids) && (ids[i] == layout.NoBlock && ids[i+n] == ids[i] || ids[i] != layout.NoBlock && ids[i+n] != layout.NoBlock && ids[i+n] == ids[i]+uint32(n)) {
			n++
		}
		pairs = append(pairs, ids[i], uint32(n))
		i += n
	}
	return pairs
}
