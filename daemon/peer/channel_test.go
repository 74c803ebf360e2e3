package peer

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Both ways of running: authenticated, and insecure between loopback addresses.
func eachMode(t *testing.T, f func(t *testing.T, c *cluster, change func(*Config))) {
	t.Run("tls", func(t *testing.T) { f(t, newCluster(t), nil) })
	t.Run("tls, plain data", func(t *testing.T) { f(t, newCluster(t), func(c *Config) { c.DataPlain = true }) })
	t.Run("insecure", func(t *testing.T) { f(t, newCluster(t), func(c *Config) { c.Insecure = true }) })
}

func TestMessagesCrossAnOpenChannel(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cluster, change func(*Config)) {
		a, b := c.node("a", change), c.node("b", change)
		a.knows(b)
		a.Dial("b")
		up := wait[transfer.PeerUp](a, func(e transfer.PeerUp) bool { return len(e.Hints) == 1 && e.Hints[0] == "b" })
		got := wait[transfer.PeerUp](b, nil)
		if up.Node != "b" || got.Node != "a" || up.Epoch != got.Epoch || up.Epoch == 0 {
			t.Fatalf("a sees %+v, b sees %+v", up, got)
		}
		msg := &transfer.MsgTake{
			Xfer: 7, Engine: "decode-0", Instance: "i", TakeID: 9, Part: 1, Parts: 2, Key: []byte("k"), Token: bytes.Repeat([]byte{1}, 16), Trace: "t", Layered: true,
			Ranks: []transfer.RankRef{{Rank: 3, Digest: [32]byte{4}}}, Deadline: 5e9,
			Blocks: []layout.BlockList{{Group: 1, FirstToken: 32, NTokens: 48, IDs: []uint32{9, 2, layout.NoBlock}}, {NTokens: 16, IDs: []uint32{1 << 31}}},
		}
		a.Send("b", up.Epoch, msg)
		in := wait[transfer.PeerMsg](b, nil)
		if diff := cmp.Diff(transfer.Msg(msg), in.Msg); diff != "" || in.Node != "a" || in.Epoch != up.Epoch {
			t.Fatalf("from %s, epoch %d: %s", in.Node, in.Epoch, diff)
		}
		b.Send("a", up.Epoch, &transfer.MsgParked{Xfer: 7})
		wait(a, func(e transfer.PeerMsg) bool { p, ok := e.Msg.(*transfer.MsgParked); return ok && p.Xfer == 7 })
	})
}

func TestLinksComeUpOnBothSidesAndCarryBytesBothWays(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cluster, change func(*Config)) {
		a, b := c.node("a", change), c.node("b", change)
		a.knows(b)
		a.Dial("b")
		wait[transfer.PeerUp](a, nil)
		wait[transfer.PeerUp](b, nil)
		for _, n := range []*node{a, b} {
			n.until(func() bool { return len(n.links) == 2 })
		}
		plain := a.cfg.Insecure || a.cfg.DataPlain
		for _, la := range a.links {
			for _, lb := range b.links {
				if la.Index != lb.Index {
					continue
				}
				if (la.TCP != nil) != plain || (lb.TCP != nil) != plain {
					t.Errorf("plain is %v, but TCP is %v and %v", plain, la.TCP, lb.TCP)
				}
				for _, dir := range []struct {
					w, r interface {
						Read([]byte) (int, error)
						Write([]byte) (int, error)
					}
				}{{la.Conn, lb.Conn}, {lb.Conn, la.Conn}} {
					if _, err := dir.w.Write([]byte("hello")); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, 5)
					if n, err := dir.r.Read(b); err != nil || string(b[:n]) != "hello"[:n] {
						t.Fatalf("read %q, %v", b[:n], err)
					}
				}
			}
		}
	})
}

func TestTwoThatDialEachOtherAtOnceEndWithOneChannel(t *testing.T) {
	for range 20 {
		c := newCluster(t)
		a, b := c.node("a", nil), c.node("b", nil)
		a.knows(b)
		b.knows(a)
		go b.Dial("a")
		a.Dial("b")
		meet(a, "b")
		meet(b, "a")
		// Whatever is in flight settles by a message that needs the same epoch on both sides.
		deadline := time.Now().Add(patience)
		for epochOf(a, "b") != epochOf(b, "a") || epochOf(a, "b") == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("epochs %d and %d", epochOf(a, "b"), epochOf(b, "a"))
			}
			a.Dial("b")
			meet(a, "b")
		}
		a.Close()
		b.Close()
	}
}

// meet waits until n, which has dialed, has a channel with other, and dials again after an attempt that is not the last word: the
// connection that the other side opened may take its place before it was answered.
func meet(n *node, other string) {
	n.t.Helper()
	for {
		ev := wait(n, func(e transfer.Event) bool {
			switch e := e.(type) {
			case transfer.PeerUp:
				return len(e.Hints) > 0
			case transfer.DialFailed:
				return true
			}
			return false
		})
		failed, is := ev.(transfer.DialFailed)
		switch {
		case !is:
			return
		case failed.Final:
			n.t.Fatalf("%s: %+v", n.cfg.Node, failed)
		}
		n.Dial(other)
	}
}

func TestAPeerThatClosesIsDownAndComesBackWithANewEpoch(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", nil), c.node("b", nil)
	a.knows(b)
	a.Dial("b")
	first := wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
	b.Close()
	down := wait[transfer.PeerDown](a, nil)
	if down.Epoch != first.Epoch || down.Cause.Reason != transfer.PeerGone {
		t.Fatalf("%+v", down)
	}
	again := c.node("b", func(cfg *Config) { cfg.Incarnation = 2 })
	a.knows(again)
	a.Dial("b")
	second := wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
	if second.Epoch == first.Epoch {
		t.Fatal("the same epoch again")
	}
}

// TestWhoAskedForAChannelThatEndsBeforeItIsUp hears so, and waits for it no longer.
func TestWhoAskedForAChannelThatEndsBeforeItIsUp(t *testing.T) {
	var heard []transfer.Event
	m, err := New(Config{Node: "a", Insecure: true, Events: func(ev transfer.Event) { heard = append(heard, ev) }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := m.newChannel(sides{conn, conn.(*net.TCPConn), newFrames(conn)}, "b", &peerpb.Hello{Node: "b"}, 7, nil, true)
	if !c.announce("b.example:7650") {
		t.Error("announce says that a channel is over that is not")
	}
	cause := transfer.Cause{Reason: transfer.PeerGone, Text: "test"}
	c.close(cause, false)
	if len(heard) != 1 || heard[0] != (transfer.DialFailed{Hint: "b.example:7650", Cause: cause}) {
		t.Errorf("heard %+v", heard)
	}
	if c.announce("late") {
		t.Error("announce takes a hint for a channel that is over")
	}
}
