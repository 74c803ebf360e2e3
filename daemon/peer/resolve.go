package peer

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// target is where a hint leads: an address to dial, and who has to answer there ("" anybody with a certificate).
type target struct {
	addr string
	node string
}

// resolve turns what a client named into a target, within what the configuration allows. A client cannot make the daemon dial
// anything else.
func (m *Manager) resolve(hint string) (target, *transfer.Cause) {
	m.mu.Lock()
	addr, known := m.nodes[hint]
	names := slices.Sorted(maps.Keys(m.nodes))
	m.mu.Unlock()
	if known {
		return target{addr, hint}, nil
	}
	if _, _, err := net.SplitHostPort(hint); err != nil {
		return target{}, &transfer.Cause{Reason: transfer.NotFound, Text: fmt.Sprintf(
			"peer %q is not known here (known: %s): add it to peers.nodes, or give its host:port inside peers.allow", hint, orNone(names))}
	}
	return target{addr: hint}, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// addresses looks up host:port and keeps what may be dialed. Configured peers need no permission of their own.
func (m *Manager) addresses(ctx context.Context, t target) ([]string, *transfer.Cause) {
	host, port, err := net.SplitHostPort(t.addr)
	if err != nil {
		return nil, &transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("peer address %q: %v", t.addr, err)}
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, &transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("peer address %q: %v", t.addr, err)}
	}
	m.mu.Lock()
	allow := m.allow
	m.mu.Unlock()
	var out []string
	for _, ip := range ips {
		ip = ip.Unmap()
		switch {
		case m.cfg.Insecure && !ip.IsLoopback():
		case t.node != "" || within(allow, ip):
			out = append(out, net.JoinHostPort(ip.String(), port))
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if m.cfg.Insecure {
		return nil, &transfer.Cause{Reason: transfer.Denied, Text: fmt.Sprintf("peer address %q is not a loopback address, and this daemon runs insecure", t.addr)}
	}
	return nil, &transfer.Cause{Reason: transfer.Denied, Text: fmt.Sprintf("peer address %q is not inside peers.allow: name the peer in peers.nodes, or allow its network", t.addr)}
}

func within(nets []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(ip) })
}
