package main

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// client finds the daemon.
func (c *ctl) client() *admin.Client {
	places := c.places()
	return admin.NewClient(places[0], places[1:]...)
}

// given is the admin socket that was named.
func (c *ctl) given() string { return cmp.Or(c.admin, os.Getenv("KVPIPE_ADMIN")) }

// places are where the admin socket is looked for: as told; beside the socket that engines are told, so that one variable is enough for
// both; else that of the node's service, then that of the development daemon. The vLLM connector has the same rule.
func (c *ctl) places() []string {
	if path := c.given(); path != "" {
		return []string{path}
	}
	if engines := cmp.Or(c.socket, os.Getenv("KVPIPE_SOCKET")); engines != "" {
		return []string{filepath.Join(filepath.Dir(engines), "admin.sock")}
	}
	return []string{config.Default().Admin, filepath.Join(config.DevDir(), "admin.sock")}
}

// engineSocket is where an engine would look. A daemon that answers knows better than what stands in for its answer: the folder of the
// admin socket that was named, then the defaults.
func (c *ctl) engineSocket(s *admin.Status) string {
	if path := cmp.Or(c.socket, os.Getenv("KVPIPE_SOCKET")); path != "" {
		return path
	}
	if s != nil && s.Socket != "" {
		return s.Socket
	}
	path, dev := config.Default().Socket, filepath.Join(config.DevDir(), "kvpiped.sock")
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
