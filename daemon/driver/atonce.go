package driver

import (
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// trial is the scratch memory for takes that are moved at once, one after another.
type trial struct {
	planner            plan.Planner
	segment            segment
	producer, consumer []plan.Rank
}

// moveNow plans and copies a take within the node. Its answer is the machine's next event.
func (d *Driver) moveNow(e *transfer.MoveNow) {
	var ev transfer.MovedNow
	ev.Bytes, ev.OK = d.tryMove(e)
	d.answerNext(ev)
}

func (d *Driver) tryMove(e *transfer.MoveNow) (n uint64, ok bool) {
	t, _ := d.choose("", d.only(e.Producer))
	direct, ok := t.(transport.Direct)
	if !ok || weight(e.Producer, e.Consumer, e.Src, e.Dst) > d.cfg.PlanInline { // a worker plans it, in its session's turn
		return 0, false
	}
	x := &d.now
	defer x.drop()
	x.producer = appendRanks(x.producer[:0], e.Producer, e.Src, nil)
	x.consumer = appendRanks(x.consumer[:0], e.Consumer, e.Dst, nil)
	p, err := x.planner.Plan(plan.Request{Producer: x.producer, Consumer: x.consumer, Whole: e.Whole})
	if err != nil || len(p.Missing()) > 0 {
		return 0, false
	}
	x.segment = segment{plan: p, sessions: d.cfg.Sessions, src: e.Producer, dst: e.Consumer}
	if e.Granted.Slot != transfer.NoSlot {
		d.cfg.Sessions.Granted(e.Granted)
	}
	return p.Bytes(), direct.MoveNow(p, &x.segment)
}

// drop clears the references to what sessions may have left behind.
func (x *trial) drop() {
	x.planner.Drop()
	x.segment = segment{}
	clear(x.producer)
	clear(x.consumer)
}
