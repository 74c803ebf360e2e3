package session_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// refused dials with o, which must be refused for a reason and with words that say what is wrong.
func (n *node) refused(o sessiontest.Options, reason transfer.Reason, says ...string) {
	n.t.Helper()
	if o.Engine == "" {
		o.Engine = "e"
	}
	c, err := sessiontest.Dial(n.path, o)
	if err == nil {
		c.Kill()
	}
	if sessiontest.Reason(err) != reason {
		n.t.Errorf("reason is not %d: %v", reason, err)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			n.t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestHelloIsJudged(t *testing.T) {
	n := start(t, nil)
	for _, c := range []struct {
		change func(*ring.Hello)
		reason transfer.Reason
		says   string
	}{
		{func(h *ring.Hello) { h.ABIMin, h.ABIMax = 2, 3 }, transfer.Incompatible, "speaks ring protocol 2 to 3, this daemon (test) 1 to 1"},
		{func(h *ring.Hello) { h.ABIMin, h.ABIMax = 0, 0 }, transfer.Incompatible, "ring protocol 0 to 0"},
		{func(h *ring.Hello) { h.ABIMin, h.ABIMax, h.Reserved[0] = 2, 3, 1 }, transfer.Incompatible, "ring protocol 2 to 3"}, // whatever that version has there
		{func(h *ring.Hello) { h.Features = 1 << 40 }, transfer.Incompatible, "0x10000000000"},
		{func(h *ring.Hello) { h.Reserved[351] = 1 }, transfer.Invalid, "reserved"},
		{func(h *ring.Hello) { h.CQEntries = 4 }, transfer.Invalid, "cq_entries is 4: must be a power of two from 8"},
		{func(h *ring.Hello) { h.ArenaBytes = 1 << 15 }, transfer.Invalid, "arena_bytes is 32768: must be a power of two from 65536"},
		{func(h *ring.Hello) { h.Role = 4 }, transfer.Invalid, "role is 4"},
		{func(h *ring.Hello) { h.TPRank, h.TPWorld = 4, 4 }, transfer.Invalid, "tp_rank is 4 of 4"},
		{func(h *ring.Hello) { h.PPRank = 1 }, transfer.Invalid, "pp_rank 1 of 1"},
		{func(h *ring.Hello) { h.TPWorld, h.PPWorld = 1<<16, 1<<16 }, transfer.Invalid, "65536"},
		{func(h *ring.Hello) { h.Engine[0] = 0 }, transfer.Invalid, "engine_id"},
		{func(h *ring.Hello) { h.Engine[3] = 'x' }, transfer.Invalid, "engine_id: bytes follow"},
		{func(h *ring.Hello) { h.Instance[0] = 0xff }, transfer.Invalid, "instance: not valid UTF-8"},
		{func(h *ring.Hello) { h.Library[0] = '\n' }, transfer.Invalid, "unprintable"},
		{func(h *ring.Hello) { h.SQEntries = 1000 }, transfer.Invalid, "sq_entries is 1000: must be a power of two from 1 to 65536"},
		{func(h *ring.Hello) { h.CQEntries = 1 << 30 }, transfer.Invalid, "cq_entries is 1073741824: must be a power of two from 8 to 65536"},
		{func(h *ring.Hello) { h.CQEntries = 1000 }, transfer.Invalid, "cq_entries is 1000: must be a power of two from 8 to 65536"}, // not twice that, nor what rings could have
		{func(h *ring.Hello) { h.ArenaBytes = 1 << 31 }, transfer.Invalid, "arena_bytes is 2147483648: must be a power of two from 65536 to 67108864"},
		{func(h *ring.Hello) { h.ArenaBytes = 1<<16 + 8 }, transfer.Invalid, "arena_bytes is 65544: must be a power of two from 65536 to 67108864"},
		{func(h *ring.Hello) { h.LayerSlots = 1 << 20 }, transfer.Invalid, "layer_slots is 1048576: must be a power of two from 1 to 65536"},
		{func(h *ring.Hello) { h.LayerSlots = 3 }, transfer.Invalid, "layer_slots is 3: must be a power of two from 1 to 65536"},
	} {
		n.refused(sessiontest.Options{Hello: c.change}, c.reason, c.says)
	}
	if n := count[transfer.SessionOpened](n); n != 0 {
		t.Errorf("%d sessions were opened", n)
	}
	n.empty()
}

// TestStrangers says something else than HELLO, or nothing.
func TestStrangers(t *testing.T) {
	n := start(t, nil)
	event, err := sys.EventfdCreate(false)
	noErr(t, err)
	defer sys.Close(event)
	header := func(c ring.Ctl) []byte { return ring.Append(nil, &c) }
	hello := ring.Append(header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Len: 768}), &ring.Hello{})
	for name, m := range map[string]struct {
		data   []byte
		fds    []int
		answer string // what a message that is understood is answered
	}{
		"short":                              {data: []byte("GET /")},
		"magic":                              {data: header(ring.Ctl{Type: ring.CtlHello})},
		"flags":                              {data: header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Flags: 1})},
		"length":                             {data: header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Len: 1})},
		"reserved":                           {data: header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Reserved: [2]uint64{1}})},
		"too long":                           {data: make([]byte, 32+65537)},
		"too many fds":                       {data: hello, fds: []int{event, event}},
		"one fd":                             {data: hello, fds: []int{event}},
		"ping":                               {data: header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlPing}), answer: "must be HELLO"},
		"hello of one byte":                  {data: append(header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Len: 1}), 7), answer: "hello"},
		"a shorter hello of another version": {data: ring.Append(header(ring.Ctl{Magic: ring.Magic, Type: ring.CtlHello, Len: 8}), &struct{ Min, Max uint32 }{2, 3}), answer: "ring protocol 2 to 3"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := sys.DialSeqpacket(context.Background(), n.path)
			noErr(t, err)
			defer conn.Close()
			noErr(t, conn.SetDeadline(time.Now().Add(patience)))
			if err := sys.Send(conn, m.data, m.fds...); len(m.fds) > 0 && errors.Is(err, syscall.EPERM) {
				return // it did not even come (Linux 6.16)
			} else {
				noErr(t, err)
			}
			buf := make([]byte, 65568)
			k, _, err := sys.Recv(conn, buf, 0)
			if m.answer != "" {
				noErr(t, err)
				var h ring.Ctl
				if _, err := ring.Decode(buf[:k], &h, "answer"); err != nil || h.Type != ring.CtlAck || !bytes.Contains(buf[:k], []byte(m.answer)) {
					t.Errorf("answer %+v, %v: %q does not say %q", h, err, buf[:k], m.answer)
				}
				_, _, err = sys.Recv(conn, buf, 0)
			}
			if err != io.EOF && (len(m.fds) == 0 || !errors.Is(err, syscall.ECONNRESET)) { // it is not even read
				t.Errorf("the connection is not closed: %v", err)
			}
		})
	}
	n.dial(sessiontest.Options{}) // the daemon goes on
}

