package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

const (
	// maxFrame bounds one control frame: a million block ids of each side at five bytes, and some more.
	maxFrame = 16 << 20
	// maxHello bounds the first frame, whose sender has not said yet who it is.
	maxHello = 16 << 10
	// readBuffer is how much a channel reads ahead. Frames that fit are decoded where they lie.
	readBuffer = 64 << 10
)

// frame is one message of the control connection. body lies in the reader's buffer; it is valid until the next frame is
// read.
type frame struct {
	epoch uint64
	kind  protowire.Number
	body  []byte
}

// frames reads frames from a connection.
type frames struct {
	came tally
	r    *bufio.Reader
	held int    // bytes of the last frame that are still in r's buffer
	big  []byte // for frames that do not fit r's buffer
}

func newFrames(r io.Reader) *frames {
	fs := &frames{came: tally{from: r}}
	fs.r = bufio.NewReaderSize(&fs.came, readBuffer)
	return fs
}

// tally counts the bytes that arrive. Any goroutine may read the count: a frame can take long to arrive.
type tally struct {
	from io.Reader
	n    atomic.Int64
}

func (t *tally) Read(b []byte) (int, error) {
	n, err := t.from.Read(b)
	t.n.Add(int64(n))
	return n, err
}

// next reads one frame of at most limit bytes. An error is a malformedError or the connection's.
func (fs *frames) next(limit int) (frame, error) {
	_, _ = fs.r.Discard(fs.held)
	fs.held = 0
	head, err := fs.r.Peek(4)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head)
	if int64(n) > int64(limit) {
		return frame{}, malformed("a frame of %d bytes, limit %d", n, limit)
	}
	b, err := fs.body(int(n))
	if err != nil {
		return frame{}, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	return parseFrame(b)
}

// more says whether another whole frame has arrived, so that next would not wait.
func (fs *frames) more() bool {
	n := fs.r.Buffered() - fs.held
	if n < 4 {
		return false
	}
	head, err := fs.r.Peek(fs.held + 4)
	return err == nil && uint64(n-4) >= uint64(binary.LittleEndian.Uint32(head[fs.held:]))
}

// body returns the n bytes after the length.
func (fs *frames) body(n int) ([]byte, error) {
	if 4+n <= readBuffer {
		b, err := fs.r.Peek(4 + n)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		fs.held = len(b)
		return b[4:], nil
	}
	_, _ = fs.r.Discard(4)
	b := fs.big
	if cap(b) < n {
		b = make([]byte, n)
	}
	if fs.big = b; n > 1<<20 {
		fs.big = nil // rare; not worth keeping
	}
	if _, err := io.ReadFull(fs.r, b[:n]); err != nil {
		return nil, err
	}
	return b[:n], nil
}

// parseFrame finds the one kind of a frame.
func parseFrame(b []byte) (frame, error) {
	var out frame
	f := fields{what: "frame", b: b}
	for f.next() {
		switch {
		case f.num == 1:
			out.epoch = f.uint()
		case f.typ != protowire.BytesType: // a newer peer says something about the frame
		case out.kind != 0:
			f.fail("a frame of two kinds, %d and %d", out.kind, f.num)
		default:
			out.kind = f.num
			out.body = f.bytes("kind", maxFrame)
		}
	}
	if out.kind == 0 {
		f.fail("a frame of no kind")
	}
	return out, f.err
}

func appendHello(dst []byte, h *peerpb.Hello) ([]byte, error) {
	body, err := proto.Marshal(h)
	if err != nil {
		return dst, fmt.Errorf("encode hello: %w", err)
	}
	f := framer{writer: writer{b: dst}, from: len(dst)}
	f.start(0, kindHello, len(body))
	f.b = append(f.b, body...)
	return f.finish()
}

func appendHeartbeat(dst []byte, epoch, seq uint64, reply bool) ([]byte, error) {
	f := framer{writer: writer{b: dst}, from: len(dst)}
	f.start(epoch, kindHeartbeat, 10)
	f.uint(1, seq)
	f.bool(2, reply)
	return f.finish()
}

// appendAddresses appends a heartbeat that says where its sender's NICs are now.
func appendAddresses(dst []byte, epoch, seq uint64, now *peerpb.Addresses) ([]byte, error) {
	body, err := proto.Marshal(now)
	if err != nil {
		return dst, fmt.Errorf("encode addresses: %w", err)
	}
	f := framer{writer: writer{b: dst}, from: len(dst)}
	f.start(epoch, kindHeartbeat, len(body)+16)
	f.uint(1, seq)
	f.element(3, body)
	return f.finish()
}

// decodeHeartbeat decodes a heartbeat. moved is nil unless it has addresses.
func decodeHeartbeat(body []byte) (seq uint64, reply bool, moved *peerpb.Addresses, err error) {
	f := fields{what: "heartbeat", b: body}
	for f.next() {
		switch f.num {
		case 1:
			seq = f.uint()
		case 2:
			reply = f.bool()
		case 3:
			moved = new(peerpb.Addresses)
			if err := proto.Unmarshal(f.bytes("addresses", maxHello), moved); err != nil {
				f.fail("heartbeat.addresses: %v", err)
			}
		}
	}
	return seq, reply, moved, f.err
}

func appendClose(dst []byte, epoch uint64, reason uint32, text string) ([]byte, error) {
	f := framer{writer: writer{b: dst}, from: len(dst)}
	f.start(epoch, kindClose, len(text)+4)
	f.uint(1, uint64(reason))
	f.text(2, text)
	return f.finish()
}

func decodeClose(body []byte) (reason uint32, text string, err error) {
	f := fields{what: "close", b: body}
	for f.next() {
		switch f.num {
		case 1:
			reason = f.uint32()
		case 2:
			text = f.text("text", maxText, nil)
		}
	}
	return reason, text, f.err
}
