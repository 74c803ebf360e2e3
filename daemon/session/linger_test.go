package session_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// lingerers makes sockets of which the last one to close them waits for an hour: somebody does not read what was sent.
type lingerers struct {
	t    *testing.T
	l    net.Listener
	ends []net.Conn
}

func newLingerers(t *testing.T) *lingerers {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) { // less than a sender keeps
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }), err)
	}}
	l, err := small.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	noErr(t, err)
	g := &lingerers{t: t, l: l}
	t.Cleanup(g.letGo)
	return g
}

// letGo has all that close them go on.
func (g *lingerers) letGo() {
	_ = g.l.Close()
	for _, c := range g.ends {
		_ = c.Close() // with bytes unread: a reset
	}
	g.ends = nil
}

// give sends a message with such a socket, which is nobody else's, behind the descriptors of with.
func (g *lingerers) give(to *net.UnixConn, data []byte, with ...int) {
	g.t.Helper()
	c, err := net.DialTCP("tcp4", nil, g.l.Addr().(*net.TCPAddr))
	noErr(g.t, err)
	far, err := g.l.Accept()
	noErr(g.t, err)
	g.ends = append(g.ends, far)
	noErr(g.t, c.SetWriteBuffer(1<<17))
	noErr(g.t, c.SetLinger(3600))
	noErr(g.t, sys.Control(c, func(fd int) error {
		for full := make([]byte, 1<<16); ; {
			if _, err := syscall.Write(fd, full); err != nil {
				break // it takes no more
			}
		}
		return sys.Send(to, data, append(with, fd)...)
	}))
	noErr(g.t, c.Close())
}

// stuck returns the stacks of who closes, or receives, and does not come back from it.
func stuck(t *testing.T) (all []string) {
	t.Helper()
	b := make([]byte, 1<<20)
	for _, g := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(g, "[syscall") && strings.Contains(g, "daemon/session.(*") {
			all = append(all, g)
		}
	}
	return all
}

// threads is how many this process has.
func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	noErr(t, err)
	return len(all)
}

// lingering starts a server for which count strangers wait that each bring a socket that lingers. They came before it could say that it
// takes no descriptors. It returns when all have been shown out.
func lingering(t *testing.T, g *lingerers, count int) (n *node, stop func()) {
	t.Helper()
	n = &node{t: t, path: filepath.Join(t.TempDir(), "s"), grew: make(chan struct{})}
	l, err := sys.ListenSeqpacket(n.path, sys.ListenOptions{})
	noErr(t, err)
	strangers := make([]*net.UnixConn, count)
	for i := range strangers {
		strangers[i] = silence(t, n.path)
		g.give(strangers[i], []byte{0})
	}
	n.Server, err = session.New(session.Config{Node: "n0", Epoch: 7, Events: n.event})
	noErr(t, err)
	served := make(chan error, 1)
	go func() { served <- n.Serve(l) }()
	stop = sync.OnceFunc(func() {
		noErr(t, n.Close())
		noErr(t, <-served)
	})
	t.Cleanup(stop)
	for _, c := range strangers {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a stranger was not shown out: %v", err)
		}
	}
	return n, stop
}

// TestStrangersThatLinger: whoever brings what does not close takes few of the daemon's threads, keeps nobody out, and is not waited for in
// the end.
func TestStrangersThatLinger(t *testing.T) {
	g := newLingerers(t)
	before := threads(t)
	n, stop := lingering(t, g, 60)
	c := n.dial(sessiontest.Options{})
	_, _, err := c.Alloc(8192)
	noErr(t, err)
	noErr(t, c.Close())
	if now := threads(t); now > before+30 {
		t.Errorf("there were %d threads, now there are %d", before, now)
	}
	stop()
}

// TestACrowdThatLingers: whose connections do not close opens no more sessions, until they do.
func TestACrowdThatLingers(t *testing.T) {
	g := newLingerers(t)
	n, _ := lingering(t, g, 70)
	eventually(t, func() bool { return n.Lingering(uint32(os.Getuid())) == 70 }, "%d connections linger", func() int { return n.Lingering(uint32(os.Getuid())) })
	n.refused(sessiontest.Options{}, transfer.Quota, "the limit is 64", "do not close")
	g.letGo()
	var c *sessiontest.Client
	eventually(t, func() bool {
		var err error
		c, err = sessiontest.Dial(n.path, sessiontest.Options{Engine: "e"})
		return err == nil
	}, "the session is refused for ever: %d", func() int { return n.Usage().Sessions })
	noErr(t, c.Close())
}

