package tcp

import (
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/internal/damper"
)

// counters count what happened with one peer since the start, over all its channels.
type counters struct {
	sentBytes, sentSlices, resent  atomic.Uint64
	landedBytes, landedSlices      atomic.Uint64
	discarded, corrupt, bad, links atomic.Uint64
	malformed                      damper.Damper
}

// Stats are a peer's counters since the start.
type Stats struct {
	SentBytes, SentSlices     uint64 // handed to the kernel
	Resent                    uint64 // slices among them that were not a first attempt
	LandedBytes, LandedSlices uint64 // in place and checked
	DiscardedBytes            uint64 // arrived for nobody, late or twice
	Corrupt                   uint64 // slices that arrived broken
	Malformed                 uint64 // frames that ended a link
	LinksLost                 uint64
	Links                     int // up now
}

// ended is a channel that is over.
type ended struct {
	epoch uint64
	at    time.Time
}

// remembered is how long a peer without a channel is kept and shown. Not for ever: node names come and go with the
// nodes.
const remembered = time.Hour

// past sums up forgotten peers, so that totals never go down.
type past struct{ resent, malformed uint64 }

// forgetPeers forgets peers that have had no channel for long. It spares those with links, whose channel may be coming
// up: links come first. It is called with the lock held.
func (t *Transport) forgetPeers(now time.Time) {
	linked := map[string]bool{}
	for key := range t.channels {
		linked[key.peer] = true
	}
	for peer, last := range t.over {
		if _, up := t.up[peer]; up || linked[peer] || now.Sub(last.at) < remembered {
			continue
		}
		delete(t.over, peer)
		if c := t.peers[peer]; c != nil {
			t.past.resent += c.resent.Load()
			t.past.malformed += c.bad.Load()
			delete(t.peers, peer)
		}
	}
}

// counters returns the counters of peer. It is called with the lock held.
func (t *Transport) counters(peer string) *counters {
	c := t.peers[peer]
	if c == nil {
		c = &counters{}
		t.peers[peer] = c
	}
	return c
}

// Totals counts the slices that were not a first attempt, and the frames that ended a link, over all peers that ever
// had a channel. Any goroutine may call it.
func (t *Transport) Totals() (resent, malformed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	resent, malformed = t.past.resent, t.past.malformed
	for _, c := range t.peers {
		resent += c.resent.Load()
		malformed += c.bad.Load()
	}
	return resent, malformed
}

// Stats returns the counters of every peer that had a channel lately. Any goroutine may call it.
func (t *Transport) Stats() map[string]Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetPeers(time.Now())
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
