package tcp

import (
	"bytes"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// rawPeer is a transport "b" with one plain link, whose other end the test plays byte by byte.
type rawPeer struct {
	t    *testing.T
	tr   *Transport
	sink *transporttest.Recorder
	conn *net.TCPConn // the test's end
}

func newRawPeer(t *testing.T, cfg Config) *rawPeer {
	p := &rawPeer{t: t, sink: transporttest.NewRecorder()}
	cfg.Sink = p.sink
	p.tr = New(cfg)
	t.Cleanup(func() {
		p.conn.Close()
		if err := p.tr.Close(); err != nil {
			t.Error(err)
		}
		p.sink.Check(t)
	})
	p.link(0)
	return p
}

// link makes a link of that index and plays its other end from now on.
func (p *rawPeer) link(index int) {
	p.t.Helper()
	if p.conn != nil {
		p.conn.Close()
	}
	near, far := connect(p.t)
	p.conn = far
	p.tr.LinkUp(linkOf(near, epoch, index))
}

func linkOf(c *net.TCPConn, epoch uint64, index int) *transport.Link {
	return &transport.Link{Conn: c, TCP: c, Peer: "a", Epoch: epoch, Index: index, Here: true}
}

func connect(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

func (p *rawPeer) write(parts ...[]byte) {
	p.t.Helper()
	if _, err := p.conn.Write(bytes.Join(parts, nil)); err != nil {
		p.t.Fatal(err)
	}
}

// wantClosed reads until the transport closes the link.
func (p *rawPeer) wantClosed() {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, p.conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Fatal("the link was not closed")
	}
}

// wantOpen sends a slice of a transfer of its own, which must land.
func (p *rawPeer) wantOpen(xfer int) {
	p.t.Helper()
	s := p.expect(xfer, 4<<10, 1)
	p.write(s.frame(0, 0))
	p.wantLanded(s.key(0, 0), transfer.OK)
}

func (p *rawPeer) wantLanded(key transfer.SliceKey, want transfer.Reason) {
	p.t.Helper()
	if c := p.sink.Landed(p.t, key); c.Reason != want {
		p.t.Fatalf("SliceLanded: %+v, want reason %d", c, want)
	}
}

// inflow is a transfer that the transport expects.
type inflow struct {
	leg      transfer.Leg
	shape    transporttest.Shape
	mem      *signalled
	payloads [][]byte
}

// signalled is memory that says when a slice's destination is asked for: its header has been read.
type signalled struct {
	*transporttest.Memory
	asked chan struct{}
}

func (s *signalled) Dst(r plan.Run) ([]byte, bool) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return s.Memory.Dst(r)
}

// expect makes ready for a transfer of n slices of size bytes.
func (p *rawPeer) expect(xfer, size, n int) *inflow {
	p.t.Helper()
	s := &inflow{
		leg:   transfer.Leg{Peer: "a", Epoch: epoch, Xfer: transfer.XferID(xfer), End: transfer.Consumer},
		shape: transporttest.Blocks(p.t, n, size, uint64(size)),
	}
	s.mem = &signalled{transporttest.NewMemory(p.t, s.shape.Dst...), make(chan struct{}, 1)}
	for i := range n {
		s.payloads = append(s.payloads, bytes.Repeat([]byte{byte(xfer), byte(i)}, size/2))
	}
	p.tr.Expect(transport.Job{Key: transfer.SliceKey{Leg: s.leg}, Plan: s.shape.Plan, Mem: s.mem})
	return s
}

func (s *inflow) key(slice, attempt int) transfer.SliceKey {
	return transfer.SliceKey{Leg: s.leg, Slice: uint32(slice), Attempt: uint32(attempt)}
}

func (s *inflow) header(slice, attempt int) header {
	return header{xfer: uint64(s.leg.Xfer), slice: uint32(slice), attempt: uint32(attempt), length: uint32(len(s.payloads[slice]))}
}

// frame is a slice's frame without checksums.
func (s *inflow) frame(slice, attempt int) []byte {
	return frame(s.header(slice, attempt), s.payloads[slice], statusWhole)
}

// holds tells whether the slice's bytes are in place.
func (s *inflow) holds(slice int, want []byte) bool {
	for _, r := range s.shape.Plan.Dst(slice, nil) {
		b, _ := s.mem.Memory.Dst(r)
		if !bytes.Equal(b, want[:r.Len]) {
			return false
		}
		want = want[r.Len:]
	}
	return true
}

// frame makes a frame, with right checksums when the header's flag asks for them.
func frame(h header, payload []byte, status uint32) []byte {
	var head [headerSize]byte
	h.encode(&head)
	var crc []uint32
	for b := payload; h.flags&flagCRC != 0 && len(b) > 0; {
		n := min(len(b), piece)
		crc = append(crc, crc32.Checksum(b[:n], castagnoli))
		b = b[n:]
	}
	return appendTrailer(append(head[:], payload...), status, crc)
}
