package peer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// target is where a hint leads: the address to dial, and the node that must answer there ("": any with a certificate).
type target struct {
	addr string
	node string
}

// forbiddenError is the error of an attempt that ends before anybody is dialed: a client named the address, and the
// configuration does not allow it.
type forbiddenError struct{ *finalError }

func (e *forbiddenError) Unwrap() error { return e.finalError }

// resolve turns a client's hint into a target, within what the configuration allows. A client cannot make the daemon
// dial anything else.
func (m *Manager) resolve(hint string) (target, *finalError) {
	m.mu.Lock()
	nodes, allow := m.nodes, m.allow // Reload replaces them as a whole
	m.mu.Unlock()
	if addr, known := nodes[hint]; known {
		return target{addr, hint}, nil
	}
	host, port, err := net.SplitHostPort(hint)
	if err != nil {
		return target{}, finally(transfer.NotFound,
			"peer %q is not known here (known: %s): add it to peers.nodes, or give its host:port inside peers.allow", hint, some(slices.Sorted(maps.Keys(nodes))))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return target{}, finally(transfer.Invalid, "peer address %q: give host:port with a port of 1 to 65535", hint)
	}
	if len(allow) == 0 {
		return target{}, m.outside(hint, allow)
	}
	return target{addr: hint}, nil
}

// maxShown is how many names or networks an error lists.
const maxShown = 8

// some lists names or networks in an error. A long list would leave no room for what to do.
func some[T any](all []T) string {
	var out []string
	for _, one := range all[:min(len(all), maxShown)] {
		out = append(out, fmt.Sprint(one))
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

func (m *Manager) outside(addr string, allow []netip.Prefix) *finalError {
	return finally(transfer.Denied, "peer address %q is not inside peers.allow of node %q (%s): name the peer in peers.nodes, or allow its network",
		addr, m.cfg.Node, some(allow))
}

// addresses looks up host:port and keeps the addresses that may be dialed. Configured peers need no permission besides.
// Exactly these addresses are dialed, so the name cannot lead elsewhere in between.
func (m *Manager) addresses(ctx context.Context, t target) ([]string, error) {
	host, port, err := net.SplitHostPort(t.addr)
	if err != nil {
		return nil, final(transfer.Invalid, "peer address %q: %v", t.addr, err)
	}
	ips, err := m.cfg.lookUp(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %q: %w", host, err)
	}
	m.mu.Lock()
	allow := m.allow
	m.mu.Unlock()
	var out []string
	far := false // an address would do if this daemon were not insecure
	for _, ip := range ips {
		ip = ip.Unmap()
		switch {
		case t.node == "" && !within(allow, ip):
		case m.cfg.Insecure && !ip.IsLoopback():
			far = true
		default:
			out = append(out, net.JoinHostPort(ip.String(), port))
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case far:
		return nil, final(transfer.Denied, "peer address %q is not a loopback address, and this daemon runs insecure: name one that is, or remove insecure and give tls.ca, tls.cert and tls.key", t.addr)
	}
	return nil, &forbiddenError{m.outside(t.addr, allow)}
}

func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil // with its zone, which the resolver would drop
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func within(nets []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// unmapped turns networks of IPv4-mapped addresses into IPv4 networks, the form in which addresses are compared.
func unmapped(nets []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, len(nets))
	for i, p := range nets {
		if out[i] = p; p.Addr().Is4In6() && p.Bits() >= 96 {
			out[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return out
}
