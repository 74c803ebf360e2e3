package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/discovery/nic"
)

// nics are this node's NICs as data links use them: peer.Rails, by the inventory and the kernel's routes. Any goroutine
// may call its methods.
type nics struct {
	log       *slog.Logger
	mu        sync.Mutex // taken by place
	hardware  *hardware
	near      func() int // the NUMA node on which most registered memory lies; -1: unknown
	watcher   *nic.Watcher
	rules     atomic.Pointer[nic.Rules]
	gid       atomic.Int64                 // gid_index
	reachable func(netip.Addr) bool        // whether connections to this address come to this daemon
	peers     atomic.Pointer[peer.Manager] // nil: none yet
}

// openNICs takes the first inventory. It never fails: what could not be read is logged, and links go where the routes
// lead them.
func (d *Daemon) openNICs() {
	n := &nics{log: d.log, hardware: d.hardware, near: view{d}.memoryNode, reachable: reachable(d.listenAddr(), d.cfg.Advertise)}
	n.allow(&d.cfg)
	n.mu.Lock() // a change waits until the watcher is known
	n.watcher = nic.Watch(nic.WatchConfig{Source: nic.Source{Sys: d.opts.Sys}, Changed: n.follow})
	n.mu.Unlock()
	n.place()
	d.nics = n
}

// say logs what there is when the daemon starts to run.
func (n *nics) say() {
	v := n.watcher.Current()
	if v.State != nic.Complete {
		n.log.Warn("NICs are not all known: data links go where the routes lead them", "state", v.State, "reason", v.Reason)
	}
	n.warnMissing(nil, v)
	n.log.Info("NICs", "used", n.used(v), "rdma", len(v.Devices))
}

// place tells the topology which NICs there are. The lock keeps it from hearing of older ones after newer ones.
func (n *nics) place() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hardware.setNICs(n.watcher.Current())
}

// tell tells the peers that NICs have changed, so that links can move.
func (n *nics) tell() {
	if p := n.peers.Load(); p != nil {
		p.NICsChanged()
	}
}

// allow takes the rules over from the configuration.
func (n *nics) allow(c *config.Config) {
	n.rules.Store(&nic.Rules{Allow: slices.Clone(c.NICAllow), Deny: slices.Clone(c.NICDeny)})
	n.gid.Store(int64(c.GIDIndex))
}

// reload is allow for a daemon that runs.
func (n *nics) reload(c *config.Config) {
	n.allow(c)
	n.warnMissing(nil, n.watcher.Current())
	n.tell()
}

func (n *nics) close() {
	if n != nil {
		n.watcher.Close()
	}
}

// follow is called at each change. It logs the changes that matter, and tells the peers of those that concern links.
func (n *nics) follow(before, now *nic.Inventory) {
	rules := n.rules.Load()
	n.place()
	for _, l := range now.Links {
		was, known := before.Link(l.Name)
		old, why := "not there", rules.Refuses(l)
		if known {
			old = rules.Refuses(was)
		}
		if (old == "") != (why == "") {
			n.log.Info("NIC "+map[bool]string{true: "in use", false: "not used any more"}[why == ""], "nic", l.Name, "reason", why, "speed_mbps", l.SpeedMbps)
		}
	}
	for _, l := range before.Links {
		if _, there := now.Link(l.Name); !there && rules.Refuses(l) == "" {
			n.log.Info("NIC not used any more", "nic", l.Name, "reason", "it is gone")
		}
	}
	if now.State != before.State {
		level := slog.LevelWarn
		if now.State == nic.Complete {
			level = slog.LevelInfo // all is well again
		}
		n.log.Log(context.Background(), level, "NICs: what is known has changed", "state", now.State, "reason", now.Reason)
	}
	n.warnMissing(before, now)
	if !slices.Equal(usable(rules, before), usable(rules, now)) { // changes of containers' links do not count
		n.tell()
	}
}

// usable returns the addresses that links may have.
func usable(rules *nic.Rules, v *nic.Inventory) (out []peer.Address) {
	for _, l := range v.Links {
		for _, a := range rules.Routable(l) {
			out = append(out, address(l, a))
		}
	}
	return out
}

