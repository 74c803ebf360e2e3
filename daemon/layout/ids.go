package layout

import (
	"bytes"
	"fmt"
)

// Block ids travel as zigzag varints of the difference to the id before; the first one's is to 0. A hole is the id
// -1. In a run of adjacent ids each is then one byte.

// AppendIDs appends the wire form of ids to dst.
func AppendIDs(dst []byte, ids []uint32) []byte {
	if len(ids) > 1 && IsAdjacent(ids) {
		return appendNext(AppendIDs(dst, ids[:1:1]), len(ids)-1)
	}
	prev := int64(0)
	for _, id := range ids {
		cur := int64(id)
		if id == NoBlock {
			cur = -1
		}
		delta := cur - prev
		prev = cur
		z := uint64(delta<<1) ^ uint64(delta>>63)
		for z >= 0x80 {
			dst = append(dst, byte(z)|0x80)
			z >>= 7
		}
		dst = append(dst, byte(z))
	}
	return dst
}

// nexts is the wire form of ids of which each is one more than the id before.
var nexts = bytes.Repeat([]byte{next}, 4096)

const next = 1 << 1

func appendNext(dst []byte, n int) []byte {
	for n > len(nexts) {
		dst = append(dst, nexts...)
		n -= len(nexts)
	}
	return append(dst, nexts[:n]...)
}

// adjacent says whether b encodes ids of which each is one more than the id before.
func adjacent(b []byte) bool {
	for len(b) > len(nexts) {
		if !bytes.Equal(b[:len(nexts)], nexts) {
			return false
		}
		b = b[len(nexts):]
	}
	return bytes.Equal(b, nexts[:len(b)])
}

// DecodeIDs reads exactly count ids, which must use up exactly the bytes of b. Encodings longer than AppendIDs writes
// are errors.
func DecodeIDs(b []byte, count int) ([]uint32, error) {
	switch {
	case count < 0 || count > MaxIDs:
		return nil, fmt.Errorf("block ids: %d; must be at most %d", count, MaxIDs)
	case count > len(b) || len(b) > 5*count:
		return nil, fmt.Errorf("block ids: %d bytes cannot hold %d ids", len(b), count)
	}
	if count >= few && b[len(b)-1] == next && adjacent(b[len(b)-count+1:]) {
		first, err := DecodeIDs(b[:len(b)-count+1], 1)
		if err == nil && uint64(first[0])+uint64(count) <= uint64(NoBlock) {
			return Adjacent(first[0], uint32(count)), nil
		}
	}
	ids := make([]uint32, count)
	at, prev := 0, int64(0)
	for i := range ids {
		var z uint64
		if at < len(b) && b[at] < 0x80 {
			z = uint64(b[at])
			at++
		} else {
			n := 0
			if z, n = longVarint(b[at:]); n == 0 {
				return nil, fmt.Errorf("block ids: id %d of %d is malformed at byte %d of %d", i, count, at, len(b))
			}
			at += n
		}
		prev += int64(z>>1) ^ -int64(z&1)
		if prev < -1 || prev >= int64(NoBlock) {
			return nil, fmt.Errorf("block ids: id %d of %d is %d; must be below %d", i, count, prev, NoBlock)
		}
		ids[i] = uint32(prev) // -1 is NoBlock
	}
	if at != len(b) {
		return nil, fmt.Errorf("block ids: %d bytes left over after %d ids", len(b)-at, count)
	}
	return ids, nil
}

// few is how many ids a list needs before it is checked for being adjacent.
const few = 16

// longVarint reads a varint of at most 5 bytes; n is 0 if there is none or it is longer than necessary.
func longVarint(b []byte) (z uint64, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		z |= uint64(c&0x7f) << (7 * n)
		n++
		if c < 0x80 {
			if c == 0 && n > 1 {
				return 0, 0
			}
			return z, n
		}
	}
	return 0, 0
}
