package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrBusy says that the submission queue or the record area has no room now.
var ErrBusy = errors.New("submission queue is full")

// Client is the client's end of the rings, as libkvpipe has it, for tests and tools in Go. One goroutine at a time may
// use it.
type Client struct {
	sqTail, cqHead, waiting *atomic.Uint32 // ring_c
	sqHead, cqTail, wakeup  *atomic.Uint32 // ring_d
	closed                  *atomic.Uint32
	progress                *atomic.Uint64 // ring_c
	wait, beat              *atomic.Uint64 // ring_d

	sq, cq, records, results, layers []byte

	tail, head uint32
	recHead    uint64
	recTail    uint64
	ends       []uint64 // by submission entry: where its record ends
	seen       uint32   // sq_head up to which records are free
	sleep      uint32   // number of the last sleep
	bell       bell
}

// NewClient returns a client on the memory of the two rings, which table, from WELCOME, describes. ringD may be mapped
// read-only.
func NewClient(table []Desc, ringC, ringD []byte) (*Client, error) {
	c := &Client{
		sqTail: word32(ringC, offSQTail), cqHead: word32(ringC, offCQHead), waiting: word32(ringC, offCQWaiting),
		sqHead: word32(ringD, offSQHead), cqTail: word32(ringD, offCQTail), wakeup: word32(ringD, offNeedWakeup),
		closed: word32(ringD, offClosed), progress: word64(ringC, offProgress), wait: word64(ringD, offProgressWait), beat: word64(ringD, offHeartbeat),
	}
	for _, d := range table {
		to := map[uint32]*[]byte{KindSQ: &c.sq, KindCQ: &c.cq, KindRecords: &c.records, KindResults: &c.results, KindLayers: &c.layers}[d.Kind]
		if to == nil {
			continue
		}
		memory := [][]byte{ringC, ringD}[d.Memfd]
		n := uint64(d.Entries) * uint64(d.EntrySize)
		if d.Offset > uint64(len(memory)) || n > uint64(len(memory))-d.Offset {
			return nil, fmt.Errorf("ring %d lies outside its memfd", d.Kind)
		}
		*to = area(memory, int(d.Offset), int(n))
	}
	if c.sq == nil || c.cq == nil || c.records == nil || c.results == nil || c.layers == nil {
		return nil, errors.New("the table lacks a ring")
	}
	c.ends = make([]uint64, len(c.sq)/SQESize)
	return c, nil
}

// Submit publishes one entry with its record and fills in the record's place and length. wake says that the daemon
// sleeps: the caller must then ring its eventfd.
func (c *Client) Submit(e SQE, record []byte) (wake bool, err error) {
	entries := uint32(len(c.ends))
	head := c.sqHead.Load()
	for ; c.seen != head; c.seen++ {
		c.recTail = c.ends[c.seen&(entries-1)]
	}
	if c.tail-head == entries {
		return false, ErrBusy
	}
	if len(record) > 0 {
		size := uint64(len(c.records))
		off := c.recHead
		if off&(size-1)+uint64(len(record)) > size {
			off = (off + size - 1) &^ (size - 1)
		}
		end := (off + uint64(len(record)) + 7) &^ 7
		if end-c.recTail > size {
			return false, ErrBusy
		}
		copy(c.records[off&(size-1):], record)
		e.RecOff, e.RecLen = off, uint32(len(record))
		c.recHead = end
	}
	c.ends[c.tail&(entries-1)] = c.recHead
	return c.SubmitRaw(e), nil
}

// SubmitRaw publishes an entry as it is, even one that no honest client would write.
func (c *Client) SubmitRaw(e SQE) (wake bool) {
	i := int(c.tail) & (len(c.ends) - 1)
	e.Store(c.sq[i*SQESize:])
	c.tail++
	c.sqTail.Store(c.tail)
	return c.bell.due(c.wakeup.Load())
}

// Next copies the oldest completion and its result, and frees both.
func (c *Client) Next() (e CQE, result []byte, ok bool) {
	if c.cqTail.Load() == c.head {
		return e, nil, false
	}
	i := int(c.head) & (len(c.cq)/CQESize - 1)
	e.Load(c.cq[i*CQESize:])
	if e.ResultLen > 0 {
		at := e.ResultOff & uint64(len(c.results)-1)
		result = append(result, c.results[at:at+uint64(e.ResultLen)]...)
	}
	c.head++
	c.cqHead.Store(c.head)
	return e, result, true
}

// Arm asks the daemon to ring once and reports whether it is safe to sleep. False means that a completion came
// meanwhile.
func (c *Client) Arm() bool {
	c.sleep = nextSleep(c.sleep)
	c.waiting.Store(c.sleep)
	if c.cqTail.Load() != c.head {
		c.waiting.Store(0)
		return false
	}
	return true
}

// Disarm tells the daemon that it need not ring.
func (c *Client) Disarm() { c.waiting.Store(0) }

// Progress publishes the client's progress. wake says that the daemon waits for it: the caller must then ring its
// eventfd.
func (c *Client) Progress(v uint64) (wake bool) {
	c.progress.Store(v)
	w := c.wait.Load()
	return w != 0 && v >= w
}

// WaitedFor returns the progress that the daemon waits for, or 0.
func (c *Client) WaitedFor() uint64 { return c.wait.Load() }

// Asleep reports whether the daemon wants to be rung before it reads what is submitted next.
func (c *Client) Asleep() bool { return c.wakeup.Load() != 0 }

// Closed returns why the session ended, or 0 if it has not.
func (c *Client) Closed() uint32 { return c.closed.Load() }

// Heartbeat returns the daemon's last sign of life, in milliseconds of its own clock.
func (c *Client) Heartbeat() uint64 { return c.beat.Load() }

// Layer returns the user_data of the take that a layer slot belongs to, and how many of its layers are in place.
func (c *Client) Layer(slot uint32) (userData uint64, ready uint32) {
	userData = word64(c.layers, int(slot)*LayerSlotSize).Load()
	return userData, word32(c.layers, int(slot)*LayerSlotSize+8).Load()
}

// Granted reports whether the layer slot belongs to the take userData and the daemon may have written bytes of it.
func (c *Client) Granted(slot uint32, userData uint64) bool {
	at := int(slot) * LayerSlotSize
	return word64(c.layers, at).Load() == userData && word32(c.layers, at+12).Load() != 0
}

// Indices returns the four indices: entries submitted and read, completions published and consumed.
func (c *Client) Indices() (sqTail, sqHead, cqTail, cqHead uint32) {
	return c.sqTail.Load(), c.sqHead.Load(), c.cqTail.Load(), c.cqHead.Load()
}

// Corrupt stores indices that no honest client would.
func (c *Client) Corrupt(sqTail, cqHead uint32) {
	c.sqTail.Store(sqTail)
	c.cqHead.Store(cqHead)
}

// Follow continues at the present indices: another process that shares the rings may have moved them.
func (c *Client) Follow() { c.tail, c.head = c.sqTail.Load(), c.cqHead.Load() }
