package sys

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelSignals: who has filled the count of a blocking eventfd cannot hold up the kernel that signals it, and whoever waits for one is woken.
func TestKernelSignals(t *testing.T) {
	k, err := newKernelSignals()
	noErr(t, err)
	defer k.close()
	fd, err := EventfdCreate(true)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	for range 3 {
		noErr(t, k.signal(fd))
	}
	if n := must(EventfdRead(fd)); n != 3 {
		t.Errorf("signalled %d times, want 3", n)
	}
	woken := make(chan uint64)
	go func() {
		n, err := EventfdRead(fd)
		if err != nil {
			n = 0
		}
		woken <- n
	}()
	noErr(t, k.signal(fd))
	if n := <-woken; n != 1 {
		t.Errorf("who waits reads %d, want 1", n)
	}
	if _, err := syscall.Write(fd, binary.NativeEndian.AppendUint64(nil, ^uint64(0)-1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		noErr(t, k.signal(fd))
	}
	if n := must(EventfdRead(fd)); n != ^uint64(0) {
		t.Errorf("a full count is %#x after it was signalled", n)
	}
	if err := k.signal(0); err == nil {
		t.Error("what is no eventfd was signalled")
	}
	if n := testing.AllocsPerRun(100, func() {
		if k.signal(fd) != nil {
			t.Error("signal failed")
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("a signal allocates %v times", n)
	}
}

// TestWhereNothingDrains: a kernel, or a sandbox, in which EventfdDrain cannot work is told from one in which it can.
func TestWhereNothingDrains(t *testing.T) {
	if !drains() {
		t.Error("nothing drains an eventfd here")
	}
	var yes bool
	without(t, unix.SYS_PREADV2, func() { yes = drains() })
	if yes {
		t.Error("an eventfd is said to be drained where preadv2 is forbidden")
	}
}
