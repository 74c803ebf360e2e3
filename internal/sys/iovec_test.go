package sys

import (
	"bytes"
	"math/rand"
	"net"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// tcpPair returns two ends of one TCP connection.
func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	noErr(t, err)
	s, err := l.Accept()
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close(); _ = s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func raw(t *testing.T, c *net.TCPConn) syscall.RawConn {
	t.Helper()
	r, err := c.SyscallConn()
	noErr(t, err)
	return r
}

// transfer moves all of src to all of dst through the runtime's poller.
func transfer(t *testing.T, a, b *net.TCPConn, src, dst []Iovec) {
	t.Helper()
	ended := make(chan error)
	rb := raw(t, b)
	go func() {
		var errno syscall.Errno
		err := rb.Read(func(fd uintptr) bool {
			for len(dst) > 0 {
				var n int
				n, errno = Recvmsg(fd, dst)
				if errno == syscall.EAGAIN {
					return false
				}
				if errno != 0 || n == 0 {
					return true
				}
				dst = Advance(dst, n)
			}
			return true
		})
		if err == nil && errno != 0 {
			err = errno
		}
		ended <- err
	}()
	var errno syscall.Errno
	noErr(t, raw(t, a).Write(func(fd uintptr) bool {
		for len(src) > 0 {
			var n int
			n, errno = Sendmsg(fd, src, false)
			if errno == syscall.EAGAIN {
				return false
			}
			if errno != 0 {
				return true
			}
			src = Advance(src, n)
		}
		return true
	}))
	if errno != 0 {
		t.Fatal(errno)
	}
	noErr(t, <-ended)
	if len(dst) != 0 {
		t.Fatalf("%d bytes did not arrive", IovecBytes(dst))
	}
}

func TestScatteredTransfer(t *testing.T) {
	a, b := tcpPair(t)
	want := make([]byte, 3<<20)
	rnd := rand.New(rand.NewSource(1))
	rnd.Read(want)
	got := make([]byte, len(want))
	cut := func(b []byte) (iov []Iovec) {
		for len(b) > 0 {
			n := min(len(b), 1+rnd.Intn(5000))
			iov = append(iov, MakeIovec(b[:n]))
			b = b[n:]
		}
		return iov
	}
	transfer(t, a, b, cut(want), cut(got))
	if !bytes.Equal(got, want) {
		t.Fatal("the bytes that arrived differ")
	}
}

// Memory that is not there must come back as an error, and not as a signal
// that ends the process.
func TestBadMemoryIsAnError(t *testing.T) {
	a, b := tcpPair(t)
	gone, err := MmapAnon(4096, ProtNone)
	noErr(t, err)
	defer func() { noErr(t, Munmap(gone)) }()
	bad := []Iovec{MakeIovec(gone)}
	noErr(t, raw(t, a).Control(func(fd uintptr) {
		if n, errno := Sendmsg(fd, bad, false); errno != syscall.EFAULT {
			t.Errorf("send from bad memory: %d, %v", n, errno)
		}
		if _, errno := Recvmsg(fd, bad); errno != syscall.EAGAIN {
			t.Errorf("receive when there is nothing: %v", errno)
		}
	}))
	_, err = a.Write([]byte("data"))
	noErr(t, err)
	var errno syscall.Errno
	noErr(t, raw(t, b).Read(func(fd uintptr) bool {
		_, errno = Recvmsg(fd, bad)
		return errno != syscall.EAGAIN
	}))
	if errno != syscall.EFAULT {
		t.Errorf("receive into bad memory: %v", errno)
	}
}

func TestSocketIOAllocatesNothing(t *testing.T) {
	a, b := tcpPair(t)
	buf := make([]byte, 256)
	out, in := []Iovec{MakeIovec(buf)}, []Iovec{MakeIovec(buf[:128]), MakeIovec(buf[128:])}
	rb := raw(t, b)
	fail := syscall.Errno(0)
	read := func(fd uintptr) bool {
		_, fail = Recvmsg(fd, in)
		return fail != syscall.EAGAIN
	}
	noErr(t, raw(t, a).Control(func(fd uintptr) {
		if n := testing.AllocsPerRun(100, func() {
			if _, errno := Sendmsg(fd, out, false); errno != 0 {
				t.Error(errno)
			}
			if err := rb.Read(read); err != nil || fail != 0 {
				t.Error(err, fail)
			}
		}); n != 0 && !raceEnabled {
			t.Errorf("%v allocations for each message", n)
		}
	}))
}

// Advance against the plain bytes that the pieces stand for.
func TestIovecModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := make([]byte, 256)
		for i := range mem {
			mem[i] = byte(i)
		}
		var iov []Iovec
		var model []byte
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			off := rapid.IntRange(0, len(mem)-1).Draw(t, "off")
			piece := mem[off:][:rapid.IntRange(1, len(mem)-off).Draw(t, "len")]
			iov = append(iov, MakeIovec(piece))
			model = append(model, piece...)
		}
		if IovecBytes(iov) != len(model) {
			t.Fatalf("%d bytes, want %d", IovecBytes(iov), len(model))
		}
		for len(model) > 0 {
			n := rapid.IntRange(1, len(model)).Draw(t, "n")
			iov, model = Advance(iov, n), model[n:]
			var flat []byte
			for i := range iov {
				flat = append(flat, iov[i].Bytes()...)
			}
			if !bytes.Equal(flat, model) {
				t.Fatalf("after %d bytes: %v, want %v", n, flat, model)
			}
		}
		if len(iov) != 0 {
			t.Fatalf("%d pieces remain of nothing", len(iov))
		}
	})
}
