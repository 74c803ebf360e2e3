package tcp

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// stuck is a sink in which whoever reports a slice stays until it is let go.
type stuck struct{ inside, letGo chan struct{} }

func (s stuck) Event(ev transfer.Event) {
	if _, ok := ev.(transfer.SliceLanded); ok {
		s.inside <- struct{}{}
		<-s.letGo
	}
}

// TestPingOfAStuckReceiver: one that does not come back from a report is told of.
func TestPingOfAStuckReceiver(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := stuck{make(chan struct{}), make(chan struct{})}
		l := newLab(t, Config{Sink: transporttest.NewRecorder()}, Config{Sink: s}, 1, secure)
		shape := transporttest.Blocks(t, 1, 64<<10, 0)
		src, dst := transporttest.NewMemory(t, shape.Src...), transporttest.NewMemory(t, shape.Dst...)
		key := transfer.SliceKey{Leg: transfer.Leg{Peer: "a", Epoch: epoch, Xfer: 1, End: transfer.Consumer}}
		l.b.Expect(transport.Job{Key: key, Plan: shape.Plan, Mem: dst})
		key.Peer, key.End = "b", transfer.Producer
		l.a.Post(transport.Job{Key: key, Plan: shape.Plan, Mem: src})
		<-s.inside
		// The first one may find it further than before, and the sender about to rest.
		for err := l.b.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "the receiver of link 0 to a does not go on"); {
			err = l.b.Ping(t.Context())
		}
		s.letGo <- struct{}{}
		l.close()
	}
}

// TestPingOfAReceiverThatIsNeverIdle: a peer that sends a byte now and then of a large frame, each before the receiver would wait for it,
// is no standstill of this node.
func TestPingOfAReceiverThatIsNeverIdle(t *testing.T) {
	p := newRawPeer(t, Config{Spin: time.Hour})
	p.write(frame(header{xfer: 9, length: maxLength}, nil, statusWhole)[:headerSize])
	for n := range 8 {
		for until := time.Now().Add(time.Minute); ; runtime.Gosched() {
			p.write([]byte{0})
			err := p.tr.Ping(t.Context())
			if err == nil {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("ping %d: %v", n+1, err)
			}
		}
	}
}
