package session

import (
	"fmt"
	"os"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// descriptors are those that a session owns; -1 stands for none.
type descriptors struct {
	ringC, ringD, sq, cq int
	sqFile               *os.File   // the daemon's end of sq
	shut                 sync.Mutex // cq is not closed while it is held
}

// none marks all descriptors as absent.
func (d *descriptors) none() { d.ringC, d.ringD, d.sq, d.cq = -1, -1, -1, -1 }

// make makes the rings, with their first pages present, and the eventfds, and maps the rings.
func (d *descriptors) make(g *ring.Geometry) (c, dd []byte, err error) {
	if d.ringC, err = sys.MemfdCreate("kvpipe-ring-c", int64(g.CBytes), sys.MemfdOptions{}); err != nil {
		return nil, nil, err
	}
	if d.ringD, err = sys.MemfdCreate("kvpipe-ring-d", int64(g.DBytes), sys.MemfdOptions{}); err != nil {
		return nil, nil, err
	}
	if err := sys.Allocate(d.ringC, 0, int64(g.CFixed)); err != nil {
		return nil, nil, err
	}
	if err := sys.Allocate(d.ringD, 0, int64(g.DFixed)); err != nil {
		return nil, nil, err
	}
	if d.sq, err = sys.EventfdCreate(false); err != nil {
		return nil, nil, err
	}
	if d.cq, err = sys.EventfdCreate(false); err != nil {
		return nil, nil, err
	}
	own, err := sys.Dup(d.sq)
	if err != nil {
		return nil, nil, err
	}
	if d.sqFile, err = sys.PollFile(own, "sq"); err != nil {
		return nil, nil, err
	}
	if c, err = sys.Mmap(d.ringC, g.CBytes, sys.ProtRead); err != nil {
		return nil, nil, err
	}
	if dd, err = sys.Mmap(d.ringD, g.DBytes, sys.ProtWrite); err != nil {
		return c, nil, err
	}
	_ = sys.Populate(c[:g.CFixed], false) // else the first hand-over waits for the pages
	_ = sys.Populate(dd[:g.DFixed], true)
	// ring_d stays writable through the mapping just made and through no other, here or anywhere.
	err = sys.AddSeals(d.ringC, sys.SealSize|sys.SealSeal)
	if err == nil {
		err = sys.AddSeals(d.ringD, sys.SealSize|sys.SealFutureWrite|sys.SealSeal)
	}
	return c, dd, err
}

// closePassed closes the descriptors that only the client needs.
func (d *descriptors) closePassed() error {
	for _, fd := range []*int{&d.ringC, &d.ringD, &d.sq} {
		if err := sys.Close(*fd); err != nil {
			return fmt.Errorf("after WELCOME: %w", err)
		}
		*fd = -1
	}
	return nil
}

// unblock lets a write to cq go on that the client made block.
func (d *descriptors) unblock() {
	d.shut.Lock()
	defer d.shut.Unlock()
	_, _ = sys.EventfdDrain(d.cq)
}

// full reports whether a write to cq would block, should the client have made it a blocking one.
func (d *descriptors) full() bool {
	d.shut.Lock()
	defer d.shut.Unlock()
	return d.cq >= 0 && sys.EventfdFull(d.cq)
}

func (d *descriptors) close() {
	d.shut.Lock()
	defer d.shut.Unlock()
	if d.sqFile != nil {
		_ = d.sqFile.Close()
	}
	for _, fd := range []*int{&d.ringC, &d.ringD, &d.sq, &d.cq} {
		_ = sys.Close(*fd)
		*fd = -1
	}
}
