package ring

import (
	"errors"
	"math"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

func TestViolatedIndices(t *testing.T) {
	for _, tail := range []uint32{9, 1 << 31, ^uint32(0)} {
		p := newPair(t, small)
		p.client.Corrupt(tail, 0)
		var e SQE
		if ok, err := p.sq.Next(&e); ok || !errors.Is(err, ErrIndex) {
			t.Errorf("sq_tail %d: %v, %v", tail, ok, err)
		}
		if !p.sq.Pending() {
			t.Errorf("sq_tail %d: nothing pending, so nobody would look", tail)
		}
	}
	for _, head := range []uint32{3, 1 << 31, ^uint32(0)} {
		p := newPair(t, small)
		noErr(t, p.cq.Put(&CQE{}, nil, false))
		noErr(t, p.cq.Put(&CQE{}, nil, false))
		p.client.Corrupt(0, head)
		if _, _, err := p.cq.Consumed(); !errors.Is(err, ErrIndex) {
			t.Errorf("cq_head %d: %v", head, err)
		}
	}
}

// TestIndicesWrap starts both queues just below 2^32.
func TestIndicesWrap(t *testing.T) {
	p := newPair(t, small)
	const near = ^uint32(0) - 2
	p.sq.next, p.client.tail, p.client.seen = near, near, near
	p.sq.head.Store(near)
	p.cq.next, p.cq.done, p.client.head = near, near, near
	p.client.Corrupt(near, near)
	p.cq.tail.Store(near)
	for i := range uint64(20) {
		_, err := p.client.Submit(SQE{UserData: i}, []byte("record"))
		noErr(t, err)
		var e SQE
		if ok, err := p.sq.Next(&e); !ok || err != nil || e.UserData != i {
			t.Fatalf("submission %d: %v %v %v", i, ok, err, e.UserData)
		}
		p.sq.Advance()
		noErr(t, p.cq.Put(&CQE{UserData: i}, []byte("result"), false))
		if e, _, ok := p.client.Next(); !ok || e.UserData != i {
			t.Fatalf("completion %d: %v %v", i, ok, e.UserData)
		}
		if _, n, err := p.cq.Consumed(); n != 1 || err != nil {
			t.Fatalf("consumed %d: %v", n, err)
		}
	}
}

func TestRecordOutOfRange(t *testing.T) {
	p := newPair(t, small)
	for _, r := range []struct {
		off uint64
		n   uint32
	}{{0, 4097}, {4088, 9}, {8, 4089}, {^uint64(0) - 7, 9}, {4, 8}, {0, ^uint32(0)}} {
		if _, err := p.sq.Record(nil, r.off, r.n); !errors.Is(err, ErrIndex) {
			t.Errorf("record of %d at %d: %v", r.n, r.off, err)
		}
	}
	for _, r := range []struct {
		off uint64
		n   uint32
	}{{0, 4096}, {4088, 8}, {4096 * 7, 4096}, {^uint64(0) - 7, 8}} {
		if b, err := p.sq.Record(nil, r.off, r.n); err != nil || len(b) != int(r.n) {
			t.Errorf("record of %d at %d: %d, %v", r.n, r.off, len(b), err)
		}
	}
}

// TestFaults takes the memory away in the middle: every access reports it and none kills the process.
func TestFaults(t *testing.T) {
	g, err := NewGeometry(small)
	noErr(t, err)
	fdC, fdD := memfds(t, g)
	c, err := sys.Mmap(fdC, g.CBytes, sys.ProtWrite)
	noErr(t, err)
	defer sys.Munmap(c)
	d, err := sys.Mmap(fdD, g.DBytes, sys.ProtWrite)
	noErr(t, err)
	defer sys.Munmap(d)
	p := onMemory(t, g, c, d)
	_, err = p.client.Submit(SQE{UserData: 5}, []byte("record"))
	noErr(t, err)

	// Holes are what a client can make in a sealed memfd: they read as zero.
	noErr(t, sys.PunchHole(fdC, int64(g.records), int64(g.Records)))
	if b, err := p.sq.Record(nil, 0, 6); err != nil || string(b) != "\x00\x00\x00\x00\x00\x00" {
		t.Errorf("a record in a hole: %q, %v", b, err)
	}

	noErr(t, sys.Truncate(fdC, int64(g.records)))
	if _, err := p.sq.Record(nil, 0, 6); !errors.Is(err, ErrFault) {
		t.Errorf("record: %v", err)
	}
	noErr(t, sys.Truncate(fdC, 0))
	var e SQE
	if _, err := p.sq.Next(&e); !errors.Is(err, ErrFault) {
		t.Errorf("next: %v", err)
	}
	if !p.sq.Pending() || p.sq.Arm() {
		t.Error("a ring that is gone has nothing to say: nobody would notice")
	}
	if _, _, err := p.cq.Consumed(); !errors.Is(err, ErrFault) {
		t.Errorf("consumed: %v", err)
	}
	if !p.cq.Waiting() {
		t.Error("a client that cannot be asked is not woken")
	}
	if _, err := p.words.Progress(); !errors.Is(err, ErrFault) {
		t.Errorf("progress: %v", err)
	}
	noErr(t, sys.Truncate(fdD, int64(g.cq)))
	if err := p.cq.Put(&CQE{}, nil, false); !errors.Is(err, ErrFault) {
		t.Errorf("put: %v", err)
	}
	if err := p.layers.Set(0, 1, 1); !errors.Is(err, ErrFault) {
		t.Errorf("layers: %v", err)
	}
}

func TestGuardPassesOtherPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a panic that is no fault was swallowed")
		}
	}()
	_ = guard(func() { panic("bug") })
}

