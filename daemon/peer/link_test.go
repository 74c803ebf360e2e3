package peer

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/damper"
)

// channelWithLinks is a raw peer "b" with a channel to a that wants two links.
func channelWithLinks(t *testing.T, cl *cluster, a *node, plain bool) *raw {
	t.Helper()
	return rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", func(h *peerpb.Hello) { h.Streams, h.DataPlain = 2, plain })
}

func TestALinkThatDoesNotBelongIsRefused(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.DataPlain = true })
	b, evil := cl.identity("b"), cl.identity("evil")
	ch := channelWithLinks(t, cl, a, false)
	other := rawDial(t, a.addr, evil, alpnControl).meet("evil", func(h *peerpb.Hello) { h.Streams = 1 })
	good := linkHello{epoch: ch.hello.Epoch, serial: 7}
	if ch.hello.Epoch == other.hello.Epoch || string(ch.hello.LinkSecret) == string(other.hello.LinkSecret) {
		t.Fatal("two channels with the same epoch or secret")
	}
	if !rawDial(t, a.addr, b, alpnData).link(good, ch.hello.LinkSecret) {
		t.Fatal("a good link was refused")
	}
	for _, c := range []struct {
		name   string
		hello  linkHello
		secret []byte
		plain  bool
		by     string
		says   string
	}{
		{name: "wrong secret", hello: linkHello{epoch: good.epoch, serial: 8}, secret: secret32, says: "wrong secret"},
		{name: "the secret of another channel", hello: linkHello{epoch: good.epoch, serial: 8}, secret: other.hello.LinkSecret, says: "wrong secret"},
		{name: "replay", hello: good, secret: ch.hello.LinkSecret, says: "used twice"},
		{name: "wrong node", hello: linkHello{epoch: good.epoch, serial: 9}, secret: ch.hello.LinkSecret, by: "evil", says: `certificate of node "evil" on a link of "b"`},
		{name: "unknown epoch", hello: linkHello{epoch: good.epoch + 2, serial: 9}, secret: ch.hello.LinkSecret, says: "unknown channel"},
		{name: "index", hello: linkHello{epoch: good.epoch, serial: 10, index: 2}, secret: ch.hello.LinkSecret, says: "link 2 of 2"},
		{name: "index of many bits", hello: linkHello{epoch: good.epoch, serial: 11, index: 1 << 31}, secret: ch.hello.LinkSecret, says: "link 2147483648 of 2"},
		{name: "plain", hello: linkHello{epoch: good.epoch, serial: 12}, secret: ch.hello.LinkSecret, plain: true, says: "plain link"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, before := a.Snapshot()
			id := b
			if c.by == "evil" {
				id = evil
			}
			if c.plain {
				id = nil
			}
			r := rawDial(t, a.addr, id, alpnData)
			if r.link(c.hello, c.secret) {
				t.Fatal("accepted")
			}
			a.warns(c.says)
			if _, st := a.Snapshot(); st.Malformed != before.Malformed+1 || st.Refused != before.Refused+1 {
				t.Errorf("%+v, before %+v", st, before)
			}
		})
	}
	// The channel does not suffer.
	if last := (linkHello{epoch: good.epoch, serial: 6, index: 1}); !rawDial(t, a.addr, b, alpnData).link(last, ch.hello.LinkSecret) {
		t.Fatal("a link was refused whose number is lower, and fresh")
	}
	ch.write(must(appendMsg(nil, good.epoch, &transfer.MsgParked{Xfer: 3}, false)))
	wait[transfer.PeerMsg](a, nil)
}

