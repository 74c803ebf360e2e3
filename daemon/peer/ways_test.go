package peer

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/damper"
)

// nics are a node's NICs by their last byte, on loopback: NIC 2 is 127.0.0.2, and reaches NIC 12 of another node.
type nics struct {
	mu    sync.Mutex
	up    []byte
	asked int // for paths
}

func nicAddress(n byte) Address {
	return Address{IP: netip.AddrFrom4([4]byte{127, 0, 0, n}), Mbps: 1000, NIC: fmt.Sprintf("nic%d", n)}
}

func (r *nics) Own() (out []Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.up {
		out = append(out, nicAddress(n))
	}
	return out
}

func (r *nics) Paths(to []Address) (out []Path) {
	r.mu.Lock()
	r.asked++
	r.mu.Unlock()
	for _, mine := range r.Own() {
		for _, there := range to {
			if there.IP.As4()[3] == mine.IP.As4()[3]+10 {
				out = append(out, Path{From: mine, To: there})
			}
		}
	}
	return out
}

func (r *nics) set(up ...byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = up
}

// multi is a node with NICs, which listens on all addresses.
func (c *cluster) multi(name string, up ...byte) (*node, *nics) {
	c.t.Helper()
	r := &nics{up: up}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		c.t.Fatal(err)
	}
	n := c.node(name, func(cfg *Config) {
		_ = cfg.Listener.Close()
		cfg.Listener, cfg.Rails = l, r
	})
	n.addr = fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
	return n, r
}

