package driver

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// ringWithin is how long a client may sleep on while others' events, or its own, are worked off.
const ringWithin = transfer.Time(500 * time.Microsecond)

// bell wakes clients that wait for several things; those that wait for one are woken by Sessions.Complete. The last event of a batch,
// which mostly is its only one, wakes at each completion; those before it wake when the batch is done. A client with many
// operations under way finds many completions then, where it would have run, on another processor, after the first, found that
// one, and gone to sleep again: a system call here and two switches there for each.
type bell struct {
	more  bool          // the batch has further events
	owes  bool          // somebody may sleep for whom something is completed
	since transfer.Time // when the first of these was
}

func (d *Driver) complete(e transfer.Complete) {
	d.cfg.Sessions.Complete(e)
	if b := &d.bell; !b.owes {
		b.owes, b.since = true, d.clock
	}
	d.ring()
}

// rouse wakes a client before its completion is written, when nothing else comes in between.
func (d *Driver) rouse(e transfer.Rouse) {
	if !d.bell.more {
		d.cfg.Sessions.Rouse(e)
	}
}

// ring is called whenever the clock was read, and after each event, and wakes if it is time.
func (d *Driver) ring() {
	if b := &d.bell; b.owes && (!b.more || d.clock-b.since > ringWithin) {
		b.owes = false
		d.cfg.Sessions.Ring()
	}
}
