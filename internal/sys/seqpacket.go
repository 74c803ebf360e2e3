package sys

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenOptions says who may connect to a unix socket.
type ListenOptions struct {
	// Mode is the permission of the socket file; 0 means 0o600.
	Mode os.FileMode
	// GID owns the socket file; nil: the group that it has by itself.
	GID *int
}

// ListenSeqpacket listens on a SOCK_SEQPACKET unix socket at path. The file
// appears with its final mode and group, by rename, and replaces a socket that
// was there: the caller holds a lock that says no other process serves this
// path (see LockFile). If somebody listens there all the same, without that
// lock, the socket stays and the error wraps EADDRINUSE. Closing the listener
// leaves the file; RemoveSocket removes it. Errors name the path.
func ListenSeqpacket(path string, opt ListenOptions) (*net.UnixListener, error) {
	mode := opt.Mode
	if mode == 0 {
		mode = 0o600
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("listen on %s: it is not a socket (%v): move it away", path, st.Mode())
	}
	if Taken(path) {
		return nil, fmt.Errorf("listen on %s: somebody listens there: %w", path, syscall.EADDRINUSE)
	}
	tmp := path + "." + strconv.Itoa(os.Getpid())
	if err := RemoveSocket(tmp); err != nil {
		return nil, err
	}
	l, err := listenPrivate("unixpacket", tmp)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, mode)
	if err == nil && opt.GID != nil && !ownedBy(tmp, *opt.GID) {
		err = os.Chown(tmp, -1, *opt.GID)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = l.Close()
		_ = RemoveSocket(tmp)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// ownedBy reports whether a file has that group already. A sandbox may forbid
// chown, even to what is so.
func ownedBy(path string, gid int) bool {
	st, err := os.Lstat(path)
	if err != nil {
		return false
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(owner.Gid) == gid
}

// Deserted reports whether it is certain that nobody listens at path.
func Deserted(path string) bool {
	err := knock(path)
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Taken reports whether it is certain that somebody listens at path, with a
// socket of whatever kind.
func Taken(path string) bool {
	err := knock(path)
	return err == nil || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EPROTOTYPE)
}

// knock connects and hangs up at once. EAGAIN comes from a listener whose queue
// is full, EPROTOTYPE from a socket of another kind.
func knock(path string) error {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		_ = c.Close()
	}
	return err
}

// ListenPrivate listens on a stream socket at path, for this user alone: the
// file never has another mode. Nothing may be at path. Closing the listener
// removes the file. Errors name the path.
func ListenPrivate(path string) (*net.UnixListener, error) { return listenPrivate("unix", path) }

// listenPrivate gives the socket its mode before it has a name, whatever the
// umask is: Linux takes the file's mode from the socket's.
func listenPrivate(network, path string) (*net.UnixListener, error) {
	var mode error
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return errors.Join(c.Control(func(fd uintptr) { mode = unix.Fchmod(int(fd), 0o600) }), mode)
	}}
	l, err := private.Listen(context.Background(), network, path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// RemoveSocket removes the socket file at path. A missing one is no error;
// anything that is not a socket is left alone and reported.
func RemoveSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("remove socket %s: it is not a socket (%v): move it away", path, st.Mode().Type())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

// DialSeqpacket connects to the SOCK_SEQPACKET unix socket at path.
func DialSeqpacket(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return c.(*net.UnixConn), nil
}

// SeqpacketPair returns two SOCK_SEQPACKET sockets that are connected to each
// other.
func SeqpacketPair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	a, err = UnixConn(fds[0])
	if err != nil {
		_ = Close(fds[1])
		return nil, nil, err
	}
	b, err = UnixConn(fds[1])
	if err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// UnixConn turns a connected unix socket into a connection on the runtime's
// poller. It takes over fd in every case.
func UnixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "unix")
	if f == nil {
		return nil, fmt.Errorf("unix connection: fd %d: %w", fd, unix.EBADF)
	}
	defer f.Close() // net.FileConn works on a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("unix connection: fd %d: %w", fd, err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("unix connection: fd %d is a %T", fd, c)
	}
	return u, nil
}