func TestInstances(t *testing.T) {
	n := start(t, nil)
	w0 := n.dial(sessiontest.Options{TPWorld: 2})
	instance := zeroTerminated(w0.Welcome.Instance[:])
	w1 := n.dial(sessiontest.Options{TPRank: 1, TPWorld: 2})
	if got := zeroTerminated(w1.Welcome.Instance[:]); instance == "" || got != instance {
		t.Fatalf("the second session joined %q, the first is of %q", got, instance)
	}
	s := n.dial(sessiontest.Options{Role: transfer.Scheduler, Instance: instance})
	if s.Welcome.Rank != ring.NoRank || w1.Welcome.Rank != 1 {
		t.Errorf("ranks are %d and %d", s.Welcome.Rank, w1.Welcome.Rank)
	}
	n.refused(sessiontest.Options{TPRank: 1, TPWorld: 2}, transfer.Busy, "rank 1", instance)
	n.refused(sessiontest.Options{TPRank: 2, TPWorld: 4}, transfer.Incompatible, "tp_world")

	// The same name under another engine is somebody else's.
	n.dial(sessiontest.Options{Engine: "other", TPRank: 1, TPWorld: 2})

	// A new instance replaces the old one, whose name is worth nothing from then on.
	newer := n.dial(sessiontest.Options{Instance: "newer", TPWorld: 2})
	n.refused(sessiontest.Options{Instance: instance, TPWorld: 2}, transfer.Closed, "was replaced by \"newer\"")
	n.refused(sessiontest.Options{TPWorld: 2}, transfer.Busy, "newer")
	n.dial(sessiontest.Options{TPRank: 1, TPWorld: 2})

	noErr(t, newer.Close())
	n.dial(sessiontest.Options{TPWorld: 2}) // the rank is free again
}

// However long it takes the daemon to hear that a client has hung up: who comes next has its rank, and is not refused.
func TestRankIsFreeOnceItsClientHangsUp(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{Engine: "e"})
	n.mu.Lock() // the old session comes no further than to say that it has ended
	c.Kill()
	type joined struct {
		c   *sessiontest.Client
		err error
	}
	next := make(chan joined, 1)
	go func() {
		c, err := sessiontest.Dial(n.path, sessiontest.Options{Engine: "e", Timeout: patience})
		next <- joined{c, err}
	}()
	select {
	case j := <-next:
		n.mu.Unlock()
		t.Fatalf("not waited for: %v", j.err)
	case <-time.After(300 * time.Millisecond): // nothing tells that it waits
	}
	n.mu.Unlock()
	j := <-next
	noErr(t, j.err)
	j.c.Kill()
}

