package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// TestFenceInMidFrame: a peer that stalls in the middle of a frame does not hold up the fence, and what it sends later
// does not land.
func TestFenceInMidFrame(t *testing.T) {
	for _, staged := range []int{-1, 1 << 30} {
		p := newRawPeer(t, Config{Staged: staged})
		s := p.expect(1, 512<<10, 1)
		f := s.frame(0, 0)
		p.write(f[:headerSize+100<<10])
		<-s.mem.asked
		p.tr.Fence(s.leg)
		p.sink.Fenced(t, s.leg)
		p.wantLanded(s.key(0, 0), transfer.Cancelled)
		s.mem.Set(0x5a)
		p.write(f[headerSize+100<<10:])
		p.wantOpen(2)
		if !s.holds(0, bytes.Repeat([]byte{0x5a}, 512<<10)) {
			t.Fatal("bytes landed after the fence")
		}
		if d := p.tr.Stats()["a"].DiscardedBytes; d == 0 {
			t.Error("nothing was counted as discarded")
		}
	}
}

// TestHeadsComeAlong: the head of the next frame comes with the frame before, or a part of it does, or nothing. Wherever what was sent together
// ends, each frame is the one that it was.
func TestHeadsComeAlong(t *testing.T) {
	for _, flags := range []uint16{0, flagCRC} {
		for _, cut := range []int{0, 1, headerSize - 1, headerSize, headerSize + 1, headerSize + 8<<10} {
			p := newRawPeer(t, Config{Staged: -1})
			s := p.expect(1, 32<<10, 3)
			var f [3][]byte
			for i := range f {
				h := s.header(i, 0)
				h.flags = flags
				f[i] = frame(h, s.payloads[i], statusWhole)
			}
			p.write(f[0], f[1][:cut])
			p.wantLanded(s.key(0, 0), transfer.OK)
			p.write(f[1][cut:], f[2])
			p.wantLanded(s.key(1, 0), transfer.OK)
			p.wantLanded(s.key(2, 0), transfer.OK)
			for i := range f {
				if !s.holds(i, s.payloads[i]) {
					t.Errorf("flags %d, %d bytes along: slice %d has wrong bytes", flags, cut, i)
				}
			}
		}
	}
}

// TestABadHeadComesAlong: what is wrong with the next frame is nothing to the one before.
func TestABadHeadComesAlong(t *testing.T) {
	p := newRawPeer(t, Config{Staged: -1})
	s := p.expect(1, 32<<10, 2)
	p.write(s.frame(0, 0), make([]byte, headerSize))
	p.wantLanded(s.key(0, 0), transfer.OK)
	p.wantClosed()
	p.sink.LinkLost(t, 1)
	if !s.holds(0, s.payloads[0]) {
		t.Error("wrong bytes")
	}
}

// TestDuplicates: the second copy of a slice that has landed is thrown away, whatever its attempt.
func TestDuplicates(t *testing.T) {
	p := newRawPeer(t, Config{})
	s := p.expect(1, 64<<10, 2)
	p.write(s.frame(0, 0))
	p.wantLanded(s.key(0, 0), transfer.OK)
	for attempt := range 3 {
		p.write(frame(s.header(0, attempt), make([]byte, 64<<10), statusWhole))
	}
	p.write(s.frame(1, 0))
	p.wantLanded(s.key(1, 0), transfer.OK)
	if !s.holds(0, s.payloads[0]) || !s.holds(1, s.payloads[1]) {
		t.Fatal("wrong bytes")
	}
	if _, ok := p.sink.HasLanded(s.key(0, 1)); ok {
		t.Error("a duplicate was reported")
	}
}

