package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// KnownTransports are the names that the allow-list understands.
var KnownTransports = []string{"local", "tcp"}

// Check returns everything that is wrong, one error a line, each with the key, the value and the limit.
func (c *Config) Check() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Node == "" || len(c.Node) > 255 || strings.ContainsAny(c.Node, " :/\n") {
		bad("node", "%q: give a name of 1 to 255 characters without spaces, colons or slashes", c.Node)
	}
	for key, v := range map[string]string{"socket": c.Socket, "admin": c.Admin} {
		if !strings.HasPrefix(v, "/") || len(v) > 107 {
			bad(key, "%q: give an absolute path of at most 107 bytes (the limit of unix sockets)", v)
		}
	}
	for key, v := range map[string]string{"listen": c.Listen, "metrics": c.Metrics} {
		if v == "off" {
			continue
		}
		if _, _, err := net.SplitHostPort(v); err != nil {
			bad(key, "%q: give host:port or \"off\" (%v)", v, err)
		}
	}
	c.checkSecurity(bad)
	for _, t := range c.Transports {
		if !slices.Contains(KnownTransports, t) {
			bad("transports", "%q is not a transport of this build; known: %s", t, strings.Join(KnownTransports, ", "))
		}
	}
	for _, a := range c.Peers.Allow {
		if _, err := netip.ParsePrefix(a); err != nil {
			bad("peers.allow", "%q: give a network such as 10.0.0.0/8 (%v)", a, err)
		}
	}
	for name, addr := range c.Peers.Nodes {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad("peers.nodes."+name, "%q: give host:port (%v)", addr, err)
		}
	}
	oneOf := func(key, v string, of ...string) {
		if !slices.Contains(of, v) {
			bad(key, "%q: give one of %s", v, strings.Join(of, ", "))
		}
	}
	oneOf("poll_mode", c.PollMode, "event", "busy")
	oneOf("crc", c.CRC, "auto", "on", "off")
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	within := func(key string, v, low, high int) {
		if v < low || v > high {
			bad(key, "%d: give %d to %d", v, low, high)
		}
	}
	within("tcp.streams", c.TCP.Streams, 1, 64)
	within("local.copy_workers", c.Local.CopyWorkers, 1, 64)
	within("local.nice", c.Local.Nice, -20, 19)
	within("limits.sessions", c.Limits.Sessions, 1, 1<<16)
	within("limits.sessions_per_uid", c.Limits.SessionsPerUID, 1, 1<<16)
	within("limits.inflight", c.Limits.Inflight, 1, 4096)
	within("limits.offers", c.Limits.Offers, 1, 1<<20)
	within("advanced.slice", int(min(c.Advance.Slice, 1<<40)), 64<<10, 1<<20)
	within("advanced.inline", int(min(c.Advance.Inline, 1<<40)), 0, 64<<10)
	within("advanced.window", int(min(c.Advance.Window, 1<<40)), int(c.Advance.Slice), 1<<30)
	within("advanced.gomaxprocs", c.Advance.GoMaxProcs, 0, 1024)
	for key, d := range map[string]Duration{
		"peers.heartbeat": c.Peers.Heartbeat, "peers.dial_max": c.Peers.DialMax, "peers.idle_close": c.Peers.IdleClose,
		"offers.default_lease": c.Offers.DefaultLease, "offers.max_lease": c.Offers.MaxLease, "offers.offer_wait": c.Offers.OfferWait,
		"offers.tombstone": c.Offers.Tombstone, "advanced.drain_wait": c.Advance.DrainWait,
	} {
		if d <= 0 {
			bad(key, "%s: give a time above zero", d.D())
		}
	}
	if c.Offers.DefaultLease > c.Offers.MaxLease {
		bad("offers.default_lease", "%s is above offers.max_lease, %s", c.Offers.DefaultLease.D(), c.Offers.MaxLease.D())
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkSecurity: peers always authenticate, but for tests between loopback addresses.
func (c *Config) checkSecurity(bad func(key, format string, args ...any)) {
	if c.Insecure {
		for key, v := range map[string]string{"listen": c.Listen, "advertise": c.Advertise} {
			if v != "" && v != "off" && !loopback(v) {
				bad("insecure", "works on loopback addresses alone, but %s is %q: remove insecure and give tls.ca, tls.cert and tls.key (kvpipectl certs makes them)", key, v)
			}
		}
		for name, addr := range c.Peers.Nodes {
			if !loopback(addr) {
				bad("insecure", "works on loopback addresses alone, but peers.nodes.%s is %q", name, addr)
			}
		}
		return
	}
	if c.Listen == "off" {
		return
	}
	for key, v := range map[string]string{"tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key} {
		if v == "" {
			bad(key, "missing: peers authenticate each other. Make files with \"kvpipectl certs init\" and \"kvpipectl certs node\", or set listen = \"off\"")
		}
	}
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