// TestALinkThatComesLateReplacesNone: the dialing side gives up an attempt on a way that stands still, and opens the
// link another way. What the first way still held may arrive after that: nobody is at its other end any more.
func TestALinkThatComesLateReplacesNone(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	ch := channelWithLinks(t, cl, a, false)
	id := cl.identity("b")
	open := func(serial uint32) (*raw, bool) {
		r := rawDial(t, a.addr, id, alpnData)
		return r, r.link(linkHello{epoch: ch.hello.Epoch, serial: serial}, ch.hello.LinkSecret)
	}
	good, ok := open(8)
	if !ok {
		t.Fatal("a link was refused")
	}
	late, _ := open(7)
	late.closed()
	a.until(func() bool { return len(a.links) > 0 })
	if at := good.conn.LocalAddr().String(); len(a.links) != 1 || a.links[0].Conn.RemoteAddr().String() != at {
		t.Errorf("%d links came up, want only the one from %s", len(a.links), at)
	}
	if _, ok := open(9); !ok {
		t.Error("a later link was refused")
	}
	a.until(func() bool { return len(a.links) == 2 })
	a.calm()
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// Only when both ends say data_plain is data not encrypted.
func TestDataIsPlainOnlyWhenBothSaySo(t *testing.T) {
	for _, c := range []struct{ a, b bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		cl := newCluster(t)
		a := cl.node("a", func(cfg *Config) { cfg.DataPlain = c.a })
		b := cl.node("b", func(cfg *Config) { cfg.DataPlain = c.b })
		a.knows(b)
		met(a, b)
		for _, n := range []*node{a, b} {
			n.until(func() bool { return len(n.links) == 2 })
			for _, l := range n.links {
				if plain := l.TCP != nil; plain != (c.a && c.b) {
					t.Errorf("a %v, b %v: plain is %v on %s", c.a, c.b, plain, n.cfg.Node)
				}
			}
			if all, _ := n.Snapshot(); len(all) != 1 || all[0].DataPlain != (c.a && c.b) || (all[0].WhyPlain == "data_plain") != (c.a && c.b) || all[0].Links != 2 {
				t.Errorf("%+v", all)
			}
		}
	}
}

// TestDataOnOneMachineIsPlain, where nobody else can listen, unless one end insists. That both ends are loopback addresses does not make it one
// machine: behind a forwarder at each end they are that as well.
func TestDataOnOneMachineIsPlain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config) // of one end
		both   func(*Config)
		why    string
		here   bool
	}{
		"one machine":                     {nil, nil, "loopback", true},
		"one end insists":                 {func(cfg *Config) { cfg.EncryptLoopback = true }, nil, "", false},
		"forwarders between two":          {func(cfg *Config) { cfg.machine = []byte("another") }, nil, "", false},
		"an end that does not say":        {func(cfg *Config) { cfg.machine = []byte{} }, nil, "", false},
		"ends that do not say":            {nil, func(cfg *Config) { cfg.machine = []byte{} }, "", false},
		"one end has it so in any case":   {func(cfg *Config) { cfg.DataPlain = true }, nil, "loopback", true},
		"one, and both have it so anyway": {nil, func(cfg *Config) { cfg.DataPlain = true }, "data_plain", true},
		"two, and both have it so anyway": {func(cfg *Config) { cfg.machine = []byte("another") }, func(cfg *Config) { cfg.DataPlain = true }, "data_plain", false},
	} {
		for _, changed := range []string{"a", "b"} {
			t.Run(name+", "+changed, func(t *testing.T) {
				cl := newCluster(t)
				start := func(name string) *node {
					return cl.node(name, func(cfg *Config) {
						cfg.EncryptLoopback, cfg.machine = false, []byte("this one")
						if c.both != nil {
							c.both(cfg)
						}
						if c.change != nil && name == changed {
							c.change(cfg)
						}
					})
				}
				a, b := start("a"), start("b")
				a.knows(b)
				met(a, b)
				for _, n := range []*node{a, b} {
					n.until(func() bool { return len(n.links) == 2 })
					for _, l := range n.links {
						if plain := l.TCP != nil; plain != (c.why != "") || l.Here != c.here {
							t.Errorf("%s: plain %v, here %v", n.cfg.Node, plain, l.Here)
						}
					}
					if all, _ := n.Snapshot(); len(all) != 1 || all[0].WhyPlain != c.why {
						t.Errorf("%+v, want it plain because of %q", all, c.why)
					}
				}
			})
		}
	}
}

