package daemon

import (
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// tally counts what became of clients' operations and sessions. Safe for concurrent use.
type tally struct {
	takes interface{ Observe(float64) } // gets the seconds of each take that ended done

	mu       sync.Mutex
	outcomes map[outcome]uint64
	moved    uint64
	ended    map[transfer.Reason]uint64
}

type outcome struct {
	kind   transfer.Kind
	status transfer.Status
	reason transfer.Reason
}

// newTally begins with zeros for all counters that alerts are made of: rate() does not see a counter that is born at 1.
// Counters of other operations and outcomes come when these happen.
func newTally() *tally {
	t := &tally{outcomes: map[outcome]uint64{}, ended: map[transfer.Reason]uint64{}}
	for _, k := range []transfer.Kind{transfer.KindOffer, transfer.KindTake, transfer.KindPut, transfer.KindGet} {
		t.outcomes[outcome{k, transfer.Done, transfer.OK}] = 0
		t.outcomes[outcome{k, transfer.WasCancelled, transfer.Cancelled}] = 0
		for _, r := range transfer.Failures() {
			t.outcomes[outcome{k, transfer.Failed, r}] = 0
		}
	}
	t.outcomes[outcome{transfer.KindTake, transfer.Failed, transfer.Cancelled}] = 0 // a part that was begun again through another node
	for _, r := range transfer.Failures() {
		t.ended[r] = 0
	}
	return t
}

// completed counts an operation once, at the session that asked for it.
func (t *tally) completed(c *transfer.Complete) {
	if c.UserData == 0 {
		return
	}
	t.mu.Lock()
	t.outcomes[outcome{c.Kind, c.Status, c.Reason}]++
	if c.Kind == transfer.KindTake || c.Kind == transfer.KindGet {
		t.moved += c.Bytes
	}
	t.mu.Unlock()
	if c.Kind == transfer.KindTake && c.Status == transfer.Done {
		t.takes.Observe(time.Duration(c.Age).Seconds())
	}
}

func (t *tally) sessionEnded(why transfer.Reason) {
	t.mu.Lock()
	t.ended[why]++
	t.mu.Unlock()
}

// bytes returns what takes and gets have brought: those that are done, and, of those that failed, takes that lacked
// only some blocks.
func (t *tally) bytes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

// show puts the counts into a snapshot.
func (t *tally) show(s *metrics.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.MovedBytes = t.moved
	s.Operations = make(map[metrics.Outcome]uint64, len(t.outcomes))
	for o, n := range t.outcomes {
		s.Operations[metrics.Outcome{Operation: o.kind.String(), Status: o.status.String(), Reason: o.reason.String()}] = n
	}
	s.SessionsEnded = make(map[string]uint64, len(t.ended))
	for r, n := range t.ended {
		s.SessionsEnded[r.String()] = n
	}
}
