package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/bench/stats"
	"github.com/kvpipe/kvpipe/internal/version"
)

// report is the JSON file of results.
type report struct {
	Version string         `json:"version"`
	Date    time.Time      `json:"date"`
	Machine machine        `json:"machine"`
	Rounds  int            `json:"rounds"`
	Targets int            `json:"targets"`
	Short   int            `json:"short"`
	Rows    []stats.Result `json:"rows"`
}

// machine says where the numbers come from. Load is the one-minute average
// before the first row, because a busy machine makes poor numbers.
type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Load   string `json:"load"`
	TCP    string `json:"tcp"` // congestion control of kvpipe's data links and of the references
}

func newReport(o options) *report {
	return &report{
		Version: version.String(), Date: time.Now().UTC().Truncate(time.Second), Rounds: o.rounds,
		Machine: machine{CPU: cpuName(), CPUs: runtime.NumCPU(), Kernel: firstField("/proc/sys/kernel/osrelease"), Load: firstField("/proc/loadavg"),
			TCP: firstField("/proc/sys/net/ipv4/tcp_congestion_control")},
	}
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d CPUs, Linux %s, TCP %s, load %s", m.CPU, m.CPUs, m.Kernel, m.TCP, m.Load)
}

func cpuName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, found := strings.CutPrefix(line, "model name"); found {
			return strings.Join(strings.Fields(strings.Trim(name, "\t :\n")), " ")
		}
	}
	return runtime.GOARCH
}

func firstField(file string) string {
	text, err := os.ReadFile(file)
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "unknown"
}

func (r *report) write(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}
