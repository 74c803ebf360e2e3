package daemon

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// tune sets what the Go runtime must know. Copy workers occupy processors (GOMAXPROCS), so there have to be two more of
// these than workers. The thread of a stream occupies one, too, while it is in the kernel; where none is left, the
// runtime watches its threads and wakes others all the time. And the collector should work harder before memory runs
// out. What tune returns has to be kept for as long as the daemon runs.
func tune(c config.Config, cpus int) (ballast []byte) {
	n := c.Advanced.GoMaxProcs
	if n == 0 {
		n = max(cpus, c.Local.CopyWorkers+2) + c.TCP.Streams
	}
	runtime.GOMAXPROCS(n)
	if os.Getenv("GOMEMLIMIT") == "" && c.Advanced.MemoryLimit > 0 {
		debug.SetMemoryLimit(int64(c.Advanced.MemoryLimit))
	}
	if os.Getenv("GOGC") == "" {
		return heapFor(c.PollMode, debug.SetMemoryLimit(-1)).begin()
	}
	return nil
}

// heap says how the Go runtime's heap begins, and when it is collected.
type heap struct {
	percent int // growth between two collections, in percent of what lives and of ballast
	warm    int // bytes that it has from the start
	ballast int // bytes that count as living but take no memory
}

var (
	// smallHeap grows to 16 MiB before it is collected. It is for limits that leave no room for more.
	smallHeap = heap{percent: 400, warm: 12 << 20}

	// eventHeap has room for some five thousand hand-overs between two collections. What lives is small, and a
	// collection delays a hundred hand-overs.
	eventHeap = heap{percent: 100, warm: 22 << 20, ballast: 22 << 20}

	// busyHeap is for a daemon that polls, for the sake of microseconds: on a virtual machine, a page that the kernel
	// has yet to give costs several of them. It has room for some ten thousand hand-overs between two collections. With
	// the ballast, it is not given back, and does not grow by a multiple when there is more to remember for a while.
	busyHeap = heap{percent: 100, warm: 60 << 20, ballast: 64 << 20}
)

// heapFor returns the heap of a daemon that may use limit bytes of memory.
func heapFor(pollMode string, limit int64) heap {
	switch {
	case pollMode == "busy" && limit >= 4*int64(busyHeap.ballast):
		return busyHeap
	case limit >= 4*int64(eventHeap.ballast):
		return eventHeap
	}
	return smallHeap
}

func (h heap) begin() (ballast []byte) {
	debug.SetGCPercent(-1) // a collection now would count what warm has as living, and the next would come at several times as much
	ballast = make([]byte, h.ballast)
	warm(h.warm)
	debug.SetGCPercent(h.percent)
	return ballast
}

// warm has the kernel give the heap its pages now, instead of one by one while hand-overs wait for them. A heap of that
// size is never given back.
func warm(size int) {
	b := make([]byte, size)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	// The next collection takes b. Waiting for one here would never end for threads of a real-time policy on one CPU.
}
