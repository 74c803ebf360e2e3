package blockcopy

// batchRuns bounds a batch of tiny runs as Quantum bounds one of large runs.
const batchRuns = 4096

// minRun is the number of bytes from which a run is worth a lane. It was
// measured with random blocks: at 512 bytes a lane gains a third, at 256 bytes
// it loses a tenth.
const minRun = 1 << 9

// cursor walks a list of runs, one batch after the other.
type cursor struct {
	kernel kernel
	runs   []Run
	// The next byte to copy is at offset off of run i.
	i, off int
	// The batch in progress began in run first, and will be batch bytes.
	first, batch int
	// left is how much of the batch is still to be handed out.
	left int
}

func (c *cursor) finished() bool { return c.i == len(c.runs) }

// guardedBatch copies the next batch, makes it visible to all processors, and
// turns faults into errors.
func (c *cursor) guardedBatch() (err error) {
	// This also fences what was stored before a fault.
	defer func() {
		if c.kernel != portable {
			fence()
		}
		if r := recover(); r != nil {
			err = c.fault(r)
		}
	}()
	c.plan()
	if c.kernel == portable {
		c.copyPlain()
	} else {
		c.copyLanes()
	}
	return nil
}

// plan decides how much the next batch copies: whole runs up to Quantum, or a
// Quantum of a run that is longer than that.
func (c *cursor) plan() {
	c.first = c.i
	c.batch = min(len(c.runs[c.i].Dst)-c.off, Quantum)
	if c.off == 0 && c.batch == len(c.runs[c.i].Dst) {
		for j := c.i + 1; j < len(c.runs) && j < c.i+batchRuns; j++ {
			n := len(c.runs[j].Dst)
			if c.batch+n > Quantum {
				break
			}
			c.batch += n
		}
	}
	c.left = c.batch
}

// next hands out the next piece of the batch, at most one run long. ok is false
// at the end of the batch; the cursor then stands at the next run that is not
// empty, or behind the last.
func (c *cursor) next() (dst, src []byte, ok bool) {
	for c.i < len(c.runs) {
		r := &c.runs[c.i]
		n := min(len(r.Dst)-c.off, c.left)
		if n > 0 {
			dst, src = r.Dst[c.off:c.off+n], r.Src[c.off:c.off+n]
			c.off += n
			c.left -= n
			return dst, src, true
		}
		if c.off < len(r.Dst) {
			return nil, nil, false
		}
		c.i, c.off = c.i+1, 0
	}
	return nil, nil, false
}

// copyPlain copies the batch with the runtime's copy.
func (c *cursor) copyPlain() {
	for dst, src, ok := c.next(); ok; dst, src, ok = c.next() {
		copy(dst, src)
	}
}