// warnMissing warns of entries of nic_allow and nic_deny that match nothing, and of ports without the GID of gid_index.
// It leaves out what was missing before.
func (n *nics) warnMissing(before, now *nic.Inventory) {
	if now.State == nic.Unknown {
		return
	}
	rules, gid := n.rules.Load(), int(n.gid.Load())
	once := func(missing func(*nic.Inventory) []string, say func(name string)) {
		known := []string{}
		if before != nil && before.State != nic.Unknown {
			known = missing(before)
		}
		for _, name := range missing(now) {
			if !slices.Contains(known, name) {
				say(name)
			}
		}
	}
	there := strings.Join(linkNames(now), ", ")
	once(rules.Missing, func(name string) {
		n.log.Warn("nic_allow names what is not there; the others are used", "name", name, "there", there)
	})
	once(rules.MissingDenied, func(name string) {
		n.log.Warn("nic_deny names what is not there", "name", name, "there", there)
	})
	once(func(v *nic.Inventory) []string { return v.WithoutGID(gid) }, func(port string) {
		n.log.Warn("gid_index is that of no GID of this port", "port", port, "gid_index", gid)
	})
}

func linkNames(v *nic.Inventory) (out []string) {
	for _, l := range v.Links {
		out = append(out, l.Name)
	}
	return out
}

// used returns the names of the links that may be used now.
func (n *nics) used(v *nic.Inventory) (out []string) {
	for _, l := range v.Links {
		if n.rules.Load().Refuses(l) == "" {
			out = append(out, l.Name)
		}
	}
	return out
}

// reachable returns a function that says at which addresses others reach this daemon. A daemon that listens on one
// address is reached there alone. One whose advertised port is not the port it listens at sits behind an address
// translation of which it knows nothing more: it is reached at none.
func reachable(listen, advertise string) func(netip.Addr) bool {
	at, err := netip.ParseAddrPort(listen)
	_, port, bad := net.SplitHostPort(advertise)
	if err != nil || bad == nil && port != strconv.Itoa(int(at.Port())) {
		return func(netip.Addr) bool { return false }
	}
	on := at.Addr().Unmap()
	return func(a netip.Addr) bool { return a == on || on.IsUnspecified() && (on.Is6() || a.Is4()) }
}

// Own implements peer.Rails.
func (n *nics) Own() []peer.Address {
	return slices.DeleteFunc(usable(n.rules.Load(), n.watcher.Current()), func(a peer.Address) bool { return !n.reachable(a.IP) })
}

func address(l nic.Link, a netip.Addr) peer.Address {
	return peer.Address{IP: a, Mbps: l.SpeedMbps, NIC: l.Name}
}

// Paths implements peer.Rails. It returns the pairs of addresses between which packets really leave by the NIC that has
// the local address. A NIC that has the peer on a network of its own needs no gateway: its pairs that have one are left
// out. The pairs are in the order of couples.
func (n *nics) Paths(to []peer.Address) (out []peer.Path) {
	direct := map[string]bool{} // NICs with a path without a gateway
	var through []bool
	links := n.watcher.Current().Links
	node := n.memoryNode(links)
	var routes nic.Routes
	defer routes.Close()
	for _, p := range couples(n.rules.Load(), links, to) {
		if r, err := routes.Find(p.from, p.to.IP); err == nil && r.Link == p.link.Index {
			out = append(out, peer.Path{From: address(*p.link, p.from), To: p.to, Near: node >= 0 && p.link.NUMA == node})
			through = append(through, !r.Direct)
			direct[p.link.Name] = direct[p.link.Name] || r.Direct
		}
	}
	kept := out[:0]
	for i, p := range out {
		if !through[i] || !direct[p.From.NIC] {
			kept = append(kept, p)
		}
	}
	return kept
}

// couple is an address of a NIC and one of a peer's.
type couple struct {
	link *nic.Link
	from netip.Addr
	to   peer.Address
}

// couples returns all pairs of addresses of one family. First comes each NIC's pair with the peer's NIC at the same place
// among those with an address of that family, then with the next.
func couples(rules *nic.Rules, links []nic.Link, to []peer.Address) (out []couple) {
	for _, v4 := range []bool{true, false} {
		var mine []couple
		for i := range links {
			for _, a := range rules.Routable(links[i]) {
				if a.Is4() == v4 {
					mine = append(mine, couple{link: &links[i], from: a})
				}
			}
		}
		theirs := slices.DeleteFunc(slices.Clone(to), func(t peer.Address) bool { return t.IP.Is4() != v4 })
		for shift := range theirs {
			for place, c := range mine {
				c.to = theirs[(place+shift)%len(theirs)]
				out = append(out, c)
			}
		}
	}
	return out
}

// memoryNode returns the NUMA node that NICs should be on, or -1 if it does not matter or is not known.
func (n *nics) memoryNode(links []nic.Link) int {
	one := -1
	for _, l := range links {
		if l.NUMA >= 0 && one >= 0 && l.NUMA != one {
			return n.near()
		}
		one = max(one, l.NUMA)
	}
	return -1
}

// named returns the name of the NIC that has an address, or "" if none has it.
func (n *nics) named(a netip.Addr) string {
	l, _ := n.watcher.Current().Holder(a)
	return l.Name
}
