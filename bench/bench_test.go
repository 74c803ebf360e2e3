package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/bench/stats"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestRowsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range groups {
		for _, target := range g.targets {
			if seen[target.row] {
				t.Errorf("two rows are named %q", target.row)
			}
			seen[target.row] = true
		}
	}
}

// Every target gets exactly one row, whatever happens to its group.
func TestMeasureFillsWhatFailed(t *testing.T) {
	g := group{
		name:    "half",
		targets: []target{{"first", stats.AtMost, 2}, {"second", stats.AtMost, 2}, {"third", stats.None, 0}},
		run: func(_ *env, r *rows) error {
			r.absolute("second", us("x", []float64{1, 1}))
			return errors.New("the daemon died")
		},
	}
	got := g.measure(nil)
	if len(got) != 3 {
		t.Fatalf("%d rows for 3 targets", len(got))
	}
	if got[0].Verdict != stats.Short || got[0].Note != "the daemon died" {
		t.Errorf("unmeasured row is %+v", got[0])
	}
	if got[1].Verdict != stats.Pass || got[2].Verdict != stats.Report {
		t.Errorf("verdicts are %s and %s", got[1].Verdict, got[2].Verdict)
	}
}

func TestTurnsRotate(t *testing.T) {
	var order strings.Builder
	note := func(name string, x float64) gauge {
		return func() (float64, error) {
			order.WriteString(name)
			return x, nil
		}
	}
	e := &env{rounds: 3}
	got, err := e.turns(note("a", 1), note("b", 2))
	if err != nil || order.String() != "abbaab" {
		t.Fatalf("order %s, error %v", order.String(), err)
	}
	if len(got[0]) != 3 || got[0][2] != 1 || got[1][2] != 2 {
		t.Errorf("samples are mixed up: %v", got)
	}
}

// program writes a shell script that stands for a driven program, or for a daemon.
func program(t *testing.T, script string) *env {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"p", "kvpiped"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &env{bin: dir, dir: t.TempDir()}
}

func TestDriven(t *testing.T) {
	e := program(t, `echo '{"ready":true}'
read line; echo '{"gb_per_s":4.5}'
read line; echo "{\"error\":\"$line is wrong\"}"
`)
	d, err := e.start("p")
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	if a, err := d.run("threads=%d", 2); err != nil || a.GBps != 4.5 {
		t.Errorf("answer %+v, error %v", a, err)
	}
	if _, err := d.run("n=0"); err == nil || !strings.Contains(err.Error(), "run n=0 is wrong") {
		t.Errorf("the program's error came as %v", err)
	}
	if _, err := d.run("n=1"); err == nil {
		t.Error("a program that has ended gave an answer")
	}
}

// buildRef makes a reference and returns where it is. Of a copy: what make reads go does not see when it takes a result of before for one of
// now.
func buildRef(t *testing.T, name string) *env {
	t.Helper()
	dir, sources := t.TempDir(), filepath.Join(t.TempDir(), "ref")
	if err := os.CopyFS(sources, os.DirFS("ref")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("make", "-C", sources, "BIN="+dir, "OBJ="+dir, filepath.Join(dir, name)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return &env{bin: dir}
}

// A hand-over between nodes is held against both trips as one: the sum of two p99s would be more than theirs.
func TestLatencyKinds(t *testing.T) {
	d, err := buildRef(t, "ref-latency").start("ref-latency", "--serve", "--client-cpu", "-1", "--server-cpu", "-1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	for _, kind := range []string{"eventfd", "tcp", "both"} {
		if a, err := d.run("kind=%s n=20", kind); err != nil || a.P50 <= 0 || a.P99 < a.P50 {
			t.Errorf("kind=%s: the answer is %+v, error %v", kind, a, err)
		}
	}
	if _, err := d.run("kind=none"); err == nil || !strings.Contains(err.Error(), "kind: none is none of eventfd, tcp, both") {
		t.Errorf("another kind: %v", err)
	}
}

// What a program says of an error is heard whatever is in it.
func TestErrorsAreJSON(t *testing.T) {
	d, err := buildRef(t, "ref-memcpy").start("ref-memcpy", "--serve", "--block", "4096", "--blocks", "16")
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	const odd = "say \"x\\y\"\t\x01"
	if _, err := io.WriteString(d.in, odd+"\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.read(); err == nil || !strings.Contains(err.Error(), odd) {
		t.Errorf("the program's error came as %v", err)
	}
	if a, err := d.run("threads=1"); err != nil || a.GBps <= 0 {
		t.Errorf("the next answer is %+v, error %v", a, err)
	}
}

// A daemon that ends says why. Words of its log that look like "ready" are none.
func TestDaemonDoesNotStart(t *testing.T) {
	e := program(t, "echo 'level=ERROR msg=\"127.0.0.1:1 is in use already\"' >&2; exit 1")
	if _, err := e.startDaemon("a", "off", "", setting{cpu: -1}, nil); err == nil || !strings.Contains(err.Error(), "is in use already") {
		t.Errorf("the error is %v", err)
	}
}

// A daemon that does not come again is an error, which is told at once, and it can still be stopped.
func TestDaemonDoesNotComeAgain(t *testing.T) {
	e := program(t, "[ ! -e \"$0.was\" ] || { echo no luck >&2; exit 1; }; : >\"$0.was\"; echo msg=ready >&2; exec sleep 60 2>/dev/null")
	d, err := e.startDaemon("a", "off", "", setting{cpu: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		d.kill()
		err := d.start(exec.Command(d.cmd.Path, d.cmd.Args[1:]...))
		d.stop()
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "no luck") {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is heard of a daemon that does not come again")
	}
}

func TestDrivenHangs(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 100 * time.Millisecond
	if _, err := program(t, "exec sleep 60").start("p"); err == nil || !strings.Contains(err.Error(), "no answer within 100ms") {
		t.Errorf("of a program that hangs it says %v", err)
	}
}

func TestDrivenEndsEarly(t *testing.T) {
	if d, err := program(t, "exit 1").start("p"); err == nil {
		d.stop()
		t.Error("a program that never was ready has started")
	}
}

// What the benchmark configures must be what the daemon reads.
func TestSettingIsAConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	set := setting{workers: 3, streams: 5, plain: true, crc: "on", busy: true}
	if err := os.WriteFile(file, []byte(set.toml()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Local.CopyWorkers != 3 || c.TCP.Streams != 5 || !c.DataPlain || c.CRC != "on" || c.PollMode != "busy" {
		t.Errorf("the daemon would read %+v", c)
	}
}

func TestProcessCounters(t *testing.T) {
	if used, err := cpuTime(os.Getpid()); err != nil || used <= 0 {
		t.Errorf("this process has used %v, %v", used, err)
	}
	if mb, err := anonymous(os.Getpid()); err != nil || mb <= 0 {
		t.Errorf("this process has %v MB, %v", mb, err)
	}
}
