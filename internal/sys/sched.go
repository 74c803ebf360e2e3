package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetThreadNice sets the niceness of the calling thread, -20 to 19; lowering
// it needs CAP_SYS_NICE. Call runtime.LockOSThread before, and do not unlock:
// the thread keeps its niceness for whatever runs on it next.
func SetThreadNice(nice int) error {
	// Linux keeps a niceness per thread although POSIX says per process.
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
		return fmt.Errorf("set niceness of thread to %d: %w", nice, err)
	}
	return nil
}

// ThreadNice returns the niceness of the calling thread.
func ThreadNice() (int, error) {
	// The system call answers 20 minus the niceness, to stay positive.
	n, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err != nil {
		return 0, fmt.Errorf("get niceness of thread: %w", err)
	}
	return 20 - n, nil
}

// SetThreadAffinity lets the calling thread run on cpus only. The runtime
// starts new threads with the affinity of the thread that makes them, so call
// it on a locked thread that ends with its goroutine.
func SetThreadAffinity(cpus []int) error {
	if len(cpus) == 0 {
		return fmt.Errorf("set affinity of thread: no cpu given")
	}
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c >= len(set)*64 {
			return fmt.Errorf("set affinity of thread: cpu %d: must be below %d", c, len(set)*64)
		}
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("set affinity of thread to cpus %v: %w", cpus, err)
	}
	return nil
}

// ThreadAffinity returns the cpus that the calling thread may run on, in
// ascending order.
func ThreadAffinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("get affinity of thread: %w", err)
	}
	var cpus []int
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}
