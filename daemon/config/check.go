package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// KnownTransports are the names that the allow-list understands.
var KnownTransports = []string{"local", "tcp"}

// Check returns everything that is wrong, one error a line, in alphabetical order, each with the key, the value and the limit.
func (c *Config) Check() error {
	var p problems
	c.checkPlaces(&p)
	c.checkSecurity(&p)
	c.checkChoices(&p)
	c.checkNumbers(&p)
	c.checkTimes(&p)
	slices.SortFunc(p, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(p...)
}

// problems collects what is wrong.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

func (p *problems) oneOf(key, v string, of ...string) {
	if !slices.Contains(of, v) {
		p.add(key, "%q: give one of %s", v, strings.Join(of, ", "))
	}
}

func within[T cmp.Ordered](p *problems, key string, v, low, high T) {
	if v < low || v > high {
		p.add(key, "%v: give %v to %v", v, low, high)
	}
}

// maxSocket leaves room for a process id: sockets are made under another name and renamed.
const maxSocket = 96

// checkPlaces looks at names, paths and addresses.
func (c *Config) checkPlaces(p *problems) {
	c.name(p, "node", c.Node)
	for key, v := range map[string]string{"socket": c.Socket, "admin": c.Admin} {
		if !strings.HasPrefix(v, "/") || len(v) > maxSocket {
			p.add(key, "%q: give an absolute path of at most %d bytes (unix sockets may have 107, and the daemon needs some for a moment)", v, maxSocket)
		} else if strings.HasSuffix(v, "/") {
			p.add(key, "%q: is a directory; give the path of the socket in it", v)
		}
	}
	if c.Socket == c.Admin {
		p.add("admin", "%q: is the path of socket too; give another one", c.Admin)
	}
	for key, v := range map[string]string{"listen": c.Listen, "metrics": c.Metrics} {
		if err := hostPort(v); v != "off" && err != nil {
			p.add(key, "%q: give host:port or \"off\" (%v)", v, err)
		}
	}
	if c.Listen == c.Metrics && c.Listen != "off" && !strings.HasSuffix(c.Listen, ":0") {
		p.add("metrics", "%q: is what listen says too; give another port", c.Metrics)
	}
	if err := dialed(c.Advertise); c.Advertise != "" && (err != nil || len(c.Advertise) > maxAdvertise) {
		p.add("advertise", "%q: give the host:port that other nodes dial, at most %d bytes, or leave it empty", c.Advertise, maxAdvertise)
	} else if strings.ContainsFunc(c.Advertise, invisible) { // peers refuse a Hello with it
		p.add("advertise", "%q: has a character that no address has: give the host:port that other nodes dial, or leave it empty", c.Advertise)
	} else if c.Advertise != "" && wildcard(c.Advertise) {
		p.add("advertise", "%q: is each node's own address to itself: give the host:port that other nodes dial, or leave it empty", c.Advertise)
	} else if n := c.named(); n > maxAdvertise {
		p.add("advertise", "%q: would be node with the port of listen, %d bytes, at most %d: give the host:port that other nodes dial, or a shorter node", "", n, maxAdvertise)
	}
	if v := c.GPU.NVML; v != "auto" && v != "off" && !strings.HasPrefix(v, "/") {
		p.add("gpu.nvml", "%q: give \"auto\", \"off\" or the absolute path of libnvidia-ml.so.1", v)
	}
	for _, a := range c.Peers.Allow {
		if _, err := netip.ParsePrefix(a); err != nil {
			p.add("peers.allow", "%q: give a network such as 10.0.0.0/8 (%v)", a, err)
		}
	}
	for name, addr := range c.Peers.Nodes {
		c.name(p, "peers.nodes", name)
		if err := dialed(addr); err != nil {
			p.add("peers.nodes."+name, "%q: give host:port (%v)", addr, err)
		}
	}
}

// maxAdvertise is how many bytes an advertised address may have.
const maxAdvertise = 127

// named returns how long the address can be that the daemon makes of the node's name, or 0 where it makes none.
func (c *Config) named() int {
	_, port, err := net.SplitHostPort(c.Listen)
	if c.Advertise != "" || err != nil || !wildcard(c.Listen) {
		return 0
	}
	if n, err := strconv.Atoi(port); err != nil || n == 0 {
		port = "65535" // the port is not known before the daemon listens
	}
	return len(c.Node) + len(":") + len(port)
}

// name checks a node's name. Where peers authenticate each other, it has to be one that a certificate can have.
func (c *Config) name(p *problems, key, v string) {
	odd := func(r rune) bool { return r == ':' || r == '/' || invisible(r) }
	if v == "" || len(v) > 255 || strings.ContainsFunc(v, odd) {
		p.add(key, "%q: give a name of 1 to 255 printable characters without spaces, colons or slashes", v)
	} else if !c.Insecure && c.TLS != (TLS{}) && pki.CheckName(v) != nil {
		p.add(key, "%q: no certificate can have this name: give one of ASCII characters without backslashes that does not begin with a dot", v)
	}
}

func invisible(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }

// dialed checks an address that somebody connects to, without looking names up.
func dialed(v string) error {
	host, port, err := net.SplitHostPort(v)
	n, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return err
	case host == "":
		return errors.New("the host is missing")
	case bad != nil || n == 0:
		return fmt.Errorf("port %q is not 1 to %d", port, math.MaxUint16)
	}
	return nil
}

