package leak

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// plant names, in the environment of a child, what it is to leak.
const plant = "KVPIPE_LEAK_TEST_PLANT"

type runner func() int

func (r runner) Run() int { return r() }

// forever keeps leaked goroutines waiting.
var forever = make(chan struct{})

func TestMain(m *testing.M) {
	if what := os.Getenv(plant); what != "" {
		settle = 0 // nothing of it goes away
		Main(runner(plants[what].run))
	}
	Main(m)
}

// plants are test runs that end with status 0, unless said otherwise, and what
// the report about them must contain.
var plants = map[string]struct {
	run    func() int
	status int
	report string
}{
	"nothing": {func() int { return 0 }, 0, ""},
	"tidy": {func() int {
		fd := must(sys.MemfdCreate("tidy", 4096, sys.MemfdOptions{}))
		b := must(sys.Mmap(fd, 4096, sys.ProtWrite))
		ended := make(chan struct{})
		go close(ended)
		<-ended
		if sys.Munmap(b) != nil || sys.Close(fd) != nil || exec.Command("true").Run() != nil {
			return 1
		}
		return 0
	}, 0, ""},
	"goroutine": {func() int {
		go leakedGoroutine()
		return 0
	}, ExitCode, "leakedGoroutine"},
	"descriptor": {func() int {
		must(sys.EventfdCreate(false))
		return 0
	}, ExitCode, "anon_inode:[eventfd]"},
	"mapping": {func() int {
		fd := must(sys.MemfdCreate("left-mapped", 8192, sys.MemfdOptions{}))
		must(sys.Mmap(fd, 8192, sys.ProtRead))
		if sys.Close(fd) != nil {
			return 1
		}
		return 0
	}, ExitCode, "/memfd:left-mapped"},
	"child": {func() int {
		cmd := exec.Command("sleep", "60")
		if cmd.Start() != nil {
			return 1
		}
		// Dead but not waited for: it must show too, and outlives nobody.
		pidfd := must(sys.PidfdOpen(cmd.Process.Pid))
		if sys.PidfdSignal(pidfd, 9) != nil || sys.Close(pidfd) != nil {
			return 1
		}
		return 0
	}, ExitCode, "child process"},
	"failed test": {func() int {
		must(sys.EventfdCreate(false))
		return 7
	}, 7, ""},
}

func leakedGoroutine() { <-forever }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestEachKindIsCaught(t *testing.T) {
	for what, want := range plants {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), plant+"="+what)
			out, err := cmd.CombinedOutput()
			status := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status = exit.ExitCode()
			} else if err != nil {
				t.Fatalf("run child: %v", err)
			}
			if status != want.status {
				t.Errorf("exit status %d, want %d; output:\n%s", status, want.status, out)
			}
			if !strings.Contains(string(out), want.report) {
				t.Errorf("report does not name %q:\n%s", want.report, out)
			}
			if want.status != ExitCode && len(out) != 0 {
				t.Errorf("unexpected report:\n%s", out)
			}
		})
	}
}
