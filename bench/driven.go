package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// patience is how long one command of a driven program may take. A program that
// takes longer hangs, and is killed.
var patience = 2 * time.Minute

// driven is a program that answers each line on its stdin with a line of JSON:
// the references and bench-client (see bench/ref/serve.h).
type driven struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// answer has the fields that driven programs answer with.
type answer struct {
	Error   string  `json:"error"`
	GBps    float64 `json:"gb_per_s"`
	Seconds float64 `json:"seconds"`
	PerS    float64 `json:"per_s"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

// start runs a program from the bin directory and waits until it is ready.
func (e *env) start(name string, args ...string) (*driven, error) {
	d := &driven{name: name, cmd: exec.Command(filepath.Join(e.bin, name), args...)}
	d.cmd.Stderr, d.cmd.SysProcAttr = os.Stderr, dieWithParent()
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := d.read(); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// dieWithParent makes the child die with the benchmark, even if that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// startRef starts a reference that serves the list of that shape.
func (e *env) startRef(name string, s shape, args ...string) (*driven, error) {
	return e.start(name, append([]string{"--serve", "--block", strconv.Itoa(s.block), "--blocks", strconv.Itoa(s.blocks)}, args...)...)
}

// run gives one command and returns the answer.
func (d *driven) run(format string, args ...any) (answer, error) {
	line := "run " + fmt.Sprintf(format, args...)
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		return answer{}, fmt.Errorf("%s: %w", d.name, err)
	}
	a, err := d.read()
	if err != nil {
		return a, fmt.Errorf("%s: %q: %w", d.name, line, err)
	}
	return a, nil
}

func (d *driven) read() (answer, error) {
	hung := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer hung.Stop()
	line, err := d.out.ReadBytes('\n')
	if err != nil && !hung.Stop() {
		return answer{}, fmt.Errorf("no answer within %v, so the program was killed", patience)
	} else if err == io.EOF {
		return answer{}, errors.New("the program ended, its last words are above")
	} else if err != nil {
		return answer{}, err
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("answered %q: %w", line, err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// stop ends the program by closing its stdin. Its exit status is ignored: it
// says nothing that the answers have not said.
func (d *driven) stop() {
	d.in.Close()
	hung := time.AfterFunc(10*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer hung.Stop()
	_ = d.cmd.Wait()
}
