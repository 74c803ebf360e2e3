package config

import (
	"net"
	"net/netip"
	"path/filepath"
)

// checkSecurity makes sure that peers always authenticate, except for tests between loopback addresses, and that
// metrics, where nobody is asked who they are, are not served at all addresses.
func (c *Config) checkSecurity(p *problems) {
	if wildcard(c.Metrics) {
		p.add("metrics", "%q: stands for all addresses of this node, and everybody who reaches one may read metrics: give one address, such as 127.0.0.1:7651; for readers on other machines, put a proxy in front that asks who they are", c.Metrics)
	}
	if c.Insecure {
		c.checkInsecure(p)
		return
	}
	alone := c.Listen == "off" && len(c.Peers.Nodes) == 0 && len(c.Peers.Allow) == 0
	if alone && c.TLS == (TLS{}) {
		return // a node without peers
	}
	for key, v := range map[string]string{"tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key} {
		switch {
		case v == "":
			p.add(key, "missing: peers authenticate each other. Make files with \"kvpipectl certs init\" and \"kvpipectl certs node\", or set listen = \"off\" and name no peers, by peers.nodes or peers.allow")
		case !filepath.IsAbs(v):
			p.add(key, "%q: give an absolute path", v)
		}
	}
}

// checkInsecure lets nothing but loopback addresses pass.
func (c *Config) checkInsecure(p *problems) {
	for key, v := range map[string]string{"listen": c.Listen, "advertise": c.Advertise} {
		if v != "" && v != "off" && !loopback(v) {
			p.add("insecure", "works on loopback addresses alone, but %s is %q: remove insecure and give tls.ca, tls.cert and tls.key (kvpipectl certs makes them), or set %[1]s to an address such as \"127.0.0.1:7650\"", key, v)
		}
	}
	for name, addr := range c.Peers.Nodes {
		if !loopback(addr) {
			p.add("insecure", "works on loopback addresses alone, but peers.nodes.%s is %q", name, addr)
		}
	}
}

// wildcard reports whether an address stands for all addresses of a node.
func wildcard(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().WithZone("").IsUnspecified() // the kernel does not look at an interface beside it
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
