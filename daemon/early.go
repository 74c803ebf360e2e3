package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// early is an address that the daemon listens at although no interface had it at the start. Networks may come up after
// daemons, and the kernel withholds an IPv6 address until it knows that nobody else has it.
type early struct {
	key  string // of the configuration
	addr netip.Addr
}

// nameWait bounds how long a name is looked up at the start, while engines wait.
const nameWait = 2 * time.Second

// listenTCP listens at the address that a key of the configuration names.
func (d *Daemon) listenTCP(key, addr string) (*net.TCPListener, error) {
	soon, cancel := context.WithTimeout(context.Background(), nameWait)
	defer cancel()
	var config net.ListenConfig
	l, err := config.Listen(soon, network(addr), addr)
	absent := errors.Is(err, syscall.EADDRNOTAVAIL)
	if absent {
		free := net.ListenConfig{Control: sys.FreeBind}
		l, err = free.Listen(context.Background(), network(addr), addr)
	}
	if err != nil {
		return nil, err
	}
	t := l.(*net.TCPListener)
	if absent {
		e := early{key, t.Addr().(*net.TCPAddr).AddrPort().Addr()}
		if at, err := netip.ParseAddrPort(addr); err == nil {
			e.addr = at.Addr() // with its interface, which the kernel does not always tell
		}
		d.early = append(d.early, e)
		d.log.Warn(e.String())
	}
	return t, nil
}

// network returns what package net has to be asked for to listen at an address: by "tcp" alone, it would take 0.0.0.0 for
// all addresses of IPv6, too.
func network(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err == nil && at.Addr().Unmap() == netip.IPv4Unspecified() {
		return "tcp4"
	}
	return "tcp"
}

// missing returns the interface of an address such as [fe80::1%eth0]:7650, if this node does not have that interface,
// else "". Without the interface the kernel lets nobody listen there, not even early.
func missing(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	zone := at.Addr().Zone()
	if err != nil || zone == "" {
		return ""
	}
	if _, err := net.InterfaceByName(zone); err == nil {
		return ""
	}
	if index, err := strconv.Atoi(zone); err == nil {
		if _, err := net.InterfaceByIndex(index); err == nil {
			return ""
		}
	}
	return zone
}

func (e early) String() string {
	return fmt.Sprintf("%s: no interface of this node has the address %s yet: nobody can connect there until one has", e.key, e.addr)
}

// there reports whether the kernel lets sockets be bound to the address by now.
func (e early) there() bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.addr, 0)))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
