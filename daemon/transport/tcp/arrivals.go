package tcp

import "time"

// arrivals are the rate of what comes. Nobody says when there is nothing more to come: there is not when no link has had a slice in hand for
// longer than a peer that is busy with the same stream keeps one waiting.
type arrivals struct {
	rate
	links  int       // that have a slice in hand, or have not counted what they had
	latest time.Time // when something was counted last
}

// begin is for a link that begins a slice, and has counted what it had before.
func (a *arrivals) begin(now time.Time) {
	a.settle(now)
	a.rate.begin(now)
	a.links++
}

// add counts what has landed. more: the link has another slice in hand.
func (a *arrivals) add(now time.Time, n int, more bool) {
	a.rate.add(now, n)
	a.latest = now
	if !more {
		a.links--
	}
}

// settle ends what is over.
func (a *arrivals) settle(now time.Time) {
	if a.links == 0 && !a.since.IsZero() && now.Sub(a.latest) > patience {
		a.pause(a.latest)
	}
}
