package peer

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// errGoodbye says why the peer closed the channel, in its own words.
type errGoodbye struct{ text string }

func (e *errGoodbye) Error() string { return "said goodbye: " + e.text }

// errOver says that the channel has ended meanwhile.
var errOver = errors.New("the channel is over")

// read is the reader. It hangs up when it ends; if this side said goodbye, it waits for the peer to hang up first.
func (c *channel) read() {
	defer c.tcp.Close()
	queued := false
	for {
		f, err := c.in.next(maxFrame)
		if err == nil && !c.ended.Load() {
			c.hears(c.m.clock())
			var event bool
			event, err = c.handle(f)
			queued = queued || event
			if event && !c.keepUp(f) {
				err = errOver
			}
		}
		if queued && (err != nil || !c.in.more()) {
			// What arrived together is answered together.
			queued = false
			c.workOff()
		}
		if err != nil {
			c.fail(err)
			_, _ = io.Copy(io.Discard, c.tcp)
			return
		}
	}
}

// fail closes the channel because of the reader's error.
func (c *channel) fail(err error) {
	if c.ended.Load() {
		return
	}
	if isMalformed(err) {
		c.m.count(func(s *Stats) { s.Malformed++ })
		if c.m.malformed.Due(c.node) {
			c.m.log.Warn("malformed frame, channel closed", "peer", c.node, "epoch", c.epoch, "error", err)
		}
		c.close(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer %q sent a malformed frame: %v", c.node, err)}, true)
		return
	}
	if cause := c.why(); cause != nil {
		c.close(*cause, true)
		return
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("connection closed by the peer")
	}
	c.close(c.gone(err), false)
}

// handle handles one frame. queued: it was a message for the machine. Frames of another epoch belong to a channel that
// is over, and are dropped.
func (c *channel) handle(f frame) (queued bool, err error) {
	if f.epoch != c.epoch && f.kind != kindHello {
		return false, nil
	}
	switch f.kind {
	case kindHeartbeat:
		return false, c.heartbeat(f.body)
	case kindClose:
		_, text, err := decodeClose(f.body)
		if err == nil {
			err = &errGoodbye{text}
		}
		return false, err
	case kindHello:
		return false, malformed("a second hello")
	}
	msg, err := decode(f.kind, f.body, &c.known)
	if err != nil {
		return false, err
	}
	c.worked.Store(c.m.clock())
	c.m.cfg.Queue(transfer.PeerMsg{Node: c.node, Epoch: c.epoch, Msg: msg})
	return true, nil
}
