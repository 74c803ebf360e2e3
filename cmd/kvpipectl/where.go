package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// usual are the folders in which a daemon is looked for if none is named: the node's service first, then "kvpiped
// --dev". Tests set their own.
var usual = func() [2]string { return [2]string{filepath.Dir(config.Default().Socket), config.DevDir()} }

// client returns a client of the daemon's admin socket.
func (c *ctl) client() *admin.Client {
	places := c.places()
	return admin.NewClient(places[0], places[1:]...)
}

// given is the admin socket that --admin or the environment names.
func (c *ctl) given() string { return cmp.Or(c.admin, os.Getenv("KVPIPE_ADMIN")) }

// engines is the engines' socket that --socket or the environment names.
func (c *ctl) engines() string { return cmp.Or(c.socket, os.Getenv("KVPIPE_SOCKET")) }

// places are where the admin socket is looked for: where it was named; or beside the engines' socket if that was
// named, so that one variable is enough for both; or in the usual folders. The vLLM connector has the same rule.
func (c *ctl) places() []string {
	if path := c.given(); path != "" {
		return []string{path}
	}
	if path := c.engines(); path != "" {
		return []string{filepath.Join(filepath.Dir(path), "admin.sock")}
	}
	var all []string
	for _, dir := range usual() {
		all = append(all, filepath.Join(dir, "admin.sock"))
	}
	return all
}

// placesForDoctor returns the same places, with one exception: if nothing was named and an engine would find a daemon
// at a usual place, only the admin socket beside that one counts.
func (c *ctl) placesForDoctor() []string {
	if c.given() == "" && c.engines() == "" {
		if socket, _, rank := usualSocket(); rank == answers {
			return []string{filepath.Join(filepath.Dir(socket), "admin.sock")}
		}
	}
	return c.places()
}

// engineSocket returns where an engine would look, and why there. If an admin socket was named, or the usual places
// tell little, the daemon that answers says where it listens. If none answers at the named admin socket, the folder
// of that socket stands in for its answer.
func (c *ctl) engineSocket(s *admin.Status) (path, why string) {
	switch {
	case c.socket != "":
		return c.socket, "--socket names it"
	case c.engines() != "":
		return c.engines(), "KVPIPE_SOCKET names it"
	}
	path, why, rank := usualSocket()
	given := c.given()
	if s != nil && s.Socket != "" && (given != "" || rank < stranger) {
		return s.Socket, "the daemon that was asked says so"
	}
	if beside := filepath.Join(filepath.Dir(given), "kvpiped.sock"); given != "" && (exists(beside) || !exists(config.Default().Socket)) {
		return beside, "it is beside the admin socket that was named"
	}
	return path, why
}

// What was found at a usual place. Higher values tell more.
const (
	nothing = iota
	leftBehind
	stranger
	barred
	answers // or failed in a way for which the place is not passed over
)

// usualSocket follows libkvpipe's rule (capi/dial.c). If nobody answers anywhere, it returns the place that tells
// most.
func usualSocket() (path, why string, rank int) {
	rank = -1
	passed, at := "", 0
	for i, dir := range usual() {
		socket := filepath.Join(dir, "kvpiped.sock")
		reason := "it is the place of the node's service"
		if i == 1 {
			reason = "it is the place of kvpiped --dev, and " + passed
		}
		got, said := rankOf(socket)
		if got > rank {
			path, why, rank, at = socket, reason, got, i
		}
		if got == answers {
			return path, why, rank
		}
		passed = fmt.Sprintf("%s is passed over: %s", socket, said)
	}
	if at == 0 {
		why += ", and " + passed
	}
	return path, why, rank
}

func rankOf(socket string) (rank int, said string) {
	conn, strange, err := dialEngines(socket)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		said = errno.Error()
	}
	switch {
	case strange != nil:
		return stranger, strange.Error()
	case err == nil:
		_ = conn.Close()
		return answers, ""
	case errors.Is(err, fs.ErrPermission):
		return barred, said
	case errors.Is(err, syscall.ECONNREFUSED):
		return leftBehind, said
	case admin.Nobody(err):
		return nothing, said
	}
	return answers, said
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
