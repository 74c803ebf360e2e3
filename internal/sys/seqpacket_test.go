package sys

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestListenAndDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := ListenSeqpacket(path, ListenOptions{})
	noErr(t, err)
	noErr(t, first.Close())
	// The file of a listener that is gone must not be in the way.
	l, err := ListenSeqpacket(path, ListenOptions{Mode: 0o660, GID: new(os.Getgid())})
	noErr(t, err)
	defer l.Close()
	st, err := os.Stat(path)
	noErr(t, err)
	if st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v", st.Mode())
	}
	if _, err := ListenSeqpacket(path, ListenOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v, want EADDRINUSE", err)
	}
	asked, err := l.AcceptUnix()
	noErr(t, err)
	noErr(t, asked.Close())
	c, err := DialSeqpacket(context.Background(), path)
	noErr(t, err)
	defer c.Close()
	s, err := l.AcceptUnix()
	noErr(t, err)
	defer s.Close()
	// Messages keep their borders.
	noErr(t, Send(c, []byte("one")))
	noErr(t, Send(c, []byte("three")))
	buf := make([]byte, 64)
	for _, want := range []string{"one", "three"} {
		n, fds, err := Recv(s, buf, 4)
		noErr(t, err)
		if string(buf[:n]) != want || len(fds) != 0 {
			t.Fatalf("%q with %d descriptors", buf[:n], len(fds))
		}
	}
	noErr(t, c.Close())
	if _, _, err := Recv(s, buf, 4); err != io.EOF {
		t.Fatalf("after the end: %v, want io.EOF", err)
	}
	noErr(t, RemoveSocket(path))
	noErr(t, RemoveSocket(path))
	if _, err := DialSeqpacket(context.Background(), path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dial of a missing socket: %v", err)
	}
}

// TestListenPrivate: nobody else can ever connect, whatever the umask allows.
func TestListenPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	before := syscall.Umask(0)
	l, err := ListenPrivate(path)
	syscall.Umask(before)
	noErr(t, err)
	st, err := os.Stat(path)
	noErr(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if second, err := ListenPrivate(path); err == nil {
		t.Error("a path that is in use was taken", second.Close())
	}
	noErr(t, l.Close())
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestRemoveSocketSparesOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	noErr(t, os.WriteFile(path, []byte("x"), 0o600))
	if err := RemoveSocket(path); err == nil {
		t.Error("an ordinary file was removed")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := LockFile(path)
	noErr(t, err)
	if g, err := LockFile(path); !errors.Is(err, syscall.EWOULDBLOCK) {
		_ = g.Close()
		t.Fatalf("second lock: %v, want EWOULDBLOCK", err)
	}
	noErr(t, f.Close())
	g, err := LockFile(path)
	noErr(t, err)
	noErr(t, g.Close())
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	a, b, err := SeqpacketPair()
	noErr(t, err)
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestHungUp(t *testing.T) {
	a, b := pair(t)
	noErr(t, Send(a, []byte("last words")))
	if HungUp(b) {
		t.Error("hung up, though both are open")
	}
	noErr(t, a.Close())
	if !HungUp(b) || !HungUp(a) {
		t.Error("not hung up, though one is closed")
	}
}

func TestDescriptorsTravel(t *testing.T) {
	a, b := pair(t)
	fd := memfd(t, 4096, MemfdOptions{})
	ev, err := EventfdCreate(false)
	noErr(t, err)
	defer func() { noErr(t, Close(ev)) }()
	noErr(t, Send(a, []byte("hello"), fd, ev))
	buf := make([]byte, 16)
	n, fds, err := Recv(b, buf, 2)
	noErr(t, err)
	defer CloseAll(fds)
	if n != 5 || len(fds) != 2 {
		t.Fatalf("%d bytes and %d descriptors", n, len(fds))
	}
	for i, want := range []int{fd, ev} {
		iw, err := Identify(want)
		noErr(t, err)
		ig, err := Identify(fds[i])
		noErr(t, err)
		if iw.Kind != ig.Kind || iw.Ino != ig.Ino {
			t.Errorf("descriptor %d arrived as %+v, was %+v", i, ig, iw)
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fds[i]), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would survive an exec", i)
		}
	}
}

// Whatever a stranger sends, no descriptor is lost: the leak gate of this
// package sees those that are. Those that nobody wants stay queued, so that the
// caller chooses who closes them.
func TestTooMuchIsRefused(t *testing.T) {
	fd := memfd(t, 4096, MemfdOptions{})
	many := make([]int, MaxFDs)
	for i := range many {
		many[i] = fd
	}
	buf := make([]byte, 4)
	for name, c := range map[string]struct {
		data  string
		fds   []int
		limit int
	}{
		"one descriptor, none allowed":   {"x", many[:1], 0},
		"three descriptors, two allowed": {"x", many[:3], 2},
		"two descriptors, one allowed":   {"x", many[:2], 1},
		"as many as there can be":        {"x", many, 3},
		"long message":                   {"12345", nil, 4},
		"long message with descriptors":  {"12345", many[:2], 4},
	} {
		a, b := pair(t)
		noErr(t, Send(a, []byte(c.data), c.fds...))
		n, fds, err := Recv(b, buf, c.limit)
		CloseAll(fds)
		if !errors.Is(err, ErrTruncated) || n != 0 {
			t.Errorf("%s: %d bytes, descriptors %v, %v; want ErrTruncated", name, n, fds, err)
		}
		if came := len(fds) == len(c.fds); Laden(b) == came {
			t.Errorf("%s: %d of %d descriptors came, others are queued: %t", name, len(fds), len(c.fds), !came)
		}
		noErr(t, Discard(b))
		if Laden(b) {
			t.Errorf("%s: what was discarded is queued", name)
		}
	}
	a, b := pair(t)
	noErr(t, Send(a, []byte("1234"), many[:4]...))
	n, fds, err := Recv(b, buf, 4)
	noErr(t, err)
	CloseAll(fds)
	if n != 4 || len(fds) != 4 || Laden(b) {
		t.Fatalf("what is not too much: %d bytes, %d descriptors, more of them are queued: %t", n, len(fds), Laden(b))
	}
}

func TestSendRefusals(t *testing.T) {
	a, b := pair(t)
	if err := Send(a, nil); err == nil {
		t.Error("an empty message was sent")
	}
	if err := Send(a, []byte("x"), make([]int, MaxFDs+1)...); err == nil {
		t.Error("too many descriptors were sent")
	}
	if err := Send(a, []byte("x"), -1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a closed descriptor was sent: %v", err)
	}
	if _, _, err := Recv(b, make([]byte, 1), -1); err == nil {
		t.Error("a negative number of descriptors is allowed")
	}
}
