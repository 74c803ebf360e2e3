package peer

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

const (
	// maxQueued is how much may wait for a peer that does not read. More may wait for one that does read: all that
	// waited for its channel is said at once.
	maxQueued = 64 << 20
	// mostQueued bounds what waits for a peer that reads, but more slowly than there is more to say. Everything that
	// waited for the channel is said when it comes up, and must have room: a peer that was given up for that would be
	// told the same by the next channel.
	mostQueued = 1 << 30
	// maxAtOnce is the most that a sender writes itself. When nothing waits, the kernel takes at least twice that
	// without blocking.
	maxAtOnce = 64 << 10
	// sendBuffer is what the control connection asks of the kernel: room for twice maxAtOnce and the kernel's own
	// overhead.
	sendBuffer = 512 << 10
	// keptBuffer is the largest buffer that is kept for later frames.
	keptBuffer = 1 << 20
	// lateWait is how long a message that nobody waits for may wait for another to ride with, and moreWait how long one
	// that others of its kind follow. lateMost is how many bytes may wait like that.
	lateWait = 100 * time.Millisecond
	moreWait = 2 * time.Millisecond
	lateMost = 4 << 10
	// farewellWait bounds how long a goodbye waits for a peer that does not read.
	farewellWait = 100 * time.Millisecond
)

// send queues a message of the machine and writes it. It does not block.
func (c *channel) send(msg transfer.Msg) {
	if c.enqueue(msg, false) {
		c.push()
	}
}

// enqueue queues a message of the machine. push: it has to be written now. more: others of its kind follow.
func (c *channel) enqueue(msg transfer.Msg, more bool) (push bool) {
	c.worked.Store(c.m.clock())
	push, err := c.queue(c.rides(msg, more), func(b []byte) ([]byte, error) { return appendMsg(b, c.epoch, msg, c.hello.Runs) })
	if err != nil {
		c.doomFor(err)
		return false
	}
	return push
}

func (c *channel) doomFor(err error) {
	c.doom(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("channel to %q: %v", c.node, err)})
}

// rides says how long a message may wait for another to ride with. An acknowledgement only lets the peer forget
// something. That is not worth a packet and a wake-up of its own, which would come just when the peer is about to take
// the next blocks. Nor is one of several messages that follow each other.
func (c *channel) rides(msg transfer.Msg, more bool) time.Duration {
	if _, ack := msg.(*transfer.MsgEndAck); ack {
		return c.m.cfg.late
	}
	if more {
		return min(c.m.cfg.late, moreWait)
	}
	return 0
}

// queue appends a frame to what waits for the wire, and says whether it has to be written now. late is how long it may
// wait for the next one.
func (c *channel) queue(late time.Duration, frame func([]byte) ([]byte, error)) (push bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false, nil
	}
	if n := len(c.out) + int(c.inHand.Load()); n > mostQueued {
		return false, fmt.Errorf("%d bytes wait, and the peer reads too slowly", n)
	}
	if len(c.out) == 0 {
		c.drained.Store(c.m.clock()) // until now there was nothing to take
	}
	b, err := frame(c.out)
	if err != nil {
		return false, err
	}
	c.out = b
	if len(c.out) > keptBuffer {
		c.callWriter() // the caller may have much more to say before it pushes
	}
	if late == 0 || len(c.out) > lateMost {
		return true, nil
	}
	if c.late == 0 || late < c.late {
		c.late = late
		time.AfterFunc(late, c.tooLate)
	}
	return false, nil
}

// say sends a frame that is not a message of the machine.
func (c *channel) say(frame func([]byte) ([]byte, error)) error {
	push, err := c.queue(0, frame)
	if push {
		c.push()
	}
	return err
}

// push writes what is queued: itself if that cannot block, else through the writer.
func (c *channel) push() {
	c.mu.Lock()
	small := c.up.Load() && len(c.out) <= maxAtOnce
	c.mu.Unlock()
	// Waking the writer takes longer than a small write.
	if small && c.wmu.TryLock() {
		done, err := c.flushSmall()
		c.wmu.Unlock()
		if err != nil {
			c.doomFor(err)
		}
		if done {
			return
		}
	}
	c.callWriter()
}