// TestASliceIsLetGoOfOnceThatIsTold: the failure of an attempt is reported before the next one can land, or it would spoil that.
func TestASliceIsLetGoOfOnceThatIsTold(t *testing.T) {
	g := segment{state: make([]landing, 1), left: 1}
	if !g.claim(0) || g.claim(0) {
		t.Fatal("a slice is claimed once")
	}
	told, claimed := atomic.Bool{}, make(chan bool)
	g.release(0, func() {
		go func() { claimed <- g.claim(0) && told.Load() }()
		for range 1000 {
			runtime.Gosched()
		}
		told.Store(true)
	})
	if !<-claimed {
		t.Error("the next attempt had the slice before the failure of the one before was told, or was turned away")
	}
}

// TestVerdicts: how frames end that are whole on the wire; none of them costs the link, and all can be sent again.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(h header, payload []byte) []byte
		want  transfer.Reason
	}{
		{"good, with checksums", func(h header, b []byte) []byte { h.flags = flagCRC; return frame(h, b, statusWhole) }, transfer.OK},
		{"one bit differs", func(h header, b []byte) []byte {
			h.flags = flagCRC
			f := frame(h, b, statusWhole)
			f[headerSize+piece+5] ^= 4
			return f
		}, transfer.Corrupt},
		{"source faulted", func(h header, b []byte) []byte { return frame(h, b, statusFault) }, transfer.Corrupt},
		{"sender cancelled", func(h header, b []byte) []byte { h.flags = flagCRC; return frame(h, b, statusCancelled) }, transfer.Cancelled},
	} {
		for _, staged := range []int{-1, 1 << 30} {
			t.Run(c.name, func(t *testing.T) {
				p := newRawPeer(t, Config{Staged: staged})
				s := p.expect(1, 300<<10, 1)
				p.write(c.spoil(s.header(0, 0), s.payloads[0]))
				p.wantLanded(s.key(0, 0), c.want)
				if c.want != transfer.OK {
					p.write(s.frame(0, 1))
					p.wantLanded(s.key(0, 1), transfer.OK)
				}
				if !s.holds(0, s.payloads[0]) {
					t.Error("wrong bytes")
				}
				if got := p.tr.Stats()["a"].Corrupt; got > 0 != (c.want == transfer.Corrupt) {
					t.Errorf("%d slices counted as corrupt", got)
				}
			})
		}
	}
}

// TestMalformed: frames that are not as they must be end the link, count, are told with their reason, and report the slice that they hit.
func TestMalformed(t *testing.T) {
	le := binary.LittleEndian
	resum := func(f []byte) { le.PutUint32(f[36:], crc32.Checksum(f[:36], castagnoli)) }
	for _, c := range []struct {
		name  string
		spoil func(f []byte)
		says  string
	}{
		{"magic", func(f []byte) { f[0] ^= 1; resum(f) }, "frame header: magic"},
		{"checksum of the header", func(f []byte) { f[36] ^= 1 }, "frame header: checksum"},
		{"version", func(f []byte) { f[4] = 9; resum(f) }, "frame header: version 9"},
		{"type", func(f []byte) { f[5] = 9; resum(f) }, "frame header: type 9"},
		{"flags", func(f []byte) { le.PutUint16(f[6:], 0x8000); resum(f) }, "frame header: flags 0x8000"},
		{"reserved", func(f []byte) { f[32] = 1; resum(f) }, "frame header: reserved field 0x1"},
		{"length 0", func(f []byte) { le.PutUint32(f[28:], 0); resum(f) }, "frame header: length 0: must be 1 to 67108864"},
		{"length beyond the limit", func(f []byte) { le.PutUint32(f[28:], maxLength+1); resum(f) }, "frame header: length 67108865: must be 1 to 67108864"},
		{"length of another plan", func(f []byte) { le.PutUint32(f[28:], 4<<10); resum(f) }, "frame header: length 4096: slice 1 of the plan has 8192 bytes"},
		{"slice beyond the plan", func(f []byte) { le.PutUint32(f[20:], 2); resum(f) }, "frame header: slice 2: the plan has 2"},
		{"slice far beyond the plan", func(f []byte) { le.PutUint32(f[20:], 1<<31); resum(f) }, "frame header: slice 2147483648: the plan has 2"},
		{"checksum of the trailer", func(f []byte) { f[len(f)-1] ^= 1 }, "frame trailer: checksum"},
		{"status", func(f []byte) {
			at := len(f) - 8
			f[at] = 7
			le.PutUint32(f[at+4:], crc32.Checksum(f[at:at+4], castagnoli))
		}, "frame trailer: status 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer // at info, as daemons log
			p := newRawPeer(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			s := p.expect(1, 8<<10, 2)
			f := s.frame(1, 0)
			c.spoil(f)
			p.write(f)
			p.wantClosed()
			p.sink.LinkLost(t, 1)
			if st := p.tr.Stats()["a"]; st.Malformed != 1 || st.LinksLost != 1 {
				t.Errorf("%+v, want one malformed frame and one lost link", st)
			}
			head := `level=WARN msg="malformed frame, data link closed" peer=a epoch=7 link=0 error="` + c.says
			if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, head) {
				t.Errorf("the log has\n%swant %s", said, head)
			}
		})
	}
}

