package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Route is how packets from one address to another leave this node.
type Route struct {
	Link   int  // index of the link
	Direct bool // the other is on that link's network, without a gateway in between
}

// FindRoute asks the kernel's tables how packets from local go to remote. An error says that they do not.
func FindRoute(local, remote netip.Addr) (Route, error) {
	found, err := netlink.RouteGetWithOptions(remote.AsSlice(), &netlink.RouteGetOptions{SrcAddr: local.AsSlice()})
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), err == nil && len(found) == 0:
		return Route{}, fmt.Errorf("no route from %s to %s", local, remote)
	case err != nil:
		return Route{}, fmt.Errorf("route from %s to %s: %w", local, remote, explain(err))
	}
	return Route{Link: found[0].LinkIndex, Direct: len(found[0].Gw) == 0}, nil
}
