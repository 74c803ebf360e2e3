package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// fails dials and wants it to fail for good, with a text that has all of parts.
func fails(t *testing.T, n *node, hint string, reason transfer.Reason, parts ...string) {
	t.Helper()
	n.Dial(hint)
	ev := wait(n, func(e transfer.DialFailed) bool { return e.Hint == hint })
	if !ev.Final || ev.Cause.Reason != reason {
		t.Errorf("%q: final %v, reason %d, want %d: %s", hint, ev.Final, ev.Cause.Reason, reason, ev.Cause.Text)
	}
	for _, p := range parts {
		if !strings.Contains(ev.Cause.Text, p) {
			t.Errorf("%q: %q does not say %q", hint, ev.Cause.Text, p)
		}
	}
}

func TestAPeerOfAnotherVersionIsToldBothVersions(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	for _, v := range []struct{ min, max uint32 }{{2, 3}, {0, 0}} {
		other := &peerpb.Hello{ProtoMin: v.min, ProtoMax: v.max, Node: "b", Version: "9.9", Epoch: 1, LinkSecret: secret32}
		id := cl.identity("b")
		want := []string{"9.9", "test", "peer protocol", "1 to 1"}
		if v.min > 0 {
			want = append(want, "2 to 3")
		}
		// Dialed by this node, and dialing it.
		a.Reload(map[string]string{"b": answering(t, id, other)}, nil)
		fails(t, a, "b", transfer.Incompatible, want...)
		err := rawDial(t, a.addr, id, alpnControl).say(other)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("refused with %v, which does not say %q", err, part)
			}
		}
		a.warns("peer protocol")
	}
}

func TestANewerPeerThatStillSpeaksThisVersionIsWelcome(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", func(h *peerpb.Hello) { h.ProtoMax = 7 })
	wait[transfer.PeerUp](a, nil)
	all, _ := a.Snapshot()
	if len(all) != 1 || all[0].Proto != ProtoMax {
		t.Errorf("%+v", all)
	}
}

func TestWhoeverIsNotWhoItSaysIsRefused(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	err := rawDial(t, a.addr, cl.identity("evil"), alpnControl).say(&peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b"})
	if err == nil || !strings.Contains(err.Error(), `certificate of node "evil", but it calls itself "b"`) {
		t.Errorf("refused with %v", err)
	}
	a.warns(`certificate of node "evil", but it calls itself "b"`)
	if c := a.channelOf("b"); c != nil {
		t.Error("a channel of b")
	}
	// The certificate of another node than the configuration names.
	a.Reload(map[string]string{"c": b.addr}, nil)
	fails(t, a, "c", transfer.Denied, `node "b" answers there, not "c"`, "peers.nodes")
	// A liar that is dialed.
	a.Reload(map[string]string{"b": answering(t, cl.identity("b"), &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "c", Epoch: 1, LinkSecret: secret32})}, nil)
	fails(t, a, "b", transfer.Denied, `certificate of node "b", but it calls itself "c"`)
	// Somebody with this node's own name, in another daemon.
	a.Reload(map[string]string{"a2": answering(t, cl.identity("a"), &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "a", Incarnation: 99, Epoch: 1, LinkSecret: secret32})}, nil)
	fails(t, a, "a2", transfer.Denied, `node "a" answers there`)
}

