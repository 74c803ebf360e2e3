package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestEpochsOfManyLostChannelsAreForgotten, and no others: by its epoch a peer's channel that this node lost is told
// from one that it still has.
func TestEpochsOfManyLostChannelsAreForgotten(t *testing.T) {
	m := &Manager{lost: map[string]uint64{}}
	for i := range uint64(maxLost) {
		m.remember(&channel{node: fmt.Sprint(i), epoch: 1})
		m.remember(&channel{node: fmt.Sprint(i), epoch: i + 2})
		if len(m.lost) != int(i)+1 || m.lost[fmt.Sprint(i)] != i+2 {
			t.Fatalf("%d are remembered of %d, the last as %d", len(m.lost), i+1, m.lost[fmt.Sprint(i)])
		}
	}
	m.remember(&channel{node: "one more", epoch: 7})
	m.remember(&channel{node: "one more", epoch: 8})
	if len(m.lost) != maxLost || m.lost["one more"] != 8 {
		t.Errorf("%d are remembered, the last as %d", len(m.lost), m.lost["one more"])
	}
}

// TestAHelloThatComesLateEndsNothing: of two nodes that dial each other, one may hear the other's Hello when the channel
// that it dialed itself is in use already, since the Hello was long on its way. The other node has that channel too: it
// answered after its own Hello.
func TestAHelloThatComesLateEndsNothing(t *testing.T) {
	for _, name := range []string{"a", "c"} { // names that sort before and after the other one
		cl := newCluster(t)
		b, id := cl.node("b", nil), cl.identity(name)
		b.Reload(map[string]string{name: answering(t, id, &peerpb.Hello{
			ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: name, Incarnation: 9, Version: "raw", Epoch: 5, LinkSecret: secret32})}, nil)
		b.Dial(name)
		wait(b, func(e transfer.PeerUp) bool { return e.Epoch == 5 })
		late := &peerpb.Hello{ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: name, Incarnation: 9, Version: "raw"}
		dup := (*duplicateError)(nil)
		if err := rawDial(t, b.addr, id, alpnControl).say(late); !errors.As(err, &dup) || dup.node != "b" {
			t.Errorf("node %q is answered %v, want that there is a channel", name, err)
		}
		if epoch := epochOf(b, name); epoch != 5 {
			t.Errorf("the channel with node %q is over, and there is %d", name, epoch)
		}
		// But not if the other node knows it to be over.
		late.LostEpoch = 5
		if err := rawDial(t, b.addr, id, alpnControl).say(late); err != nil {
			t.Error(err)
		}
	}
}

