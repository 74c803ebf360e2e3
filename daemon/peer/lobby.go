package peer

import (
	"net/netip"
	"sync"
)

const (
	// maxWaiting bounds the connections that have not said who they are, and maxWaitingFrom those of one place. A
	// single host that opens many and says nothing keeps out only itself. Several together can keep out others while
	// they go on.
	maxWaiting     = 512
	maxWaitingFrom = 128
)

// lobby counts connections that have not said who they are, by place. The zero value is empty.
type lobby struct {
	mu    sync.Mutex
	total int
	from  map[netip.Prefix]int
}

// placeOf returns what one host can connect from: its IPv4 address, or the /64 of its IPv6 address, in which a host has
// as many addresses as it likes.
func placeOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() && !a.Is4In6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // for the zero address the zero prefix
	return p
}

func (l *lobby) enter(addr netip.Addr) bool {
	from := placeOf(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxWaiting || l.from[from] >= maxWaitingFrom {
		return false
	}
	if l.from == nil {
		l.from = map[netip.Prefix]int{}
	}
	l.total++
	l.from[from]++
	return true
}

func (l *lobby) leave(addr netip.Addr) {
	from := placeOf(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}
