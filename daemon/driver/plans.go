package driver

import (
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// plans are the plans that wait for a planner. Owners take turns, one plan each, so an owner that asks for many or
// large ones keeps only itself waiting. The owners of one user share the user's turns: a user may have hundreds.
type plans struct {
	mu    sync.Mutex
	some  sync.Cond
	turns []*party // with waiting plans, the next one first
	users map[planUser]*party
	of    map[planOwner]*lineup
	over  bool
}

// planUser is another node, or a user of this one.
type planUser struct {
	peer string
	uid  uint32
}

// party is the owners of one user that have waiting plans, the next one first.
type party struct {
	user  planUser
	turns []*lineup
}

// planOwner is who a plan is made for: another node that takes here, or a session that takes, from this node or from
// another.
type planOwner struct {
	peer    string
	session transfer.SessionID
}

func (o planOwner) String() string {
	switch {
	case o.session == 0:
		return fmt.Sprintf("node %q", o.peer)
	case o.peer == "":
		return fmt.Sprintf("session %#x", uint64(o.session))
	}
	return fmt.Sprintf("session %#x, which takes from node %q", uint64(o.session), o.peer)
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
	p.users, p.of = map[planUser]*party{}, map[planOwner]*lineup{}
}

func ownerOf(e *transfer.MakePlan) (planOwner, planUser) {
	if len(e.Consumer) > 0 && e.Consumer[0].Session != 0 {
		return planOwner{e.Leg.Peer, e.Consumer[0].Session}, planUser{uid: e.User}
	}
	return planOwner{peer: e.Leg.Peer}, planUser{peer: e.Leg.Peer}
}

// add queues a plan, or says why not.
func (p *plans) add(w wanted) transfer.Cause {
	owner, user := ownerOf(&w.MakePlan)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of[owner]
	if l == nil {
		u := p.users[user]
		if u == nil {
			u = &party{user: user}
			p.users[user] = u
			p.turns = append(p.turns, u)
		}
		l = &lineup{owner: owner}
		p.of[owner] = l
		u.turns = append(u.turns, l)
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
	u := shift(&p.turns)
	l := shift(&u.turns)
	w = shift(&l.list)
	if len(l.list) > 0 {
		u.turns = append(u.turns, l)
	} else {
		delete(p.of, l.owner)
	}
	if len(u.turns) > 0 {
		p.turns = append(p.turns, u)
	} else {
		delete(p.users, u.user)
	}
	return w, true
}

// shift takes the first element off a list and keeps no reference to it.
func shift[T any](list *[]T) (first T) {
	var none T
	first, (*list)[0] = (*list)[0], none
	*list = (*list)[1:]
	return first
}

// close ends all waiting. Plans that still wait are not made.
func (p *plans) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.some.Broadcast()
}
