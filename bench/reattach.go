package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// reattachGroup kills a daemon under an engine with many regions and live
// offers, and starts it again. How long after it listens does it have
// everything back?
func reattachGroup(regions, offers int, ms float64) group {
	row := fmt.Sprintf("re-attach, %d regions, %d offers", regions, offers)
	return group{
		name:    "reattach",
		targets: []target{{row, stats.AtMost, ms}},
		run: func(e *env, r *rows) error {
			d, err := e.startDaemon("a", "off", filepath.Join(e.dir, e.unique("ca")), setting{crc: "auto", cpu: -1}, nil)
			if err != nil {
				return err
			}
			defer func() { d.stop() }()
			s := shape{"64K", 64 << 10, 1024}
			c, err := e.start("bench-client", clientArgs(s, "--socket", d.socket)...)
			if err != nil {
				return err
			}
			defer c.stop()
			if _, err := c.run("do=regions n=%d", regions-1); err != nil {
				return err
			}
			key := e.unique("k")
			if _, err := c.run("do=offers key=%s n=%d", key, offers); err != nil {
				return err
			}
			var took []float64
			for range e.rounds {
				t, err := reattachOnce(d, c, fmt.Sprintf("key=%s n=%d", key, offers))
				if err != nil {
					return err
				}
				took = append(took, float64(t)/float64(time.Millisecond))
			}
			r.absolute(row, stats.NewSeries("kvpipe", "ms", took))
			return nil
		},
	}
}

// reattachOnce restarts the daemon. It returns the time from the daemon's first
// accepted connection until the client has everything back, up to the last of
// its offers.
func reattachOnce(d *daemon, c *driven, offers string) (time.Duration, error) {
	if _, err := io.WriteString(c.in, "run do=back "+offers+"\n"); err != nil {
		return 0, err
	}
	d.kill()
	listens, over := make(chan time.Time, 1), make(chan struct{})
	defer close(over)
	go func() {
		for {
			if conn, err := net.Dial("unixpacket", d.socket); err == nil {
				listens <- time.Now()
				_ = conn.Close()
				return
			}
			select {
			case <-over:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	}()
	if err := d.start(exec.Command(d.cmd.Path, d.cmd.Args[1:]...)); err != nil {
		return 0, err
	}
	if _, err := c.read(); err != nil {
		return 0, err
	}
	back := time.Now()
	select {
	case from := <-listens:
		return back.Sub(from), nil
	case <-time.After(patience):
		return 0, errors.New("the daemon has everything back, and nobody can connect to it")
	}
}

// kill ends the daemon at once.
func (d *daemon) kill() {
	_ = d.cmd.Process.Signal(syscall.SIGKILL)
	<-d.log
	_ = d.cmd.Wait()
}
