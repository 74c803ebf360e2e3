package session_test

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func says(t *testing.T, err error, reason transfer.Reason, text string) {
	t.Helper()
	if sessiontest.Reason(err) != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("%v: want reason %d and %q", err, reason, text)
	}
}

// descriptors counts this process's open ones: daemon and client are both in it.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	noErr(t, err)
	return len(d)
}

// TestStrangeDescriptors: whatever comes in is judged and closed.
func TestStrangeDescriptors(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	r, w, err := os.Pipe()
	noErr(t, err)
	defer r.Close()
	defer w.Close()
	a, b, err := sys.SeqpacketPair()
	noErr(t, err)
	defer a.Close()
	defer b.Close()
	file, err := os.CreateTemp(t.TempDir(), "f")
	noErr(t, err)
	defer file.Close()
	soft, err := sys.MemfdCreate("unsealed", 4096, sys.MemfdOptions{Prefault: true})
	noErr(t, err)
	defer sys.Close(soft)
	sock := -1
	noErr(t, sys.Control(a, func(fd int) error { sock = fd; return nil }))

	noErr(t, c.Ping()) // the daemon has closed what it passed on
	before := descriptors(t)
	register := ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1})
	for fd, text := range map[int]string{int(r.Fd()): "pipe", int(file.Fd()): "ordinary file", soft: "F_SEAL_SHRINK", sock: "socket", c.CQEvent: "eventfd"} {
		_, err := c.Request(ring.CtlRegister, register, fd)
		says(t, err, transfer.Invalid, text)
	}
	_, err = c.Request(ring.CtlPing, nil, soft)
	says(t, err, transfer.Invalid, "descriptor")
	_, err = c.Request(ring.CtlRegister, register)
	says(t, err, transfer.Invalid, "0 descriptors")
	_, err = c.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 2}), soft)
	says(t, err, transfer.Invalid, "kind is 2")
	_, err = c.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1, Flags: 1 << 17}), soft)
	says(t, err, transfer.Invalid, "flags")
	_, err = c.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1, Flags: ring.RegisterInvalid}), soft)
	says(t, err, transfer.Invalid, "must be none where the region is invalid")
	_, err = c.Request(ring.CtlRevalidate, ring.Append(nil, &ring.Revalidate{Region: 1 << 32}))
	says(t, err, transfer.Invalid, "0 descriptors")
	says(t, c.Revalidate(1<<32, soft), transfer.NotFound, "not registered")
	_, err = c.Request(ring.CtlRevalidate, make([]byte, 33), soft)
	says(t, err, transfer.Invalid, "too many")
	_, err = c.Request(ring.CtlRegister, register[:31], soft)
	says(t, err, transfer.Invalid, "31 bytes")
	_, err = c.Request(ring.CtlRegister, append(register, 0), soft)
	says(t, err, transfer.Invalid, "too many")
	_, err = c.Request(99, nil)
	says(t, err, transfer.Invalid, "type 99")
	_, err = c.Request(ring.CtlPing, []byte{1})
	says(t, err, transfer.Invalid, "must be empty")
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}

	// Two descriptors cannot be told apart from an attack on the table of open files: that ends the session.
	_, err = c.Request(ring.CtlRegister, register, soft, soft)
	says(t, err, transfer.Invalid, "one descriptor")
	n.empty()
	c = n.dial(sessiontest.Options{}) // more than there is room for, which are left where they are, do no less
	_, err = c.Request(ring.CtlRegister, register, slices.Repeat([]int{soft}, 9)...)
	says(t, err, transfer.Invalid, "one descriptor")
	n.empty()
}

// TestDescriptorsWithoutAMessage: a message of no bytes that brings descriptors is not taken for the end of the connection, and none of them stays.
func TestDescriptorsWithoutAMessage(t *testing.T) {
	n := start(t, nil)
	before := descriptors(t)
	for many := range 3 {
		c := n.dial(sessiontest.Options{})
		noErr(t, c.SendNothing(slices.Repeat([]int{c.RingC, c.CQEvent}, 1+many)...))
		cause, err := c.Bye()
		noErr(t, err)
		if cause.Reason != transfer.Invalid || !strings.Contains(cause.Text, "descriptors and no bytes") {
			t.Errorf("told %+v", cause)
		}
		c.Kill()
		n.empty()
	}
	eventually(t, func() bool { return descriptors(t) == before }, "descriptors are open: %d", func() int { return descriptors(t) })
}

// ask sends UNREGISTER or INVALIDATE, and does not wait for the answer.
func ask(t *testing.T, c *sessiontest.Client, kind uint16, region layout.RegionID, timeout time.Duration) (seq uint32) {
	t.Helper()
	seq, err := c.Send(kind, ring.Append(nil, &ring.Unregister{Region: uint64(region), TimeoutNS: uint64(timeout)}))
	noErr(t, err)
	return seq
}

// answer is what a request is told.
type answer struct {
	seq    uint32
	reason transfer.Reason
	text   string // has to be in it
}

// answered receives the answer to a request.
func answered(t *testing.T, c *sessiontest.Client, seq uint32, reason transfer.Reason, text string) {
	t.Helper()
	allAnswered(t, c, answer{seq, reason, text})
}

