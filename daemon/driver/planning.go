package driver

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// makePlan plans small requests at once, since a hop to a worker would cost more than the planning. Workers plan the
// rest.
func (d *Driver) makePlan(e transfer.MakePlan) {
	if ids(e) <= d.cfg.PlanInline {
		p, err := plan.New(request(e))
		d.planned(e, p, err)
		return
	}
	if cause := d.plans.add(wanted{e, d.leg(e.Leg)}); cause.Reason != transfer.OK { // the leg exists until Forget
		d.answer(transfer.Planned{Leg: e.Leg, Seg: e.Seg, Cause: cause})
	}
}

func (d *Driver) planWorker() {
	for w, ok := d.plans.next(); ok; w, ok = d.plans.next() {
		if w.leg.forgotten.Load() {
			continue
		}
		p, err := plan.New(request(w.MakePlan))
		d.Post(func() {
			if d.legs[w.Leg] == w.leg { // else nobody waits for it any more
				d.planned(w.MakePlan, p, err)
				d.flush()
			}
		})
	}
}

// planned keeps the plan and reports it to the machine.
func (d *Driver) planned(e transfer.MakePlan, p *plan.Plan, err error) {
	ev := transfer.Planned{Leg: e.Leg, Seg: e.Seg}
	if err != nil {
		ev.Cause = cause(err)
		d.answer(ev)
		return
	}
	d.leg(e.Leg).put(e.Seg, &segment{plan: p, sessions: d.cfg.Sessions, src: e.Producer, dst: e.Consumer})
	ev.Size = uint32(min(p.Size(), math.MaxUint32))
	ev.Slices, ev.Bytes, ev.Missing = uint32(p.Slices()), p.Bytes(), p.Missing()
	if len(e.Consumer) > 1 {
		ev.RankBytes = p.RankBytes()
	}
	if e.Layered {
		for _, m := range p.Marks() {
			ev.Marks = append(ev.Marks, transfer.Mark(m))
		}
	}
	if e.Leg.End == transfer.Producer {
		ev.Pieces = p.Pieces()
		t, reason := d.choose(e.Leg.Peer, d.only(e.Producer))
		if t == nil {
			ev.Cause = transfer.Cause{Reason: transfer.Unavailable, Text: reason}
		} else {
			ev.Transport = t.Name()
			ev.Inline = e.Leg.Peer != "" && p.Small(p.Bytes(), d.cfg.Inline) && !e.Layered // layers become ready one by one
		}
	}
	d.answer(ev)
}

// only returns the one transport that the producer's sessions may use; "": any.
func (d *Driver) only(producer []transfer.RankLayout) string {
	if d.cfg.Only == nil {
		return ""
	}
	for _, r := range producer {
		if name := d.cfg.Only(r.Session); name != "" {
			return name
		}
	}
	return ""
}

// choose returns the best transport that reaches the peer, or says why none does.
func (d *Driver) choose(peer, only string) (transport.Transport, string) {
	var why []string
	for _, t := range d.cfg.Transports {
		if only != "" && t.Name() != only {
			continue
		}
		r := t.Probe(peer)
		if r.OK && peer != "" {
			r.Reason = d.cfg.Peers.Barred(peer, t.Name())
		}
		if r.OK && r.Reason == "" {
			return t, ""
		}
		why = append(why, t.Name()+": "+r.Reason)
	}
	where := "this node"
	if peer != "" {
		where = fmt.Sprintf("peer %q", peer)
	}
	return nil, fmt.Sprintf("no transport reaches %s: %s", where, strings.Join(append(why, d.leftOut(only)...), "; "))
}

// leftOut says how to allow the transports of this build that are not allowed.
func (d *Driver) leftOut(only string) (why []string) {
	allowed := make([]string, 0, len(d.cfg.Transports))
	for _, t := range d.cfg.Transports {
		allowed = append(allowed, t.Name())
	}
	for _, name := range d.cfg.Known {
		if (only == "" || only == name) && !slices.Contains(allowed, name) {
			why = append(why, fmt.Sprintf("%s: not on the allow-list: add it to transports in the configuration of node %q (now %q)", name, d.cfg.Node, allowed))
		}
	}
	return why
}

// viewCost is the cost of looking at one view, in block ids.
const viewCost = 16

// ids estimates the cost of a plan, in block ids.
func ids(e transfer.MakePlan) int {
	n := weight(e.Producer, e.Consumer, e.Src, e.Dst)
	for _, b := range e.SrcBy {
		n += layout.CountIDs(b)
	}
	return n
}

func weight(producer, consumer []transfer.RankLayout, src, dst []layout.BlockList) int {
	n := layout.CountIDs(src) + layout.CountIDs(dst)
	for _, r := range producer {
		n += viewCost * len(r.Layout.Views())
	}
	for _, r := range consumer {
		n += viewCost * len(r.Layout.Views())
	}
	return n
}

func request(e transfer.MakePlan) plan.Request {
	return plan.Request{
		Producer: ranks(e.Producer, e.Src, e.SrcBy),
		Consumer: ranks(e.Consumer, e.Dst, nil),
		Layered:  e.Layered,
		Whole:    e.Whole,
		SameNode: e.Leg.Peer == "",
		SameSession: func(s, d uint32) bool {
			src := sessionOf(e.Producer, s)
			return src != 0 && src == sessionOf(e.Consumer, d)
		},
	}
}

func ranks(in []transfer.RankLayout, all []layout.BlockList, by map[uint32][]layout.BlockList) []plan.Rank {
	return appendRanks(make([]plan.Rank, 0, len(in)), in, all, by)
}

func appendRanks(out []plan.Rank, in []transfer.RankLayout, all []layout.BlockList, by map[uint32][]layout.BlockList) []plan.Rank {
	for _, r := range in {
		blocks, ok := by[r.Rank]
		if !ok {
			blocks = all
		}
		out = append(out, plan.Rank{Rank: r.Rank, Layout: r.Layout, Blocks: blocks})
	}
	return out
}

// cause returns an error as a Cause, with the reason it carries. A planner's error without a reason means incompatible,
// unless it says that the request is invalid or too large, or that source and destination overlap.
func cause(err error) transfer.Cause {
	var c interface{ Reason() transfer.Reason }
	if errors.As(err, &c) {
		return transfer.Cause{Reason: c.Reason(), Text: err.Error()}
	}
	reason := transfer.Incompatible
	if errors.Is(err, plan.ErrInvalid) || errors.Is(err, plan.ErrOverlap) {
		reason = transfer.Invalid
	}
	if errors.Is(err, plan.ErrTooMuch) {
		reason = transfer.Quota
	}
	return transfer.Cause{Reason: reason, Text: err.Error()}
}
