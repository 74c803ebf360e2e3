package main

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

var findDevDir = config.FindDevDir // tests have no /tmp of their own

// client finds the daemon.
func (c *ctl) client() *admin.Client {
	places, refused := c.places()
	client := admin.NewClient(places[0], places[1:]...)
	client.Refused = refused
	return client
}

// given is the admin socket that was named.
func (c *ctl) given() string { return cmp.Or(c.admin, os.Getenv("KVPIPE_ADMIN")) }

// places are where the admin socket is looked for: as told; beside the socket that engines are told, so that one variable is enough for
// both; else that of the node's service, then that of the development daemon, unless it could be a stranger's: refused says why. The vLLM
// connector has the same rule.
func (c *ctl) places() (all []string, refused error) {
	if path := c.given(); path != "" {
		return []string{path}, nil
	}
	if engines := cmp.Or(c.socket, os.Getenv("KVPIPE_SOCKET")); engines != "" {
		return []string{filepath.Join(filepath.Dir(engines), "admin.sock")}, nil
	}
	dev, refused := findDevDir()
	if all = []string{config.Default().Admin}; refused == nil {
		all = append(all, filepath.Join(dev, "admin.sock"))
	}
	return all, refused
}

// engineSocket is where an engine would look. A daemon that answers knows better than what stands in for its answer: the folder of the
// admin socket that was named, then the defaults. refused: an engine that is told nothing does not connect there.
func (c *ctl) engineSocket(s *admin.Status) (path string, refused error) {
	if path := cmp.Or(c.socket, os.Getenv("KVPIPE_SOCKET")); path != "" {
		return path, nil
	}
	dir, strange := findDevDir()
	dev := filepath.Join(dir, "kvpiped.sock")
	if path = c.likelySocket(s, dev); path == dev || strange != nil && !exists(path) {
		return dev, strange
	}
	return path, nil
}

func (c *ctl) likelySocket(s *admin.Status, dev string) string {
	if s != nil && s.Socket != "" {
		return s.Socket
	}
	path := config.Default().Socket
	if given := c.given(); given != "" {
		beside := filepath.Join(filepath.Dir(given), "kvpiped.sock")
		if exists(beside) || !exists(path) {
			return beside
		}
	}
	if !exists(path) && exists(dev) {
		return dev
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
