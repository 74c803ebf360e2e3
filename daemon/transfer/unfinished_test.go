package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestWhatIsLeftUnfinishedIsForgotten: of takes whose rest does not come the last ones of each engine are remembered, and go on when it does.
func TestWhatIsLeftUnfinishedIsForgotten(t *testing.T) {
	b := offered(t, 1)
	const takes = 200
	for i := range uint64(takes) {
		b.takes(transfer.XferID(i+1), "f", "1", i, 0, 2)
	}
	if n := b.m.Claims("k"); n != 16 {
		t.Errorf("%d takes are remembered, want 16", n)
	}
	b.asksFor(1000, "g", "1", 0, 0, 1)
	b.waits(1000) // engine f has the place all the same
	if b.takes(1001, "f", "1", takes-16, 1, 2) {
		t.Error("all of a take is in place, and the offer stands")
	}
}

// TestWhatManyLeaveUnfinishedIsForgotten: it keeps no place, and one more engine can always be there.
func TestWhatManyLeaveUnfinishedIsForgotten(t *testing.T) {
	b := offered(t, 1)
	for i := range 600 {
		engine, x := fmt.Sprint(i), transfer.XferID(2*i+1)
		b.takes(x, engine, "1", 7, 0, 2)
		b.asksFor(x+1, engine, "1", 7, 1, 2)
		leg, _ := b.grants(x + 1)
		b.fails(x + 1)
		b.step(transfer.Fenced{Leg: leg})
	}
	if n := b.m.Claims("k"); n != 256 {
		t.Errorf("%d takes are remembered, want 256", n)
	}
	if b.takes(10_000, "599", "1", 7, 1, 2) {
		t.Error("all of the last one is in place, and the offer stands")
	}
}

// TestWhatInstancesLeaveUnfinishedIsForgotten: each instance of an engine has a place although those before it left takes unfinished, so there
// may be any number of them. What the last one left goes on when the rest of it comes.
func TestWhatInstancesLeaveUnfinishedIsForgotten(t *testing.T) {
	b := offered(t, 1)
	const instances = 600
	for i := range instances {
		b.takes(transfer.XferID(i+1), "f", fmt.Sprint(i), 7, 0, 2)
	}
	if n := b.m.Claims("k"); n != 256 {
		t.Errorf("%d takes are remembered, want 256", n)
	}
	b.asksFor(1000, "g", "1", 0, 0, 1)
	b.waits(1000) // engine f has the place all the same
	if b.takes(1001, "f", fmt.Sprint(instances-1), 7, 1, 2) {
		t.Error("all of a take is in place, and the offer stands")
	}
}

// TestWhatIsUnderWayIsNotForgotten: an engine may have any number of takes at a time, and each counts.
func TestWhatIsUnderWayIsNotForgotten(t *testing.T) {
	a := newAsker(t, 0)
	a.offers(1)
	const takes = 20
	for i := range uint64(takes) {
		n := a.site(fmt.Sprint("n", i), i+2)
		n.asksFor(1, "f", "1", i, 0, 2)
		n.begins(1)
	}
	if n := a.m.Claims("k"); n != takes {
		t.Errorf("%d takes are remembered, want %d", n, takes)
	}
}
