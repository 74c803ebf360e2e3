package fake

import (
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/fence"
	"github.com/kvpipe/kvpipe/internal/blockcopy"
)

// slice is a posted slice on its way. First its source is read; then it arrives, perhaps twice.
type slice struct {
	from   *Transport
	job    transport.Job
	source fence.Slice
	data   []byte // what was read
	read   bool
	again  bool // arriving a second time
	ended  bool // reported at the destination; a second copy is not reported again
}

func (f *slice) fly() (more bool) {
	if !f.read {
		f.read = true
		return f.depart()
	}
	f.arrive()
	if f.again || !f.from.net.chance(f.from.net.faults.Duplicate) {
		return false
	}
	f.again = true
	return true
}

// lose reports a slice at its source if the source was not read yet. For a slice already sent, LinkLost is the only
// report.
func (f *slice) lose(from, to string, epoch uint64) bool {
	if f.from.name != from || f.job.Key.Peer != to || f.job.Key.Epoch != epoch {
		return false
	}
	if !f.read {
		f.source.End(lost)
	}
	return true
}

// depart reads the source and reports the slice as sent. False: the slice goes no further.
func (f *slice) depart() bool {
	if !f.source.Enter() {
		return false
	}
	key, p := f.job.Key, f.job.Plan
	f.data = make([]byte, p.Slice(int(key.Slice)).Bytes)
	cause := transmit(p.Src(int(key.Slice), nil), f.job.Mem.Src, "source", func(mem []byte, at uint64) error {
		return blockcopy.Copy(f.data[at:at+uint64(len(mem))], mem)
	})
	if !f.source.Leave() {
		return false
	}
	f.source.End(cause)
	if cause.Reason != transfer.OK {
		return false
	}
	if key.Peer != "" && f.from.net.chance(f.from.net.faults.Drop) {
		f.linkLost()
		return false
	}
	return true
}

func (f *slice) linkLost() {
	key := f.job.Key
	f.from.sink.Event(transfer.LinkLost{Node: key.Peer, Epoch: key.Epoch})
	if to := f.from.net.node(key.Peer); to != nil {
		to.sink.Event(transfer.LinkLost{Node: f.from.name, Epoch: key.Epoch})
	}
}

// arrive writes the destination if the slice is expected there.
func (f *slice) arrive() {
	key := f.job.Key
	to, peer := f.from, ""
	if key.Peer != "" {
		to, peer = f.from.net.node(key.Peer), f.from.name
	}
	key.Leg = transfer.Leg{Peer: peer, Epoch: key.Epoch, Xfer: key.Xfer, End: transfer.Consumer}
	name := [2]uint32{key.Seg, key.Slice}
	if to == nil || f.ended && !to.net.faults.LateLanding {
		return
	}
	to.mu.Lock()
	in := to.in[key.Leg]
	var job transport.Job
	expected := false
	if in != nil {
		job, expected = in.segs[key.Seg]
		expected = expected && !in.landed[name]
	}
	over := to.over[channel{peer, key.Epoch}] || to.closed
	to.mu.Unlock()
	if !expected || over && !to.net.faults.LateLanding || int(key.Slice) >= job.Plan.Slices() {
		return
	}
	var end fence.Slice
	open := in.leg.Add(&end, key) && end.Enter()
	if !open && !to.net.faults.LateLanding {
		return
	}
	cause := f.land(job)
	if !open || f.ended {
		return
	}
	if cause.Reason == transfer.OK {
		to.mu.Lock()
		in.landed[name] = true
		to.mu.Unlock()
	}
	f.ended = true
	end.End(cause)
}

// land writes the bytes, one of them wrong if chance decides so.
func (f *slice) land(job transport.Job) transfer.Cause {
	data := f.data
	broken := f.from.net.chance(f.from.net.faults.Corrupt)
	if broken {
		data = append([]byte(nil), data...)
		data[len(data)/2] ^= 0x10
	}
	cause := transmit(job.Plan.Dst(int(f.job.Key.Slice), nil), job.Mem.Dst, "destination", func(mem []byte, at uint64) error {
		return blockcopy.Copy(mem, data[at:at+uint64(len(mem))])
	})
	if broken && cause.Reason == transfer.OK {
		return transfer.Cause{Reason: transfer.Corrupt, Text: "the slice was corrupted, as was asked for"}
	}
	return cause
}

// transmit calls move with the memory of each run and the run's offset in the slice.
func transmit(runs []plan.Run, find func(plan.Run) ([]byte, bool), side string, move func(mem []byte, at uint64) error) transfer.Cause {
	at := uint64(0)
	for _, r := range runs {
		mem, ok := find(r)
		if !ok {
			return transport.Gone(side, r)
		}
		if err := move(mem, at); err != nil {
			return transfer.Cause{Reason: transfer.Corrupt, Text: err.Error()}
		}
		at += r.Len
	}
	return transfer.Cause{}
}
