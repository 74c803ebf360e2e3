package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/damper"
)

var (
	errStale   = errors.New("link of a channel that is over")
	errNobody  = errors.New("went away before it said anything")
	errCrowded = errors.New("too many connections that have not said who they are")
)

// accept takes connections of all kinds on one port. Each has a few seconds to say what it is.
func (m *Manager) accept() {
	var waiting lobby
	var told damper.Damper
	for {
		conn, err := m.cfg.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || m.ctx.Err() != nil {
				return
			}
			if told.Due() {
				m.log.Warn("connections of peers cannot be accepted", "error", err)
			}
			t := time.NewTimer(100 * time.Millisecond) // out of descriptors: wait until some are closed
			select {
			case <-t.C:
			case <-m.ctx.Done():
			}
			t.Stop()
			continue
		}
		from := hostOf(conn.RemoteAddr())
		if !waiting.enter(from) {
			m.turnAway(conn, errCrowded)
			continue
		}
		m.wg.Go(func() {
			c := m.incoming(conn.(*net.TCPConn))
			waiting.leave(from)
			if c != nil {
				c.awaitLinks(nil)
				_ = c.tcp.SetDeadline(time.Time{})
				c.start()
			}
		})
	}
}

// incoming finds out what a connection is and hands it on, or closes it and logs why. It returns a channel that is
// installed but not up yet, or nil.
func (m *Manager) incoming(tcp *net.TCPConn) *channel {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.greeting)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(past) })
	c, err := m.sort(ctx, tcp)
	if !stop() && err == nil {
		if err = ctx.Err(); c != nil {
			c.close(c.gone(err), false)
		}
	}
	if err != nil {
		m.turnAway(tcp, err)
		return nil
	}
	return c
}

// turnAway closes a connection, and logs why if that is news.
func (m *Manager) turnAway(conn net.Conn, err error) {
	defer conn.Close()
	if errors.Is(err, errSelf) || m.ctx.Err() != nil {
		return
	}
	m.count(func(s *Stats) {
		s.Refused++
		if isMalformed(err) {
			s.Malformed++
		}
	})
	level, told := slog.LevelWarn, &m.refusals
	var dup *duplicateError
	if errors.As(err, &dup) || errors.Is(err, errNobody) || errors.Is(err, errStale) {
		level, told = slog.LevelDebug, &m.harmless
	}
	attrs := []any{"from", conn.RemoteAddr()}
	var known *peerError
	if errors.As(err, &known) {
		attrs = append(attrs, "peer", known.node)
	}
	told.tell(m.ctx, m.log, m.clock(), level, append(attrs, "error", err)...)
}

// sort tells TLS, plain control and plain links apart by their first four bytes; a TLS record never begins with a
// letter. For links the channel is nil.
func (m *Manager) sort(ctx context.Context, tcp *net.TCPConn) (*channel, error) {
	if m.cfg.Insecure && !transport.Loopback(tcp.RemoteAddr()) {
		return nil, errors.New("not from a loopback address, and this daemon runs insecure")
	}
	head, conn, err := peek(tcp, 4)
	if err != nil {
		return nil, err
	}
	switch string(head) {
	case plainControl:
		if !m.cfg.Insecure {
			err := &malformedError{fmt.Sprintf("node %q wants certificates, and this connection is not encrypted: is insecure set on the other node alone?", m.cfg.Node)}
			refuse(tcp, final(transfer.Denied, "%s", err.text))
			return nil, err
		}
		return m.welcome(sides{tcp, tcp, newFrames(tcp)}, "")
	case plainLink:
		return nil, m.acceptLink(sides{conn: tcp, tcp: tcp}, head, "")
	}
	if m.cfg.Insecure {
		_, _ = tcp.Write(alertAccessDenied)
		return nil, malformed("not one of kvpiped's plain connections, and this daemon runs insecure")
	}
	return m.sortSecure(ctx, tcp, conn)
}

// alertAccessDenied is a fatal TLS alert. It tells a peer that dials an insecure daemon with TLS what is wrong, instead
// of only hanging up.
var alertAccessDenied = fatal(49)

// alertInternalError is what a server says that has no certificate to show (RFC 8446, 6.2).
const alertInternalError = 80

// fatal returns a TLS record with a fatal alert.
func fatal(alert byte) []byte { return []byte{21, 3, 3, 0, 2, 2, alert} }

func (m *Manager) sortSecure(ctx context.Context, tcp *net.TCPConn, conn net.Conn) (c *channel, err error) {
	secured, node, err := m.secure(ctx, conn, false, alpnControl, alpnData)
	if err != nil {
		return nil, err
	}
	switch proto := secured.(*corked).ConnectionState().NegotiatedProtocol; proto {
	case alpnControl:
		c, err = m.welcome(sides{secured, tcp, newFrames(secured)}, node)
	case alpnData:
		err = m.acceptLink(sides{conn: secured, tcp: tcp}, nil, node)
	default:
		err = malformed("protocol %q, want %s or %s", proto, alpnControl, alpnData)
	}
	if err != nil {
		return nil, &peerError{node, err}
	}
	return c, nil
}

// peek reads n bytes. The connection that it returns begins with them again.
func peek(tcp *net.TCPConn, n int) ([]byte, net.Conn, error) {
	head := make([]byte, n)
	for got := 0; got < n; {
		k, err := tcp.Read(head[got:])
		if err != nil {
			if got == 0 && gone(err) {
				err = errNobody
			}
			return nil, nil, fmt.Errorf("first bytes: %w", err)
		}
		got += k
	}
	return head, &rewound{Conn: tcp, head: head}, nil
}

// rewound is a connection that first returns the bytes that were peeked at.
type rewound struct {
	net.Conn
	head []byte
}

func (r *rewound) Read(b []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(b, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}
