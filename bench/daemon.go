package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// setting is how a daemon of the benchmark differs from the default.
type setting struct {
	workers int    // copy workers
	streams int    // tcp
	plain   bool   // data links without TLS
	crc     string // "auto", "on", "off"
	busy    bool   // poll_mode
	cpu     int    // where all its threads run; -1: anywhere
}

// toml is the configuration file for the setting. What it leaves out comes from
// the command line or is the default.
func (s setting) toml() string {
	poll := "event"
	if s.busy {
		poll = "busy"
	}
	return fmt.Sprintf("metrics = \"off\"\ndata_plain = %v\ncrc = %q\npoll_mode = %q\n"+
		"[local]\ncopy_workers = %d\n[tcp]\nstreams = %d\nencrypt_loopback = %v\n", s.plain, s.crc, poll, max(s.workers, 1), max(s.streams, 1), !s.plain)
}

// daemon is a running kvpiped.
type daemon struct {
	node, socket, addr string
	cmd                *exec.Cmd
	log                chan string // when its stderr has ended: what it logged before it was ready; closed then
	stopping           atomic.Bool // its peer may be gone, so warnings mean nothing
}

// startDaemon runs kvpiped --dev and waits until it says that it is ready.
// Daemons that share ca trust each other; peers maps names to addresses.
func (e *env) startDaemon(node, addr, ca string, s setting, peers map[string]string) (*daemon, error) {
	dir := filepath.Join(e.dir, e.unique(node))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "kvpiped.toml")
	if err := os.WriteFile(file, []byte(s.toml()), 0o600); err != nil {
		return nil, err
	}
	d := &daemon{node: node, socket: filepath.Join(dir, "s"), addr: addr}
	args := []string{
		filepath.Join(e.bin, "kvpiped"), "--dev", "--config", file, "--node", node, "--state-dir", dir,
		"--socket", d.socket, "--admin", filepath.Join(dir, "a"), "--listen", addr, "--ca", ca,
	}
	for name, peer := range peers {
		args = append(args, "--peer", name+"="+peer)
	}
	if s.cpu >= 0 {
		args = append([]string{"taskset", "-c", strconv.Itoa(s.cpu)}, args...)
	}
	return d, d.start(exec.Command(args[0], args[1:]...))
}

// start starts the daemon, also again after it ended. What fails leaves one that
// may be stopped.
func (d *daemon) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = dieWithParent()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.log = cmd, make(chan string, 1)
	return d.awaitReady(stderr)
}

// awaitReady reads the log up to "ready". Of later lines only warnings and
// errors are printed, so that the others stay out of the table.
func (d *daemon) awaitReady(stderr io.Reader) error {
	ready, log := make(chan struct{}), d.log
	go func() {
		var before []string
		lines := bufio.NewScanner(stderr)
		up := false
		for lines.Scan() {
			text := lines.Text()
			switch {
			case !up && strings.Contains(text, "msg=ready"):
				up = true
				close(ready)
			case !up:
				before = append(before, text)
			case d.stopping.Load():
			case strings.Contains(text, "WARN"), strings.Contains(text, "ERROR"):
				fmt.Fprintf(os.Stderr, "kvpiped %s: %s\n", d.node, text)
			}
		}
		log <- strings.Join(before, "; ")
		close(log)
	}()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	var err error
	select {
	case <-ready:
		return nil
	case why := <-log:
		err = errors.New(why)
	case <-late.C:
		err = errors.New("not ready after 20 s")
	}
	d.stop()
	return fmt.Errorf("kvpiped %s: %w", d.node, err)
}

// stop ends the daemon, by force if it does not go.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	hung := time.AfterFunc(15*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer hung.Stop()
	<-d.log
	_ = d.cmd.Wait()
}

// freeAddr returns a loopback address on which nobody listens at the moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
