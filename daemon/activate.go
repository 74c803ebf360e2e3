package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Names under which a service manager passes sockets that it listens at (FileDescriptorName= in their units).
const (
	socketClient = "client"
	socketPeer   = "peer"
)

// passed returns the socket that the service manager listens at under that name, or nil. It stays the manager's: its
// file is neither made nor removed here, and clients that connect while no daemon runs wait in it.
func (o *Options) passed(name string) (net.Listener, error) {
	files := o.Sockets[name]
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, fmt.Errorf("the service manager passes %d sockets named %q: one ListenSequentialPacket= or ListenStream= is enough", len(files), name)
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("the socket named %q of the service manager: %w", name, err)
	}
	if c, ok := l.(syscall.Conn); !ok || !sys.Listening(c) {
		return nil, errors.Join(fmt.Errorf("the socket named %q of the service manager does not listen: it has to be passed before anybody connects (Accept=no)", name), l.Close())
	}
	return l, nil
}

// forget closes the descriptors that were passed. Listeners have copies of their own.
func (o *Options) forget() {
	for _, files := range o.Sockets {
		for _, f := range files {
			_ = f.Close()
		}
	}
	o.Sockets = nil
}

// known refuses sockets that nobody would serve: whoever connects there would wait for ever.
func (o *Options) known() error {
	var errs []error
	for name := range o.Sockets {
		if !slices.Contains([]string{socketClient, socketPeer}, name) {
			errs = append(errs, fmt.Errorf("the service manager passes a socket named %q: FileDescriptorName= has to be %q or %q", name, socketClient, socketPeer))
		}
	}
	return errors.Join(errs...)
}

// clientSocket checks that the manager's socket is the configured one, in path and kind.
func clientSocket(l net.Listener, path string) (*net.UnixListener, error) {
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != "unixpacket" {
		return nil, fmt.Errorf("the service manager passes %s %s for clients: kvpiped.socket needs ListenSequentialPacket=%s", l.Addr().Network(), l.Addr(), path)
	}
	if u.Addr().String() != path {
		return nil, fmt.Errorf("the service manager listens at %s, and socket is %q: give both the same path (ListenSequentialPacket= in kvpiped.socket, socket = in the configuration)", u.Addr(), path)
	}
	return u, nil
}

// peerSocket checks that the manager's socket is the configured one.
func peerSocket(l net.Listener, listen string) (*net.TCPListener, error) {
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("the service manager passes %s %s for peers: kvpiped-peer.socket needs ListenStream=%s", l.Addr().Network(), l.Addr(), listen)
	}
	if listen == "off" {
		return nil, fmt.Errorf("the service manager listens at %s for peers, and listen is \"off\": systemctl disable --now kvpiped-peer.socket, or set listen", t.Addr())
	}
	want, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if want.IP == nil {
		want.IP = net.IPv6unspecified
	}
	have := t.Addr().(*net.TCPAddr)
	if want.IP.Equal(net.IPv6unspecified) && have.IP.Equal(net.IPv4zero) && !sys.HasIPv6() {
		want.IP = have.IP // the manager listens at all addresses that there are
	}
	if !have.IP.Equal(want.IP) || want.Port != 0 && have.Port != want.Port {
		return nil, fmt.Errorf("the service manager listens at %s for peers, and listen is %q: give both the same address (ListenStream= in kvpiped-peer.socket, listen = in the configuration)", have, listen)
	}
	return t, nil
}

// sameGroup warns if the manager's socket does not have the configured group: only the manager can give it.
func (d *Daemon) sameGroup(path string) {
	if d.cfg.Group == "" {
		return
	}
	want, err := groupID(d.cfg.Group)
	if err == nil {
		err = ownedBy(path, want)
	}
	if err != nil {
		d.log.Warn("group is left to the service manager's socket: set SocketGroup= in kvpiped.socket", "group", d.cfg.Group, "error", err)
	}
}

func ownedBy(path string, gid int) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if have := int(st.Sys().(*syscall.Stat_t).Gid); have != gid {
		return fmt.Errorf("%s belongs to group %d", path, have)
	}
	return nil
}
