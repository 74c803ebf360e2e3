package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/pulse"
)

// silences is how many heartbeats a peer may miss.
const silences = 3

// beat keeps the channel alive, measures its round trip, notices a silent peer, and closes a channel that nobody uses.
// It compares only durations on this node's own monotonic clock.
func (c *channel) beat() {
	every := int64(c.m.cfg.Heartbeat)
	next := c.m.clock() + every // next beat
	wake, tried, wrote := next, int64(0), uint64(0)
	t := time.NewTimer(time.Duration(every))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.ctx.Done():
			return
		}
		now := c.m.clock()
		if now-wake > every {
			// This process stood still. What the peer said meanwhile has not been read yet, and no write went on.
			c.heard.Store(max(c.heard.Load(), now-(silences-1)*every))
			c.drained.Store(max(c.drained.Load(), now-every))
			wrote = 0
		}
		if c.behind.Load() || c.running.Load() { // this node is not listening
			c.heard.Store(now)
		}
		if cause, over := c.silent(now); over {
			c.close(cause, true)
			return
		}
		if cause, over := c.deaf(now); over {
			c.close(cause, true)
			return
		}
		if c.retire(now) {
			return
		}
		if now >= next {
			hasty := c.hasty.Load()
			if hasty%2 == 1 && hasty == wrote { // the same write as a beat ago
				c.close(c.unread(now), true)
				return
			}
			wrote = hasty
			c.m.callJudge()
			c.prod()
			next = now + int64(pulse.Until(time.Duration(every)))
			if c.m.rough.due(c.node) && now-tried >= int64(roughFirst) {
				tried = now
				c.spreadAgain() // ways that led nowhere may work by now
			}
		}
		wake = min(next, c.heard.Load()+silences*every)
		t.Reset(time.Duration(max(wake-now, 1)))
	}
}

// heardLeast is how many bytes of an unfinished frame count as a sign of life. A frame of many block ids takes longer
// than three heartbeats on a slow way, but a byte now and then is no sign of life. Encrypted bytes arrive in records of
// up to 16 KiB.
const heardLeast = 1 << 10

// hears notes that the peer was heard, with all bytes that have arrived so far.
func (c *channel) hears(now int64) {
	c.heard.Store(now)
	c.noted.Store(c.in.came.n.Load())
}

// silent says whether the peer has been silent for too long, and the cause to report.
func (c *channel) silent(now int64) (why transfer.Cause, over bool) {
	if c.in.came.n.Load()-c.noted.Load() >= heardLeast {
		c.hears(now)
	}
	quiet := time.Duration(now - c.heard.Load())
	return transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf(
		"peer %q has been silent for %s (%d heartbeats)", c.node, quiet.Round(time.Millisecond), silences)}, quiet >= silences*c.m.cfg.Heartbeat
}

// deaf says whether the peer reads nothing of a large backlog, and the cause to report. A large backlog alone is no
// sign of that.
func (c *channel) deaf(now int64) (why transfer.Cause, over bool) {
	return c.unread(now), c.waiting() > maxQueued && time.Duration(now-c.drained.Load()) >= c.m.cfg.unheard
}

// unread is the cause to report of a peer that does not read.
func (c *channel) unread(now int64) transfer.Cause {
	stuck := time.Duration(now - c.drained.Load())
	return transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf(
		"channel to %q: %d bytes wait and the peer does not read: it took none for %s", c.node, c.waiting(), stuck.Round(time.Millisecond))}
}

// retire closes a channel that nobody uses, and says whether it did.
func (c *channel) retire(now int64) bool {
	worked := c.worked.Load()
	idle := time.Duration(now - worked)
	if !c.dialed || c.m.cfg.IdleClose <= 0 || idle <= c.m.cfg.IdleClose {
		return false
	}
	// Who is asked may be in a write to this very channel, which only beat ends: it waits for less than a beat.
	ctx, cancel := context.WithTimeout(c.ctx, c.m.cfg.Heartbeat/2)
	defer cancel()
	if c.m.cfg.Busy(ctx, c.node) {
		c.worked.Store(now)
		return false
	}
	unused := func() bool { return c.worked.Load() == worked } // it may have come into use while Busy was asked
	return c.closeIf(unused, transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("idle for %s; the channel opens again on first use", idle.Round(time.Millisecond))}, true)
}

// prod asks the peer for a sign of life at once. It is called when something casts doubt on the channel. It leaves the
// writing to the writer: beat, which watches for writes that wait, must not be in one.
func (c *channel) prod() {
	now := uint64(c.m.clock())
	_, _ = c.queue(0, func(b []byte) ([]byte, error) { return appendHeartbeat(b, c.epoch, now, false) })
	c.callWriter()
}

// heartbeat answers a heartbeat, or learns from the answer to this node's own.
func (c *channel) heartbeat(body []byte) error {
	seq, reply, moved, err := decodeHeartbeat(body)
	if err != nil {
		return err
	}
	if moved != nil {
		theirs, err := decodeAddresses(moved)
		if err != nil {
			return err
		}
		c.theyMoved(theirs)
	}
	if !reply {
		if c.waiting() > maxQueued {
			return nil // the peer hears what waits, if it hears anything
		}
		return c.say(func(b []byte) ([]byte, error) { return appendHeartbeat(b, c.epoch, seq, true) })
	}
	if now := uint64(c.m.clock()); seq > 0 && seq <= now {
		c.rtt.Store(int64(now - seq))
	}
	return nil
}
