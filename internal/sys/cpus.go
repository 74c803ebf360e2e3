package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUs is a set of CPUs, 0 to MaxCPU. It can be compared with ==.
type CPUs struct{ set unix.CPUSet }

// MaxCPU is the highest number of a CPU in a CPUs.
const MaxCPU = 64*len(unix.CPUSet{}) - 1

// ParseCPUs reads a list of CPUs as /sys and configurations write it: numbers
// and ranges with commas, such as "0-3,8". An empty list is an empty set.
func ParseCPUs(list string) (c CPUs, err error) {
	if strings.TrimSpace(list) == "" {
		return c, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ok := strings.Cut(strings.TrimSpace(part), "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 0 || from > to || to > MaxCPU {
			return CPUs{}, fmt.Errorf("CPUs %q: %q: want numbers and ranges up to %d, such as \"0-3,8\"", list, part, MaxCPU)
		}
		for n := from; n <= to; n++ {
			c.set.Set(n)
		}
	}
	return c, nil
}

// String returns the list that ParseCPUs reads, as short as it can be.
func (c CPUs) String() string {
	var out strings.Builder
	for n := 0; n <= MaxCPU; n++ {
		if !c.set.IsSet(n) {
			continue
		}
		last := n
		for last < MaxCPU && c.set.IsSet(last+1) {
			last++
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(n))
		if last > n {
			fmt.Fprintf(&out, "-%d", last)
		}
		n = last
	}
	return out.String()
}

// Count returns how many CPUs are in the set.
func (c CPUs) Count() int { return c.set.Count() }

// And returns the CPUs that are in both sets.
func (c CPUs) And(o CPUs) CPUs {
	for i := range c.set {
		c.set[i] &= o.set[i]
	}
	return c
}

// ThreadCPUs returns the CPUs that the calling thread may run on. New threads
// begin with those of the thread that makes them.
func ThreadCPUs() (c CPUs, err error) {
	if err := unix.SchedGetaffinity(0, &c.set); err != nil {
		return CPUs{}, fmt.Errorf("get CPUs of thread: %w", err)
	}
	return c, nil
}

// SetThreadCPUs sets the CPUs that the calling thread may run on. CPUs that are
// not there are ignored, unless none remains. Call runtime.LockOSThread first,
// and restore the earlier set before unlocking: else the thread keeps its CPUs
// for whatever runs on it next.
func SetThreadCPUs(c CPUs) error {
	if err := unix.SchedSetaffinity(0, &c.set); err != nil {
		return fmt.Errorf("set CPUs of thread to %q: %w", c, err)
	}
	return nil
}

// SetProcessCPUs sets the CPUs that every thread of this process may run on:
// those that are there and those that they make.
func SetProcessCPUs(c CPUs) error {
	done := map[string]bool{}
	for more := true; more; { // a thread that was not done yet may have made another
		more = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set CPUs of process: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[t.Name()] {
				continue
			}
			done[t.Name()], more = true, true
			if err := unix.SchedSetaffinity(tid, &c.set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("set CPUs of process to %q: %w", c, err)
			}
		}
	}
	return nil
}
