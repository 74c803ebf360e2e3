package peer

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

// maxFrame bounds one control frame: a million block ids of each side at five bytes, and some.
const maxFrame = 16 << 20

// appendFrame appends a frame with its length in front.
func appendFrame(dst []byte, f *peerpb.Frame) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, f)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	n := len(dst) - at - 4
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes is above the limit of %d", n, maxFrame)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(n))
	return dst, nil
}

// readFrame reads one frame. buf is scratch that it may grow and return; the frame does not refer to it.
func readFrame(r io.Reader, buf []byte) (*peerpb.Frame, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, buf, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, buf, malformed("frame of %d bytes, limit %d", n, maxFrame)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return nil, buf, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	f := new(peerpb.Frame)
	if err := proto.Unmarshal(buf[:n], f); err != nil {
		return nil, buf, malformed("%v", err)
	}
	return f, buf, nil
}

// malformedError is a frame that no honest peer sends; it closes the channel and is counted.
type malformedError struct{ text string }

func (e *malformedError) Error() string { return "malformed frame: " + e.text }

func malformed(format string, args ...any) error {
	return &malformedError{fmt.Sprintf(format, args...)}
}