// waiting returns how many bytes wait for the peer, including those being written.
func (c *channel) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) + int(c.inHand.Load())
}

// callWriter makes the writer send what is queued.
func (c *channel) callWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// tooLate sends what has found nothing to ride with.
func (c *channel) tooLate() {
	c.mu.Lock()
	c.late = 0
	left := len(c.out) > 0
	c.mu.Unlock()
	if left {
		c.callWriter()
	}
}

// hasRoom says whether maxAtOnce bytes can be written without blocking. It asks the kernel only when what was written
// since it last asked could be in the way. The caller holds wmu.
func (c *channel) hasRoom() bool {
	if c.room >= roomFor(maxAtOnce) {
		return true
	}
	if c.raw == nil {
		return false
	}
	n := 0
	err := c.raw.Control(func(fd uintptr) {
		if room, err := sys.SendRoom(fd); err == nil {
			n = room
		}
	})
	if err == nil {
		c.room = n
	}
	return err == nil && n >= roomFor(maxAtOnce)
}

// roomFor is more than what the kernel takes for a write of n bytes, with what TLS adds: each packet has a price of its
// own, until it is acknowledged.
func roomFor(n int) int { return 2*n + 4<<10 }

// flushSmall writes what is queued if that cannot block. Others may have queued too much for that meanwhile. The caller
// holds wmu.
func (c *channel) flushSmall() (done bool, err error) {
	if !c.hasRoom() {
		return false, nil
	}
	c.mu.Lock()
	if len(c.out) > maxAtOnce {
		c.mu.Unlock()
		return false, nil
	}
	b := c.takeOut()
	c.mu.Unlock()
	c.hasty.Add(1)
	defer c.hasty.Add(1)
	return true, c.put(b)
}

// flush writes what is queued, and then last. The caller holds wmu.
func (c *channel) flush(last []byte) error {
	c.mu.Lock()
	b := c.takeOut()
	c.mu.Unlock()
	return c.put(append(b, last...))
}

// takeOut takes what is queued, to be put on the wire. The caller holds wmu and mu.
func (c *channel) takeOut() []byte {
	b := c.out
	c.out = c.spare[:0]
	c.inHand.Store(int64(len(b)))
	return b
}

// put writes b, and keeps its buffer for later frames. The caller holds wmu.
func (c *channel) put(b []byte) error {
	if c.spare = b; cap(b) > keptBuffer {
		c.spare = nil
	}
	if len(b) == 0 {
		return nil
	}
	defer c.inHand.Store(0)
	for len(b) > 0 {
		n := min(len(b), maxAtOnce)
		c.room -= roomFor(n)
		if _, err := c.conn.Write(b[:n]); err != nil {
			c.broken = true
			return fmt.Errorf("write: %w", err)
		}
		c.drained.Store(c.m.clock())
		b = b[n:]
		c.inHand.Store(int64(len(b)))
		select {
		case c.taken <- struct{}{}:
		default:
		}
	}
	return nil
}

// write is the writer: it sends what could not be sent at once.
func (c *channel) write() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		c.wmu.Lock()
		err := c.flush(nil)
		c.wmu.Unlock()
		if err != nil {
			c.close(c.gone(err), false)
			return
		}
	}
}

// farewell sends what is queued, and then why the channel ends. False: that could not be said.
func (c *channel) farewell(cause transfer.Cause) bool {
	// This also makes a blocked writer let go of wmu.
	_ = c.tcp.SetWriteDeadline(time.Now().Add(farewellWait))
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.broken {
		return false
	}
	b, err := appendClose(nil, c.epoch, uint32(cause.Reason), cause.Text)
	if err != nil || c.flush(b) != nil {
		return false
	}
	return c.tcp.CloseWrite() == nil
}
