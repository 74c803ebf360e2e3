package tcp

import (
	"runtime"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// crowd counts the sockets of a transport that move data now. If they are more than spinners, none may spin.
type crowd struct {
	streaming atomic.Int64
	spinners  int64
}

// init lets as many sockets spin as half of the CPUs that this thread may use. By now these can be fewer than the
// process began with.
func (c *crowd) init() {
	cpus := runtime.NumCPU()
	if have, err := sys.ThreadCPUs(); err == nil {
		cpus = have.Count()
	}
	c.spinners = int64(max(cpus/2, 1))
}

// crowded says whether streams could take the processor from one another. Waiting is then faster than spinning.
func (c *crowd) crowded() bool { return c.streaming.Load() > c.spinners }
