package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// benchPrefix begins the keys by which daemons ask each other for something to measure with:
//
//	prefix + "hello"                              is this daemon willing?
//	prefix + TRANSPORT/SIZE/BLOCKS/NAME           all offers of a measurement; dropped when it is over
//	prefix + TRANSPORT/SIZE/BLOCKS/NAME/NUMBER    watched: offer BLOCKS blocks of SIZE bytes under this key
//
// They travel as watches and drops. A daemon answers them itself; its machine never sees them. Clients cannot use such
// keys.
const benchPrefix = transfer.ReservedPrefix + "bench/"

const benchHello = benchPrefix + "hello"

// benchSpec is the shape of a hand-over.
type benchSpec struct {
	transport string
	size      uint64 // bytes of a block
	blocks    int
	name      uint64 // of the measurement, drawn by the daemon that asks
}

func (s benchSpec) bytes() uint64 { return s.size * uint64(s.blocks) }

func (s benchSpec) key() string {
	return fmt.Sprintf("%s%s/%d/%d/%016x", benchPrefix, s.transport, s.size, s.blocks, s.name)
}

func (s benchSpec) offerKey(n int) string { return fmt.Sprintf("%s/%d", s.key(), n) }

// parseBench reads a key that a peer wrote.
func parseBench(key string) (s benchSpec, err error) {
	rest, ok := strings.CutPrefix(key, benchPrefix)
	f := strings.Split(rest, "/")
	if !ok || len(f) < 4 || len(f) > 5 {
		return s, fmt.Errorf("key %q is not understood", key)
	}
	s.transport = f[0]
	if s.size, err = strconv.ParseUint(f[1], 10, 64); err == nil {
		if s.blocks, err = strconv.Atoi(f[2]); err == nil {
			s.name, err = strconv.ParseUint(f[3], 16, 64)
		}
	}
	if err != nil {
		return s, fmt.Errorf("key %q: %w", key, err)
	}
	if err := checkBenchSize(s.size); err != nil {
		return s, fmt.Errorf("key %q: block size %w", key, err)
	}
	if s.blocks < 1 || uint64(s.blocks) > benchBytes/s.size {
		return s, fmt.Errorf("key %q: %d blocks: give 1 to %d of that size", key, s.blocks, benchBytes/s.size)
	}
	return s, nil
}
