package driver

import (
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// ringWithin is how long a client's wake-up may wait while other events are handled.
const ringWithin = transfer.Time(500 * time.Microsecond)

// bell wakes clients that wait for several things; Sessions.Complete wakes those that wait for one. During the last
// event of a batch, mostly its only one, it rings at each completion. Those of earlier events ring when the batch is
// done. A client with many operations under way then finds many completions at once. Woken at the first, it would run
// on another processor, find that one and sleep again: a system call here and two switches there for each completion.
type bell struct {
	more  bool          // the batch has more events
	owes  bool          // a client may sleep although something is completed for it
	since transfer.Time // when the first such completion was
}

func (d *Driver) complete(e transfer.Complete) {
	d.cfg.Sessions.Complete(e)
	if b := &d.bell; !b.owes {
		b.owes, b.since = true, d.clock
	}
	d.ring()
}

// rouse wakes a client before its completion is written, unless other events come in between.
func (d *Driver) rouse(e transfer.Rouse) {
	if !d.bell.more {
		d.cfg.Sessions.Rouse(e)
	}
}

// ring is called whenever the clock was read, and after each event. It wakes clients if it is time.
func (d *Driver) ring() {
	if b := &d.bell; b.owes && (!b.more || d.clock-b.since > ringWithin) {
		b.owes = false
		d.cfg.Sessions.Ring()
	}
}
