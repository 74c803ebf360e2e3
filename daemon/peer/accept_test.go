package peer

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Whoever opens connections and says nothing takes no place from others.
func TestTheSilentKeepOutNobodyElse(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) { c.greeting = patience }), cl.node("b", nil) // nobody is refused for being slow
	lazy := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: patience}
	for range maxWaitingFrom + 8 {
		conn, err := lazy.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	a.warns("have not said who they are") // the last ones were turned away
	b.knows(a)
	met(b, a)
	_, st := a.Snapshot()
	if st.Refused < 1 || st.Refused > 8 || st.Malformed != 0 {
		t.Errorf("%+v", st)
	}
}

// A connection that says nothing, or stops in the middle, is closed after a while.
func TestASlowGreetingIsCutShort(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", func(c *Config) { c.Insecure, c.greeting = true, 50*time.Millisecond })
	for _, said := range []string{"", "K", plainControl, plainControl + "\x10\x00\x00\x00", plainLink + "1234"} {
		r := rawDial(t, a.addr, nil, "")
		defer r.conn.Close()
		if said != "" {
			r.write([]byte(said))
		}
		defer r.closed()
	}
}

// A host has all addresses of an IPv6 network to itself, and is one all the same.
func TestLobbyCountsNetworksOfIPv6(t *testing.T) {
	var l lobby
	addr := func(network, host byte) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 7: network, 15: host})
	}
	for i := range maxWaitingFrom {
		if !l.enter(addr(0, byte(i))) {
			t.Fatal("kept out")
		}
	}
	if l.enter(addr(0, 255)) {
		t.Error("one too many of one network")
	}
	if !l.enter(addr(1, 0)) {
		t.Error("another network is kept out")
	}
	l.leave(addr(0, 0))
	if !l.enter(addr(0, 255)) {
		t.Error("kept out although somebody left")
	}
}

func TestLobbyCountsByAddress(t *testing.T) {
	var l lobby
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	for range maxWaitingFrom {
		if !l.enter(addr(0)) {
			t.Fatal("kept out")
		}
	}
	if l.enter(addr(0)) {
		t.Error("one too many of one address")
	}
	for i := range maxWaiting - maxWaitingFrom {
		if !l.enter(addr(i + 1)) {
			t.Fatalf("another address kept out at %d", i)
		}
	}
	if l.enter(addr(9999)) {
		t.Error("one too many in all")
	}
	l.leave(addr(0))
	if !l.enter(addr(9999)) {
		t.Error("kept out although somebody left")
	}
	for range maxWaitingFrom - 1 {
		l.leave(addr(0))
	}
	if _, still := l.from[placeOf(addr(0))]; still {
		t.Error("an address is remembered that has nobody waiting")
	}
}

func TestRefusalsDoNotFillTheLog(t *testing.T) {
	n := &node{t: t, more: make(chan struct{})}
	log := slog.New(&warnings{Handler: slog.DiscardHandler, n: n})
	var r refusals
	for i := range 1000 {
		r.tell(t.Context(), log, int64(i), slog.LevelWarn, "from", "x")
	}
	if len(n.logged) != maxToldAtOnce {
		t.Errorf("%d lines", len(n.logged))
	}
	r.tell(t.Context(), log, toldWindow, slog.LevelWarn, "from", "x")
	n.warns("refused_before=968")
}

// TestHarmlessRefusalsHideNoOthers: whoever connects and goes away, as probes of load balancers do, keeps none that matters out of the log.
func TestHarmlessRefusalsHideNoOthers(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	const probes = 3 * maxToldAtOnce
	for range probes {
		conn, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	for refused := uint64(0); refused < probes; { // each is over
		_, st := a.Snapshot()
		refused = st.Refused
		runtime.Gosched()
	}
	late := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpnControl}, Certificates: []tls.Certificate{expired(t, cl.dir, "b")}}}
	if conn, err := late.DialContext(t.Context(), "tcp", a.addr); err == nil { // in TLS 1.3 the client is done before the server has looked
		defer conn.Close()
	}
	a.warns("expired on")
}

// The wall clock is none of this package's business: a channel outlives its jumps, and this node's own standstill.
func TestAStandstillOfThisNodeIsNotThePeersSilence(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	c := a.channelOf("b")
	now := c.m.clock() + int64(time.Hour)
	c.heard.Store(now - 2*int64(c.m.cfg.Heartbeat)) // as beat leaves it after it woke an hour late
	if _, over := c.silent(now); over {
		t.Error("given up before the peer could be heard")
	}
	c.heard.Store(now - 3*int64(c.m.cfg.Heartbeat))
	if why, over := c.silent(now); !over || why.Reason != transfer.PeerGone {
		t.Error("not given up")
	}
}
