package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// outflow is a transfer that the test posts.
type outflow struct {
	leg   transfer.Leg
	shape transporttest.Shape
	mem   *transporttest.Memory
}

func newOutflow(t *testing.T, xfer, size, n int) *outflow {
	s := &outflow{
		leg:   transfer.Leg{Peer: "a", Epoch: epoch, Xfer: transfer.XferID(xfer), End: transfer.Producer},
		shape: transporttest.Blocks(t, n, size, uint64(size)),
	}
	s.mem = transporttest.NewMemory(t, s.shape.Src...)
	s.mem.Set(0x11)
	return s
}

func (s *outflow) key(i int) transfer.SliceKey {
	return transfer.SliceKey{Leg: s.leg, Slice: uint32(i)}
}

func (s *outflow) post(tr *Transport) {
	for i := range s.shape.Plan.Slices() {
		tr.Post(transport.Job{Key: s.key(i), Plan: s.shape.Plan, Mem: s.mem})
	}
}

// readFrame reads one frame, as the documentation of the wire says.
func readFrame(r io.Reader) (h header, payload []byte, status uint32, err error) {
	var head [headerSize]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return
	}
	if err = h.decode(&head); err != nil {
		return
	}
	payload = make([]byte, h.length)
	trailer := make([]byte, h.trailerSize())
	if _, err = io.ReadFull(r, payload); err == nil {
		_, err = io.ReadFull(r, trailer)
	}
	if err == nil {
		status, _, err = readTrailer(trailer, nil)
	}
	return
}

// TestFenceStalledSender: a peer that does not read does not hold up the producer's fence. Later it finds whole frames,
// at most one cancelled one, and the next transfer.
func TestFenceStalledSender(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"direct", Config{CRC: CRCOff, Staged: -1}},
		{"direct, checksums", Config{CRC: CRCOn, Staged: -1}},
		{"staged", Config{CRC: CRCOff, Staged: 1 << 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newRawPeer(t, c.cfg)
			s := newOutflow(t, 1, 1<<20, 64)
			s.post(p.tr)
			// Some have gone into the buffers of the sockets, the rest cannot.
			p.sink.Sent(t, s.key(0))
			p.tr.Fence(s.leg)
			p.sink.Fenced(t, s.leg)
			s.mem.Set(0xee)
			next := newOutflow(t, 2, 4<<10, 1)
			next.post(p.tr)
			sent, cancelled := 0, 0
			for {
				h, payload, status, err := readFrame(p.conn)
				if err != nil {
					t.Fatal(err)
				}
				if h.xfer == 2 {
					break
				}
				if status == statusCancelled {
					cancelled++
					continue
				}
				if int(h.slice) != sent || status != statusWhole {
					t.Fatalf("slice %d with status %d, want slice %d", h.slice, status, sent)
				}
				sent++
				for i, b := range payload {
					if b != 0x11 {
						t.Fatalf("slice %d, byte %d was read after the fence: %#x", h.slice, i, b)
					}
				}
			}
			if sent == 64 || cancelled > 1 {
				t.Errorf("%d frames sent and %d cancelled", sent, cancelled)
			}
			// What the fence found sent but not reported yet, a batch at most, it has reported itself.
			unreported := false
			for i := range 64 {
				got := p.sink.Sent(t, s.key(i))
				unreported = unreported || got.Reason != transfer.OK
				want := transfer.OK
				if i >= sent || unreported && i >= sent-batch {
					want = transfer.Cancelled
				}
				if got.Reason != want {
					t.Errorf("slice %d of which %d were sent: %+v", i, sent, got)
				}
			}
		})
	}
}

