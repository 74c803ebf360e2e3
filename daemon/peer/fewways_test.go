package peer

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

// fan is one NIC, from which the routes lead to every address of a peer.
type fan struct {
	mine  Address
	asked atomic.Int32
}

func (f *fan) Own() []Address { return []Address{f.mine} }

func (f *fan) Paths(to []Address) (out []Path) {
	f.asked.Add(1)
	for _, a := range to {
		out = append(out, Path{From: f.mine, To: a})
	}
	return out
}

// settled has the links of a channel where they are to be, as far as ways lead there now.
func (c *channel) settled() {
	c.spreading.Lock()
	defer c.spreading.Unlock()
	c.rearrange()
}

// expire lets what is held against ways run out.
func (r *rough) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w, x := range r.paths {
		x.until = time.Now().Add(-time.Millisecond)
		r.paths[w] = x
	}
}

// fanned is a node with one NIC and its channel to b, which listens at its home alone.
func fanned(t *testing.T) (a *node, f *fan, c *channel) {
	t.Helper()
	cl := newCluster(t)
	f = &fan{mine: at("nic", "127.0.0.1", 1000)}
	a, b := cl.node("a", func(c *Config) { c.Rails = f }), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	goes(a, b, "1>1 1>1")
	c = a.channelOf("b")
	for !c.spreadDue.CompareAndSwap(false, true) { // nobody looks from now on but the test
		runtime.Gosched()
	}
	c.settled()
	return a, f, c
}

// refusing are addresses at which nobody listens.
func refusing(n, mbps int) (out []Address) {
	for i := range n {
		out = append(out, Address{IP: netip.AddrFrom4([4]byte{127, 0, 7, byte(i + 1)}), Mbps: mbps, NIC: fmt.Sprint("nic", i)})
	}
	return out
}

// TestManyAddressesThatRefuseCostLittle: a peer that names them, and says over and over that it has moved, has few ways tried at a time, none again
// for being told of it again, and little said in the log.
func TestManyAddressesThatRefuseCostLittle(t *testing.T) {
	a, f, c := fanned(t)
	const rounds = 64
	asked := f.asked.Load()
	marked := func() int {
		a.rough.mu.Lock()
		defer a.rough.mu.Unlock()
		return len(a.rough.paths)
	}
	for i := range rounds {
		before := marked()
		c.theyMoved(refusing(maxAddresses, 1000+i%2))
		c.settled()
		if n := marked(); n < before || n-before > 2*maxWays { // of two links
			t.Fatalf("round %d: %d ways are marked after %d", i, n, before)
		}
	}
	if n := marked(); n != maxAddresses {
		t.Errorf("of %d ways %d were tried in the end", maxAddresses, n)
	}
	if n, most := int(f.asked.Load()-asked), rounds*(1+2*maxWays); n > most {
		t.Errorf("routes were asked for %d times, at most %d are needed", n, most)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := strings.Count(strings.Join(a.logged, "\n"), "cannot go this way"); n < 1 || n > maxAddresses/2 {
		t.Errorf("the log has %d warnings of ways", n)
	}
}

// TestALinkGoesHomeWhenItsWaysAreDark: ways that answer nothing take all of their time, and leave the one that works its own.
func TestALinkGoesHomeWhenItsWaysAreDark(t *testing.T) {
	a, _, c := fanned(t)
	dark := refusing(3, 1000)
	for _, d := range dark {
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.IP, c.tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Port())))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // the kernel lets links connect, and nobody says a word to them
	}
	c.links.mu.Lock()
	c.links.theirs = dark
	lost := c.links.up[0]
	c.links.mu.Unlock()
	c.links.lost(lost)
	if err := c.openLink(0); err != nil {
		t.Errorf("home was not tried: %v", err)
	}
	if got, want := a.ways("b"), "1>1 1>1"; got != want {
		t.Errorf("the links go %q, want %q", got, want)
	}
}

// TestALinkStaysWhenNothingBetterIsThere: what the peer's other address refuses is tried again at times, and no healthy link is given up for that.
func TestALinkStaysWhenNothingBetterIsThere(t *testing.T) {
	_, f, c := fanned(t)
	up := func() []*transport.Link {
		c.links.mu.Lock()
		defer c.links.mu.Unlock()
		return slices.Clone(c.links.up)
	}
	before := up()
	c.links.mu.Lock()
	c.links.theirs = append(refusing(1, 1000), at("home", "127.0.0.1", 1000))
	c.links.mu.Unlock()
	for range 2 {
		asked := f.asked.Load()
		c.m.rough.expire()
		c.settled()
		if f.asked.Load()-asked < 2 {
			t.Fatal("no other way was looked for")
		}
		if !slices.Equal(up(), before) {
			t.Error("a link was opened anew to where it went before")
		}
	}
}
