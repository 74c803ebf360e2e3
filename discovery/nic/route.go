package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Route is how packets from one address to another leave this node.
type Route struct {
	Link   int  // index of the link
	Direct bool // the remote is on that link's network, with no gateway in between
}

// answerTime is far longer than a kernel takes to answer, if it answers at all.
const answerTime = 10 * time.Second

// Routes asks the kernel's routing tables over one socket. Opening a socket takes several times as long as asking,
// and a node with hundreds of NICs asks tens of thousands of times. Every pair of addresses has to be asked for,
// because rules and multipath routes also depend on the source. The zero value is ready. It is for one goroutine,
// which has to close it.
type Routes struct {
	kernel *netlink.Handle // nil: not opened yet, or failed
	err    error           // why it could not be opened
}

// Find says how packets from local go to remote. An error says that they cannot, or why that is unknown.
func (r *Routes) Find(local, remote netip.Addr) (Route, error) {
	if r.kernel == nil && r.err == nil {
		if r.kernel, r.err = netlink.NewHandle(syscall.NETLINK_ROUTE); r.err == nil {
			_ = r.kernel.SetSocketTimeout(answerTime)
		}
	}
	if r.err != nil {
		return Route{}, fmt.Errorf("routes: %w", explain(r.err))
	}
	found, err := r.kernel.RouteGetWithOptions(remote.AsSlice(), &netlink.RouteGetOptions{SrcAddr: local.AsSlice()})
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), err == nil && len(found) == 0:
		return Route{}, fmt.Errorf("no route from %s to %s", local, remote)
	case err != nil:
		return Route{}, fmt.Errorf("route from %s to %s: %w", local, remote, explain(err))
	}
	return Route{Link: found[0].LinkIndex, Direct: len(found[0].Gw) == 0 && found[0].Via == nil}, nil
}

// Close closes the socket.
func (r *Routes) Close() {
	if r.kernel != nil {
		r.kernel.Close()
	}
}
