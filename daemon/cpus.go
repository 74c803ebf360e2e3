package daemon

import (
	"fmt"
	"runtime"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// confine keeps all threads on the configured CPUs, before there are many threads, and returns how many CPUs those are.
// Threads that are made later, and those that are placed near memory, stay among them.
func (d *Daemon) confine() (int, error) {
	if d.cfg.CPUs == "" {
		return runtime.NumCPU(), nil
	}
	want, err := sys.ParseCPUs(d.cfg.CPUs)
	if err != nil {
		return 0, fmt.Errorf("cpus: %w", err)
	}
	have, err := sys.ThreadCPUs()
	if err != nil {
		return 0, fmt.Errorf("cpus: %w", err)
	}
	use := want.And(have)
	switch use.Count() {
	case 0:
		d.log.Error("cpus: none of them is there for this process, which runs wherever it may", "cpus", d.cfg.CPUs, "there", have.String())
		return have.Count(), nil
	case want.Count():
	default:
		d.log.Warn("cpus: some of them are not there for this process", "cpus", d.cfg.CPUs, "used", use.String())
	}
	if err := sys.SetProcessCPUs(use); err != nil {
		return 0, fmt.Errorf("cpus: %w", err)
	}
	return use.Count(), nil
}
