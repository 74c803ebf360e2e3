package sys

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestWhatIsQueued: a message is looked at, and descriptors that are queued are seen, without any of them being taken.
func TestWhatIsQueued(t *testing.T) {
	a, b, err := SeqpacketPair()
	noErr(t, err)
	defer a.Close()
	defer b.Close()
	look := func(want string, brings bool) {
		t.Helper()
		buf := make([]byte, 16)
		if n, laden, err := Peek(b, buf); err != nil || string(buf[:n]) != want || laden != brings {
			t.Errorf("saw %q, laden: %t, %v; want %q, %t", buf[:n], laden, err, want, brings)
		}
	}
	if Laden(b) {
		t.Error("descriptors are queued where nothing was sent")
	}
	noErr(t, Send(a, []byte("one")))
	for range 2 {
		look("one", false)
	}
	fd := memfd(t, 4096, MemfdOptions{})
	noErr(t, Send(a, []byte("two"), fd, fd))
	look("one", false)
	if !Laden(b) {
		t.Error("queued descriptors are not seen")
	}
	for _, want := range []int{0, 2} {
		_, fds, err := Recv(b, make([]byte, 16), 2)
		noErr(t, err)
		if len(fds) != want {
			t.Errorf("%d descriptors came, want %d", len(fds), want)
		}
		CloseAll(fds)
		if want == 0 {
			look("two", true)
		}
	}
	if Laden(b) {
		t.Error("descriptors are queued after all came")
	}
	noErr(t, a.Close())
	look("", false)
}

// TestPassRights: who may send no descriptors is told so, and anything else comes.
func TestPassRights(t *testing.T) {
	a, b, err := SeqpacketPair()
	noErr(t, err)
	defer a.Close()
	defer b.Close()
	if err := PassRights(b, false); err != nil {
		t.Skipf("this kernel always passes descriptors: %v", err)
	}
	fd := memfd(t, 4096, MemfdOptions{})
	if err := Send(a, []byte("x"), fd); !errors.Is(err, os.ErrPermission) {
		t.Errorf("sent a descriptor: %v", err)
	}
	noErr(t, Send(a, []byte("x")))
	noErr(t, PassRights(b, true))
	noErr(t, Send(a, []byte("x"), fd))
}

// TestNoRoomForADescriptor: a process that may open no more files gets the message all the same, and hears what it lacks.
func TestNoRoomForADescriptor(t *testing.T) {
	a, b := pair(t)
	fd := memfd(t, 4096, MemfdOptions{})
	noErr(t, Send(a, []byte("123"), fd))
	var was syscall.Rlimit
	noErr(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: was.Max})) // those that are open stay
	buf := make([]byte, 4)
	n, fds, err := Recv(b, buf, 1)
	noErr(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if !errors.Is(err, ErrNoDescriptor) || !errors.Is(err, syscall.EMFILE) || fds != nil || string(buf[:n]) != "123" {
		t.Errorf("%q, descriptors %v, %v", buf[:n], fds, err)
	}
	noErr(t, Send(a, []byte("4"), fd))
	if _, fds, err = Recv(b, buf, 1); err != nil || len(fds) != 1 {
		t.Errorf("the next one: descriptors %v, %v", fds, err)
	}
	CloseAll(fds)
}
