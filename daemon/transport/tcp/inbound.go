package tcp

import (
	"fmt"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
)

// inbound is a consumer's leg and the segments that it expects.
type inbound struct {
	leg  *fence.Leg
	segs map[uint32]*segment // guarded by the transport's lock
}

// segment knows which of its slices have landed, so that a second copy never touches memory.
type segment struct {
	job transport.Job

	mu    sync.Mutex
	state []landing // per slice
	left  int       // slices that have not landed
}

type landing uint8

const (
	missing landing = iota
	underway
	landed
)

func newSegment(job transport.Job) *segment {
	n := job.Plan.Slices()
	return &segment{job: job, state: make([]landing, n), left: n}
}

// claim gives the caller the right to write a slice. False: it has landed, or is landing through another link.
func (g *segment) claim(i uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state[i] != missing {
		return false
	}
	g.state[i] = underway
	return true
}

// land notes that a claimed slice is in place. whole: now all slices of the segment are.
func (g *segment) land(i uint32) (whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state[i] = landed
	g.left--
	return g.left == 0
}

// release gives up a claimed slice that has not landed. It calls report, which reports the failure, before anybody else
// can claim the slice: a failure reported after the next attempt has landed would undo that success.
func (g *segment) release(i uint32, report func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	report()
	g.state[i] = missing
}

// expected finds the segment that a frame of that channel is for. A nil segment without an error means that nobody
// wants the frame. An error means that the sender does not follow the plan.
func (t *Transport) expected(from channelKey, h *header) (*inbound, *segment, error) {
	t.mu.Lock()
	in := t.in[transfer.Leg{Peer: from.peer, Epoch: from.epoch, Xfer: transfer.XferID(h.xfer), End: transfer.Consumer}]
	var seg *segment
	if in != nil {
		seg = in.segs[h.seg]
	}
	t.mu.Unlock()
	if seg == nil {
		return nil, nil, nil
	}
	if n := seg.job.Plan.Slices(); int64(h.slice) >= int64(n) {
		return nil, nil, fmt.Errorf("frame header: slice %d: the plan has %d", h.slice, n)
	}
	if n := seg.job.Plan.Slice(int(h.slice)).Bytes; uint64(h.length) != n {
		return nil, nil, fmt.Errorf("frame header: length %d: slice %d of the plan has %d bytes", h.length, h.slice, n)
	}
	return in, seg, nil
}
