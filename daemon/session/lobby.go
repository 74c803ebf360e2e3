package session

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

const (
	// maxSilent bounds the connections that have not said HELLO, maxSilentPerUID those of one user. A library says it
	// at once, so no honest connection is here for long. A newcomer is never turned away: another connection makes
	// room.
	maxSilent       = 256
	maxSilentPerUID = 64

	crowdQuiet = time.Minute // between two log records of a crowd
)

// newcomer is a connection that has not said HELLO yet.
type newcomer struct {
	conn *net.UnixConn
	cred sys.Cred
	out  bool // it had to make room for another
}

// lobby has newcomers in the order in which they came. The zero value is empty.
type lobby struct {
	list []*newcomer
	said time.Time // when the log was last told of a crowd
}

// enter lets n in and returns the connection that makes room for it, if one has to: the oldest of the process that has
// most here, among those of the user who has most. So a process that opens many and says nothing keeps only itself out.
// Where each process has one, the oldest is least likely to speak still. Processes that cannot be seen from here, in
// containers of their own, count as one each.
func (l *lobby) enter(n *newcomer) (out *newcomer) {
	l.list = append(l.list, n)
	if len(l.list) <= maxSilentPerUID {
		return nil
	}
	type process struct {
		uid uint32
		pid int
	}
	users, processes := map[uint32]int{}, map[process]int{}
	of := func(n *newcomer) process { return process{n.cred.UID, n.cred.PID} }
	for _, n := range l.list {
		users[n.cred.UID]++
		if processes[of(n)]++; n.cred.PID == 0 {
			processes[of(n)] = 1
		}
	}
	if len(l.list) <= maxSilent && users[n.cred.UID] <= maxSilentPerUID {
		return nil
	}
	out = slices.MaxFunc(l.list, func(a, b *newcomer) int {
		return cmp.Or(cmp.Compare(users[a.cred.UID], users[b.cred.UID]), cmp.Compare(processes[of(a)], processes[of(b)]))
	})
	out.out = true
	l.leave(out)
	return out
}

// leave removes n, if it is still there.
func (l *lobby) leave(n *newcomer) {
	if i := slices.Index(l.list, n); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// news reports whether a crowd is worth a log record: a client that makes one does so thousands of times.
func (l *lobby) news(now time.Time) bool {
	if !l.said.IsZero() && now.Sub(l.said) < crowdQuiet {
		return false
	}
	l.said = now
	return true
}
