package tcp

import "time"

// arrivals is the rate of what arrives. No one tells the receiver when nothing more will come. It assumes so when no
// link has had a slice in hand for longer than patience, the longest wait for a peer that is busy with the same stream.
type arrivals struct {
	rate
	links  int       // that have a slice in hand, or have landed bytes not added yet
	latest time.Time // when add was last called
}

// begin is called when a link begins a slice, after it has added what it had landed before.
func (a *arrivals) begin(now time.Time) {
	a.settle(now)
	a.rate.begin(now)
	a.links++
}

// add counts n bytes that have landed on a link. more: the link has another slice in hand.
func (a *arrivals) add(now time.Time, n int, more bool) {
	a.rate.add(now, n)
	a.latest = now
	if !more {
		a.links--
	}
}

// settle pauses the rate if nothing has arrived for long enough.
func (a *arrivals) settle(now time.Time) {
	if a.links == 0 && !a.since.IsZero() && now.Sub(a.latest) > patience {
		a.pause(a.latest)
	}
}