// hostPort checks an address to listen at, without looking names up.
func hostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	n, bad := strconv.Atoi(port)
	switch {
	case err != nil:
		return err
	case port == "": // the kernel would choose one
		return errors.New("the port is missing")
	case bad == nil && (n < 0 || n > math.MaxUint16):
		return fmt.Errorf("port %d is not 0 to %d", n, math.MaxUint16)
	}
	if _, unknown := net.LookupPort("tcp", port); unknown != nil { // by this machine's list alone
		return fmt.Errorf("port %q is not 0 to %d, nor the name of one", port, math.MaxUint16)
	}
	return nil
}

// congestionName is what the kernel takes for a name: TCP_CA_NAME_MAX is 16, with a NUL (linux/tcp.h).
var congestionName = regexp.MustCompile(`^[a-z0-9_-]{0,15}$`)

func (c *Config) checkChoices(p *problems) {
	if len(c.Transports) == 0 {
		p.add("transports", "[]: is empty, and nothing would ever move; list at least one of %s, or leave the key out", strings.Join(KnownTransports, ", "))
	}
	for i, t := range c.Transports {
		if !slices.Contains(KnownTransports, t) {
			p.add("transports", "%q is not a transport of this build; known: %s", t, strings.Join(KnownTransports, ", "))
		} else if slices.Contains(c.Transports[:i], t) {
			p.add("transports", "%q is listed twice; list each once, best first", t)
		}
	}
	if _, err := sys.ParseCPUs(c.CPUs); err != nil {
		p.add("cpus", "%q: give numbers and ranges up to %d, such as \"0-3,8\"", c.CPUs, sys.MaxCPU)
	}
	if !congestionName.MatchString(c.TCP.Congestion) {
		p.add("tcp.congestion", "%q: give a name as in net.ipv4.tcp_available_congestion_control, such as \"cubic\", or nothing for the system's", c.TCP.Congestion)
	}
	p.oneOf("poll_mode", c.PollMode, "event", "busy")
	p.oneOf("crc", c.CRC, "auto", "on", "off")
	for key, list := range map[string][]string{"nic_allow": c.NICAllow, "nic_deny": c.NICDeny} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.ContainsAny(pattern, "/ \t\n") {
				p.add(key, "%q: give the name of a NIC or RDMA device, such as eth0 or mlx5_0, or a glob, such as mlx5_*", pattern)
			}
		}
	}
	p.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", c.Log.Format, "text", "json")
}

func (c *Config) checkNumbers(p *problems) {
	within(p, "tcp.streams", c.TCP.Streams, 1, 64)
	within(p, "gid_index", c.GIDIndex, -1, 4095)
	within(p, "local.copy_workers", c.Local.CopyWorkers, 1, 64)
	within(p, "local.nice", c.Local.Nice, 0, 19)
	within(p, "limits.sessions", c.Limits.Sessions, 1, 1<<16)
	within(p, "limits.sessions_per_uid", c.Limits.SessionsPerUID, 1, 1<<16)
	within(p, "limits.inflight", c.Limits.Inflight, 1, 4096)
	within(p, "limits.offers", c.Limits.Offers, 1, 1<<20)
	within(p, "limits.pipes", c.Limits.Pipes, 1, 1<<16)
	within(p, "limits.items", c.Limits.Items, 1, 1<<22)
	within(p, "limits.block_ids", c.Limits.BlockIDs, 1, 1<<30)
	within(p, "limits.session_pinned", c.Limits.SessionPinned, 4<<10, 1<<60)
	within(p, "limits.total_pinned", c.Limits.TotalPinned, 4<<10, 1<<60)
	within(p, "limits.ring_memory", c.Limits.RingMemory, 64<<20, 1<<50) // one owner may have half of it: room for a session of the usual size
	within(p, "advanced.inline", c.Advanced.Inline, 0, 64<<10)
	within(p, "advanced.window", c.Advanced.Window, 1<<20, 1<<30) // a slice has up to 1 MiB
	within(p, "advanced.gomaxprocs", c.Advanced.GoMaxProcs, 0, 1024)
	if c.Advanced.MemoryLimit != 0 {
		within(p, "advanced.memory_limit", c.Advanced.MemoryLimit, 64<<20, 1<<50)
	}
}

func (c *Config) checkTimes(p *problems) {
	const day = Duration(24 * time.Hour)
	millisecond := Duration(time.Millisecond)
	within(p, "peers.heartbeat", c.Peers.Heartbeat, 10*millisecond, Duration(time.Minute))
	within(p, "peers.dial_max", c.Peers.DialMax, 10*millisecond, day)
	within(p, "peers.idle_close", c.Peers.IdleClose, 10*millisecond, 365*day)
	within(p, "tcp.spin", c.TCP.Spin, 0, 10*millisecond)
	within(p, "offers.default_lease", c.Offers.DefaultLease, millisecond, day)
	within(p, "offers.max_lease", c.Offers.MaxLease, millisecond, day)
	within(p, "offers.orphan_lease", c.Offers.OrphanLease, 0, day)
	within(p, "offers.offer_wait", c.Offers.OfferWait, millisecond, day)
	within(p, "offers.tombstone", c.Offers.Tombstone, millisecond, day)
	within(p, "advanced.spin", c.Advanced.Spin, 1, Duration(time.Second))
	within(p, "advanced.fence_grace", c.Advanced.FenceGrace, millisecond, Duration(time.Minute))
	within(p, "advanced.drain_wait", c.Advanced.DrainWait, millisecond, day)
	if c.Offers.DefaultLease > c.Offers.MaxLease {
		p.add("offers.default_lease", "%v: is above offers.max_lease, %v", c.Offers.DefaultLease, c.Offers.MaxLease)
	}
}
