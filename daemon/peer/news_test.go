package peer

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// changing are NICs whose first answer, once asked, is late: it is of before the change that the second one knows of.
type changing struct {
	*nics
	mu     sync.Mutex
	late   bool
	asked  chan struct{} // closed with the first question
	answer chan struct{} // lets it be answered
}

func (r *changing) Own() []Address {
	out := r.nics.Own()
	r.mu.Lock()
	first := r.late
	r.late = false
	r.mu.Unlock()
	if first {
		close(r.asked)
		<-r.answer
	}
	return out
}

// TestTheLastNewsIsTheLatest: of two changes close together the peer is left with the second.
func TestTheLastNewsIsTheLatest(t *testing.T) {
	cl := newCluster(t)
	r := &changing{nics: &nics{}, asked: make(chan struct{}), answer: make(chan struct{})}
	a, b := cl.node("a", func(c *Config) { c.Rails = r }), cl.node("b", nil)
	a.knows(b)
	met(a, b)
	c := a.channelOf("b")
	c.tellAddresses() // after what start has to tell
	r.mu.Lock()
	r.late = true
	r.mu.Unlock()
	r.set(2)
	var both sync.WaitGroup
	both.Go(c.tellAddresses)
	<-r.asked
	r.set(2, 3)
	second := make(chan struct{})
	both.Go(func() { defer close(second); c.tellAddresses() })
	overtakes := time.NewTimer(100 * time.Millisecond)
	defer overtakes.Stop()
	select {
	case <-second:
	case <-overtakes.C: // it waits for the first
	}
	close(r.answer)
	both.Wait()
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	if want := r.nics.Own(); !slices.Equal(c.links.told, want) {
		t.Errorf("the peer was told last of %v, and it is %v", c.links.told, want)
	}
}