// ways are where the links to a peer go, sorted.
func (n *node) ways(peer string) string {
	all, _ := n.Snapshot()
	for _, s := range all {
		if s.Node != peer {
			continue
		}
		var out []string
		for _, x := range s.Streams {
			out = append(out, fmt.Sprintf("%d>%d", x.Local.As4()[3], x.Remote.As4()[3]))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	return ""
}

// goes waits until the links go that way at both ends.
func goes(a, b *node, want string) {
	a.t.Helper()
	for _, x := range []struct {
		n        *node
		peer     string
		backward bool
	}{{a, b.cfg.Node, false}, {b, a.cfg.Node, true}} {
		expect := want
		if x.backward {
			parts := strings.Fields(want)
			for i, p := range parts {
				from, to, _ := strings.Cut(p, ">")
				parts[i] = to + ">" + from
			}
			slices.Sort(parts)
			expect = strings.Join(parts, " ")
		}
		x.n.until(func() bool { return x.n.ways(x.peer) == expect })
	}
}

// twoWays are two nodes with two NICs each, 2 and 3 here, 12 and 13 there, and a link over each pair.
type twoWays struct {
	a, b         *node
	mine, theirs *nics
	epoch        uint64
}

func newTwoWays(t *testing.T) (w twoWays) {
	cl := newCluster(t)
	w.a, w.mine = cl.multi("a", 2, 3)
	w.b, w.theirs = cl.multi("b", 12, 13)
	w.a.knows(w.b)
	w.epoch = met(w.a, w.b)
	goes(w.a, w.b, "2>12 3>13")
	return w
}

func TestLinksGoOverAllNICsThatReachThePeer(t *testing.T) {
	w := newTwoWays(t)
	a := w.a
	all, _ := a.Snapshot()
	for _, s := range all[0].Streams {
		if want := fmt.Sprintf("nic%d", s.Remote.As4()[3]); s.PeerNIC != want {
			t.Errorf("link %d goes to %s, which is %s there and not %q", s.Index, s.Remote, want, s.PeerNIC)
		}
	}
	a.calm()
}

// A NIC that goes down, at either end, takes no link with it for long; back again, it gets its share.
func TestLinksFollowNICs(t *testing.T) {
	w := newTwoWays(t)
	a, b, mine, theirs := w.a, w.b, w.mine, w.theirs
	mine.set(3)
	a.NICsChanged()
	goes(a, b, "3>13 3>13")
	mine.set(2, 3)
	a.NICsChanged()
	goes(a, b, "2>12 3>13")
	theirs.set(12)
	b.NICsChanged()
	goes(a, b, "2>12 2>12")
	theirs.set(12, 13)
	b.NICsChanged()
	goes(a, b, "2>12 3>13")
	if epochOf(a, "b") != w.epoch {
		t.Error("the channel did not live")
	}
}

// Where nobody answers, or somebody else, no link goes; the others do.
func TestAWayThatLeadsElsewhereIsNotTaken(t *testing.T) {
	cl := newCluster(t)
	a, _ := cl.multi("a", 2, 3, 4)
	b := cl.node("b", func(c *Config) { c.Rails = &nics{up: []byte{12, 13, 14}} }) // listens at 127.0.0.1 alone
	_, port, _ := net.SplitHostPort(b.addr)
	l, err := net.Listen("tcp4", "127.0.0.13:"+port)
	if err != nil {
		t.Skipf("the port is taken at another address: %v", err)
	}
	cl.node("c", func(c *Config) { _ = c.Listener.Close(); c.Listener = l })
	a.knows(b)
	met(a, b)
	goes(a, b, "1>1 1>1")
	a.warns(`certificate of node "c" on a link of "b"`)
	a.warns("connection refused")
}

// A peer cannot make this node dial what its configuration does not allow.
func TestAPeersAddressesNeedPermission(t *testing.T) {
	for _, named := range []bool{true, false} {
		cl := newCluster(t)
		a, _ := cl.multi("a", 2, 3)
		b, _ := cl.multi("b", 12, 13)
		allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/29")}
		want := "1>1 1>1"
		if named {
			a.Reload(map[string]string{"b": b.addr}, allow)
			want = "2>12 3>13"
			a.Dial("b")
		} else {
			a.Reload(nil, allow)
			a.Dial(b.addr)
		}
		wait(a, func(e transfer.PeerUp) bool { return e.Node == "b" })
		goes(a, b, want)
	}
}

// What a reload allows is used at once, and what it does not allow any more is left.
func TestLinksFollowWhatIsAllowed(t *testing.T) {
	cl := newCluster(t)
	a, _ := cl.multi("a", 2, 3)
	b, _ := cl.multi("b", 12, 13)
	a.Reload(nil, prefixes("127.0.0.0/29"))
	a.Dial(b.addr)
	wait(a, func(e transfer.PeerUp) bool { return e.Node == "b" })
	goes(a, b, "1>1 1>1")
	a.Reload(nil, prefixes("127.0.0.0/8"))
	goes(a, b, "2>12 3>13")
	a.Reload(nil, prefixes("127.0.0.0/29"))
	goes(a, b, "1>1 1>1")
	a.knows(b)
	goes(a, b, "2>12 3>13")
}

// A channel on loopback, such as one through a tunnel, has its links there: they may be plain because of that. One over a network has none on
// this node's own loopback.
func TestLinksStayOnTheirSideOfLoopback(t *testing.T) {
	w := newTwoWays(t)
	a := w.a
	c := a.channelOf("b")
	c.links.mu.Lock()
	c.links.theirs = []Address{at("nic12", "10.0.0.12", 1000), nicAddress(13)}
	c.links.mu.Unlock()
	for _, p := range c.plan() {
		if !p.To.IP.IsLoopback() {
			t.Errorf("a link is to go to %v", p.To)
		}
	}
}

// However often a peer says that it has moved, this node looks for ways about once a second.
func TestAPeerThatMovesAllTheTimeCostsLittle(t *testing.T) {
	w := newTwoWays(t)
	a, mine := w.a, w.mine
	asked := func() int {
		mine.mu.Lock()
		defer mine.mu.Unlock()
		return mine.asked
	}
	c, before, start := a.channelOf("b"), asked(), time.Now()
	for i := 0; time.Since(start) < spreadGap/4; i++ { // faster there and back, and no link has to move
		c.theyMoved([]Address{at("nic12", "127.0.0.12", 1000+i%2), at("nic13", "127.0.0.13", 1000+i%2)})
	}
	if n, most := asked()-before, 2+int(time.Since(start)/(spreadGap/2)); n > most {
		t.Errorf("ways were looked for %d times in %v, not %d", n, time.Since(start), most)
	}
}

// TestLinksThatCannotMoveFillNoLog: a peer may have them tried again and again, and let none in.
func TestLinksThatCannotMoveFillNoLog(t *testing.T) {
	w := newTwoWays(t)
	c := w.a.channelOf("b")
	for !c.spreadDue.CompareAndSwap(false, true) { // nobody looks from now on but the test
		runtime.Gosched()
	}
	_ = w.b.cfg.Listener.Close()
	w.mine.set(2) // of the two links one has to move
	began := time.Now()
	const looks = 60
	for range looks {
		c.settled()
	}
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	moves := strings.Count(strings.Join(w.a.logged, "\n"), "could not move")
	if most := 8 * (1 + int(time.Since(began)/damper.Gap)); moves == 0 || moves > most {
		t.Errorf("%d warnings of %d moves that failed, want at most %d", moves, looks, most)
	}
}

// A link that is lost in the moment in which it has moved is opened again.
func TestALinkThatIsLostWhileItMovesComesBack(t *testing.T) {
	w := newTwoWays(t)
	a, b := w.a, w.b
	c := a.channelOf("b")
	c.spreading.Lock() // no other move
	defer c.spreading.Unlock()
	c.links.move(0, true)
	c.links.mu.Lock()
	lost := c.links.up[0]
	c.links.mu.Unlock()
	a.Redial(t.Context(), lost)
	if n := c.links.count(); n != 1 {
		t.Fatalf("%d links are up, one of two was lost", n)
	}
	c.moved(0, nil)
	goes(a, b, "2>12 3>13")
}

func TestAHelloWithImpossibleAddressesIsRefused(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	err := rawDial(t, a.addr, cl.identity("b"), alpnControl).say(&peerpb.Hello{
		ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: "b", Addresses: &peerpb.Addresses{List: []*peerpb.Address{{Ip: []byte{1, 2, 3}, Nic: "eth0"}}},
	})
	if err == nil || !strings.Contains(err.Error(), `address invalid IP of NIC "eth0"`) {
		t.Errorf("%v", err)
	}
}

// TestALinkThatMovesIsShownWhereItIs, until its successor has taken its place; one whose move led nowhere stays where it is.
func TestALinkThatMovesIsShownWhereItIs(t *testing.T) {
	at := func(n byte) ends { return ends{nicAddress(n).IP, nicAddress(n + 10).IP} }
	l := links{up: make([]*transport.Link, 1), at: make([]ends, 1), aim: make([]ends, 1), newest: make([]uint32, 1), moving: make([]bool, 1), full: make(chan struct{})}
	shown := func(want byte) {
		t.Helper()
		if s := l.streams(); len(s) != 1 || s[0].Local != nicAddress(want).IP {
			t.Errorf("the link is shown as %+v, want it on NIC %d", s, want)
		}
	}
	l.came(&transport.Link{}, at(2), 2)
	l.move(0, true)
	l.aim[0] = at(3)
	shown(2)
	if l.move(0, false); l.aim[0] != at(2) {
		t.Errorf("after a move that led nowhere it is thought to go to %v", l.aim[0])
	}
	l.move(0, true)
	l.aim[0] = at(3)
	l.came(&transport.Link{}, at(3), 3)
	l.move(0, false)
	shown(3)
}
