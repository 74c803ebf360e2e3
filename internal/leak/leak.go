package leak

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// ExitCode is the status with which a test binary ends when its tests pass but
// leak.
const ExitCode = 99

// settle is how long something may take that is about to end by itself, such as
// a goroutine after its last send. A clean run never waits for it.
var settle = 20 * time.Second

// Runner runs the tests; *testing.M is one.
type Runner interface{ Run() int }

// Main runs the tests of m and exits the process with their status, or with
// ExitCode and a report on stderr when they pass but leave goroutines,
// descriptors, memfd mappings or children that were not there before. Failed
// tests are not checked: they often stop half-way. Call it as the last thing in
// TestMain; it does not return.
func Main(m Runner) {
	os.Exit(run(m, os.Stderr))
}

func run(m Runner, report io.Writer) int {
	if err := startPoller(); err != nil {
		fmt.Fprintf(report, "leak: %v\n", err)
		return ExitCode
	}
	goroutines := goleak.IgnoreCurrent()
	before, err := takeSnapshot()
	if err != nil {
		fmt.Fprintf(report, "leak: %v\n", err)
		return ExitCode
	}
	if code := m.Run(); code != 0 {
		return code
	}
	leaks := waitClean(before, goroutines)
	if len(leaks) == 0 {
		return 0
	}
	fmt.Fprintf(report, "leak: the tests passed but left behind:\n%s\n", strings.Join(leaks, "\n"))
	return ExitCode
}

// startPoller makes the runtime open the descriptors of its network poller
// now, so that they are not taken for a leak of the first test that needs it.
func startPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_ = r.Close()
	return w.Close()
}

// waitClean returns, as lines for people, what is there and was not before. It
// returns once there is nothing, or when settle is over.
func waitClean(before snapshot, goroutines goleak.Option) []string {
	deadline := time.Now().Add(settle)
	for {
		now, err := takeSnapshot()
		if err != nil {
			return []string{err.Error()}
		}
		leaks := now.minus(before)
		if err := goleak.Find(goroutines); err != nil {
			leaks = append(leaks, fmt.Sprintf("goroutines: %v", err))
		}
		if len(leaks) == 0 || time.Now().After(deadline) {
			return leaks
		}
		// Nothing announces the end of a descriptor or mapping.
		time.Sleep(5 * time.Millisecond)
	}
}
