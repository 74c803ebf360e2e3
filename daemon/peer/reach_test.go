package peer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// named has a host's name stand for 127.0.0.2 and 127.0.0.1.
func named(c *Config) {
	c.lookUp = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")}, nil
	}
}

// beside listens at 127.0.0.2, at the port of a node at 127.0.0.1.
func beside(t *testing.T, n *node) net.Listener {
	t.Helper()
	_, port, _ := net.SplitHostPort(n.addr)
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("the port is another one's there: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A name that stands for several addresses leads to the peer behind any of them, whoever answers at the others.
func TestANodeBehindOneOfItsNamesAddresses(t *testing.T) {
	t.Run("another node at the first", func(t *testing.T) {
		cl := newCluster(t)
		a, b := cl.node("a", named), cl.node("b", nil)
		l := beside(t, b)
		cl.node("c", func(c *Config) { _ = c.Listener.Close(); c.Listener = l })
		_, port, _ := net.SplitHostPort(b.addr)
		a.Reload(map[string]string{"b": "b.invalid:" + port}, nil)
		met(a, b)
	})
	t.Run("one that hangs up", func(t *testing.T) {
		cl := newCluster(t)
		a, b := cl.node("a", named), cl.node("b", nil)
		l := beside(t, b)
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_ = c.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(b.addr)
		a.Reload(map[string]string{"b": "b.invalid:" + port}, nil)
		met(a, b)
	})
	t.Run("one that says nothing", func(t *testing.T) {
		cl := newCluster(t)
		a, b := cl.node("a", func(c *Config) { named(c); c.young = 1 }), cl.node("b", nil)
		beside(t, b) // the kernel connects for it
		_, port, _ := net.SplitHostPort(b.addr)
		to := target{addr: "b.invalid:" + port, node: "b"}
		a.Reload(map[string]string{"b": to.addr}, nil)
		addrs, err := a.addresses(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), dialTimeout/50)
		defer cancel()
		_, err = a.reach(ctx, a.inTurn(to, addrs), to)
		if err == nil {
			t.Fatal("reached")
		}
		a.Manager.mu.Lock()
		a.slower(to, err)
		a.Manager.mu.Unlock()
		next := func() {
			t.Helper()
			if got := a.inTurn(to, addrs); !slices.Equal(got, []string{addrs[1], addrs[0]}) {
				t.Errorf("the next attempt goes to %q", got)
			}
		}
		next()
		met(a, b)
		c := a.channelOf("b")
		a.Manager.mu.Lock()
		a.outlived(c, transfer.Cause{}) // as when it was idle, and is closed for that
		a.Manager.mu.Unlock()
		next()
	})
}

// TestALookupHasTimeOfItsOwn: enough for a second name server where the first is dead, and none of what it takes is missed by the dial.
func TestALookupHasTimeOfItsOwn(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) {
		c.lookUp = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) < 2*5*time.Second {
				t.Errorf("it has until %v", until)
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}), cl.node("b", nil)
	_, port, _ := net.SplitHostPort(b.addr)
	a.Reload(map[string]string{"b": "b.invalid:" + port}, nil)
	met(a, b)
}

// TestAPeerThatIsAwayAndAStaleAddress: that another node answers at one address is for good only if the peer is behind none of the others. What
// came of each address is said, on one line, since engines' logs have one for it.
func TestAPeerThatIsAwayAndAStaleAddress(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", named), cl.node("b", nil)
	l := beside(t, b)
	cl.node("c", func(c *Config) { _ = c.Listener.Close(); c.Listener = l })
	b.Close()
	_, port, _ := net.SplitHostPort(b.addr)
	a.Reload(map[string]string{"b": "b.invalid:" + port}, nil)
	a.Dial("b")
	got := wait[transfer.DialFailed](a, nil)
	if got.Final || !strings.Contains(got.Cause.Text, `node "c" answers there, not "b": correct peers.nodes; `) || !strings.Contains(got.Cause.Text, "refused") || strings.Contains(got.Cause.Text, "\n") {
		t.Errorf("%+v", got)
	}
	if all, _ := a.Snapshot(); len(all) != 1 || all[0].Problem == "" || strings.Contains(all[0].Problem, "\n") {
		t.Errorf("%+v", all)
	}
}

// TestAStrangerAtEachAddress is for good, and each is named.
func TestAStrangerAtEachAddress(t *testing.T) {
	cl := newCluster(t)
	a, c := cl.node("a", named), cl.node("c", nil)
	l := beside(t, c)
	cl.node("d", func(c *Config) { _ = c.Listener.Close(); c.Listener = l })
	_, port, _ := net.SplitHostPort(c.addr)
	a.Reload(map[string]string{"b": "b.invalid:" + port}, nil)
	fails(t, a, "b", transfer.Denied, "at 127.0.0.2:"+port+`: node "d" answers there`, "; at 127.0.0.1:"+port+`: node "c" answers there`)
}

// TestFilesThatAreMissing are said on one line as well.
func TestFilesThatAreMissing(t *testing.T) {
	none := t.TempDir()
	id, err := pki.Open(none+"/ca.crt", none+"/a.crt", none+"/a.key", "a")
	if err == nil {
		t.Fatal("opened")
	}
	a := newCluster(t).node("a", func(c *Config) { c.Identity = id })
	a.Reload(map[string]string{"b": rawListener(t, func(net.Conn) {})}, nil)
	a.Dial("b")
	if text := wait[transfer.DialFailed](a, nil).Cause.Text; !strings.Contains(text, "a.crt: no such file or directory; tls.key") || strings.Contains(text, "\n") {
		t.Errorf("%q", text)
	}
}
