package sys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ProcRoot is where the proc file system usually is. Functions take the root
// as a parameter, so that tests read fixtures.
const ProcRoot = "/proc"

// StartTime returns when process pid began, in clock ticks since boot. Pid and
// start time together name a process for good; a pid alone is reused.
func StartTime(root string, pid int) (uint64, error) {
	path := filepath.Join(root, strconv.Itoa(pid), "stat")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("start time of pid %d: %w", pid, err)
	}
	// The second field is the command in parentheses, which may hold spaces
	// and parentheses of its own; field 22 is counted from its end.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, fmt.Errorf("start time of pid %d: %s has no command field", pid, path)
	}
	const startTimeAfterComm = 22 - 3
	fields := strings.Fields(string(b[i+1:]))
	if len(fields) <= startTimeAfterComm {
		return 0, fmt.Errorf("start time of pid %d: %s has %d fields after the command, want more than %d",
			pid, path, len(fields), startTimeAfterComm)
	}
	t, err := strconv.ParseUint(fields[startTimeAfterComm], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("start time of pid %d: %w", pid, err)
	}
	return t, nil
}

// Exiting reports whether process pid, or what is left of it, has given up its
// memory, which happens before its descriptors are closed. A process that is
// gone counts as exiting. One that cannot be looked at counts as running, and
// the error says why. If a process's main thread has ended and others run on,
// only those have memory. The number of threads would not tell: a thread counts
// until after its descriptors are closed.
func Exiting(root string, pid int) (bool, error) {
	dir := filepath.Join(root, strconv.Itoa(pid))
	if none, err := noMemory(dir); !none {
		return false, err
	}
	tasks := filepath.Join(dir, "task")
	threads, err := os.ReadDir(tasks)
	if err != nil && !isGone(err) {
		return false, fmt.Errorf("threads of pid %d: %w", pid, err)
	}
	for _, thread := range threads {
		if none, err := noMemory(filepath.Join(tasks, thread.Name())); !none {
			return false, err
		}
	}
	return true, nil
}

func noMemory(dir string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		if isGone(err) {
			return true, nil
		}
		return false, fmt.Errorf("memory of a process: %w", err)
	}
	return bytes.HasPrefix(b, []byte("0 ")), nil
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// Cgroup returns the control group of process pid, a path from the root of its
// hierarchy. On hosts with version 1 hierarchies a process has several. Then it
// is the first that is not "/", in the order unified, systemd, memory, pids,
// then as listed: containers have the same path in all of them.
func Cgroup(root string, pid int) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("cgroup of pid %d: %w", pid, err)
	}
	best, rank := "", 0
	for line := range strings.Lines(string(b)) {
		// hierarchy-ID:controller-list:cgroup-path; paths may hold colons.
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return "", fmt.Errorf("cgroup of pid %d: malformed line %q", pid, line)
		}
		if r := cgroupRank(parts[1], parts[2]); r > rank {
			best, rank = parts[2], r
		}
	}
	if rank == 0 {
		return "", fmt.Errorf("cgroup of pid %d: no entry", pid)
	}
	return best, nil
}

func cgroupRank(controllers, path string) int {
	if path == "/" {
		return 1
	}
	switch {
	case controllers == "":
		return 6
	case controllers == "name=systemd":
		return 5
	}
	for c := range strings.SplitSeq(controllers, ",") {
		switch c {
		case "memory":
			return 4
		case "pids":
			return 3
		}
	}
	return 2
}
