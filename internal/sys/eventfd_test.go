package sys

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestEventfd(t *testing.T) {
	fd, err := EventfdCreate(false)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	take := func(want uint64) {
		t.Helper()
		n, err := EventfdRead(fd)
		noErr(t, err)
		if n != want {
			t.Fatalf("count %d, want %d", n, want)
		}
	}
	take(0)
	noErr(t, EventfdSignal(fd))
	noErr(t, EventfdSignal(fd))
	take(2)
	take(0)
	if n := testing.AllocsPerRun(100, func() {
		if EventfdSignal(fd) != nil {
			t.Error("signal failed")
		}
		if _, err := EventfdRead(fd); err != nil {
			t.Error(err)
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("signal and read allocate %v times", n)
	}
}

// A peer that fills the count must not be able to stop the one who signals.
func TestSignalOfAFullEventfd(t *testing.T) {
	fd, err := EventfdCreate(false)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	f, err := PollFile(must(Dup(fd)), "eventfd")
	noErr(t, err)
	_, err = f.Write([]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	noErr(t, err)
	noErr(t, f.Close())
	if !EventfdFull(fd) {
		t.Error("it is full")
	}
	noErr(t, EventfdSignal(fd))
	must(EventfdDrain(fd))
	if EventfdFull(fd) {
		t.Error("it is empty")
	}
}

func TestBlockingEventfdWaits(t *testing.T) {
	fd, err := EventfdCreate(true)
	noErr(t, err)
	defer func() { noErr(t, Close(fd)) }()
	got := make(chan uint64)
	go func() {
		n, err := EventfdRead(fd)
		if err != nil {
			n = 0
		}
		got <- n
	}()
	select {
	case n := <-got:
		t.Fatalf("read returned %d before any signal", n)
	default:
	}
	noErr(t, EventfdSignal(fd))
	if n := <-got; n != 1 {
		t.Fatalf("count %d, want 1", n)
	}
}

// Closing a polled eventfd must wake the goroutine that reads it: that is how
// a daemon stops.
func TestPollFileCloseWakesReader(t *testing.T) {
	fd, err := EventfdCreate(true)
	noErr(t, err)
	f, err := PollFile(fd, "eventfd")
	noErr(t, err)
	buf := make([]byte, 8)
	noErr(t, EventfdSignal(fd))
	_, err = f.Read(buf)
	noErr(t, err)
	ended := make(chan error)
	go func() {
		_, err := f.Read(buf)
		ended <- err
	}()
	noErr(t, f.Close())
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Fatalf("read ended with %v, want %v", err, os.ErrClosed)
	}
}

// TestPollFileThatIsNotPolled: what never wakes who reads it is not handed out.
func TestPollFileThatIsNotPolled(t *testing.T) {
	fd, err := MemfdCreate("file", 4096, MemfdOptions{})
	noErr(t, err)
	if _, err := PollFile(fd, "file"); !errors.Is(err, ErrUnpolled) {
		t.Errorf("a file that cannot wait: %v", err)
	}
	if _, err := Dup(fd); !errors.Is(err, syscall.EBADF) {
		t.Errorf("its descriptor is left: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
