package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// made is a daemon that does not run, with the configuration of a development daemon.
func made(t *testing.T) (config.Config, func() (*Daemon, error)) {
	t.Helper()
	cfg := completed(t)
	return cfg, func() (*Daemon, error) {
		return New(cfg, Options{Dev: true, Version: "test", Log: slog.New(slog.DiscardHandler)})
	}
}

// TestTwoDaemonsStartAtOnce: of two that want one admin socket, and serve different engines, the second goes away while the first is at it.
func TestTwoDaemonsStartAtOnce(t *testing.T) {
	cfg, open := made(t)
	other, err := sys.LockFile(cfg.Admin + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	d, err := open()
	if err == nil {
		d.closeListeners()
		_ = d.release()
	}
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "somebody is about to listen at "+cfg.Admin) {
		t.Errorf("the second one: %v", err)
	}
	_ = other.Close()
	if d, err = open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.release() }()
	defer d.closeListeners()
	if _, err := os.Lstat(cfg.Admin + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock is left: %v", err)
	}
}

// TestAnEndRemovesNobodyElsesAdminSocket: who has made one in the place of another's, whose file was gone, keeps it. An end removes its own.
func TestAnEndRemovesNobodyElsesAdminSocket(t *testing.T) {
	cfg, open := made(t)
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.release() }()
	if err := os.Remove(cfg.Admin); err != nil {
		t.Fatal(err)
	}
	next, err := sys.ListenPrivate(cfg.Admin)
	if err != nil {
		t.Fatal(err)
	}
	d.closeListeners()
	if !sys.Taken(cfg.Admin) {
		t.Error("the next one's socket is gone")
	}
	_ = next.Close()
	if err := d.release(); err != nil {
		t.Error(err)
	}
	if d, err = open(); err != nil {
		t.Fatal(err)
	}
	d.closeListeners()
	if _, err := os.Lstat(cfg.Admin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its own: %v", err)
	}
}

// TestAnEndRemovesNobodyElsesSocket: a service manager that began to listen in a daemon's place keeps its socket, and waiting engines with it.
func TestAnEndRemovesNobodyElsesSocket(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		cfg, open := made(t)
		d, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if replaced { // as systemd does with what it finds there
			if err := os.Remove(cfg.Socket); err != nil {
				t.Fatal(err)
			}
			next, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Socket, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
		}
		d.closeListeners()
		_ = d.release()
		if _, err := os.Lstat(cfg.Socket); (err == nil) != replaced {
			t.Errorf("replaced: %v, and afterwards %v", replaced, err)
		}
	}
}
