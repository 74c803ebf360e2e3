package local

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// stuck is a sink in which whoever reports stays until it is let go.
type stuck struct{ inside, letGo chan struct{} }

func (s stuck) Event(transfer.Event) {
	s.inside <- struct{}{}
	<-s.letGo
}

// TestPingOfAStuckWorker: one that does not come back from a report is told of, and counted, and the others answer.
func TestPingOfAStuckWorker(t *testing.T) {
	s := stuck{make(chan struct{}), make(chan struct{})}
	tr, err := New(Config{Workers: 2, AtOnce: 1, Sink: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Ping(t.Context()); err != nil {
		t.Errorf("idle workers: %v", err)
	}
	shape := transporttest.Blocks(t, 1, 64<<10, 0)
	src, dst := transporttest.NewMemory(t, shape.Src...), transporttest.NewMemory(t, shape.Dst...)
	job := transport.Job{Key: transfer.SliceKey{Leg: transfer.Leg{Xfer: 1, End: transfer.Consumer}}, Plan: shape.Plan, Mem: dst}
	tr.Expect(job)
	job.Key.End, job.Mem = transfer.Producer, src
	tr.Post(job)
	<-s.inside
	for asked := true; asked; { // the other one may not have run yet when the time is over
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := tr.Ping(short)
		if cancel(); err == nil {
			t.Fatal("one that is stuck has answered")
		}
		asked = !strings.Contains(err.Error(), "1 of 2 copy workers do not answer")
	}
	s.letGo <- struct{}{}
	<-s.inside // the other half of the slice
	s.letGo <- struct{}{}
	if err := tr.Ping(t.Context()); err != nil {
		t.Errorf("after it went on: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
