package tcp

import (
	"runtime"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// crowd is the sockets of a transport that move data now, of which so many may spin.
type crowd struct {
	streaming atomic.Int64
	spinners  int64
}

// init lets half of the CPUs spin: those that this thread may use, which can be fewer by now than the process began with.
func (c *crowd) init() {
	cpus := runtime.NumCPU()
	if have, err := sys.ThreadCPUs(); err == nil {
		cpus = have.Count()
	}
	c.spinners = int64(max(cpus/2, 1))
}

// crowded tells whether streams could take the processor from one another. Then waiting is faster than spinning.
func (c *crowd) crowded() bool { return c.streaming.Load() > c.spinners }
