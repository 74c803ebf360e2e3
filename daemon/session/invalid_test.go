package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestInvalidate: a region does without its memory for a while, under its name and with its layout.
func TestInvalidate(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	id := transfer.SessionID(c.Welcome.Session)
	if c.Welcome.Says&ring.SaysInvalid == 0 {
		t.Error("WELCOME does not say that regions can be invalid")
	}
	fd, err := sys.MemfdCreate("sleeper", 16384, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	noErr(t, err)
	defer sys.Close(fd)
	region, err := c.Register(fd, 16384)
	noErr(t, err)
	noErr(t, c.SetLayout([]layout.View{view(region)}, nil, 0))

	for range 2 { // again changes nothing
		noErr(t, c.Invalidate(region, 0))
		if _, ok := n.Resolve(id, plan.Run{Region: region, Len: 1}); ok || n.Pinned() != 0 {
			t.Fatalf("the daemon still has the memory, %d bytes are registered", n.Pinned())
		}
	}
	if all := n.Sessions()[0].Regions; len(all) != 1 || !all[0].Vacant || all[0].Bytes != 16384 {
		t.Errorf("regions: %+v", all)
	}
	noErr(t, sys.PunchHole(fd, 0, 4096))
	says(t, c.Revalidate(region, fd), transfer.Invalid, "sparse")
	noErr(t, sys.Allocate(fd, 0, 4096))
	noErr(t, c.Revalidate(region, fd))
	wait[transfer.RegionRevalidated](n, func(ev transfer.RegionRevalidated) bool { return ev.Session == id && ev.Region == region })
	if _, ok := n.Resolve(id, plan.Run{Region: region, Len: 16384}); !ok || n.Pinned() != 16384 {
		t.Errorf("the memory is not back, %d bytes are registered", n.Pinned())
	}
	noErr(t, c.Revalidate(region, fd)) // again changes nothing

	noErr(t, c.Invalidate(region, 0))
	noErr(t, c.Unregister(region, 0))
	says(t, c.Invalidate(region, 0), transfer.NotFound, "not registered")
	says(t, c.Revalidate(region, fd), transfer.NotFound, "not registered")
}

// TestInvalidateThatIsNotFencedInTime leaves the memory where it is, until it is asked for again, in either way.
func TestInvalidateThatIsNotFencedInTime(t *testing.T) {
	n := start(t, nil)
	asked := make(chan transfer.Event, 8)
	n.on(func(ev transfer.Event) bool {
		switch ev.(type) {
		case transfer.RegionInvalidated, transfer.RegionRemoved:
			asked <- ev
			return true
		}
		return false
	})
	c := n.dial(sessiontest.Options{})
	id := transfer.SessionID(c.Welcome.Session)
	fd, err := sys.MemfdCreate("sleeper", 4096, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	noErr(t, err)
	defer sys.Close(fd)
	region, err := c.Register(fd, 4096)
	noErr(t, err)

	says(t, c.Invalidate(region, time.Millisecond), transfer.Timeout, "still in use")
	if ev := <-asked; ev != (transfer.RegionInvalidated{Session: id, Region: region}) {
		t.Errorf("the machine was told %#v", ev)
	}
	says(t, c.Revalidate(region, fd), transfer.Busy, "is being invalidated")
	n.RegionDrained(transfer.RegionDrained{Session: id, Region: region})
	if n.Pinned() != 4096 {
		t.Fatalf("%d bytes are registered", n.Pinned())
	}
	noErr(t, c.Invalidate(region, 0))
	if n.Pinned() != 0 {
		t.Fatalf("%d bytes are registered", n.Pinned())
	}
	noErr(t, c.Revalidate(region, fd))

	// Who thinks better of it once nothing uses the region has it as it was.
	says(t, c.Invalidate(region, time.Millisecond), transfer.Timeout, "still in use")
	<-asked
	n.RegionDrained(transfer.RegionDrained{Session: id, Region: region})
	noErr(t, c.Revalidate(region, fd))
	if n.Pinned() != 4096 {
		t.Fatalf("%d bytes are registered", n.Pinned())
	}

	// Who asks again while it waits takes its place.
	first := ask(t, c, ring.CtlInvalidate, region, 0)
	<-asked
	second := ask(t, c, ring.CtlInvalidate, region, 0)
	answered(t, c, first, transfer.Timeout, "another request")
	n.RegionDrained(transfer.RegionDrained{Session: id, Region: region})
	answered(t, c, second, transfer.OK, "")
	noErr(t, c.Revalidate(region, fd))

	// Who cannot wait for that may let the region go altogether; then it cannot be kept any more.
	first = ask(t, c, ring.CtlInvalidate, region, 0)
	<-asked
	second = ask(t, c, ring.CtlUnregister, region, time.Millisecond)
	allAnswered(t, c, answer{first, transfer.Timeout, "another request"}, answer{second, transfer.Timeout, "still in use"})
	if _, removed := (<-asked).(transfer.RegionRemoved); !removed {
		t.Error("the machine was not told that the region is to go")
	}
	says(t, c.Invalidate(region, 0), transfer.Busy, "unregistered already")
	n.RegionDrained(transfer.RegionDrained{Session: id, Region: region})
	noErr(t, c.Unregister(region, 0))
	if regions := n.Sessions()[0].Regions; len(regions) != 0 {
		t.Errorf("regions: %+v", regions)
	}
}

// Asking again is right at any moment, also while the region is being unmapped.
func TestRegionsAreAskedForAgainWhileTheyAreUnmapped(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	for _, again := range []uint16{ring.CtlInvalidate, ring.CtlUnregister} {
		for range 50 {
			region, _, err := c.Alloc(1 << 20)
			noErr(t, err)
			first := ask(t, c, ring.CtlInvalidate, region, 0)
			second := ask(t, c, again, region, 0)
			for range 2 {
				h, body, _, err := c.Receive(0)
				noErr(t, err)
				var ack ring.Ack
				_, err = ring.Decode(body, &ack, "ack")
				noErr(t, err)
				if late := h.Seq == first && ack.Reason == uint32(transfer.Timeout); ack.Reason != 0 && !late || h.Seq != first && h.Seq != second {
					t.Fatalf("answer %+v, %+v; asked for in %d and %d", h, ack, first, second)
				}
			}
			if again == ring.CtlInvalidate {
				noErr(t, c.Unregister(region, 0))
			}
			if n.Pinned() != 0 {
				t.Fatalf("%d bytes are registered", n.Pinned())
			}
		}
	}
	if regions := n.Sessions()[0].Regions; len(regions) != 0 {
		t.Errorf("regions: %+v", regions)
	}
}

// TestRegionThatComesBackInvalid: a session of before a restart names what it has no memory for, and the layout over it.
func TestRegionThatComesBackInvalid(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	value, err := c.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 16384, Kind: ring.RegisterMemfd, Flags: ring.RegisterInvalid}))
	noErr(t, err)
	region := layout.RegionID(value)
	noErr(t, c.SetLayout([]layout.View{view(region)}, nil, 0))
	wait[transfer.LayoutSet](n, nil)
	n.mu.Lock()
	told := slices.ContainsFunc(n.events, func(ev transfer.Event) bool {
		return ev == transfer.RegionInvalidated{Session: transfer.SessionID(c.Welcome.Session), Region: region}
	})
	n.mu.Unlock()
	if !told || n.Pinned() != 0 {
		t.Errorf("the machine knows that the region is invalid: %v, %d bytes are registered", told, n.Pinned())
	}
	fd, err := sys.MemfdCreate("sleeper", 16384, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	noErr(t, err)
	defer sys.Close(fd)
	noErr(t, c.Revalidate(region, fd))
	if n.Pinned() != 16384 {
		t.Errorf("%d bytes are registered", n.Pinned())
	}
}
