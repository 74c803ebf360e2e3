package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// process is a running kvpiped.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{} // closed after the last line of the log
	err    error         // of Wait

	mu    sync.Mutex
	lines []string
	grew  chan struct{} // closed with each line
}

// tempDir is short: paths of unix sockets have a limit.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kvt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// launch starts kvpiped and does not wait for anything.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return run(t, exec.Command(filepath.Join(bin, "kvpiped"), args...))
}

// run starts a command that becomes kvpiped.
func run(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{}), grew: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+tempDir(t))
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			close(p.grew)
			p.grew = make(chan struct{})
			p.mu.Unlock()
		}
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(cmd.Args, " "), p.log())
		}
	})
	return p
}

// start launches kvpiped and waits until it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, args...)
	p.await("msg=ready")
	return p
}

// dev starts a development daemon in dir, at free ports.
func dev(t *testing.T, dir, name string, more ...string) *process {
	t.Helper()
	return start(t, devArgs(dir, name, more...)...)
}

func devArgs(dir, name string, more ...string) []string {
	home := filepath.Join(dir, name)
	return append([]string{"--dev", "--node", name, "--state-dir", home, "--ca", filepath.Join(dir, "ca"), "--listen", "127.0.0.1:0"}, more...)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// await waits for a line of the log that has want, and returns it.
func (p *process) await(want string) string {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for from := 0; ; {
		p.mu.Lock()
		lines, grew := p.lines, p.grew
		p.mu.Unlock()
		for ; from < len(lines); from++ {
			if strings.Contains(lines[from], want) {
				return lines[from]
			}
		}
		select {
		case <-grew:
		case <-p.exited:
			if !strings.Contains(p.log(), want) {
				p.t.Fatalf("kvpiped ended (%v) and did not say %q:\n%s", p.err, want, p.log())
			}
		case <-limit.C:
			p.t.Fatalf("kvpiped did not say %q within %s:\n%s", want, patience, p.log())
		}
	}
}

// attr is a value of the line that says that the daemon is ready.
func (p *process) attr(key string) string {
	p.t.Helper()
	_, rest, ok := strings.Cut(p.await("msg=ready"), " "+key+"=")
	if !ok {
		p.t.Fatalf("no %s in %s", key, p.await("msg=ready"))
	}
	v, _, _ := strings.Cut(rest, " ")
	return v
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the process to end and returns its exit code, -1 for one that was killed.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("kvpiped has not ended after %s:\n%s", patience, p.log())
		return 0
	}
}

// stop tells the daemon to go, as a service manager does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		p.t.Errorf("exit code %d after SIGTERM:\n%s", code, p.log())
	}
}

// fails runs kvpiped, which has to refuse, and returns what it says.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	p := launch(t, args...)
	if code := p.end(); code != 1 {
		t.Errorf("kvpiped %s: exit code %d, want 1\n%s", strings.Join(args, " "), code, p.log())
	}
	return p.log()
}

// ctl runs kvpipectl on a daemon's admin socket.
func ctl(t *testing.T, admin string, args ...string) string {
	t.Helper()
	out, err := tryCtl(t, admin, args...)
	if err != nil {
		t.Fatalf("kvpipectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryCtl(t *testing.T, admin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "kvpipectl"), append(args, "--admin", admin)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ask reads a resource as JSON.
func ask[T any](t *testing.T, admin, what string) (v T) {
	t.Helper()
	out := ctl(t, admin, what, "--json")
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
	return v
}

// busyPort holds a port until the test ends.
func busyPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// write makes a file of lines.
func write(t *testing.T, path, format string, args ...any) string {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits for something that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not so after %s", what, patience)
		}
	}
}
