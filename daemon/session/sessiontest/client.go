package sessiontest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Options is what HELLO says. Role 0 is a worker.
type Options struct {
	Engine, Instance                 string
	Role                             transfer.Role
	TPRank, PPRank, TPWorld, PPWorld uint32
	SQ, CQ, Records, Layers          uint32
	Session                          uint64
	Secret                           [32]byte
	Timeout                          time.Duration     // of each request; 0: 1 min
	Hello                            func(*ring.Hello) // changes what is sent, last of all
}

// Client is a session as the client sees it.
type Client struct {
	Welcome ring.Welcome
	Rings   *ring.Client
	Conn    *net.UnixConn
	RingC   int // descriptors, for what no honest client does
	CQEvent int

	timeout      time.Duration
	seq          uint32
	user         uint64
	ringC, ringD []byte
	sq, ringDFD  int
	cq           *os.File
	mapped       [][]byte
	bye          *Error
	buf          []byte
}

// Bytes returns ring_c, which the client may write as it likes.
func (c *Client) Bytes() []byte { return c.ringC }

// Error is what the daemon answered.
type Error struct{ transfer.Cause }

func (e *Error) Error() string { return fmt.Sprintf("reason %d: %s", e.Reason, e.Text) }

// Reason returns why the daemon refused: OK if err is nil, 0xffff if err is not the daemon's.
func Reason(err error) transfer.Reason {
	var e *Error
	switch {
	case err == nil:
		return transfer.OK
	case errors.As(err, &e):
		return e.Reason
	}
	return 0xffff
}

// Dial opens a session at the daemon's socket.
func Dial(path string, o Options) (*Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(o.Timeout, time.Minute))
	defer cancel()
	conn, err := sys.DialSeqpacket(ctx, path)
	if err != nil {
		return nil, err
	}
	return Hello(conn, o)
}

// Hello opens a session on conn, a connection to the daemon that it takes over.
func Hello(conn *net.UnixConn, o Options) (*Client, error) {
	c := newClient(conn, cmp.Or(o.Timeout, time.Minute))
	if err := c.hello(o); err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

func newClient(conn *net.UnixConn, timeout time.Duration) *Client {
	return &Client{Conn: conn, timeout: timeout, sq: -1, ringDFD: -1, RingC: -1, buf: make([]byte, 32+ring.CtlMax)}
}

func (c *Client) hello(o Options) error {
	if o.Role == 0 {
		o.Role = transfer.Worker
	}
	h := ring.Hello{
		ABIMin: ring.ABIMin, ABIMax: ring.ABI, Role: uint32(o.Role), TPRank: o.TPRank, PPRank: o.PPRank, TPWorld: o.TPWorld, PPWorld: o.PPWorld,
		SQEntries: o.SQ, CQEntries: o.CQ, PID: uint32(os.Getpid()), ArenaBytes: o.Records, LayerSlots: o.Layers, Session: o.Session, Secret: o.Secret,
	}
	copy(h.Engine[:], o.Engine)
	copy(h.Instance[:], o.Instance)
	copy(h.Library[:], "sessiontest")
	if o.Hello != nil {
		o.Hello(&h)
	}
	body, fds, err := c.request(ring.CtlHello, ring.CtlWelcome, 4, ring.Append(nil, &h))
	if err != nil {
		return err
	}
	if _, err := ring.Decode(body, &c.Welcome, "welcome"); err != nil || len(fds) != 4 {
		sys.CloseAll(fds)
		return fmt.Errorf("welcome with %d descriptors: %w", len(fds), err)
	}
	return c.adopt(fds)
}

// adopt maps the rings, ring_d read-only, and checks that the daemon has sealed ring_d against other mappings.
func (c *Client) adopt(fds []int) (err error) {
	c.RingC, c.ringDFD, c.sq, c.CQEvent = fds[0], fds[1], fds[2], fds[3] // CQEvent lives as long as cq
	if c.cq, err = sys.PollFile(fds[3], "cq"); err != nil {
		return err
	}
	if c.ringC, err = sys.Mmap(fds[0], int(c.Welcome.RingCBytes), sys.ProtWrite); err != nil {
		return err
	}
	if c.ringD, err = sys.Mmap(fds[1], int(c.Welcome.RingDBytes), sys.ProtRead); err != nil {
		return err
	}
	if b, err := sys.Mmap(fds[1], int(c.Welcome.RingDBytes), sys.ProtWrite); err == nil {
		_ = sys.Munmap(b)
		return errors.New("ring_d can be mapped for writing: the daemon has to seal it")
	}
	c.Rings, err = ring.NewClient(c.Welcome.Rings[:c.Welcome.NRings], c.ringC, c.ringD)
	return err
}

// Request sends a control message and returns the value of its ACK.
func (c *Client) Request(kind uint16, body []byte, fds ...int) (uint64, error) {
	body, _, err := c.request(kind, ring.CtlAck, 0, body, fds...)
	if err != nil {
		return 0, err
	}
	a, _, err := decodeAck(body)
	return a.Value, err
}

func (c *Client) request(kind, want uint16, maxFDs int, body []byte, fds ...int) (answer []byte, got []int, err error) {
	seq, err := c.Send(kind, body, fds...)
	if err != nil {
		return nil, nil, err
	}
	for {
		h, body, got, err := c.Receive(maxFDs)
		if err != nil {
			return nil, nil, err
		}
		if h.Type == want && h.Seq == seq {
			if want == ring.CtlAck {
				if a, text, err := decodeAck(body); err != nil {
					return nil, nil, err
				} else if a.Reason != 0 {
					return nil, nil, &Error{transfer.Cause{Reason: transfer.Reason(a.Reason), Text: text}}
				}
			}
			return body, got, nil
		}
		sys.CloseAll(got)
		if h.Type == ring.CtlBye || h.Type == ring.CtlAck && h.Seq == seq {
			a, text, err := decodeAck(body)
			if err != nil {
				return nil, nil, err
			}
			e := &Error{transfer.Cause{Reason: transfer.Reason(a.Reason), Text: text}}
			if h.Type == ring.CtlBye {
				c.bye = e
			}
			return nil, nil, e
		}
	}
}

// Send sends a control message and returns its sequence number.
func (c *Client) Send(kind uint16, body []byte, fds ...int) (seq uint32, err error) {
	c.seq++
	_ = c.Conn.SetDeadline(time.Now().Add(c.timeout))
	b := ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: kind, Len: uint32(len(body)), Seq: c.seq})
	return c.seq, sys.Send(c.Conn, append(b, body...), fds...)
}

