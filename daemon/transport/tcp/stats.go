package tcp

import (
	"sync/atomic"

	"github.com/kvpipe/kvpipe/internal/damper"
)

// counters are what happened with one peer since the start, over all its channels.
type counters struct {
	sentBytes, sentSlices, resent  atomic.Uint64
	landedBytes, landedSlices      atomic.Uint64
	discarded, corrupt, bad, links atomic.Uint64
	malformed                      damper.Damper
}

// Stats are a peer's counters since the start.
type Stats struct {
	SentBytes, SentSlices     uint64 // handed to the kernel
	Resent                    uint64 // slices among them that were no first attempt
	LandedBytes, LandedSlices uint64 // in place and checked
	DiscardedBytes            uint64 // arrived for nobody, late or twice
	Corrupt                   uint64 // slices that arrived broken
	Malformed                 uint64 // frames that ended a link
	LinksLost                 uint64
	Links                     int // that are up now
}

// counters returns those of peer. It is called with the lock held.
func (t *Transport) counters(peer string) *counters {
	c := t.peers[peer]
	if c == nil {
		c = &counters{}
		t.peers[peer] = c
	}
	return c
}

// Stats returns the counters of every peer there was a channel to. Any goroutine may call it.
func (t *Transport) Stats() map[string]Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]Stats, len(t.peers))
	for peer, c := range t.peers {
		all[peer] = Stats{
			SentBytes: c.sentBytes.Load(), SentSlices: c.sentSlices.Load(), Resent: c.resent.Load(),
			LandedBytes: c.landedBytes.Load(), LandedSlices: c.landedSlices.Load(),
			DiscardedBytes: c.discarded.Load(), Corrupt: c.corrupt.Load(), Malformed: c.bad.Load(), LinksLost: c.links.Load(),
		}
	}
	for key, ch := range t.channels {
		s := all[key.peer]
		ch.mu.Lock()
		s.Links += len(ch.links)
		ch.mu.Unlock()
		all[key.peer] = s
	}
	return all
}
