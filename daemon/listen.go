package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/internal/pulse"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// lock is the client socket with the lock that keeps a second daemon from taking it over.
type lock struct {
	file   *os.File
	socket *pulse.Listener
	made   os.FileInfo // the socket's file; nil: it is the service manager's
}

// listen opens the port for peers and the socket for engines. The lock comes first: it tells best that another daemon
// is there.
func (d *Daemon) listen() (err error) {
	if err := d.lockSocket(); err != nil {
		return err
	}
	if err := d.opts.known(); err != nil {
		return err
	}
	if d.opts.Sockets[socketClient] == nil { // before a port that others have is said to be waited for
		if _, err := d.permission(); err != nil {
			return err
		}
	}
	if err := d.listenPeers(); err != nil {
		return err
	}
	return d.listenClients()
}

// listenPeers takes the service manager's socket for peers, or opens the port.
func (d *Daemon) listenPeers() error {
	passed, err := d.opts.passed(socketPeer)
	if err != nil {
		return err
	}
	if passed != nil {
		l, err := peerSocket(passed, d.cfg.Listen)
		if t, ok := passed.(*net.TCPListener); ok && unnamed(err, d.cfg.Listen) && !d.opts.Dev {
			d.log.Warn("the service manager's socket for peers is used as it is: listen may be another address, whose name cannot be looked up", "socket", t.Addr(), "listen", d.cfg.Listen, "error", err)
			l, err = t, nil
		}
		if err != nil {
			return errors.Join(err, passed.Close())
		}
		d.listener = pulse.Listen(l)
		return nil
	}
	if d.cfg.Listen == "off" {
		return nil
	}
	fix := "give another --listen HOST:PORT (or listen = in the configuration)"
	if d.opts.Dev { // another user's has the default port, as a rule
		fix = "a second kvpiped on a machine needs --listen 127.0.0.1:0, which takes a free port, or another --listen HOST:PORT (or listen = in the configuration)"
	}
	d.listener, err = d.port("listen", d.cfg.Listen, fix)
	return err
}

// lookAgain is how often the daemon looks who has a port that cannot be had, as long as the reason is the same: that takes
// a second on a node of many processes.
const lookAgain = time.Minute

// port opens a TCP port. If its interface is not there, it opens later. Without --dev so does a port that another
// process has, or whose name cannot be looked up: engines of this node need neither peers nor metrics.
func (d *Daemon) port(key, addr, fix string) (*pulse.Listener, error) {
	l, err := d.listenTCP(key, addr)
	if err == nil {
		return pulse.Listen(l), nil
	}
	level, unknown, absent, cause := slog.LevelError, unnamed(err, addr), missing(addr) != "", err
	err = closedFor(key, addr, fix, err)
	switch {
	case absent:
		level = slog.LevelWarn // as for any address that is not there yet
	case d.opts.Dev, !unknown && !errors.Is(err, syscall.EADDRINUSE):
		return nil, err
	}
	at := net.Addr(name(addr))
	if !unknown {
		resolved, failed := net.ResolveTCPAddr("tcp", addr)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		at = resolved
	}
	looked := time.Now()
	p := listenLate(at, key == "listen", func(why error) {
		switch {
		case why == nil:
			d.closed.open(key)
			d.log.Info("listening after all", "key", key, "address", addr)
		case why.Error() != cause.Error() || time.Since(looked) >= lookAgain:
			cause, looked = why, time.Now()
			d.closed.shut(key, closedFor(key, addr, fix, why))
		}
	})
	d.log.Log(context.Background(), level, "nobody can connect here yet; the rest of the daemon runs, and tries again", "address", addr, "error", err)
	d.closed.shut(key, err)
	return pulse.Listen(p), nil
}

