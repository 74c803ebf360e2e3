package peer

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// raw is a peer that says what it likes.
type raw struct {
	t     testing.TB
	conn  net.Conn
	in    *frames
	hello *peerpb.Hello // the other side's
}

// rawDial connects to a node with the certificate of id, nil for none.
func rawDial(t testing.TB, addr string, id *pki.Identity, alpn string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if id != nil {
		cfg := id.Config(alpn)
		cfg.VerifyConnection = nil // who does not look
		conn = tls.Client(conn, cfg)
	}
	return &raw{t: t, conn: conn, in: newFrames(conn)}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// say sends a Hello and returns the answer: the other side's Hello, or how it refuses.
func (r *raw) say(h *peerpb.Hello) error {
	r.t.Helper()
	b, err := appendHello(nil, h)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(b)
	r.hello, err = readHello(r.in)
	return err
}

// meet opens a channel as the node of that name.
func (r *raw) meet(name string, change func(*peerpb.Hello)) *raw {
	r.t.Helper()
	h := &peerpb.Hello{ProtoMin: ProtoMin, ProtoMax: ProtoMax, Node: name, Incarnation: 9, Version: "raw"}
	if change != nil {
		change(h)
	}
	if err := r.say(h); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// closed waits until the other side hangs up, and returns the Close that it sent before, if any.
func (r *raw) closed() (text string) {
	r.t.Helper()
	for {
		f, err := r.in.next(maxFrame)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			r.t.Fatal("not closed")
		}
		if err != nil {
			return text
		}
		if f.kind == kindClose {
			_, text, _ = decodeClose(f.body)
		}
	}
}

// link sends a link hello and returns whether it was accepted.
func (r *raw) link(h linkHello, secret []byte) bool {
	r.t.Helper()
	r.write(h.append(nil, secret))
	var answer [1]byte
	n, err := io.ReadFull(r.conn, answer[:])
	return n == 1 && err == nil && answer[0] == linkAccepted
}

func rawFrame(b []byte) []byte {
	n := len(b)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, b...)
}

// rawListener is a peer that is dialed: it hands each connection to serve.
func rawListener(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// answering is a rawListener that answers hello with hello, as the node that id names.
func answering(t testing.TB, id *pki.Identity, answer *peerpb.Hello) (addr string) {
	return rawListener(t, func(conn net.Conn) {
		s := tls.Server(conn, id.Config(alpnControl, alpnData))
		if _, err := readHello(newFrames(s)); err != nil {
			return
		}
		b, _ := appendHello(nil, answer)
		_, _ = s.Write(b)
		_, _ = io.Copy(io.Discard, s)
	})
}

var secret32 = bytes.Repeat([]byte{3}, secretSize)

// rawTLS is a listener that makes a TLS handshake and nothing more.
func rawTLS(t testing.TB, cfg *tls.Config) (addr string) {
	return rawListener(t, func(conn net.Conn) { _ = tls.Server(conn, cfg).Handshake() })
}

// expired issues a certificate from the CA in dir that ended a minute ago.
func expired(t testing.TB, dir, node string) tls.Certificate {
	t.Helper()
	out := t.TempDir()
	if err := pki.IssueNode(dir, out, node, nil, -time.Minute); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pki.NodeFiles(out, node))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
