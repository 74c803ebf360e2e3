package session

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Closing a descriptor that a client sent can take as long as the client likes (see sys.Recv). So can closing a
// connection in which one is queued. Each such close takes a thread, so few run at a time.
const (
	maxClosing      = 8    // threads that close what one user sent
	maxClosingAll   = 256  // all users
	maxLingering    = 64   // connections of one user in such a close, or waiting for their turn: beyond, no session opens
	maxLingeringAll = 1024 // all users
)

// closeWait is how long Server.Close waits for them.
const closeWait = time.Second

// exits closes connections, and the descriptors that clients sent.
type exits struct {
	all chan struct{} // threads

	mu    sync.Mutex
	users map[uint32]*exit
	total int // connections that linger
}

type exit struct {
	lingering int
	turns     chan struct{}
}

func newExits() *exits {
	return &exits{all: make(chan struct{}, maxClosingAll), users: map[uint32]*exit{}}
}

// close closes a connection. It shuts it down first, so nothing more comes in. A connection without descriptors in it,
// such as an honest client's, is closed without waiting.
func (x *exits) close(conn *net.UnixConn, uid uint32) {
	_ = sys.Control(conn, sys.Shutdown)
	if !sys.Laden(conn) {
		_ = conn.Close()
		return
	}
	x.drop(uid, func() { _ = conn.Close() })
}

// shut closes descriptors that a user sent. Shared memory, which is all that an honest client sends, is closed without
// waiting.
func (x *exits) shut(fds []int, uid uint32) {
	if !slices.ContainsFunc(fds, func(fd int) bool { _, err := sys.GetSeals(fd); return err != nil }) {
		sys.CloseAll(fds)
		return
	}
	x.drop(uid, func() { sys.CloseAll(fds) })
}

// discard takes the message that is next in a connection, where it was left because it has too many descriptors: closing
// the connection with it unread would keep the client from hearing why.
func (x *exits) discard(conn *net.UnixConn, uid uint32) {
	if sys.Laden(conn) {
		x.drop(uid, func() { _ = sys.Discard(conn) })
	}
}

// drop calls f, which closes descriptors of a user, once there is a thread for it.
func (x *exits) drop(uid uint32, f func()) {
	u := x.enter(uid)
	defer x.leave(uid, u)
	u.turns <- struct{}{}
	x.all <- struct{}{}
	f()
	<-x.all
	<-u.turns
}

// enter counts a connection that may be held up, until leave.
func (x *exits) enter(uid uint32) *exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	u := x.users[uid]
	if u == nil {
		u = &exit{turns: make(chan struct{}, maxClosing)}
		x.users[uid] = u
	}
	u.lingering++
	x.total++
	return u
}

func (x *exits) leave(uid uint32, u *exit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.total--
	if u.lingering--; u.lingering == 0 {
		delete(x.users, uid)
	}
}

// crowded returns how many connections of a user linger, and how many of all, and whether either is too many.
func (x *exits) crowded(uid uint32) (mine, all int, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if u := x.users[uid]; u != nil {
		mine = u.lingering
	}
	return mine, x.total, mine >= maxLingering || x.total >= maxLingeringAll
}
