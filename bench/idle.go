package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// idleGroup measures a daemon that has moved a list to its peer and now has
// nothing to do, but still has a session, a region of 1 GiB and a live channel.
func idleGroup(percent, megabytes float64) group {
	const cpuRow, memRow = "idle daemon, share of a core", "idle daemon, anonymous memory"
	return group{
		name:    "idle",
		targets: []target{{cpuRow, stats.AtMost, percent}, {memRow, stats.AtMost, megabytes}},
		run: func(e *env, r *rows) error {
			p, err := e.startRemote(setting{workers: 2, streams: 2, crc: "auto", cpu: -1}, large)
			if err != nil {
				return err
			}
			defer p.stop()
			window := 2 * time.Second
			var cpu, mem []float64
			for range max(e.rounds, 5) {
				share, err := coreShare(p.a.d.cmd.Process.Pid, window)
				if err != nil {
					return err
				}
				anon, err := anonymous(p.a.d.cmd.Process.Pid)
				if err != nil {
					return err
				}
				cpu, mem = append(cpu, share*100), append(mem, anon)
			}
			r.absolute(cpuRow, stats.NewSeries("kvpiped", "%", cpu))
			r.absolute(memRow, stats.NewSeries("kvpiped", "MB", mem))
			return nil
		},
	}
}

// coreShare returns the CPU time that a process uses in a window, as a share of
// the window.
func coreShare(pid int, window time.Duration) (float64, error) {
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	<-time.After(window)
	after, err := cpuTime(pid)
	return float64(after-before) / float64(time.Since(start)), err
}

// cpuTime sums the nanoseconds that the threads of a process have run. The
// counters of /proc/PID/stat are too coarse: they tick every 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d has no schedstat", pid)
	}
	var sum int64
	for _, file := range files {
		ns, err := strconv.ParseInt(firstField(file), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += ns
	}
	return time.Duration(sum), nil
}

// anonymous returns the resident anonymous memory of a process in MB.
func anonymous(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kb, found := strings.CutPrefix(line, "RssAnon:"); found {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("process %d has no RssAnon", pid)
}