func TestWordsAndLayers(t *testing.T) {
	p := newPair(t, small)
	p.words.WaitProgress(10)
	if p.client.Progress(9) {
		t.Error("the client rings before its progress is what is waited for")
	}
	if !p.client.Progress(10) {
		t.Error("the client does not ring")
	}
	if v, err := p.words.Progress(); v != 10 || err != nil {
		t.Errorf("progress %d, %v", v, err)
	}
	p.words.Close(14)
	p.words.Beat(77)
	if p.client.Closed() != 14 || p.client.Heartbeat() != 77 {
		t.Errorf("closed %d, heartbeat %d", p.client.Closed(), p.client.Heartbeat())
	}
	for _, step := range [][3]uint64{{1, 5, 2}, {1, 5, 3}, {1, 6, 0}, {3, 7, 1}} {
		noErr(t, p.layers.Set(uint32(step[0]), step[1], uint32(step[2])))
		if user, ready := p.client.Layer(uint32(step[0])); user != step[1] || uint64(ready) != step[2] {
			t.Errorf("slot %d: %d ready of %d, want %v", step[0], ready, user, step)
		}
	}
	if err := p.layers.Set(4, 1, 1); err == nil {
		t.Error("a slot that is not there is accepted")
	}
}

// TestALayerSlotSaysNothingOfTheTakeBefore: a client that sees its own number trusts what else the slot says.
func TestALayerSlotSaysNothingOfTheTakeBefore(t *testing.T) {
	p := newPair(t, small)
	noErr(t, p.layers.Set(1, 5, 3))
	noErr(t, p.layers.Grant(1, 5))
	if user, ready := p.client.Layer(1); user != 5 || ready != 3 || !p.client.Granted(1, 5) {
		t.Errorf("%d ready of %d, granted %v: want 3 of 5, granted", ready, user, p.client.Granted(1, 5))
	}
	noErr(t, p.layers.Grant(1, 6))
	if user, ready := p.client.Layer(1); user != 6 || ready != 0 || !p.client.Granted(1, 6) || p.client.Granted(1, 5) {
		t.Errorf("%d ready of %d, granted %v: want none of 6, granted", ready, user, p.client.Granted(1, 6))
	}
	noErr(t, p.layers.Set(1, 7, 1))
	if user, ready := p.client.Layer(1); user != 7 || ready != 1 || p.client.Granted(1, 7) {
		t.Errorf("%d ready of %d, granted %v: want 1 of 7, not granted", ready, user, p.client.Granted(1, 7))
	}
	if err := p.layers.Grant(4, 1); err == nil {
		t.Error("a slot that is not there is granted")
	}
}