// allAnswered receives the answers to some requests, in whatever order they come.
func allAnswered(t *testing.T, c *sessiontest.Client, want ...answer) {
	t.Helper()
	for len(want) > 0 {
		h, body, _, err := c.Receive(0)
		noErr(t, err)
		var ack ring.Ack
		rest, err := ring.Decode(body, &ack, "ack")
		noErr(t, err)
		i := slices.IndexFunc(want, func(a answer) bool {
			return h.Seq == a.seq && ack.Reason == uint32(a.reason) && strings.Contains(string(rest), a.text)
		})
		if i < 0 {
			t.Fatalf("answer %+v, %+v %q; want %+v", h, ack, rest, want)
		}
		want = slices.Delete(want, i, i+1)
	}
}

// replaced receives the answer to a request that was in vain, and says whether that is because another one came.
func replaced(t *testing.T, c *sessiontest.Client, seq uint32) bool {
	t.Helper()
	h, body, _, err := c.Receive(0)
	noErr(t, err)
	var ack ring.Ack
	rest, err := ring.Decode(body, &ack, "ack")
	noErr(t, err)
	if h.Seq != seq || ack.Reason != uint32(transfer.Timeout) {
		t.Fatalf("answer %+v, %+v %q", h, ack, rest)
	}
	return strings.Contains(string(rest), "another request")
}

func TestUnregister(t *testing.T) {
	n := start(t, nil)
	removed := make(chan transfer.RegionRemoved, 8)
	n.on(func(ev transfer.Event) bool {
		r, ok := ev.(transfer.RegionRemoved)
		if ok {
			removed <- r
		}
		return ok
	})
	c := n.dial(sessiontest.Options{})
	region, _, err := c.Alloc(8192)
	noErr(t, err)

	// The fence does not come in time: the region stays.
	says(t, c.Unregister(region, time.Millisecond), transfer.Timeout, "still in use")
	asked := <-removed
	if asked.Region != region || n.Pinned() != 8192 {
		t.Fatalf("%+v, %d bytes are registered", asked, n.Pinned())
	}
	// It comes while nobody waits: the client still owns the region until it asks again.
	n.RegionDrained(transfer.RegionDrained(asked))
	if n.Pinned() != 8192 {
		t.Fatalf("%d bytes are registered", n.Pinned())
	}
	// But nothing may begin in it any more: nobody would fence that before the region is unmapped.
	says(t, c.SetLayout([]layout.View{view(region)}, nil, 0), transfer.Invalid, "is being unregistered: name memory that stays")
	noErr(t, c.Unregister(region, 0))
	if n.Pinned() != 0 {
		t.Errorf("%d bytes are registered after it was unregistered", n.Pinned())
	}
	says(t, c.Unregister(region, 0), transfer.NotFound, "not registered")

	// Two requests for one region: who asks again does not wait for the first any more, and is the one who gets the answer.
	// Where the first one's time is over before, it is tried again.
	const patience = time.Second // longer than most machines take from one request to the next
	var second uint32
	for tries := 0; ; tries++ {
		region, _, err = c.Alloc(4096)
		noErr(t, err)
		first := ask(t, c, ring.CtlUnregister, region, patience)
		asked = <-removed
		second = ask(t, c, ring.CtlUnregister, region, 0)
		if replaced(t, c, first) {
			break
		}
		if tries == 20 {
			t.Fatal("the first one is always told that its time is over")
		}
		n.RegionDrained(transfer.RegionDrained(asked))
		answered(t, c, second, transfer.OK, "")
	}
	other, _, err := c.Alloc(4096)
	noErr(t, err)
	later := ask(t, c, ring.CtlUnregister, other, patience)
	<-removed
	answered(t, c, later, transfer.Timeout, "") // so the first one's time is over, and the second one's is not
	third := ask(t, c, ring.CtlUnregister, region, 0)
	answered(t, c, second, transfer.Timeout, "another request")
	n.RegionDrained(transfer.RegionDrained(asked))
	n.RegionDrained(transfer.RegionDrained(asked)) // twice changes nothing
	answered(t, c, third, transfer.OK, "")
	select {
	case r := <-removed:
		t.Errorf("asked again: %+v", r)
	default:
	}

	// The session ends while a request waits.
	region, _, err = c.Alloc(4096)
	noErr(t, err)
	_, err = c.Send(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: uint64(region)}))
	noErr(t, err)
	<-removed
	c.Kill()
	n.empty()
	n.RegionDrained(transfer.RegionDrained{Session: asked.Session, Region: region})
}