// What a peer says of itself is shown to people, a line each.
func TestAHelloThatCannotBeShownIsRefused(t *testing.T) {
	a := newCluster(t).node("a", nil)
	for name, spoil := range map[string]func(*peerpb.Hello){
		"a line in advertise":         func(h *peerpb.Hello) { h.Advertise = "b:7650\nc  up" },
		"a column in version":         func(h *peerpb.Hello) { h.Version = "1\t2" },
		"in another version's, too":   func(h *peerpb.Hello) { h.ProtoMin, h.ProtoMax, h.Version = 8, 9, "9\nc  up" },
		"a command in a transport":    func(h *peerpb.Hello) { h.Transports = []string{"tcp", "\x1b[2J"} },
		"too long a transport":        func(h *peerpb.Hello) { h.Transports = []string{strings.Repeat("x", 256)} },
		"too long an advertise":       func(h *peerpb.Hello) { h.Advertise = strings.Repeat("x", 256) },
		"nothing: it is as it should": nil,
	} {
		h := &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b", Advertise: "[2001:db8::1]:7650", Version: "0.1.0 (été)", Transports: []string{"local", "tcp"}}
		if spoil != nil {
			spoil(h)
		}
		if err := a.acceptable(h, "b"); isMalformed(err) != (spoil != nil) || err != nil && !isMalformed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNamesOfPeers: they are shown, compared and looked up in a list of addresses, so they are short and no addresses.
func TestNamesOfPeers(t *testing.T) {
	for name, want := range map[string]bool{
		"b": true, "gpu-7.example": true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, "b c": false, "b:7650": false, "b/c": false, "b\n": false, "b\r": false, "b\t": false,
		"b\x1b[2J": false, "b\u202e": false, "é": true,
	} {
		if nameOK(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestAnAnswerWithoutEpochOrSecretOpensNoChannel: what they are for would be open to everybody.
func TestAnAnswerWithoutEpochOrSecretOpensNoChannel(t *testing.T) {
	cl := newCluster(t)
	id := cl.identity("b")
	for what, spoil := range map[string]func(*peerpb.Hello){
		"no epoch":     func(h *peerpb.Hello) { h.Epoch = 0 },
		"no secret":    func(h *peerpb.Hello) { h.LinkSecret = nil },
		"short secret": func(h *peerpb.Hello) { h.LinkSecret = secret32[1:] },
	} {
		a := cl.node("a", nil)
		h := &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b", Version: "raw", Epoch: 1, LinkSecret: secret32}
		spoil(h)
		a.Reload(map[string]string{"b": answering(t, id, h)}, nil)
		a.Dial("b")
		if ev := wait[transfer.DialFailed](a, nil); !strings.Contains(ev.Cause.Text, "hello without epoch or link secret") {
			t.Errorf("%s: %+v", what, ev)
		}
	}
}

func TestAStrangersCertificateIsRefusedOnBothSides(t *testing.T) {
	ours, theirs := newCluster(t), newCluster(t)
	a, b := ours.node("a", nil), theirs.node("b", nil)
	a.knows(b)
	fails(t, a, "b", transfer.Denied, "certificate", "b")
	a.warns("peer cannot be reached peer=b")
	b.warns("connection refused")
	// Who does not look at the server's certificate is refused by the server.
	if err := rawDial(t, a.addr, theirs.identity("b"), alpnControl).say(&peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b"}); err == nil {
		t.Error("a stranger got in")
	}
	a.warns("certificate")
	// And so is a peer that shows none, which TLS tells it after the handshake.
	a.Reload(map[string]string{"b": rawListener(t, func(conn net.Conn) {
		_, _ = conn.Write(alertAccessDenied)
	})}, nil)
	fails(t, a, "b", transfer.Denied, "refuses this node's certificate")
}

func TestANodeThatIsDialedByItselfSaysSo(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		a := cl.node("a", change)
		a.Dial(a.addr)
		up := wait[transfer.PeerUp](a, nil)
		if up.Node != "a" || len(up.Hints) != 1 || up.Hints[0] != a.addr {
			t.Errorf("%+v", up)
		}
		if all, st := a.Snapshot(); len(all) != 0 || st.Refused != 0 {
			t.Errorf("%+v %+v", all, st)
		}
		a.calm()
	})
}

// TestAnotherNodeDoesNotAnswerForAName: neither one with which there is a channel already, nor this one.
func TestAnotherNodeDoesNotAnswerForAName(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		a, b := cl.node("a", change), cl.node("b", change)
		a.knows(b)
		met(a, b)
		a.Reload(map[string]string{"b": b.addr, "c": b.addr, "d": a.addr}, nil)
		fails(t, a, "c", transfer.Denied, `node "b" answers there, not "c"`, "peers.nodes")
		fails(t, a, "d", transfer.Denied, `node "a" answers there, not "d"`, "peers.nodes")
	})
}

func TestTLSAndPlainDoNotMix(t *testing.T) {
	cl := newCluster(t)
	secure, plain := cl.node("a", nil), cl.node("b", func(c *Config) { c.Insecure = true })
	secure.knows(plain)
	plain.knows(secure)
	fails(t, secure, "b", transfer.Denied, "insecure")
	plain.warns("runs insecure")
	fails(t, plain, "a", transfer.Denied, "certificates", "insecure")
	secure.warns("not encrypted")
	if _, st := secure.Snapshot(); st.Malformed != 1 || st.Refused != 1 {
		t.Errorf("%+v", st)
	}
}

// TestWhoHasNoCertificateSaysSoToWhoDials: either log says what is wrong. Who only hung up could be anything. Once it has one, it is
// reached.
func TestWhoHasNoCertificateSaysSoToWhoDials(t *testing.T) {
	cl := newCluster(t)
	cert, key := pki.NodeFiles(cl.dir, "b")
	bare, err := pki.Open(filepath.Join(cl.dir, pki.CAFile), cert, key, "b")
	if err == nil {
		t.Fatal("a certificate where there is none")
	}
	a, b := cl.node("a", nil), cl.node("b", func(c *Config) { c.Identity = bare })
	a.knows(b)
	fails(t, a, "b", transfer.Unavailable, "the peer has no certificate that it could show")
	a.warns("peer cannot be reached peer=b address=" + b.addr + " error=TLS handshake: the peer has no certificate")
	b.warns("this daemon has no certificate to show to peers: tls.cert")
	if err := pki.IssueNode(cl.dir, cl.dir, "b", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	met(a, b)
	if all, _ := a.Snapshot(); len(all) != 1 || all[0].Problem != "" {
		t.Errorf("%+v", all)
	}
}

func TestSomethingElseThanAPeerIsRefused(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	web := rawListener(t, func(conn net.Conn) { _, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	a.Reload(map[string]string{"b": web}, nil)
	fails(t, a, "b", transfer.Denied, "no TLS there")
	r := rawDial(t, a.addr, nil, "")
	r.write([]byte("GET / HTTP/1.1\r\n\r\n"))
	r.closed()
	a.warns("connection refused")
	if err := rawDial(t, a.addr, cl.identity("b"), "h2").conn.(*tls.Conn).Handshake(); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("protocol h2: %v", err)
	}
}

// TestAPeerThatSaysNoHelloIsNamed: by its certificate.
func TestAPeerThatSaysNoHelloIsNamed(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	for name, alpn := range map[string]string{"b": alpnControl, "c": alpnData} {
		r := rawDial(t, a.addr, cl.identity(name), alpn)
		r.write(rawFrame([]byte("no hello, and as long as that of a link, which has sixty-four bytes")))
		r.closed()
		a.warns("peer=" + name)
	}
	if _, st := a.Snapshot(); st.Malformed != 2 {
		t.Errorf("%d malformed frames are counted, want 2", st.Malformed)
	}
}

// A port check, as load balancers make it, is not worth a warning.
func TestWhoConnectsAndLeavesIsNoNews(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	conn, err := net.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	// The second one is let in after the first was dealt with or at the same time; its channel is up when both are known.
	rawDial(t, a.addr, cl.identity("b"), alpnControl).meet("b", nil)
	wait[transfer.PeerUp](a, nil)
	a.calm()
}

func TestInsecureIsForLoopbackAlone(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(Config{Node: "a", Insecure: true, Listener: l}); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("a listener on all addresses: %v", err)
	}
	a := newCluster(t).node("a", func(c *Config) { c.Insecure = true })
	a.Reload(map[string]string{"far": "192.0.2.1:7650"}, nil)
	fails(t, a, "far", transfer.Denied, "not a loopback address", "insecure")
	// Nor by its address, which peers.allow has. One that it does not have is refused for that.
	a.Reload(nil, prefixes("192.0.2.0/24"))
	fails(t, a, "192.0.2.1:7650", transfer.Denied, `"192.0.2.1:7650" is not a loopback address`, "insecure", "tls.ca")
	fails(t, a, "127.0.0.1:7650", transfer.Denied, `"127.0.0.1:7650" is not inside peers.allow`, "192.0.2.0/24")
}

func TestWithoutCertificatesNobodyIsDialed(t *testing.T) {
	cl := newCluster(t)
	b := cl.node("b", nil)
	if _, err := New(Config{Node: "a", Listener: b.cfg.Listener}); err == nil || !strings.Contains(err.Error(), "certificates") {
		t.Errorf("a listener without certificates: %v", err)
	}
	a := &node{t: t, more: make(chan struct{})}
	var err error
	if a.Manager, err = New(Config{Node: "a", Nodes: map[string]string{"b": b.addr}, Events: a.event}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	fails(t, a, "b", transfer.Unavailable, "tls.ca")
}

func TestAnUnknownNameIsRefusedWithTheKnownOnes(t *testing.T) {
	a := newCluster(t).node("a", nil)
	a.Reload(map[string]string{"b": "x:1", "c": "y:1"}, nil)
	fails(t, a, "d", transfer.NotFound, `"d"`, "known: b, c)", "peers.nodes", "peers.allow")
	// Of many it names some: what to do has to fit in as well.
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprintf("node-%03d", i)] = "x:1"
	}
	a.Reload(many, nil)
	fails(t, a, "d", transfer.NotFound, `"d"`, "known: node-000, node-001", "node-007, 992 more)", "peers.nodes", "peers.allow")
}

func TestADaemonThatShutsDownIsWorthAnotherTry(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	b.Manager.mu.Lock()
	b.Manager.closed = true // between the refusal of new channels and the end of the listener
	b.Manager.mu.Unlock()
	a.knows(b)
	a.Dial("b")
	ev := wait[transfer.DialFailed](a, nil)
	if ev.Final || !strings.Contains(ev.Cause.Text, "shutting down") {
		t.Errorf("%+v", ev)
	}
}

func TestAnExpiredCertificateIsNamed(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	cert, key := pki.NodeFiles(cl.dir, "b")
	if err := pki.IssueNode(cl.dir, cl.dir, "b", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	id, err := pki.Open(cl.dir+"/"+pki.CAFile, cert, key, "b")
	if err != nil {
		t.Fatal(err)
	}
	cfg := id.Config(alpnControl)
	cfg.Certificates[0] = expired(t, cl.dir, "b")
	a.Reload(map[string]string{"b": rawTLS(t, cfg)}, nil)
	fails(t, a, "b", transfer.Denied, "expired on")
}

// TestACertificateSaysWhoRefuses: an answer to Hello names a node. If the peer has a certificate, the name in it counts, so no peer can pass
// for another node or for this one.
func TestACertificateSaysWhoRefuses(t *testing.T) {
	m := &Manager{cfg: Config{Node: "a"}}
	for _, c := range []struct {
		says        error
		certificate string
		node        string // whose channel there is already
		self        bool
	}{
		{&duplicateError{node: "c"}, "b", "b", false},
		{&duplicateError{node: "c"}, "", "c", false}, // there is nothing better
		{errSelf, "b", "", false},
		{errSelf, "a", "", true},
		{errSelf, "", "", true},
		{errors.New("something else"), "b", "", false},
	} {
		err := m.certain(c.says, c.certificate, "")
		node := ""
		var dup *duplicateError
		if errors.As(err, &dup) {
			node = dup.node
		}
		if err == nil || node != c.node || errors.Is(err, errSelf) != c.self {
			t.Errorf("%v from %q is taken for %v", c.says, c.certificate, err)
		}
	}
}

// TestARefusalIsAFailureWhateverItsReason: one that names no failure, or one that only newer daemons know, is none of
// those that mean something else to the client, least of all success.
func TestARefusalIsAFailureWhateverItsReason(t *testing.T) {
	cl := newCluster(t)
	id := cl.identity("b")
	for _, reason := range []uint32{uint32(transfer.OK), uint32(transfer.Closed) + 1, 999, 1002, 1 << 31} {
		a := cl.node("a", nil)
		refuses := rawListener(t, func(conn net.Conn) {
			s := tls.Server(conn, id.Config(alpnControl))
			if _, err := readHello(newFrames(s)); err != nil {
				return
			}
			b, _ := appendClose(nil, 0, reason, "not today")
			_, _ = s.Write(b)
			_, _ = io.Copy(io.Discard, s)
		})
		a.Reload(map[string]string{"b": refuses}, nil)
		fails(t, a, "b", transfer.Unavailable, "refused: not today")
	}
}
