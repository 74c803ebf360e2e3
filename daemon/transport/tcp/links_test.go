package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

const epoch = 7

// lab is two nodes, "a" and "b", with the part of the peer package that their links need.
type lab struct {
	t       testing.TB
	a, b    *Transport
	links   int
	tls     *tls.Config // nil: plain
	listen  net.Listener
	mu      sync.Mutex // one link is made at a time, so that both ends get the same number
	pending sync.WaitGroup
}

func newLab(t testing.TB, a, b Config, links int, secure bool) *lab {
	l := &lab{t: t, links: links}
	var err error
	if l.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if secure {
		l.tls = selfSigned(t)
	}
	a.Source = l
	l.a, l.b = New(a), New(b)
	for i := range links {
		l.dial(i)
	}
	return l
}

// dial makes link i.
func (l *lab) dial(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := net.Dial("tcp", l.listen.Addr().String())
	if err != nil {
		return // the listener is closed: the test is over
	}
	s, err := l.listen.Accept()
	if err != nil {
		c.Close()
		return
	}
	l.a.LinkUp(l.link(c, "b", i, tls.Client))
	l.b.LinkUp(l.link(s, "a", i, tls.Server))
}

func (l *lab) link(c net.Conn, peer string, i int, side func(net.Conn, *tls.Config) *tls.Conn) *transport.Link {
	if l.tls != nil {
		return &transport.Link{Conn: side(c, l.tls), Peer: peer, Epoch: epoch, Index: i}
	}
	return &transport.Link{Conn: c, TCP: c.(*net.TCPConn), Peer: peer, Epoch: epoch, Index: i, Here: true}
}

// Redial implements transport.LinkSource.
func (l *lab) Redial(ctx context.Context, lost *transport.Link) {
	if ctx.Err() != nil {
		return
	}
	l.pending.Add(1)
	go func() { defer l.pending.Done(); l.dial(lost.Index) }()
}

func (l *lab) close() {
	l.listen.Close()
	// The listener's end fails the dials under way; what came up before is closed with the transports.
	l.pending.Wait()
	if err := l.a.Close(); err != nil {
		l.t.Error(err)
	}
	if err := l.b.Close(); err != nil {
		l.t.Error(err)
	}
	l.pending.Wait()
}

// kill breaks all links without a word to their users.
func (l *lab) kill() int {
	l.a.mu.Lock()
	ch := l.a.channels[channelKey{"b", epoch}]
	l.a.mu.Unlock()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, k := range ch.links {
		k.hangUp()
	}
	return len(ch.links)
}

func (l *lab) down() {
	l.a.LinksDown("b", epoch)
	l.b.LinksDown("a", epoch)
}

func selfSigned(t testing.TB) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // who the peer is has been settled elsewhere
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
}

// opener opens pairs for the suite: slices go from a to b.
func opener(cfg Config, links int, secure, brief bool) transporttest.Open {
	return func(t testing.TB) *transporttest.Pair {
		src, dst := transporttest.NewRecorder(), transporttest.NewRecorder()
		ca, cb := cfg, cfg
		ca.Sink, cb.Sink = src, dst
		l := newLab(t, ca, cb, links, secure)
		return &transporttest.Pair{
			Src: l.a, Dst: l.b, SrcSink: src, DstSink: dst, SrcPeer: "b", DstPeer: "a", Epoch: epoch, Brief: brief,
			KillLinks: func() int {
				n := l.kill()
				src.LinkLost(t, n) // no slice is given to one of them any more
				return n
			},
			Down: l.down, Close: sync.OnceFunc(l.close),
		}
	}
}