func TestLayoutInPieces(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	region, _, err := c.Alloc(1 << 20)
	noErr(t, err)
	var views []layout.View
	for i := range 40 {
		v := view(region)
		v.Layer, v.Base = uint32(i), uint64(i)*16384
		views = append(views, v)
	}
	fields := []layout.Field{{Key: "dtype", Value: "bf16"}, {Key: "model", Value: "m"}}

	bad := views
	bad = append([]layout.View(nil), bad...)
	bad[7].Base = 1 << 20
	says(t, c.SetLayout(bad, fields, 10), transfer.Invalid, "view 7")
	bad[7] = views[7]
	bad[39].Region++
	says(t, c.SetLayout(bad, fields, 10), transfer.Invalid, "view 39")
	noErr(t, c.SetLayout(views, fields, 7))
	set := wait[transfer.LayoutSet](n, nil)
	if got := set.Layout; len(got.Views()) != 40 || len(got.Fingerprint()) != 2 || got.Views()[39] != views[39] {
		t.Errorf("layout of %d views: %+v, %v", len(got.Views()), got.Views()[39], got.Fingerprint())
	}
	noErr(t, c.SetLayout(views, fields, 0)) // who gave up waiting asks again
	says(t, c.SetLayout(views[1:], fields, 0), transfer.Invalid, "set once")
	says(t, c.SetLayout(views, fields[:1], 0), transfer.Invalid, "set once")
	if got := count[transfer.LayoutSet](n); got != 1 {
		t.Errorf("%d layouts were set", got)
	}
}

func TestASchedulerOwnsNoMemory(t *testing.T) {
	n := start(t, nil)
	s := n.dial(sessiontest.Options{Role: transfer.Scheduler})
	says(t, s.SetLayout([]layout.View{view(1)}, nil, 0), transfer.Invalid, "a scheduler owns no blocks")
	_, _, err := s.Alloc(4096)
	says(t, err, transfer.Invalid, "a scheduler owns no memory: its workers register it")
	_, err = s.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: 1, Flags: ring.RegisterInvalid}))
	says(t, err, transfer.Invalid, "a scheduler owns no memory")
	if n.Pinned() != 0 {
		t.Errorf("%d bytes are registered", n.Pinned())
	}
}

func TestLayoutIsJudged(t *testing.T) {
	n := start(t, nil)
	c := n.dial(sessiontest.Options{})
	v := ring.Append(nil, sessiontest.WireView(&layout.View{Part: "kv"}))
	m := func(m ring.LayoutMsg, rest ...[]byte) []byte {
		b := ring.Append(nil, &m)
		for _, r := range rest {
			b = append(b, r...)
		}
		return b
	}
	reserved, part := append([]byte(nil), v...), append([]byte(nil), v...)
	reserved[127], part[84+10] = 1, 'x'
	for text, body := range map[string][]byte{
		"24 bytes":             make([]byte, 24),
		"flags are 0x2":        m(ring.LayoutMsg{Flags: 2, TotalViews: 1}),
		"total_views is 0":     m(ring.LayoutMsg{}),
		"total_views is 5000":  m(ring.LayoutMsg{TotalViews: 5000}),
		"2 views after 0":      m(ring.LayoutMsg{TotalViews: 1, NViews: 2}, v, v),
		"view 0":               m(ring.LayoutMsg{TotalViews: 1, NViews: 1}, v[:100]),
		"reserved":             m(ring.LayoutMsg{TotalViews: 1, NViews: 1}, reserved),
		"part: bytes follow":   m(ring.LayoutMsg{TotalViews: 1, NViews: 1}, part),
		"too many":             m(ring.LayoutMsg{TotalViews: 1, NViews: 1}, v, []byte{0}),
		"65 fingerprint":       m(ring.LayoutMsg{TotalViews: 1, NFields: 65}),
		"its lengths":          m(ring.LayoutMsg{TotalViews: 1, NFields: 1}, []byte{1}),
		"key of 0":             m(ring.LayoutMsg{TotalViews: 1, NFields: 1}, []byte{0, 0, 0, 0}),
		"key of 3":             m(ring.LayoutMsg{TotalViews: 1, NFields: 1}, []byte{3, 0, 0, 0, 'a'}),
		"key: not valid UTF-8": m(ring.LayoutMsg{TotalViews: 1, NFields: 1}, []byte{1, 0, 0, 0, 0xff}),
		"committed with 1":     m(ring.LayoutMsg{Flags: 1, TotalViews: 2, NViews: 1}, v),
	} {
		_, err := c.Request(ring.CtlLayout, body)
		says(t, err, transfer.Invalid, text)
	}
	_, err := c.Request(ring.CtlLayout, m(ring.LayoutMsg{TotalViews: 3, NViews: 1}, v))
	noErr(t, err)
	_, err = c.Request(ring.CtlLayout, m(ring.LayoutMsg{TotalViews: 4, NViews: 1}, v))
	says(t, err, transfer.Invalid, "was 3")
	if count[transfer.LayoutSet](n) != 0 {
		t.Error("a layout was set")
	}
}

// TestARegionIsLoggedAsItIsWrittenElsewhere: its id is a generation and an index, which hexadecimal digits tell apart.
func TestARegionIsLoggedAsItIsWrittenElsewhere(t *testing.T) {
	var log lines
	n := start(t, func(c *session.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	region, _, err := n.dial(sessiontest.Options{}).Alloc(4096)
	noErr(t, err)
	if want := fmt.Sprintf("region=%#x ", uint64(region)); !strings.Contains(log.String(), want) {
		t.Errorf("no %q in %s", want, log.String())
	}
}