// Receive waits for the next control message. The body is valid until the next call.
func (c *Client) Receive(maxFDs int) (h ring.Ctl, body []byte, fds []int, err error) {
	n, fds, err := sys.Recv(c.Conn, c.buf, maxFDs)
	if err != nil {
		sys.CloseAll(fds)
		return h, nil, nil, err
	}
	body, err = ring.Decode(c.buf[:n], &h, "control message")
	return h, body, fds, err
}

func decodeAck(b []byte) (a ring.Ack, text string, err error) {
	rest, err := ring.Decode(b, &a, "ack")
	if err == nil && int(a.TextLen) != len(rest) {
		err = fmt.Errorf("ack: text_len is %d, %d bytes follow", a.TextLen, len(rest))
	}
	return a, string(rest), err
}

// Bye waits until the daemon ends the session and returns why.
func (c *Client) Bye() (transfer.Cause, error) {
	for c.bye == nil {
		_ = c.Conn.SetDeadline(time.Now().Add(c.timeout))
		h, body, fds, err := c.Receive(0)
		if err != nil {
			return transfer.Cause{}, err
		}
		sys.CloseAll(fds)
		if h.Type == ring.CtlBye {
			a, text, err := decodeAck(body)
			if err != nil {
				return transfer.Cause{}, err
			}
			c.bye = &Error{transfer.Cause{Reason: transfer.Reason(a.Reason), Text: text}}
		}
	}
	return c.bye.Cause, nil
}

// Ping asks whether the daemon answers.
func (c *Client) Ping() error {
	_, err := c.Request(ring.CtlPing, nil)
	return err
}

// Close ends the session and returns after the daemon's fence.
func (c *Client) Close() error {
	_, err := c.Request(ring.CtlBye, nil)
	c.Kill()
	return err
}

// Kill drops everything without a word, as a process that dies does.
func (c *Client) Kill() {
	_ = c.Conn.Close()
	_ = sys.Close(c.sq)
	_ = sys.Close(c.RingC)
	_ = sys.Close(c.ringDFD)
	c.sq, c.RingC, c.ringDFD = -1, -1, -1
	if c.cq != nil {
		_ = c.cq.Close()
	}
	for _, m := range append(c.mapped, c.ringC, c.ringD) {
		if m != nil {
			_ = sys.Munmap(m)
		}
	}
	c.mapped, c.ringC, c.ringD = nil, nil, nil
}
