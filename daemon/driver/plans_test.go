package driver

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func planFor(peer string, session transfer.SessionID, x transfer.XferID) wanted {
	return wanted{transfer.MakePlan{Leg: transfer.Leg{Peer: peer, Xfer: x}, Consumer: []transfer.RankLayout{{Session: session}}}, new(leg)}
}

// TestPlansTakeTurns: however many one node, or one session, has made, others wait for one of them at most.
func TestPlansTakeTurns(t *testing.T) {
	var p plans
	p.init()
	for x := range transfer.XferID(3) {
		p.add(planFor("mad", 0, x))
	}
	p.add(planFor("b", 0, 10))
	for user, w := range []wanted{planFor("", 1, 20), planFor("", 2, 30), planFor("", 1, 21)} {
		w.User = uint32(user) % 2
		p.add(w)
	}
	var got []transfer.XferID
	for range 7 {
		w, _ := p.next()
		got = append(got, w.Leg.Xfer)
	}
	if want := []transfer.XferID{0, 10, 20, 30, 1, 21, 2}; !slices.Equal(got, want) {
		t.Errorf("planned in the order %v, want %v", got, want)
	}
	if len(p.of) > 0 || len(p.turns) > 0 {
		t.Errorf("%d owners are left, for whom nothing waits", len(p.of))
	}
}

// TestPlansOfAUserTakeItsTurns: a user may have hundreds of sessions, each of which takes from here and from other nodes, and keeps others waiting
// for one plan all the same. Its sessions take turns among themselves.
func TestPlansOfAUserTakeItsTurns(t *testing.T) {
	var p plans
	p.init()
	of := func(user uint32, peer string, session transfer.SessionID, x transfer.XferID) {
		w := planFor(peer, session, x)
		w.User = user
		p.add(w)
	}
	for s := range transfer.SessionID(3) {
		of(7, "", 1+s, transfer.XferID(s))
		of(7, "", 1+s, 100+transfer.XferID(s))
	}
	of(7, "b", 1, 3)
	of(8, "", 4, 10)
	of(8, "", 4, 11)
	of(9, "b", 5, 20)
	p.add(planFor("b", 0, 30)) // what b takes here
	p.add(planFor("b", 0, 31))
	var got []transfer.XferID
	for range 12 {
		w, _ := p.next()
		got = append(got, w.Leg.Xfer)
	}
	if want := []transfer.XferID{0, 10, 20, 30, 1, 11, 31, 2, 3, 100, 101, 102}; !slices.Equal(got, want) {
		t.Errorf("planned in the order %v, want %v", got, want)
	}
	if len(p.of) > 0 || len(p.users) > 0 || len(p.turns) > 0 {
		t.Errorf("%d owners of %d users are left, for whom nothing waits", len(p.of), len(p.users))
	}
}

// TestPlansAreBounded: for each owner.
func TestPlansAreBounded(t *testing.T) {
	var p plans
	p.init()
	for range maxPlans {
		p.add(planFor("mad", 0, 1))
	}
	if c := p.add(planFor("mad", 0, 1)); c.Reason != transfer.Quota || !strings.Contains(c.Text, `16384 plans wait to be made for node "mad", the limit`) {
		t.Errorf("one too many: %+v", c)
	}
	if c := p.add(planFor("b", 0, 1)); c.Reason != transfer.OK {
		t.Errorf("one of another node: %+v", c)
	}
	p.close()
	if w, ok := p.next(); ok {
		t.Errorf("%+v is to be planned for a driver that ends", w)
	}
}

// TestWhatIsForgottenIsNotPlanned, and one too many is answered at once.
func TestWhatIsForgottenIsNotPlanned(t *testing.T) {
	d := New(Config{})
	rank, blocks := oneBlock(t)
	for x := range transfer.XferID(maxPlans + 1) {
		d.makePlan(transfer.MakePlan{Leg: transfer.Leg{Peer: "mad", Xfer: x}, Producer: rank, Consumer: rank, Src: blocks, Dst: blocks})
	}
	if ev, ok := d.own[0].(transfer.Planned); len(d.own) != 1 || !ok || ev.Leg.Xfer != maxPlans || ev.Cause.Reason != transfer.Quota {
		t.Errorf("answered: %+v, want the last alone, that it is one too many", d.own)
	}
	for x := range transfer.XferID(maxPlans) {
		d.execute(transfer.Forget{Leg: transfer.Leg{Peer: "mad", Xfer: x}})
	}
	end := planFor("", 1, 0)
	end.leg.forgotten.Store(true)
	d.plans.add(end)
	done := make(chan struct{})
	go func() { defer close(done); d.planWorker() }()
	for waits := true; waits; {
		d.plans.mu.Lock()
		waits = len(d.plans.of) > 0
		d.plans.mu.Unlock()
	}
	d.plans.close()
	<-done
	if n := len(d.queue.take(nil)); n > 0 {
		t.Errorf("%d plans were made for transfers that are over", n)
	}
}

// TestAPlannerThatRestsIsWoken: by the first plan that comes, and by the end.
func TestAPlannerThatRestsIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p plans
		p.init()
		var got []transfer.XferID
		over := make(chan struct{})
		go func() {
			defer close(over)
			for w, ok := p.next(); ok; w, ok = p.next() {
				got = append(got, w.Leg.Xfer)
			}
		}()
		for x := range transfer.XferID(2) {
			synctest.Wait() // it rests
			p.add(planFor("b", 0, x))
			synctest.Wait()
			if len(got) != int(x)+1 || got[x] != x {
				t.Fatalf("planned %v after %d plans came", got, x+1)
			}
		}
		p.close()
		<-over
	})
}
