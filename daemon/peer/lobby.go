package peer

import (
	"net/netip"
	"sync"
)

const (
	// maxWaiting bounds the connections that have not said who they are, maxWaitingFrom those of one address: whoever opens
	// many and says nothing keeps out itself alone.
	maxWaiting     = 512
	maxWaitingFrom = 128
)

// lobby counts connections that have not said who they are. The zero value is empty.
type lobby struct {
	mu    sync.Mutex
	total int
	from  map[netip.Addr]int
}

func (l *lobby) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxWaiting || l.from[from] >= maxWaitingFrom {
		return false
	}
	if l.from == nil {
		l.from = map[netip.Addr]int{}
	}
	l.total++
	l.from[from]++
	return true
}

func (l *lobby) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}