func TestRankIsFreeOnceItsProcessCloses(t *testing.T) {
	n := start(t, nil)
	n.on(func(ev transfer.Event) bool { _, closed := ev.(transfer.SessionClosed); return closed }) // never drained
	for range 3 {
		c := n.dial(sessiontest.Options{})
		c.Kill()
		id := transfer.SessionID(c.Welcome.Session)
		wait(n, func(e transfer.SessionClosed) bool { return e.Session == id })
	}
	if got := n.Sessions(); len(got) != 3 || !got[0].Ending {
		t.Errorf("sessions that wait for their fence: %+v", got)
	}
}

func TestResume(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	n.refused(sessiontest.Options{Session: c.Welcome.Session}, transfer.Denied, "not yours")
	again := n.dial(sessiontest.Options{Session: c.Welcome.Session, Secret: c.Welcome.Secret})
	if cause, err := c.Bye(); err != nil || cause.Reason != transfer.Closed {
		t.Errorf("the old connection: %+v, %v", cause, err)
	}
	noErr(t, again.Ping())
	n.dial(sessiontest.Options{Engine: "e2", Session: 6<<32 | 1}) // of an earlier daemon: simply new
}

func TestLimits(t *testing.T) {
	n := start(t, func(c *session.Config) { c.Limits.SessionsPerUID = 2 })
	n.dial(sessiontest.Options{Engine: "a"})
	b := n.dial(sessiontest.Options{Engine: "b"})
	n.refused(sessiontest.Options{}, transfer.Quota, "sessions_per_uid = 2")
	noErr(t, b.Close())
	n.dial(sessiontest.Options{Engine: "b"})
	n.SetLimits(session.Limits{Sessions: 2})
	n.refused(sessiontest.Options{}, transfer.Quota, "limits.sessions = 2")
	n.SetLimits(session.Limits{})
	n.Drain()
	n.refused(sessiontest.Options{}, transfer.Unavailable, "draining")
}

// TestRefusalsAreNotAllLogged: who comes again and again, as libraries do, does not fill the log, nor keep another reason from being told.
func TestRefusalsAreNotAllLogged(t *testing.T) {
	var log lines
	n := start(t, func(c *session.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 100 {
		n.refused(sessiontest.Options{Hello: func(h *ring.Hello) { h.Role = 4 }}, transfer.Invalid)
	}
	if told := strings.Count(log.String(), "session refused"); told < 1 || told > 10 {
		t.Errorf("of 100 refusals the log has %d, want a few", told)
	}
	n.refused(sessiontest.Options{Hello: func(h *ring.Hello) { h.ABIMin, h.ABIMax = 2, 3 }}, transfer.Incompatible)
	if !strings.Contains(log.String(), "reason=incompatible") {
		t.Errorf("another reason is not told: %s", log.String())
	}
}

// TestSessionsThatComeAndGoDoNotFillTheLog: of a client in a loop it has some, each with its end; later ones say how many it lacks.
func TestSessionsThatComeAndGoDoNotFillTheLog(t *testing.T) {
	var log lines
	n := start(t, func(c *session.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	come := func() {
		t.Helper()
		c, err := sessiontest.Dial(n.path, sessiontest.Options{Engine: "e", Instance: "i"})
		noErr(t, err)
		noErr(t, c.Close())
	}
	began := time.Now()
	for range 700 {
		come()
	}
	noErr(t, n.Close()) // after the last end
	opened, closed := strings.Count(log.String(), `msg="session opened"`), strings.Count(log.String(), `msg="session closed"`)
	if most := 512 + 1 + int(time.Since(began)/time.Second); opened < 512 || opened > most || closed < 512 || closed > most {
		t.Errorf("of 700 sessions the log has %d that came and %d that went, want 512 to %d of each", opened, closed, most)
	}
}

func zeroTerminated(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// A client that waited for a daemon that was not there yet, and gave up, is not there any more when the daemon comes.
func TestAHelloInVainOpensNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := sys.ListenSeqpacket(path, sys.ListenOptions{})
	noErr(t, err)
	if _, err := sessiontest.Dial(path, sessiontest.Options{Engine: "e", Timeout: 50 * time.Millisecond}); err == nil {
		t.Fatal("there is a daemon")
	}
	var opened atomic.Int32
	v, err := session.New(session.Config{Node: "n0", Epoch: 7, Events: func(ev transfer.Event) {
		if _, ok := ev.(transfer.SessionOpened); ok {
			opened.Add(1)
		}
	}})
	noErr(t, err)
	served := make(chan error, 1)
	go func() { served <- v.Serve(l) }()
	c, err := sessiontest.Dial(path, sessiontest.Options{Engine: "f"})
	noErr(t, err)
	noErr(t, c.Ping())
	c.Kill()
	noErr(t, v.Close())
	noErr(t, <-served)
	if n := opened.Load(); n != 1 {
		t.Errorf("%d sessions were opened", n)
	}
}
