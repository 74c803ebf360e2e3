package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/kvpipe/kvpipe/internal/crc32c"
)

const (
	magic      = 0x4450564b
	version    = 1
	typeSlice  = 1
	flagCRC    = 1
	headerSize = 40
	// maxLength bounds a frame's payload.
	maxLength = 64 << 20
	// piece is how much one checksum covers, and how much is gathered or scattered between two checks of a fence.
	piece = 256 << 10
	// maxTrailer is the size of the longest trailer.
	maxTrailer = 8 + 4*(maxLength/piece)
)

// Trailer statuses.
const (
	statusWhole     = 0
	statusFault     = 1
	statusCancelled = 2
)

// header is a frame's header without its constant fields.
type header struct {
	flags   uint16
	xfer    uint64
	seg     uint32
	slice   uint32
	attempt uint32
	length  uint32
}

func (h *header) encode(b *[headerSize]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], magic)
	b[4], b[5] = version, typeSlice
	le.PutUint16(b[6:], h.flags)
	le.PutUint64(b[8:], h.xfer)
	le.PutUint32(b[16:], h.seg)
	le.PutUint32(b[20:], h.slice)
	le.PutUint32(b[24:], h.attempt)
	le.PutUint32(b[28:], h.length)
	le.PutUint32(b[32:], 0)
	le.PutUint32(b[36:], crc32c.Checksum(b[:36]))
}

// decode checks everything that can be checked without a plan.
func (h *header) decode(b *[headerSize]byte) error {
	le := binary.LittleEndian
	if m := le.Uint32(b[0:]); m != magic {
		return fmt.Errorf("frame header: magic %#x: must be %#x", m, magic)
	}
	if got, want := crc32c.Checksum(b[:36]), le.Uint32(b[36:]); got != want {
		return fmt.Errorf("frame header: checksum %#x, but it says %#x", got, want)
	}
	if b[4] != version {
		return fmt.Errorf("frame header: version %d: this node speaks %d", b[4], version)
	}
	if b[5] != typeSlice {
		return fmt.Errorf("frame header: type %d: must be %d", b[5], typeSlice)
	}
	*h = header{
		flags:   le.Uint16(b[6:]),
		xfer:    le.Uint64(b[8:]),
		seg:     le.Uint32(b[16:]),
		slice:   le.Uint32(b[20:]),
		attempt: le.Uint32(b[24:]),
		length:  le.Uint32(b[28:]),
	}
	if h.flags&^flagCRC != 0 {
		return fmt.Errorf("frame header: flags %#x: only %#x is known", h.flags, flagCRC)
	}
	if r := le.Uint32(b[32:]); r != 0 {
		return fmt.Errorf("frame header: reserved field %#x: must be 0", r)
	}
	if h.length == 0 || h.length > maxLength {
		return fmt.Errorf("frame header: length %d: must be 1 to %d", h.length, maxLength)
	}
	return nil
}

// sums returns how many checksums the trailer holds.
func (h *header) sums() int {
	if h.flags&flagCRC == 0 {
		return 0
	}
	return int(h.length+piece-1) / piece
}

// trailerSize returns the length of the frame's trailer.
func (h *header) trailerSize() int { return 8 + 4*h.sums() }

// appendTrailer appends a trailer with those checksums.
func appendTrailer(b []byte, status uint32, sums []uint32) []byte {
	le, start := binary.LittleEndian, len(b)
	b = le.AppendUint32(b, status)
	for _, s := range sums {
		b = le.AppendUint32(b, s)
	}
	return le.AppendUint32(b, crc32c.Checksum(b[start:]))
}

// readTrailer checks a trailer and returns its status, and the index of the first piece of the payload whose checksum
// differs from sums, -1 if all agree.
func readTrailer(b []byte, sums []uint32) (status uint32, wrong int, err error) {
	le, end := binary.LittleEndian, len(b)-4
	if got, want := crc32c.Checksum(b[:end]), le.Uint32(b[end:]); got != want {
		return 0, -1, fmt.Errorf("frame trailer: checksum %#x, but it says %#x", got, want)
	}
	if status = le.Uint32(b); status > statusCancelled {
		return 0, -1, fmt.Errorf("frame trailer: status %d: at most %d is known", status, statusCancelled)
	}
	for i, s := range sums {
		if le.Uint32(b[4+4*i:]) != s {
			return status, i, nil
		}
	}
	return status, -1, nil
}
