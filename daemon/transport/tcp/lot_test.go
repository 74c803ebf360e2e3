package tcp

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestIdleLinksWaitTogether: of many links of many peers only so many keep a thread, and each still receives what comes.
func TestIdleLinksWaitTogether(t *testing.T) {
	const links, threads = 40, 4
	p := newRawPeer(t, Config{Threads: threads})
	var far []*net.TCPConn
	for i := 1; i < links; i++ {
		a, b := connect(t)
		defer b.Close()
		p.tr.LinkUp(linkOf(a, epoch, i))
		far = append(far, b)
	}
	idle := func() bool {
		l := &p.tr.lot
		l.mu.Lock()
		defer l.mu.Unlock()
		used := int(l.used.Load())
		return used <= threads && used+len(l.spots) == links
	}
	s := p.expect(1, 64<<10, len(far))
	usual := p.conn
	for i, c := range far {
		for !idle() {
			runtime.Gosched()
		}
		p.conn = c
		p.write(s.frame(i, 0))
		p.wantLanded(s.key(i, 0), transfer.OK)
	}
	p.conn = usual
	for i := range far {
		if !s.holds(i, s.payloads[i]) {
			t.Fatalf("wrong bytes in slice %d", i)
		}
	}
}

// TestLot: both ends of one socket wait for it, and each is woken by what it waits for.
func TestLot(t *testing.T) {
	l := &lot{}
	defer l.close()
	near, far := connect(t)
	defer far.Close()
	w, err := newWire(near)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	reader := l.enter(w.fd, false)
	if !l.wait(w.fd, true) { // there is room to write
		t.Fatal("a socket cannot be waited for")
	}
	select {
	case <-reader:
		t.Fatal("there is nothing to read")
	default:
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-reader
	var b [1]byte
	if n, errno := sys.Recvmsg(uintptr(w.fd), []sys.Iovec{sys.MakeIovec(b[:])}); n != 1 || errno != 0 {
		t.Fatalf("read %d bytes: %v", n, errno)
	}
	reader = l.enter(w.fd, false)
	w.hangUp()
	<-reader
	if l.enter(-1, false) != nil {
		t.Error("what is no socket can be waited for")
	}
	if len(l.spots) != 0 {
		t.Errorf("%d sockets are left", len(l.spots))
	}
}

// TestLotWakesOneOfTwo: what wakes the reader of a socket leaves its writer waiting, and the other way round.
func TestLotWakesOneOfTwo(t *testing.T) {
	for _, readable := range []bool{true, false} {
		l := &lot{}
		near, far := connect(t)
		w, err := newWire(near)
		if err != nil {
			t.Fatal(err)
		}
		for full := false; !full; { // so that a writer waits
			_, errno := sys.Sendmsg(uintptr(w.fd), []sys.Iovec{sys.MakeIovec(make([]byte, 1<<20))}, false)
			full = errno != 0
		}
		reader, writer := l.enter(w.fd, false), l.enter(w.fd, true)
		first, second := reader, writer
		if !readable {
			first, second = writer, reader
		}
		for i, woken := range []chan struct{}{first, second} {
			if readable == (i == 0) {
				_, err = far.Write([]byte("x"))
			} else {
				_, err = io.CopyN(io.Discard, far, 1<<20)
				go func() { _, _ = io.Copy(io.Discard, far) }()
			}
			if err != nil {
				t.Fatal(err)
			}
			<-woken
			select {
			case <-second:
				if i == 0 {
					t.Errorf("readable %v: the other one is woken, too", readable)
				}
			default:
			}
		}
		w.close()
		far.Close()
		l.close()
	}
}