func TestArm(t *testing.T) {
	p := newPair(t, small)
	if !p.sq.Arm() {
		t.Fatal("an empty ring cannot be slept on")
	}
	if wake, err := p.client.Submit(SQE{UserData: 1}, nil); !wake || err != nil {
		t.Fatalf("the daemon sleeps and is not rung: %v", err)
	}
	if p.sq.Arm() {
		t.Fatal("sleeping on a ring with an entry")
	}
	if wake, _ := p.client.Submit(SQE{UserData: 2}, nil); wake {
		t.Fatal("the daemon is rung while it looks")
	}
	p.sq.Advance()
	p.sq.Advance()
	if !p.sq.Arm() {
		t.Fatal("the ring is empty again")
	}
	p.sq.Disarm()
	if wake, _ := p.client.Submit(SQE{UserData: 3}, nil); wake {
		t.Fatal("the daemon is rung after Disarm")
	}
}

// TestDozing: one sleep is ended once, by what is coming or by what is there; one that may miss nothing is not ended for nothing.
func TestDozing(t *testing.T) {
	p := newPair(t, small)
	if p.cq.Dozing() {
		t.Error("a client that is awake is rung")
	}
	p.client.Arm()
	if !p.cq.Dozing() || p.cq.Dozing() {
		t.Error("one sleep is not ended once")
	}
	noErr(t, p.cq.Put(&CQE{}, nil, false))
	if p.cq.Waiting() {
		t.Error("rung again while it is on its way")
	}
	p.client.Next()
	p.client.Arm()
	if !p.cq.Dozing() {
		t.Error("the next sleep is not ended")
	}
	p.client.waiting.Store(always)
	if p.cq.Dozing() || !p.cq.Waiting() {
		t.Error("who wants a ring for each completion is rung for none")
	}
}

// TestOneRingForEachSleep: what is published while the other side is on its way rings nothing.
func TestOneRingForEachSleep(t *testing.T) {
	p := newPair(t, small)
	for sleep := range 3 {
		if !p.sq.Arm() || !p.client.Arm() {
			t.Fatal("an empty ring cannot be slept on")
		}
		for i, want := range []bool{true, false, false} {
			if wake, _ := p.client.Submit(SQE{UserData: 1}, nil); wake != want {
				t.Errorf("sleep %d of the daemon, submission %d: rung %v", sleep, i, wake)
			}
			noErr(t, p.cq.Put(&CQE{}, nil, false))
			if wake := p.cq.Waiting(); wake != want {
				t.Errorf("sleep %d of the client, completion %d: rung %v", sleep, i, wake)
			}
			p.sq.Advance()
			p.client.Next()
		}
		_, _, err := p.cq.Consumed()
		noErr(t, err)
	}
}

// TestRingForEverything: a side of before, and one that others listen with, says 1 and is rung each time.
func TestRingForEverything(t *testing.T) {
	p := newPair(t, small)
	p.client.waiting.Store(always)
	p.sq.wake.Store(always)
	for i := range 3 {
		noErr(t, p.cq.Put(&CQE{}, nil, false))
		if wake, _ := p.client.Submit(SQE{UserData: 1}, nil); !wake || !p.cq.Waiting() {
			t.Errorf("entry %d rings nothing", i)
		}
	}
}

// TestNumbersOfSleeps: none is what says "awake" or "ring always", also when they begin anew.
func TestNumbersOfSleeps(t *testing.T) {
	for _, n := range []uint32{0, 1, 2, math.MaxUint32 - 1, math.MaxUint32} {
		if next := nextSleep(n); next <= always || next == n {
			t.Errorf("%d after %d", next, n)
		}
	}
}
