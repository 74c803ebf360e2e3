package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// maxGreeting bounds the connections that have not said who they are.
const maxGreeting = 256

// accept takes connections of all kinds on the one port. Each has dialTimeout to say what it is.
func (m *Manager) accept() {
	greeting := make(chan struct{}, maxGreeting)
	for {
		conn, err := m.cfg.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || m.ctx.Err() != nil {
				return
			}
			m.log.Warn("accept", "error", err)
			t := time.NewTimer(100 * time.Millisecond) // out of descriptors: let some go
			select {
			case <-t.C:
			case <-m.ctx.Done():
			}
			t.Stop()
			continue
		}
		select {
		case greeting <- struct{}{}:
		default:
			m.count(func(s *Stats) { s.Refused++ })
			_ = conn.Close()
			continue
		}
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			defer func() { <-greeting }()
			m.incoming(conn.(*net.TCPConn))
		}()
	}
}

// incoming finds out what a connection is and hands it on, or closes it and says why in the log.
func (m *Manager) incoming(tcp *net.TCPConn) {
	ctx, cancel := context.WithTimeout(m.ctx, dialTimeout)
	defer cancel()
	_ = tcp.SetDeadline(time.Now().Add(dialTimeout))
	stop := context.AfterFunc(m.ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	err := m.sort(ctx, tcp)
	stop()
	if err == nil {
		return
	}
	_ = tcp.Close()
	var bad *malformedError
	m.count(func(s *Stats) {
		s.Refused++
		if errors.As(err, &bad) {
			s.Malformed++
		}
	})
	var dup *duplicateError
	if !errors.As(err, &dup) && m.ctx.Err() == nil {
		m.log.Warn("connection refused", "from", tcp.RemoteAddr(), "error", err)
	}
}

// sort tells TLS, plain control and plain links apart by their first four bytes; a TLS record never begins with a letter.
func (m *Manager) sort(ctx context.Context, tcp *net.TCPConn) error {
	if m.cfg.Insecure && !loopbackAddr(tcp.RemoteAddr()) {
		return errors.New("not from a loopback address, and this daemon runs insecure")
	}
	head, conn, err := peek(tcp, 4)
	if err != nil {
		return err
	}
	switch string(head) {
	case plainControl:
		if !m.cfg.Insecure {
			return malformed("unencrypted channel, but this daemon wants certificates")
		}
		return m.welcome(tcp, tcp, bufio.NewReaderSize(tcp, 64<<10), "")
	case plainLink:
		return m.acceptLink(tcp, tcp, head, "")
	}
	if m.cfg.Insecure {
		return malformed("an encrypted connection, but this daemon runs insecure")
	}
	secured, node, err := m.secure(ctx, conn, false, "")
	if err != nil {
		return err
	}
	switch proto := secured.(*tls.Conn).ConnectionState().NegotiatedProtocol; proto {
	case alpnControl:
		return m.welcome(secured, tcp, bufio.NewReaderSize(secured, 64<<10), node)
	case alpnData:
		return m.acceptLink(secured, tcp, nil, node)
	default:
		return fmt.Errorf("protocol %q, want %s or %s", proto, alpnControl, alpnData)
	}
}

// peek reads n bytes; the connection it returns begins with them again.
func peek(tcp *net.TCPConn, n int) ([]byte, net.Conn, error) {
	head := make([]byte, n)
	for got := 0; got < n; {
		k, err := tcp.Read(head[got:])
		if err != nil {
			return nil, nil, fmt.Errorf("first bytes: %w", err)
		}
		got += k
	}
	return head, &rewound{Conn: tcp, head: head}, nil
}

// rewound gives back what was peeked at.
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
