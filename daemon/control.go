package daemon

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/internal/pulse"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// openAdmin opens the admin socket, for the daemon's user alone, and the port of metrics and health.
func (d *Daemon) openAdmin() error {
	if err := os.MkdirAll(filepath.Dir(d.cfg.Admin), 0o755); err != nil {
		return fmt.Errorf("admin socket directory: %w", err)
	}
	l, err := listenAdmin(d.cfg.Admin)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	l.SetUnlinkOnClose(false) // by its path: closeAdmin looks whose it is by then
	d.adminMade, _ = os.Lstat(d.cfg.Admin)
	d.adminSocket = pulse.Listen(l)
	d.admin = admin.New(view{d}, d.errorLog())
	d.metrics = metrics.New(view{d}.metrics)
	d.tally.takes = d.metrics.Takes
	return d.openMetrics()
}

// listenAdmin takes the place of a daemon that died. The lock of the client socket keeps out no daemon that has another
// client socket. So there is a lock of the admin socket, too, while this function looks and takes: of two daemons that
// start at once, neither removes what the other has made.
func listenAdmin(path string) (*net.UnixListener, error) {
	inUse := func(how string) error {
		return fmt.Errorf("somebody %s at %s: another kvpiped? Give another --admin PATH (or admin = in the configuration): %w", how, path, syscall.EADDRINUSE)
	}
	lock, err := sys.LockFile(path + ".lock")
	if err == nil {
		defer func() { _ = lock.Close() }()
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK) && sys.Taken(path): // it is the client socket of a daemon, which keeps its lock
		return nil, inUse("listens")
	case errors.Is(err, syscall.EWOULDBLOCK), err == nil && !names(path+".lock", lock):
		return nil, inUse("is about to listen")
	case err != nil:
		return nil, err
	}
	defer func() { _ = os.Remove(lock.Name()) }() // before others can take it
	if sys.Taken(path) {
		return nil, inUse("listens")
	}
	if err := sys.RemoveSocket(path); err != nil {
		return nil, err
	}
	return sys.ListenPrivate(path)
}

// names reports whether path still leads to f: whoever had the file before may have removed it.
func names(path string, f *os.File) bool {
	at, err := os.Lstat(path)
	st, e := f.Stat()
	return err == nil && e == nil && os.SameFile(at, st)
}

var errEverywhere = errors.New("stands for all addresses of this node, and nobody is asked there who they are: give one address")

func (d *Daemon) openMetrics() error {
	if d.cfg.Metrics == "off" {
		return nil
	}
	var err error
	d.web, err = d.port("metrics", d.cfg.Metrics, "give another host:port or \"off\"")
	if errors.Is(err, syscall.EADDRINUSE) && d.opts.Dev {
		// Several development daemons share a machine; only one can have the well-known port.
		host, _, _ := net.SplitHostPort(d.cfg.Metrics)
		d.web, err = d.port("metrics", net.JoinHostPort(host, "0"), "")
	}
	if err != nil {
		return err
	}
	if at, there := d.web.Addr().(*net.TCPAddr); there && at.IP.IsUnspecified() { // given by a name that looks harmless
		return fmt.Errorf("metrics: %q %w", d.cfg.Metrics, errEverywhere)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.metrics.Handler())
	mux.HandleFunc("GET /health", d.health)
	d.webServer = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ConnState: d.crowd.note, ErrorLog: d.errorLog()}
	return nil
}

// errorLog returns a logger for servers of net/http, by which their complaints get into the daemon's log, in its form.
func (d *Daemon) errorLog() *log.Logger { return slog.NewLogLogger(d.log.Handler(), slog.LevelWarn) }

func (d *Daemon) serveAdmin() error { return d.admin.Serve(d.lasting("admin", d.adminSocket)) }

func (d *Daemon) serveMetrics() error {
	if err := d.webServer.Serve(d.lasting("metrics", d.web)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

func (d *Daemon) closeAdmin() {
	// The file first, while nobody takes this daemon for one that died. If it was removed before, it may be another one's.
	if at, err := os.Lstat(d.cfg.Admin); err == nil && os.SameFile(at, d.adminMade) {
		_ = os.Remove(d.cfg.Admin)
	}
	d.adminMade = nil
	if d.admin != nil {
		_ = d.admin.Close()
	}
	if d.adminSocket != nil {
		_ = d.adminSocket.Close()
	}
	if d.webServer != nil {
		_ = d.webServer.Close()
	}
	if d.web != nil {
		_ = d.web.Close()
	}
}
