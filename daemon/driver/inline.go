package driver

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/blockcopy"
	"github.com/kvpipe/kvpipe/internal/crc32c"
)

// readInline gathers a small segment into the payload of a grant.
func (d *Driver) readInline(e transfer.ReadInline) {
	ev := transfer.InlineRead{Leg: e.Leg, Seg: e.Seg}
	seg := d.find(e.Leg, e.Seg)
	if seg == nil {
		ev.Cause = transfer.Cause{Reason: transfer.NotFound, Text: "the segment's plan is gone"}
		d.answer(ev)
		return
	}
	buf := d.cfg.Payloads.Get(int(seg.plan.Bytes()))
	if err := d.moveInline(buf, seg, true); err != nil {
		d.cfg.Payloads.Put(buf)
		ev.Cause = transfer.Cause{Reason: transfer.Corrupt, Text: "source memory: " + err.Error()}
		d.answer(ev)
		return
	}
	seg.payload = buf // until the leg is forgotten, the grant may be repeated
	ev.Data, ev.CRC = buf, crc32c.Checksum(buf)
	d.answer(ev)
}

// moveInline copies a segment from its source blocks into buf (read), or from buf into its destination blocks. All of
// buf has to be used: what it held before may be another's.
func (d *Driver) moveInline(buf []byte, seg *segment, read bool) error {
	runs, resolve := seg.plan.Dst, seg.Dst
	if read {
		runs, resolve = seg.plan.Src, seg.Src
	}
	rest := buf[:len(buf):len(buf)]
	for i := range seg.plan.Slices() {
		d.runs = runs(i, d.runs[:0])
		for _, r := range d.runs {
			if err := moveRun(rest[:r.Len], r, resolve, read); err != nil {
				return err
			}
			rest = rest[r.Len:]
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("the plan's runs have %d bytes less than the plan", len(rest))
	}
	return nil
}

// writeInline scatters the payload of a grant into the blocks.
func (d *Driver) writeInline(e transfer.WriteInline) {
	ev := transfer.InlineWritten{Leg: e.Leg, Seg: e.Seg}
	ev.Cause = d.scatter(e)
	d.cfg.Payloads.Put(e.Data) // the machine has let go of it
	d.answer(ev)
}

func (d *Driver) scatter(e transfer.WriteInline) transfer.Cause {
	seg := d.find(e.Leg, e.Seg)
	switch {
	case seg == nil:
		return transfer.Cause{Reason: transfer.NotFound, Text: "the segment's plan is gone"}
	case uint64(len(e.Data)) != seg.plan.Bytes():
		return transfer.Cause{Reason: transfer.Corrupt, Text: fmt.Sprintf("inline payload of %d bytes, the plan has %d", len(e.Data), seg.plan.Bytes())}
	case crc32c.Checksum(e.Data) != e.CRC:
		return transfer.Cause{Reason: transfer.Corrupt, Text: "checksum of the inline payload does not agree"}
	}
	if err := d.moveInline(e.Data, seg, false); err != nil {
		return transfer.Cause{Reason: transfer.Corrupt, Text: "destination memory: " + err.Error()}
	}
	return transfer.Cause{}
}

// moveRun copies from the run's memory into buf (read), or from buf into that memory.
func moveRun(buf []byte, r plan.Run, resolve func(plan.Run) ([]byte, bool), read bool) error {
	mem, ok := resolve(r)
	if !ok {
		return fmt.Errorf("region %#x of rank %d is gone", uint64(r.Region), r.Rank)
	}
	if read {
		return blockcopy.Copy(buf, mem)
	}
	return blockcopy.Copy(mem, buf)
}
