package session

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// accept takes in a connection. It counts as a session once it has said HELLO.
func (v *Server) accept(conn *net.UnixConn) {
	cred, err := sys.PeerCred(conn)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil || v.closed {
		go v.exits.close(conn, cred.UID)
		return
	}
	n := &newcomer{conn: conn, cred: cred}
	_ = conn.SetDeadline(time.Now().Add(v.cfg.Greeting))
	if out := v.lobby.enter(n); out != nil {
		_ = out.conn.SetDeadline(past)
	}
	v.conns.Go(func() {
		v.handle(n)
		v.exits.close(conn, cred.UID)
	})
}

// greet waits for the first message. A client that says nothing is told why its connection is closed. A message that
// brings descriptors is left unread: they are closed with the connection, by exits, which does few at a time.
func (v *Server) greet(n *newcomer, buf []byte) (message, error) {
	_, laden, err := sys.Peek(n.conn, buf)
	v.mu.Lock()
	v.lobby.leave(n) // from here on nobody else sets deadlines
	if v.closed {
		err = net.ErrClosed
	}
	v.mu.Unlock()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if late || err == nil {
		_ = n.conn.SetDeadline(time.Now().Add(byeTimeout))
	}
	if late && sys.Readable(n.conn) { // it has not been read yet, because the daemon is busy or stood still
		_, laden, err = sys.Peek(n.conn, buf)
		late = false
	}
	switch {
	case laden:
		return message{}, invalid("the first message came with descriptors: must be HELLO (1), with none")
	case err == nil:
		return receive(n.conn, buf) // there are no descriptors with it
	case !late:
		return message{}, err
	}
	err = refuse(transfer.Timeout, "no HELLO came within %s: say it first", v.cfg.Greeting)
	if n.out {
		err = refuse(transfer.Quota, "this connection made room for others: without HELLO a user can have %d of them, and all users %d", maxSilentPerUID, maxSilent)
		v.tellCrowd(n.cred)
	}
	sendLast(n.conn, byeTimeout, ring.CtlBye, 0, ackBody(0, causeOf(err)))
	return message{}, err
}

// tellCrowd logs that a connection made room, and who had opened it.
func (v *Server) tellCrowd(by sys.Cred) {
	v.mu.Lock()
	news := v.lobby.news(time.Now())
	v.mu.Unlock()
	if news {
		v.cfg.Log.Warn("too many connections that say no HELLO: they make room for others", "pid", by.PID, "uid", by.UID)
	}
}

// enter counts a session, if there is room for it. leave gives its place up, and may be called more than once.
func (v *Server) enter(uid uint32) (leave func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.total >= v.limits.Sessions:
		return nil, refuse(transfer.Quota, "%d sessions are open, the limit is limits.sessions = %d: close some, or raise that", v.total, v.limits.Sessions)
	case v.perUID[uid] >= v.limits.SessionsPerUID:
		return nil, refuse(transfer.Quota, "user %d has %d sessions, the limit is limits.sessions_per_uid = %d: close some, or raise that",
			uid, v.perUID[uid], v.limits.SessionsPerUID)
	}
	if mine, all, crowd := v.exits.crowded(uid); crowd {
		return nil, refuse(transfer.Quota, "descriptors that clients sent do not close (sockets that linger, files that a process serves): they hold up the end of %d connections of user %d, the limit is %d, "+
			"and of %d of all, the limit is %d: end what they wait for", mine, uid, maxLingering, all, maxLingeringAll)
	}
	v.total++
	v.perUID[uid]++
	return sync.OnceFunc(func() { v.left(uid) }), nil
}

// left makes room for another session.
func (v *Server) left(uid uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.total--
	if v.perUID[uid]--; v.perUID[uid] == 0 {
		delete(v.perUID, uid)
	}
}
