package sessiontest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Completion is a completion with its result.
type Completion struct {
	ring.CQE
	Failed []layout.Run
	Text   string
	Got    *transfer.Got // of a GET that is done
}

// Cause returns the completion's reason and text.
func (c *Completion) Cause() transfer.Cause {
	return transfer.Cause{Reason: transfer.Reason(c.Reason), Text: c.Text}
}

// More reports whether RELEASED follows.
func (c *Completion) More() bool { return c.Flags&ring.FlagMore != 0 }

// Submit submits an operation (nil: NOP) and returns its user_data.
func (c *Client) Submit(op transfer.Op) (userData uint64, err error) {
	e, rec := Encode(op)
	c.user++
	e.UserData = c.user
	return e.UserData, c.SubmitEntry(e, rec)
}

// SubmitEntry submits an entry with its record, and wakes the daemon if it sleeps.
func (c *Client) SubmitEntry(e ring.SQE, rec []byte) error {
	wake, err := c.Rings.Submit(e, rec)
	if err == nil && wake {
		err = c.Wake()
	}
	return err
}

// Wake rings the daemon.
func (c *Client) Wake() error { return sys.EventfdSignal(c.sq) }

// Progress publishes how far the rank is.
func (c *Client) Progress(v uint64) error {
	if c.Rings.Progress(v) {
		return c.Wake()
	}
	return nil
}

// Poll returns the oldest completion if there is one.
func (c *Client) Poll() (*Completion, error) {
	e, result, ok := c.Rings.Next()
	if !ok {
		return nil, nil
	}
	out := &Completion{CQE: e}
	if len(result) == 0 {
		return out, nil
	}
	if e.Status == uint16(transfer.Done) {
		var g ring.Got
		meta, err := ring.Decode(result, &g, "got")
		if err != nil || int(g.MetaLen) != len(meta) {
			return nil, fmt.Errorf("got of %d bytes with %d of meta: %w", len(result), g.MetaLen, err)
		}
		out.Got = &transfer.Got{Item: g.Item, Bytes: g.Bytes, Capacity: g.Capacity, Matched: g.Matched, Meta: append([]byte(nil), meta...)}
		return out, nil
	}
	var r ring.Result
	rest, err := ring.Decode(result, &r, "result")
	if err != nil || uint64(r.NFailed)*ring.RunSize+uint64(r.TextLen) != uint64(len(rest)) {
		return nil, fmt.Errorf("result of %d bytes, %d runs and %d bytes of text: %w", len(result), r.NFailed, r.TextLen, err)
	}
	for range r.NFailed {
		out.Failed = append(out.Failed, layout.Run{
			Group: binary.LittleEndian.Uint32(rest), First: binary.LittleEndian.Uint32(rest[4:]), Count: binary.LittleEndian.Uint32(rest[8:]),
		})
		rest = rest[ring.RunSize:]
	}
	out.Text = string(rest)
	return out, nil
}

// Wait returns the next completion, sleeping for it.
func (c *Client) Wait() (*Completion, error) {
	if err := c.Sleep(func() bool { return false }); err != nil {
		return nil, err
	}
	return c.Poll()
}

// Sleep waits until there is a completion, or until done returns true; it asks done before each sleep.
func (c *Client) Sleep(done func() bool) error {
	if err := c.cq.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	var count [8]byte
	defer c.Rings.Disarm()
	for c.Rings.Arm() && !done() {
		if reason := c.Rings.Closed(); reason != 0 {
			return &Error{transfer.Cause{Reason: transfer.Reason(reason), Text: "session closed"}}
		}
		if _, err := c.cq.Read(count[:]); err != nil {
			return err
		}
	}
	return nil
}

// WaitFor returns the next completion of one operation, and those of others that came before it.
func (c *Client) WaitFor(userData uint64) (it *Completion, others []*Completion, err error) {
	for {
		it, err = c.Wait()
		if err != nil || it.UserData == userData {
			return it, others, err
		}
		others = append(others, it)
	}
}