// TestOfChannelsThatCrossTheSameStaysAtBothEnds also where nodes are insecure and have no data links, so that each of the
// two is up as soon as it is there: that of the node whose name sorts first.
func TestOfChannelsThatCrossTheSameStaysAtBothEnds(t *testing.T) {
	for name, stays := range map[string]string{"a": "theirs", "c": "its own"} {
		b := newCluster(t).node("b", func(c *Config) { c.Insecure, c.Streams = true, 0 })
		var theirs *raw
		hello := func(change func(*peerpb.Hello)) []byte {
			h := &peerpb.Hello{ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: name, Incarnation: 9, Version: "raw"}
			change(h)
			out, err := appendHello(nil, h)
			if err != nil {
				t.Error(err)
			}
			return out
		}
		ended := make(chan struct{})
		addr := rawListener(t, func(conn net.Conn) { // hears the Hello of b, and has said one of its own before it answers
			if _, err := io.ReadFull(conn, make([]byte, len(plainControl))); err != nil {
				t.Error(err)
			}
			if _, err := readHello(newFrames(conn)); err != nil {
				t.Error(err)
			}
			theirs = rawDial(t, b.addr, nil, "")
			theirs.write(append([]byte(plainControl), hello(func(*peerpb.Hello) {})...))
			var err error
			if theirs.hello, err = readHello(theirs.in); err != nil {
				t.Error(err)
				return
			}
			wait(b, func(e transfer.PeerUp) bool { return e.Epoch == theirs.hello.Epoch })
			_, _ = conn.Write(hello(func(h *peerpb.Hello) { h.Epoch, h.LinkSecret = 5, secret32 }))
			_, _ = io.Copy(io.Discard, conn)
			close(ended)
		})
		b.Reload(map[string]string{name: addr}, b.cfg.Allow)
		b.Dial(name)
		up := wait(b, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
		switch stays {
		case "theirs":
			<-ended
			if up.Epoch != theirs.hello.Epoch || epochOf(b, name) != up.Epoch {
				t.Errorf("node %q: channel %d is up, and %d is there, want %d", name, up.Epoch, epochOf(b, name), theirs.hello.Epoch)
			}
		default:
			if up.Epoch != 5 || epochOf(b, name) != 5 {
				t.Errorf("node %q: channel %d is up, and %d is there, want that of b", name, up.Epoch, epochOf(b, name))
				break
			}
			theirs.closed()
		}
		b.Close()
	}
}

// TestTwoHintsThatLeadToOneNodeSayHelloOnce: it would keep the channel of the Hello that it heard last, and this node that
// of the answer that it heard last.
func TestTwoHintsThatLeadToOneNodeSayHelloOnce(t *testing.T) {
	cl := newCluster(t)
	id := cl.identity("b")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := cl.node("a", func(c *Config) { c.Streams = 0 })
	a.Reload(map[string]string{"b": l.Addr().String()}, a.cfg.Allow)
	comes := func() *tls.Conn { // with a certificate, and without a Hello so far
		t.Helper()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		s := tls.Server(conn, id.Config(alpnControl))
		if err := s.Handshake(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	hints := []string{"b", l.Addr().String()}
	a.Dial(hints[0])
	first := comes()
	if _, err := readHello(newFrames(first)); err != nil {
		t.Fatal(err)
	}
	a.Dial(hints[1])
	second := comes()
	b, err := appendHello(nil, &peerpb.Hello{ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: "b", Incarnation: 9, Version: "raw", Epoch: 5, LinkSecret: secret32})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := readHello(newFrames(second)); err == nil {
		t.Fatal("a second Hello, before the answer to the first one")
	}
	for _, hint := range hints {
		wait(a, func(e transfer.PeerUp) bool { return e.Epoch == 5 && slices.Contains(e.Hints, hint) })
	}
}

// TestWhichOfTwoChannelsStays: both nodes must decide alike. A channel that is not up yet has no claim of its own.
func TestWhichOfTwoChannelsStays(t *testing.T) {
	for _, c := range []struct {
		insecure, up bool
		dialed       bool // the older one, by this node
		again        bool // the newer one, by this node
		node         string
		want         bool
	}{
		{false, false, true, false, "a", true}, // b has it too
		{false, false, true, false, "c", true},
		{false, false, false, true, "a", false}, // a comes before b, and dialed it
		{false, false, false, true, "c", true},
		{false, true, true, true, "a", false},
		{false, true, false, false, "a", false},
		{true, false, true, false, "a", true},
		{true, false, false, true, "a", false},
		{true, false, false, false, "a", false},
		{true, true, false, true, "a", false},
		{true, true, false, true, "c", true},
		{true, true, true, false, "a", true},
		{true, true, false, false, "a", true}, // a node that is insecure knows too late whom it has dialed
		{true, true, true, true, "a", true},
	} {
		m := &Manager{cfg: Config{Node: c.node, Insecure: c.insecure}}
		old, newer := &channel{m: m, node: "b", dialed: c.dialed}, &channel{m: m, node: "b", dialed: c.again}
		old.up.Store(c.up)
		if got := m.keeps(old, newer); got != c.want {
			t.Errorf("%+v: the older one stays: %v", c, got)
		}
	}
}
