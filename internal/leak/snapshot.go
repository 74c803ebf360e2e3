package leak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// snapshot is the set of things that this process holds. Each is a line that
// stays the same as long as the thing does.
type snapshot map[string]bool

// minus returns what is in s and not in before, sorted.
func (s snapshot) minus(before snapshot) []string {
	var out []string
	for line := range s {
		if !before[line] {
			out = append(out, line)
		}
	}
	sort.Strings(out)
	return out
}

func takeSnapshot() (snapshot, error) {
	s := snapshot{}
	for _, add := range []func(snapshot) error{addFDs, addMappings, addChildren} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addFDs adds the open descriptors and what they refer to. For sockets and
// pipes that includes the inode, so a number that was reused shows.
func addFDs(s snapshot) error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the descriptor of this very listing
		}
		if err != nil {
			return fmt.Errorf("list descriptors: %w", err)
		}
		s[fmt.Sprintf("fd %s: %s", e.Name(), link)] = true
	}
	return nil
}

// addMappings adds the mappings of memfds, of either page size. Those of
// libraries and of the Go heap come and go as the runtime likes.
func addMappings(s snapshot) error {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("list mappings: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		// address perms offset dev inode path
		f := strings.Fields(line)
		if len(f) >= 6 && strings.HasPrefix(f[5], "/memfd:") {
			s[fmt.Sprintf("mapping %s %s %s inode %s", f[0], f[1], f[5], f[4])] = true
		}
	}
	return nil
}

// addChildren adds child processes, including those that ended and that nobody
// waited for.
func addChildren(s snapshot) error {
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return fmt.Errorf("list children: %w", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended: its children moved to another
		}
		for pid := range strings.FieldsSeq(string(b)) {
			name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
			if err != nil {
				continue
			}
			s[fmt.Sprintf("child process %s: %s", pid, strings.TrimSpace(string(name)))] = true
		}
	}
	return nil
}