// closedFor says why nobody can connect at the address of a key, and what to do.
func closedFor(key, addr, fix string, err error) error {
	switch zone := missing(addr); {
	case unnamed(err, addr):
		return fmt.Errorf("%s: the name in %q cannot be looked up: give an address, or see to the name: %w", key, addr, err)
	case zone != "":
		return fmt.Errorf("%s: this node has no interface %q yet: nobody can connect there until it has: %w", key, zone, err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %q is in use%s: %s: %w", key, addr, usedBy(addr), fix, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// unnamed reports whether an error says that the host's name in an address cannot be looked up.
func unnamed(err error, addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	unknown := (*net.DNSError)(nil)
	return errors.As(err, &unknown) && unknown.Name == host
}

// listenClients takes the service manager's socket for engines, or makes it.
func (d *Daemon) listenClients() error {
	passed, err := d.opts.passed(socketClient)
	if err != nil {
		return err
	}
	if passed != nil {
		l, err := clientSocket(passed, d.cfg.Socket)
		if err != nil {
			return errors.Join(err, passed.Close())
		}
		if !sys.Deserted(d.cfg.Socket) {
			if err := sys.ListenAgain(l); err != nil { // only kvpipectl doctor asks who listens
				d.log.Warn("who connects takes the service manager for the daemon", "socket", d.cfg.Socket, "error", err)
			}
			d.lock.socket = pulse.Listen(l)
			d.sameGroup(d.cfg.Socket)
			return nil
		}
		_ = l.Close()
		d.log.Error("somebody has removed or replaced the file of the service manager's socket: this daemon makes one of its own, at which nobody waits while none runs, until systemctl restart kvpiped.socket", "socket", d.cfg.Socket)
	}
	opt, err := d.permission()
	if err != nil {
		return err
	}
	l, err := sys.ListenSeqpacket(d.cfg.Socket, opt)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("socket: %w: if it is the service manager, systemctl stop kvpiped.socket, or give another --socket (or socket = in the configuration)", err)
	case opt.GID != nil && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("socket: %w: the daemon's user has to be a member of group %q", err, d.cfg.Group)
	case err != nil:
		return fmt.Errorf("socket: %w", err)
	}
	d.lock.socket = pulse.Listen(l)
	d.lock.made, _ = os.Lstat(d.cfg.Socket)
	return nil
}

// lockSocket makes this daemon the one that serves the socket.
func (d *Daemon) lockSocket() (err error) {
	dir, path := filepath.Dir(d.cfg.Socket), d.cfg.Socket+".lock"
	if err = os.MkdirAll(dir, 0o755); err == nil {
		d.lock.file, err = sys.LockFile(path)
	}
	st, none := os.Lstat(path)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK) && d.opts.Dev:
		return fmt.Errorf("socket %s: another kvpiped serves it: a second one needs --listen and --state-dir of its own (socket and admin, where the configuration names them): %w", d.cfg.Socket, err)
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("socket %s: another kvpiped serves it: stop it, or give this one socket, admin, listen and metrics of its own: %w", d.cfg.Socket, err)
	case errors.Is(err, fs.ErrPermission) && none == nil:
		return fmt.Errorf("socket: %w: user %d has run a kvpiped here: when it has ended, remove that file", err, st.Sys().(*syscall.Stat_t).Uid)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("socket: %w: make %s a directory of the user that runs kvpiped", err, dir)
	case err != nil:
		return fmt.Errorf("socket directory: %w", err)
	}
	return nil
}

// permission lets the configured group connect. Without one, the daemon's own group may; in development only its user
// may.
func (d *Daemon) permission() (sys.ListenOptions, error) {
	if d.opts.Dev {
		return sys.ListenOptions{Mode: 0o600}, nil
	}
	opt := sys.ListenOptions{Mode: 0o660}
	if d.cfg.Group != "" {
		gid, err := groupID(d.cfg.Group)
		if err != nil {
			return opt, err
		}
		opt.GID = &gid
	}
	return opt, nil
}

func groupID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil // by its number, wherever its name is kept
	}
	g, err := user.LookupGroup(name)
	if err != nil { // this program asks /etc/group alone, no directory service
		return 0, fmt.Errorf("%w in /etc/group: create it there, or give the number of one that is kept elsewhere (getent group %s)", err, name)
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return 0, fmt.Errorf("group %q: %w", name, err)
	}
	return id, nil
}

// listenAddr returns where peers really reach this daemon ("": nowhere): port 0 has become a number.
func (d *Daemon) listenAddr() string {
	if d.listener == nil {
		return ""
	}
	return d.listener.Addr().String()
}

// advertise returns what other nodes dial: the configured address, else the listening address if it is a single one,
// else this node's name, with the port.
func (d *Daemon) advertise() string {
	if d.cfg.Advertise != "" || d.listener == nil {
		return d.cfg.Advertise
	}
	if at, ok := d.listener.Addr().(name); ok { // other nodes may be able to look it up
		return at.String()
	}
	a, ok := d.listener.Addr().(*net.TCPAddr)
	if !ok || a.IP.IsUnspecified() {
		_, port, _ := net.SplitHostPort(d.listenAddr())
		return net.JoinHostPort(d.cfg.Node, port)
	}
	return a.String()
}

// closeListeners ends everything that accepts.
func (d *Daemon) closeListeners() {
	if d.lock.socket != nil {
		at, err := os.Lstat(d.cfg.Socket)
		_ = d.lock.socket.Close()
		if err == nil && os.SameFile(at, d.lock.made) { // a service manager may have put its own there
			_ = sys.RemoveSocket(d.cfg.Socket)
		}
	}
	if d.listener != nil {
		_ = d.listener.Close()
	}
	d.closeAdmin()
}

// release stops what moves bytes, then gives back the memory, then the lock of the socket.
func (d *Daemon) release() error {
	d.nics.close()
	err := d.carriers.close()
	if d.bench != nil {
		d.bench.release()
	}
	if d.sessions != nil {
		err = errors.Join(err, d.sessions.Close())
	}
	if d.lock.file != nil {
		err = errors.Join(err, d.lock.file.Close())
	}
	return err
}
