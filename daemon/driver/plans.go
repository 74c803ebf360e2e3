package driver

import (
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// plans are the plans that wait for a planner. Owners take turns, one plan each, so an owner that asks for many or
// large ones keeps only itself waiting.
type plans struct {
	mu    sync.Mutex
	some  sync.Cond
	turns []*lineup // owners with waiting plans, the next one first
	of    map[planOwner]*lineup
	over  bool
}

// planOwner is who a plan is made for: another node, or a session that takes within this node.
type planOwner struct {
	peer    string
	session transfer.SessionID
}

func (o planOwner) String() string {
	if o.peer != "" {
		return fmt.Sprintf("node %q", o.peer)
	}
	return fmt.Sprintf("session %#x", uint64(o.session))
}

// lineup is the waiting plans of one owner.
type lineup struct {
	owner planOwner
	list  []wanted
}

// wanted is a plan that a leg waits for.
type wanted struct {
	transfer.MakePlan
	leg *leg
}

// maxPlans bounds the waiting plans of one owner.
const maxPlans = 1 << 14

func (p *plans) init() {
	p.some.L = &p.mu
	p.of = map[planOwner]*lineup{}
}

func ownerOf(e *transfer.MakePlan) planOwner {
	if e.Leg.Peer == "" && len(e.Consumer) > 0 {
		return planOwner{session: e.Consumer[0].Session}
	}
	return planOwner{peer: e.Leg.Peer}
}

// add queues a plan, or says why not.
func (p *plans) add(w wanted) transfer.Cause {
	owner := ownerOf(&w.MakePlan)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of[owner]
	if l == nil {
		l = &lineup{owner: owner}
		p.of[owner] = l
		p.turns = append(p.turns, l)
	}
	if n := len(l.list); n >= maxPlans {
		return transfer.Cause{Reason: transfer.Quota, Text: fmt.Sprintf("%d plans wait to be made for %s, the limit: let some transfers end first", n, owner)}
	}
	l.list = append(l.list, w)
	p.some.Signal()
	return transfer.Cause{}
}

// next waits for the next plan to make. False: the driver ends.
func (p *plans) next() (w wanted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.turns) == 0 && !p.over {
		p.some.Wait()
	}
	if p.over {
		return w, false
	}
	l := p.turns[0]
	p.turns[0] = nil
	p.turns = p.turns[1:]
	w, l.list[0] = l.list[0], wanted{}
	if l.list = l.list[1:]; len(l.list) > 0 {
		p.turns = append(p.turns, l)
	} else {
		delete(p.of, l.owner)
	}
	return w, true
}

// close ends all waiting. Plans that still wait are not made.
func (p *plans) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.some.Broadcast()
}
