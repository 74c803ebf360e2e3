package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

const (
	// linkHelloSize: "KVPL", u32 index, u64 epoch, u32 serial, u32 zero, 32 bytes of HMAC-SHA256 over these 24 bytes
	// with the channel's secret, 8 zero bytes; all little endian. The answer is one byte, linkAccepted. Refused links
	// are closed.
	linkHelloSize = 64
	linkSaid      = 24
	linkAccepted  = 1
)

// linkHello is the first message on a data link.
type linkHello struct {
	index, serial uint32
	epoch         uint64
	said, proof   []byte
}

func (h *linkHello) append(dst, secret []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, linkHelloSize)...)
	b := dst[at:]
	copy(b, plainLink)
	binary.LittleEndian.PutUint32(b[4:], h.index)
	binary.LittleEndian.PutUint64(b[8:], h.epoch)
	binary.LittleEndian.PutUint32(b[16:], h.serial)
	copy(b[linkSaid:], prove(secret, b[:linkSaid]))
	return dst
}

func decodeLinkHello(b []byte) (h linkHello, err error) {
	if len(b) != linkHelloSize || string(b[:4]) != plainLink {
		return h, malformed("link hello of %d bytes begins with %q", len(b), b[:min(4, len(b))])
	}
	for _, gap := range [][]byte{b[20:linkSaid], b[linkSaid+sha256.Size:]} {
		for _, zero := range gap {
			if zero != 0 {
				return h, malformed("link hello with something where zeros belong")
			}
		}
	}
	return linkHello{
		index: binary.LittleEndian.Uint32(b[4:]), epoch: binary.LittleEndian.Uint64(b[8:]), serial: binary.LittleEndian.Uint32(b[16:]),
		said: b[:linkSaid], proof: b[linkSaid : linkSaid+sha256.Size],
	}, nil
}

func prove(secret, said []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(said)
	return h.Sum(nil)
}

// acceptLink checks a link's hello, whose first bytes, head, have been read. node is the name in the certificate, ""
// for plain links.
func (m *Manager) acceptLink(s sides, head []byte, node string) error {
	var b [linkHelloSize]byte
	n := copy(b[:], head)
	if _, err := io.ReadFull(s.conn, b[n:]); err != nil {
		return fmt.Errorf("wait for link hello: %w", err)
	}
	h, err := decodeLinkHello(b[:])
	if err != nil {
		return err
	}
	c, stale := m.byEpoch(h.epoch)
	switch {
	case stale:
		return errStale
	case c == nil:
		return malformed("link of an unknown channel")
	case !hmac.Equal(h.proof, prove(c.secret, h.said)):
		return malformed("link with a wrong secret for the channel of %q", c.node)
	case node != "" && node != c.node:
		return malformed("certificate of node %q on a link of %q", node, c.node)
	case node == "" && !c.links.plain:
		return malformed("plain link, but the links of the channel of %q are encrypted", c.node)
	case int64(h.index) >= int64(c.links.want):
		return malformed("link %d of %d", h.index, c.links.want)
	case !c.links.fresh(h.serial):
		return malformed("link secret %d used twice", h.serial)
	}
	if _, err := s.conn.Write([]byte{linkAccepted}); err != nil {
		return fmt.Errorf("answer link hello: %w", err)
	}
	_ = s.tcp.SetDeadline(time.Time{})
	c.linkUp(s.conn, s.tcp, int(h.index), h.serial)
	return nil
}

// window remembers which numbers came, as far back as they can arrive out of order: links are opened side by side.
type window struct {
	top  uint32    // the highest so far; numbers begin with 1
	seen [4]uint64 // bit n: top-n came
}

const windowSize = 256

// fresh says whether n has not come before, and notes it. Numbers too far below the highest are not fresh.
func (w *window) fresh(n uint32) bool {
	if n > w.top {
		w.shift(n - w.top)
		w.top = n
	}
	back := w.top - n
	if n == 0 || back >= windowSize {
		return false
	}
	bit := uint64(1) << (back % 64)
	if w.seen[back/64]&bit != 0 {
		return false
	}
	w.seen[back/64] |= bit
	return true
}

func (w *window) shift(by uint32) {
	for ; by >= 64; by -= 64 {
		w.seen = [4]uint64{0, w.seen[0], w.seen[1], w.seen[2]}
		if w.seen == [4]uint64{} {
			return
		}
	}
	for i := len(w.seen) - 1; i >= 0 && by > 0; i-- {
		w.seen[i] <<= by
		if i > 0 {
			w.seen[i] |= w.seen[i-1] >> (64 - by)
		}
	}
}