// TestMalformedOverAndOver: a peer whose links all end so fills no log. Each one counts.
func TestMalformedOverAndOver(t *testing.T) {
	var log bytes.Buffer
	p := newRawPeer(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	s := p.expect(1, 8<<10, 2)
	const links = 5
	for i := range links {
		if i > 0 {
			p.link(i)
		}
		f := s.frame(1, 0)
		f[36] ^= 1
		p.write(f)
		p.wantClosed()
		p.sink.LinkLost(t, i+1)
	}
	if st := p.tr.Stats()["a"]; st.Malformed != links {
		t.Errorf("%d malformed frames are counted, want %d", st.Malformed, links)
	}
	if said := log.String(); strings.Count(said, "malformed frame") != 1 {
		t.Errorf("the log has\n%swant it said once", said)
	}
}

// TestCutOff: a link that ends within a frame is reported for the slice it was in, before LinkLost, and the slice can be
// sent again through the next link. A whole frame before it does not make the cut one count as whole.
func TestCutOff(t *testing.T) {
	const size = 512 << 10
	for _, cut := range []int{headerSize, headerSize + 1, headerSize + 300<<10, headerSize + size - 20, headerSize + size, headerSize + size + 7} {
		p := newRawPeer(t, Config{})
		s := p.expect(1, size, 2)
		p.write(s.frame(0, 0), s.frame(1, 0)[:cut])
		p.conn.Close()
		p.wantLanded(s.key(0, 0), transfer.OK)
		p.wantLanded(s.key(1, 0), transfer.PeerGone)
		p.sink.LinkLost(t, 1)
		p.link(0)
		p.write(s.frame(1, 1))
		p.wantLanded(s.key(1, 1), transfer.OK)
		if !s.holds(0, s.payloads[0]) || !s.holds(1, s.payloads[1]) {
			t.Fatal("wrong bytes")
		}
	}
}

// TestDiscardedIsWhatCame: of a frame that nobody wants, what its link lost with its end is not counted as discarded.
func TestDiscardedIsWhatCame(t *testing.T) {
	const came = 300 << 10
	p := newRawPeer(t, Config{})
	f := frame(header{xfer: 9, length: 32 << 20}, make([]byte, 32<<20), statusWhole)
	p.write(f[:headerSize+came])
	p.conn.Close()
	p.sink.LinkLost(t, 1)
	if n := p.tr.Stats()["a"].DiscardedBytes; n == 0 || n > came {
		t.Errorf("%d bytes are counted as discarded, %d came", n, came)
	}
}

// TestDiscardedIsAllOfIt: what a link had in hand for a slice when that was fenced counts as discarded, with what followed.
func TestDiscardedIsAllOfIt(t *testing.T) {
	const size = 200 << 10
	p := newRawPeer(t, Config{Staged: 1 << 30})
	s := p.expect(1, size, 1)
	f := s.frame(0, 0)
	p.write(f[:headerSize+size/2])
	<-s.mem.asked
	p.tr.Fence(s.leg)
	p.sink.Fenced(t, s.leg)
	p.write(f[headerSize+size/2:])
	p.wantOpen(2)
	if n := p.tr.Stats()["a"].DiscardedBytes; n != uint64(len(f)-headerSize) {
		t.Errorf("%d bytes are counted as discarded, want %d", n, len(f)-headerSize)
	}
}

// TestOtherEpoch: frames of a link belong to the link's epoch, whatever transfers there are of another one.
func TestOtherEpoch(t *testing.T) {
	p := newRawPeer(t, Config{})
	s := p.expect(1, 8<<10, 1)
	near, far := connect(t)
	defer far.Close()
	p.tr.LinkUp(linkOf(near, epoch+1, 0))
	usual := p.conn
	p.conn = far
	p.write(s.frame(0, 0))
	p.conn = usual
	p.wantOpen(2)
	if _, ok := p.sink.HasLanded(s.key(0, 0)); ok {
		t.Error("a frame of another epoch landed")
	}
	p.tr.LinksDown("a", epoch+1)
	if s.holds(0, s.payloads[0]) {
		t.Error("a frame of another epoch touched memory")
	}
}

// told counts how often the driver is woken.
type told struct {
	transport.Batcher
	flushed chan struct{}
}

func (b *told) Flush() {
	b.Batcher.Flush()
	b.flushed <- struct{}{}
}

// TestWholeIsTold: what has landed is told together, and before the receiver waits for more when somebody may wait for it: when it is
// the last of its segment. Polling is waiting, too.
func TestWholeIsTold(t *testing.T) {
	t.Run("in the kernel", func(t *testing.T) { wholeIsTold(t, Config{}) })
	t.Run("polling", func(t *testing.T) { wholeIsTold(t, Config{Spin: time.Hour}) })
}

func wholeIsTold(t *testing.T, cfg Config) {
	p := newRawPeer(t, cfg)
	near, far := connect(t)
	p.tr.mu.Lock()
	l := &link{Link: linkOf(near, epoch, 1), ch: p.tr.channel(channelKey{"a", epoch})}
	p.tr.mu.Unlock()
	told := &told{p.tr.sink, make(chan struct{}, 2*batch)}
	p.tr.sink = told
	_, rx, err := l.ends()
	if err != nil {
		t.Fatal(err)
	}
	rx.sock.parked = nil // as if the bytes always came in time
	part, whole := p.expect(1, worthHolding, 2), p.expect(2, worthHolding, 1)
	ended := make(chan error)
	go func() { ended <- rx.run() }()

	usual := p.conn
	p.conn = far
	p.write(part.frame(0, 0))
	p.write(whole.frame(0, 0))
	select {
	case <-told.flushed:
	case <-time.After(time.Minute):
		t.Error("nobody was told")
		far.Close() // its end is told
	}
	if n := len(told.flushed); n != 0 {
		t.Errorf("the driver was woken %d times more, want once for both", n)
	}
	p.wantLanded(part.key(0, 0), transfer.OK)
	p.wantLanded(whole.key(0, 0), transfer.OK)
	far.Close()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the receiver ended with %v", err)
	}
	l.release()
	p.conn = usual
}

// TestDeadLinkStopsReading: a link whose channel is over lets go of its slice although the peer goes on sending, and the peer
// is told.
func TestDeadLinkStopsReading(t *testing.T) {
	p := newRawPeer(t, Config{})
	s := p.expect(1, 512<<10, 1)
	f := s.frame(0, 0)
	p.write(f[:headerSize+100<<10])
	<-s.mem.asked
	gone := make(chan error)
	go func() {
		for {
			if _, err := p.conn.Write(f[headerSize:][:1<<10]); err != nil {
				gone <- err
				return
			}
		}
	}()
	p.tr.LinksDown("a", epoch)
	<-gone
	p.wantLanded(s.key(0, 0), transfer.PeerGone)
}