// TestAMachineHasAName, the same for all daemons on it, where the kernel tells which one it is.
func TestAMachineHasAName(t *testing.T) {
	if _, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Skip(err)
	}
	if name := machine(); len(name) != 16 || !bytes.Equal(name, machine()) {
		t.Errorf("%x, and then %x", name, machine())
	}
}

func TestAPeerWithoutTransportsHasNoLinks(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", func(c *Config) { c.Links = nil })
	a.knows(b)
	met(a, b)
	if all, _ := a.Snapshot(); all[0].Links != 0 {
		t.Errorf("%+v", all)
	}
	if len(a.links) != 0 {
		t.Error("links without use")
	}
}

// relinking is a LinkUser that asks for what it lost, as transports do.
func relink(n *node, l *transport.Link) {
	_ = l.Conn.Close()
	n.Redial(context.Background(), l)
}

func TestALostLinkIsOpenedAgainWhileTheChannelLives(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		a, b := cl.node("a", change), cl.node("b", change)
		a.knows(b)
		epoch := met(a, b)
		for round := range 3 {
			for _, n := range []*node{a, b} {
				n.until(func() bool { return len(n.links) == 2+round })
			}
			relink(a, a.links[1+round])
			relink(b, b.links[1+round])
		}
		for _, n := range []*node{a, b} {
			n.until(func() bool { return len(n.links) == 5 })
		}
		la := a.links[4]
		for _, lb := range b.links {
			if lb.Index != la.Index {
				continue
			}
			go func() { _, _ = la.Conn.Write([]byte("x")) }()
			got := make([]byte, 1)
			if _, err := io.ReadFull(lb.Conn, got); err == nil && got[0] == 'x' {
				if epochOf(a, "b") != epoch {
					t.Error("the channel did not live")
				}
				return
			}
		}
		t.Error("no link of the right index works")
	})
}

// TestALinkThatIsLostOverAndOverFillsNoLog: nor does one that opens each time, and is lost again.
func TestALinkThatIsLostOverAndOverFillsNoLog(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	began := time.Now()
	const losses = 20
	for n := range losses {
		for _, x := range []*node{a, b} {
			x.until(func() bool { return len(x.links) == 2+n })
		}
		relink(b, b.links[1+n])
		relink(a, a.links[1+n])
	}
	b.until(func() bool { return len(b.links) == 2+losses })
	for _, x := range []*node{a, b} {
		x.mu.Lock()
		if said, most := len(x.logged), 8*(1+int(time.Since(began)/damper.Gap)); said == 0 || said > most {
			t.Errorf("%s: %d warnings of %d losses, want at most %d: %q", x.cfg.Node, said, losses, most, x.logged)
		}
		x.mu.Unlock()
	}
}

// A transport is told of a link's end when its successor is up already, at times: the successor is not lost, and not asked for again.
func TestTheLateLossOfALinkThatWasReplaced(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	for _, n := range []*node{a, b} {
		n.until(func() bool { return len(n.links) == 2 })
	}
	old := a.links[0]
	if err := a.channelOf("b").openLink(old.Index); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		n.until(func() bool { return len(n.links) == 3 })
		for _, l := range n.links[:2] {
			if l.Index != old.Index {
				continue
			}
			if n.Redial(t.Context(), l); n.channelOf(l.Peer).links.count() != 2 {
				t.Errorf("%d links are up on %s, two after one was replaced", n.channelOf(l.Peer).links.count(), n.cfg.Node)
			}
		}
	}
}

func TestALinkLostWithItsChannelIsNotDialed(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	epoch := met(a, b)
	a.until(func() bool { return len(a.links) == 2 })
	b.Close()
	wait[transfer.PeerDown](a, nil)
	a.Redial(context.Background(), a.links[0])
	a.Redial(context.Background(), &transport.Link{Peer: "nobody", Epoch: epoch})
	a.Close()
	a.calm()
}
