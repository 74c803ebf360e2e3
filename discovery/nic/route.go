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
	Direct bool // the other is on that link's network, without a gateway in between
}

// answerTime is far more than a kernel takes that answers at all.
const answerTime = 10 * time.Second

// Routes asks the kernel's tables, over one socket: to open one takes several times as long as to ask, and who has hundreds of NICs asks
// tens of thousands of times. All pairs have to be asked for: rules and routes of several ways go by the source, too. The zero value is ready.
// It is for one goroutine, which closes it.
type Routes struct {
	kernel *netlink.Handle // nil: nothing was asked yet
	err    error           // why there is none
}

// Find says how packets from local go to remote. An error says that they do not.
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
	return Route{Link: found[0].LinkIndex, Direct: len(found[0].Gw) == 0}, nil
}

// Close lets go of the socket.
func (r *Routes) Close() {
	if r.kernel != nil {
		r.kernel.Close()
	}
}