// TestSessionThatLingers: a session ends, and another takes its place, whatever holds up who listens to it.
func TestSessionThatLingers(t *testing.T) {
	for name, send := range map[string]func(*lingerers, *net.UnixConn){
		"closed":  func(g *lingerers, c *net.UnixConn) { g.give(c, ctl(ring.CtlPing)) },
		"dropped": func(g *lingerers, c *net.UnixConn) { g.give(c, make([]byte, 65569)) }, // too long
		"queued": func(g *lingerers, c *net.UnixConn) {
			noErr(g.t, sys.Send(c, ctl(ring.CtlBye)))
			g.give(c, ctl(ring.CtlPing))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newLingerers(t)
			n, held := startHeld(t)
			c := n.dial(sessiontest.Options{})
			unregisters(t, c)
			send(g, c.Conn)
			close(held)
			id := transfer.SessionID(c.Welcome.Session)
			wait(n, func(transfer.RegionRemoved) bool { return true })
			n.EndSession(transfer.EndSession{Session: id, Cause: transfer.Cause{Reason: transfer.Closed, Text: "enough"}})
			wait(n, func(e transfer.SessionClosed) bool { return e.Session == id })
			n.empty()
			again := n.dial(sessiontest.Options{})
			noErr(t, again.Ping())
			noErr(t, again.Close())
			noErr(t, n.Close())
			if len(stuck(t)) == 0 {
				t.Error("nothing lingers: this test has shown nothing")
			}
		})
	}
}

// TestSessionsThatLinger: sessions that send what does not close take few of the daemon's threads, however many they are, and hold up no session that
// sends shared memory.
func TestSessionsThatLinger(t *testing.T) {
	const sessions, atOnce = 20, 8
	for name, b := range map[string]struct {
		data   []byte
		before int // descriptors that come before the one that lingers
	}{
		"in vain":        {ctl(ring.CtlPing), 0},
		"malformed":      {[]byte{0}, 0},
		"too long":       {make([]byte, 65569), 0},
		"the second one": {ctl(ring.CtlPing), 1},
		"too many":       {ctl(ring.CtlPing), 5},
	} {
		t.Run(name, func(t *testing.T) {
			g := newLingerers(t)
			n, held := startHeld(t)
			for range sessions {
				c := n.dial(sessiontest.Options{Role: transfer.Endpoint})
				unregisters(t, c)
				g.give(c.Conn, b.data, slices.Repeat([]int{c.RingC}, b.before)...)
			}
			close(held)
			closing := func() (n int) {
				for _, g := range stuck(t) {
					n += strings.Count(g, "session.(*exits).drop(")
				}
				return n
			}
			eventually(t, func() bool { return n.Lingering(uint32(os.Getuid())) == sessions && closing() >= atOnce },
				"%d sessions linger", func() int { return n.Lingering(uint32(os.Getuid())) })
			if at := closing(); at != atOnce {
				t.Errorf("%d threads close what they sent, want %d", at, atOnce)
			}
			honest := n.dial(sessiontest.Options{})
			_, _, err := honest.Alloc(8192)
			noErr(t, err)
			noErr(t, honest.Close())
			g.letGo()
			eventually(t, func() bool { return n.Lingering(uint32(os.Getuid())) == 0 },
				"%d sessions still linger", func() int { return n.Lingering(uint32(os.Getuid())) })
		})
	}
}

// startHeld starts a server that hears nothing more from a session that unregisters until held is closed: what it sends then is the daemon's
// alone once its socket is closed.
func startHeld(t *testing.T) (n *node, held chan struct{}) {
	held = make(chan struct{})
	return start(t, func(c *session.Config) {
		then := c.Events
		c.Events = func(ev transfer.Event) {
			if _, ok := ev.(transfer.RegionRemoved); ok {
				<-held
			}
			then(ev)
		}
	}), held
}

func unregisters(t *testing.T, c *sessiontest.Client) {
	t.Helper()
	region, _, err := c.Alloc(8192)
	noErr(t, err)
	_, err = c.Send(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: uint64(region)}))
	noErr(t, err)
}

func ctl(kind uint16) []byte { return ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: kind}) }