// TestWaitForLink: slices posted before there is a link go out with the first one; fenced ones do not.
func TestWaitForLink(t *testing.T) {
	sink := transporttest.NewRecorder()
	tr := New(Config{Sink: sink})
	gone, stay := newOutflow(t, 1, 4<<10, 3), newOutflow(t, 2, 4<<10, 3)
	gone.post(tr)
	stay.post(tr)
	tr.Fence(gone.leg)
	sink.Fenced(t, gone.leg)
	near, far := connect(t)
	defer far.Close()
	tr.LinkUp(linkOf(near, epoch, 0))
	for i := range 3 {
		h, _, status, err := readFrame(far)
		if err != nil || h.xfer != 2 || int(h.slice) != i || status != statusWhole {
			t.Fatalf("%+v, status %d, error %v", h, status, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	sink.Check(t)
}

// TestForgottenChannel: fencing the last slice that waits for a link that never comes leaves nothing behind.
func TestForgottenChannel(t *testing.T) {
	sink := transporttest.NewRecorder()
	tr := New(Config{Sink: sink})
	s := newOutflow(t, 1, 4<<10, 3)
	s.post(tr)
	tr.Fence(s.leg)
	sink.Fenced(t, s.leg)
	if n := len(tr.channels) + len(tr.out); n != 0 {
		t.Errorf("%d things left of a channel that never was", n)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAChannelWithoutLinksIsNotDown: after one that ended, the next channel of a peer is as good as the first before any of its links came.
func TestAChannelWithoutLinksIsNotDown(t *testing.T) {
	tr := New(Config{Sink: transporttest.NewRecorder()})
	for _, step := range []struct {
		what string
		do   func()
		ok   bool
	}{
		{"nothing is known of the peer", func() {}, true},
		{"a channel ended", func() { tr.LinksDown("a", epoch) }, false},
		{"the next one is up", func() { tr.ChannelUp("a", epoch+1) }, true},
		{"another one ended, which both sides had dialed", func() { tr.LinksDown("a", epoch+2) }, true},
		{"it ended", func() { tr.LinksDown("a", epoch+1) }, false},
	} {
		step.do()
		if r := tr.Probe("a"); r.OK != step.ok || r.OK == (r.Reason != "") {
			t.Errorf("%s: %+v", step.what, r)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

// source notes what was asked for again.
type source struct {
	mu    sync.Mutex
	asked []int
	ctx   context.Context
	again chan struct{}
}

func (s *source) Redial(ctx context.Context, lost *transport.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost.Peer == "a" && lost.Epoch == epoch {
		s.asked, s.ctx = append(s.asked, lost.Index), ctx
		s.again <- struct{}{}
	}
}

// TestRedial: a lost link is asked for again, one that was replaced is not, and none after the channel is over.
func TestRedial(t *testing.T) {
	src := &source{again: make(chan struct{}, 10)}
	p := newRawPeer(t, Config{Source: src})
	near, far := connect(t)
	p.tr.LinkUp(linkOf(near, epoch, 1))
	second, other := connect(t)
	defer other.Close()
	p.tr.LinkUp(linkOf(second, epoch, 1))
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Fatalf("a replaced link: %v", err)
	}
	far.Close()
	p.sink.LinkLost(t, 1)
	p.conn.Close()
	p.sink.LinkLost(t, 2)
	<-src.again
	if len(src.asked) != 1 || src.asked[0] != 0 {
		t.Fatalf("asked for links %v, want 0", src.asked)
	}
	p.tr.LinksDown("a", epoch)
	if src.ctx.Err() == nil {
		t.Error("the channel is over, but not the search for its link")
	}
	late, end := connect(t)
	defer end.Close()
	p.tr.LinkUp(linkOf(late, epoch, 0))
	if _, err := end.Read(make([]byte, 1)); err == nil {
		t.Error("a link of a channel that is over was taken")
	}
	if r := p.tr.Probe("a"); r.OK || r.Reason == "" {
		t.Errorf("Probe of a peer that is down: %+v", r)
	}
}

// wired is a connection that keeps what is written to it.
type wired struct {
	net.Conn
	bytes.Buffer
}

func (w *wired) Write(b []byte) (int, error) { return w.Buffer.Write(b) }
func (w *wired) Read(b []byte) (int, error)  { return w.Buffer.Read(b) }

// TestAFrameIsCompleted: wherever sending stopped, pad fills the frame up. It then carries the status, and the next frame begins where the
// receiver expects it. Of a frame that had not begun nothing is sent.
func TestAFrameIsCompleted(t *testing.T) {
	const length = 300 << 10
	for _, flags := range []uint16{0, flagCRC} {
		h := header{flags: flags, xfer: 5, slice: 1, length: length}
		whole := frame(h, bytes.Repeat([]byte{0x11}, length), statusWhole)
		for _, moved := range []int{0, 1, headerSize - 1, headerSize, headerSize + 1, headerSize + piece, headerSize + length - 1, headerSize + length, headerSize + length + 1, headerSize + length + 7} {
			if flags != 0 && moved > headerSize+length {
				continue // its trailer goes by itself, once nothing can stop it
			}
			w := &wired{}
			w.Buffer.Write(whole[:moved])
			s := sender{link: &link{Link: &transport.Link{Conn: w}}, trailer: bytes.Clone(whole[headerSize+length:])}
			h.encode(&s.head)
			if err := s.pad(&h, moved, statusCancelled); err != nil {
				t.Fatal(err)
			}
			if moved == 0 {
				if n := w.Len(); n != 0 {
					t.Errorf("%d bytes were sent of a frame that had not begun", n)
				}
				continue
			}
			want := uint32(statusCancelled)
			if moved > headerSize+length {
				want = statusWhole // it is whole, and has begun to say so
			}
			got, _, status, err := readFrame(w)
			if err != nil || got != h || status != want || w.Len() != 0 {
				t.Errorf("flags %d, %d bytes moved: frame %+v with status %d, %v, and %d bytes more", flags, moved, got, status, err, w.Len())
			}
		}
	}
}
