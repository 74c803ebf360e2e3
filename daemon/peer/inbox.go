package peer

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// errGoodbye: the peer said why it closes the channel.
type errGoodbye struct{ text string }

func (e *errGoodbye) Error() string { return "said goodbye: " + e.text }

// read is the reader. It hangs up when it ends, after the peer has if this side said goodbye.
func (c *channel) read() {
	defer c.tcp.Close()
	for {
		f, err := c.in.next(maxFrame)
		if err == nil && !c.ended.Load() {
			c.heard.Store(c.m.clock())
			err = c.handle(f)
		}
		if err != nil {
			c.fail(err)
			_, _ = io.Copy(io.Discard, c.tcp)
			return
		}
	}
}

// fail closes the channel for the reader's reason.
func (c *channel) fail(err error) {
	if c.ended.Load() {
		return
	}
	if isMalformed(err) {
		c.m.count(func(s *Stats) { s.Malformed++ })
		c.m.log.Warn("malformed frame, channel closed", "peer", c.node, "epoch", c.epoch, "error", err)
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

// handle takes one frame. Frames of another epoch belong to a channel that is over and are dropped.
func (c *channel) handle(f frame) error {
	if f.epoch != c.epoch && f.kind != kindHello {
		return nil
	}
	switch f.kind {
	case kindHeartbeat:
		return c.heartbeat(f.body)
	case kindClose:
		_, text, err := decodeClose(f.body)
		if err == nil {
			err = &errGoodbye{text}
		}
		return err
	case kindHello:
		return malformed("a second hello")
	}
	msg, err := decode(f.kind, f.body, &c.known)
	if err != nil {
		return err
	}
	c.worked.Store(c.m.clock())
	c.m.cfg.Queue(transfer.PeerMsg{Node: c.node, Epoch: c.epoch, Msg: msg})
	c.m.cfg.Flush()
	return nil
}
