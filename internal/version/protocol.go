package version

import (
	"fmt"
	"strconv"
	"strings"
)

// rings and peers are the protocol versions that the binary speaks instead of those it was written for, such as "1-2".
// The linker sets them, for tests between neighbouring versions: -X .../internal/version.rings=1-2.
var rings, peers string

// Rings returns the oldest and the newest version of the ring protocol that this binary speaks: oldest and newest,
// unless the linker set others.
func Rings(oldest, newest uint32) [2]uint32 { return speaks(rings, oldest, newest) }

// Peers is Rings for the protocol between daemons.
func Peers(oldest, newest uint32) [2]uint32 { return speaks(peers, oldest, newest) }

func speaks(set string, oldest, newest uint32) [2]uint32 {
	if set == "" {
		return [2]uint32{oldest, newest}
	}
	first, last, ok := strings.Cut(set, "-")
	a, err := strconv.ParseUint(first, 10, 32)
	b, wrong := strconv.ParseUint(last, 10, 32)
	if !ok || err != nil || wrong != nil || a > b {
		panic(fmt.Sprintf("built to speak versions %q of a protocol: give two numbers, such as 1-2", set))
	}
	return [2]uint32{uint32(a), uint32(b)}
}
