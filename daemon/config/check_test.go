package config

import (
	"strings"
	"testing"
	"time"
)

// good is a configuration without anything to complain about.
func good() Config {
	c := Default()
	c.Node = "n"
	c.TLS = TLS{CA: "/k/ca.crt", Cert: "/k/n.crt", Key: "/k/n.key"}
	return c
}

func TestCheckAccepts(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"good":              func(*Config) {},
		"insecure loopback": func(c *Config) { c.Insecure, c.TLS, c.Listen = true, TLS{}, "127.0.0.1:0" },
		"insecure ::1":      func(c *Config) { c.Insecure, c.TLS, c.Listen, c.Advertise = true, TLS{}, "[::1]:1", "localhost:1" },
		"insecure peers": func(c *Config) {
			c.Insecure, c.TLS, c.Listen, c.Peers.Nodes = true, TLS{}, "off", map[string]string{"b": "127.0.0.2:1"}
		},
		"a name that no certificate has": func(c *Config) {
			c.Insecure, c.TLS, c.Listen, c.Node, c.Peers.Nodes = true, TLS{}, "127.0.0.1:0", "é", map[string]string{".b": "127.0.0.2:1"}
		},
		"nor does one without peers need one": func(c *Config) { c.TLS, c.Listen, c.Node = TLS{}, "off", "é" },
		"the longest lease for all":           func(c *Config) { c.Offers.DefaultLease = c.Offers.MaxLease },
		"no peers at all":                     func(c *Config) { c.TLS, c.Listen = TLS{}, "off" },
		"only dials":                          func(c *Config) { c.Listen, c.Peers.Nodes = "off", map[string]string{"b": "b:1"} },
		"a long name":                         func(c *Config) { c.Node = strings.Repeat("n", 122) },
		"a longer name":                       func(c *Config) { c.Node, c.Advertise = strings.Repeat("n", 255), "n:1" },
		"and one address":                     func(c *Config) { c.Node, c.Listen = strings.Repeat("n", 255), "10.0.0.1:7650" },
		"or none":                             func(c *Config) { c.Node, c.TLS, c.Listen = strings.Repeat("n", 255), TLS{}, "off" },
		"some NICs": func(c *Config) {
			c.NICAllow, c.NICDeny, c.GIDIndex = []string{"eth0", "mlx5_*", "ens[12]f?np0"}, []string{"eth0.7"}, 3
		},
		"a port by name":  func(c *Config) { c.Metrics = "127.0.0.1:http" },
		"no metrics":      func(c *Config) { c.Metrics = "off" },
		"lower limits":    func(c *Config) { c.TCP.Streams, c.Advanced.Window, c.Advanced.Inline, c.TCP.Spin = 1, 1<<20, 0, 0 },
		"no GPUs":         func(c *Config) { c.GPU.NVML = "off" },
		"NVML elsewhere":  func(c *Config) { c.GPU.NVML = "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1" },
		"no memory limit": func(c *Config) { c.Advanced.MemoryLimit = 0 },
	} {
		c := good()
		change(&c)
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	long := "/" + strings.Repeat("x", 96)
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Node = "" }, `node: "": give a name of 1 to 255 printable characters without spaces, colons or slashes`},
		{func(c *Config) { c.Node = "a:1" }, `node: "a:1": give a name of 1 to 255 printable characters without spaces, colons or slashes`},
		{func(c *Config) { c.Node = "é" }, `node: "é": no certificate can have this name: give one of ASCII characters without backslashes that does not begin with a dot`},
		{func(c *Config) { c.Node = ".n" }, `node: ".n": no certificate can have this name: give one of ASCII characters without backslashes that does not begin with a dot`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{`a\b`: "b:1"} }, `peers.nodes: "a\\b": no certificate can have this name: give one of ASCII characters without backslashes that does not begin with a dot`},
		{func(c *Config) { c.TLS.Key = "n.key" }, `tls.key: "n.key": give an absolute path`},
		{func(c *Config) { c.Socket = "s" }, `socket: "s": give an absolute path of at most 96 bytes (unix sockets may have 107, and the daemon needs some for a moment)`},
		{func(c *Config) { c.Admin = long }, `admin: "` + long + `": give an absolute path of at most 96 bytes (unix sockets may have 107, and the daemon needs some for a moment)`},
		{func(c *Config) { c.Admin = c.Socket }, `admin: "/run/kvpipe/kvpiped.sock": is the path of socket too; give another one`},
		{func(c *Config) { c.Listen = c.Metrics }, `metrics: "127.0.0.1:7651": is what listen says too; give another port`},
		{func(c *Config) { c.Listen = "7650" }, `listen: "7650": give host:port or "off" (address 7650: missing port in address)`},
		{func(c *Config) { c.Metrics = "localhost" }, `metrics: "localhost": give host:port or "off" (address localhost: missing port in address)`},
		{func(c *Config) { c.Metrics = ":7651" }, `metrics: ":7651": stands for all addresses of this node, and everybody who reaches one may read metrics: give one address, such as 127.0.0.1:7651; for readers on other machines, put a proxy in front that asks who they are`},
		{func(c *Config) { c.Metrics = "[::ffff:0.0.0.0]:7651" }, `metrics: "[::ffff:0.0.0.0]:7651": stands for all addresses of this node, and everybody who reaches one may read metrics: give one address, such as 127.0.0.1:7651; for readers on other machines, put a proxy in front that asks who they are`},
		{func(c *Config) { c.Metrics = "[::%eth0]:7651" }, `metrics: "[::%eth0]:7651": stands for all addresses of this node, and everybody who reaches one may read metrics: give one address, such as 127.0.0.1:7651; for readers on other machines, put a proxy in front that asks who they are`},
		{func(c *Config) { c.Advertise = "me" }, `advertise: "me": give the host:port that other nodes dial, at most 127 bytes, or leave it empty`},
		{func(c *Config) { c.Peers.Allow = []string{"10.0.0.0"} }, `peers.allow: "10.0.0.0": give a network such as 10.0.0.0/8 (netip.ParsePrefix("10.0.0.0"): no '/')`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{"b": "b"} }, `peers.nodes.b: "b": give host:port (address b: missing port in address)`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{"b": ":7650"} }, `peers.nodes.b: ":7650": give host:port (the host is missing)`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{"b": "b:0"} }, `peers.nodes.b: "b:0": give host:port (port "0" is not 1 to 65535)`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{"b": "b:kvpipe"} }, `peers.nodes.b: "b:kvpipe": give host:port (port "kvpipe" is not 1 to 65535)`},
		{func(c *Config) { c.Peers.Nodes = map[string]string{"b c": "b:1"} }, `peers.nodes: "b c": give a name of 1 to 255 printable characters without spaces, colons or slashes`},
		{func(c *Config) { c.Advertise = "me\u200b:1" }, `advertise: "me\u200b:1": has a character that no address has: give the host:port that other nodes dial, or leave it empty`},
		{func(c *Config) { c.Advertise = "0.0.0.0:1" }, `advertise: "0.0.0.0:1": is each node's own address to itself: give the host:port that other nodes dial, or leave it empty`},
		{func(c *Config) { c.Advertise = "me:" }, `advertise: "me:": give the host:port that other nodes dial, at most 127 bytes, or leave it empty`},
		{func(c *Config) { c.Node = strings.Repeat("n", 123) }, `advertise: "": would be node with the port of listen, 128 bytes, at most 127: give the host:port that other nodes dial, or a shorter node`},
		{func(c *Config) { c.Node, c.Listen = strings.Repeat("n", 122), ":0" }, `advertise: "": would be node with the port of listen, 128 bytes, at most 127: give the host:port that other nodes dial, or a shorter node`},
		{func(c *Config) { c.Transports = []string{} }, `transports: []: is empty, and nothing would ever move; list at least one of local, tcp, or leave the key out`},
		{func(c *Config) { c.Transports = []string{"rdna"} }, `transports: "rdna" is not a transport of this build; known: local, tcp`},
		{func(c *Config) { c.Transports = []string{"tcp", "tcp"} }, `transports: "tcp" is listed twice; list each once, best first`},
		{func(c *Config) { c.CPUs = "3-1" }, `cpus: "3-1": give numbers and ranges up to 1023, such as "0-3,8"`},
		{func(c *Config) { c.NICAllow = []string{"eth0", "eth["} }, `nic_allow: "eth[": give the name of a NIC or RDMA device, such as eth0 or mlx5_0, or a glob, such as mlx5_*`},
		{func(c *Config) { c.NICDeny = []string{""} }, `nic_deny: "": give the name of a NIC or RDMA device, such as eth0 or mlx5_0, or a glob, such as mlx5_*`},
		{func(c *Config) { c.GIDIndex = -2 }, `gid_index: -2: give -1 to 4095`},
		{func(c *Config) { c.PollMode = "spin" }, `poll_mode: "spin": give one of event, busy`},
		{func(c *Config) { c.CRC = "yes" }, `crc: "yes": give one of auto, on, off`},
		{func(c *Config) { c.Log.Level = "trace" }, `log.level: "trace": give one of debug, info, warn, error`},
		{func(c *Config) { c.Log.Format = "xml" }, `log.format: "xml": give one of text, json`},
		{func(c *Config) { c.TCP.Streams = 0 }, `tcp.streams: 0: give 1 to 64`},
		{func(c *Config) { c.Socket = "/run/kvpipe/" }, `socket: "/run/kvpipe/": is a directory; give the path of the socket in it`},
		{func(c *Config) { c.Metrics = "127.0.0.1:99999" }, `metrics: "127.0.0.1:99999": give host:port or "off" (port 99999 is not 0 to 65535)`},
		{func(c *Config) { c.Listen = "10.0.0.1:" }, `listen: "10.0.0.1:": give host:port or "off" (the port is missing)`},
		{func(c *Config) { c.Metrics = "127.0.0.1: 7651" }, `metrics: "127.0.0.1: 7651": give host:port or "off" (port " 7651" is not 0 to 65535, nor the name of one)`},
		{func(c *Config) { c.Node = "a\x1b" }, `node: "a\x1b": give a name of 1 to 255 printable characters without spaces, colons or slashes`},
		{func(c *Config) { c.GPU.NVML = "libnvidia-ml.so.1" }, `gpu.nvml: "libnvidia-ml.so.1": give "auto", "off" or the absolute path of libnvidia-ml.so.1`},
		{func(c *Config) { c.Local.CopyWorkers = 65 }, `local.copy_workers: 65: give 1 to 64`},
		{func(c *Config) { c.Local.Nice = -1 }, `local.nice: -1: give 0 to 19`},
		{func(c *Config) { c.Limits.Sessions = 0 }, `limits.sessions: 0: give 1 to 65536`},
		{func(c *Config) { c.Limits.SessionsPerUID = -1 }, `limits.sessions_per_uid: -1: give 1 to 65536`},
		{func(c *Config) { c.Limits.Inflight = 4097 }, `limits.inflight: 4097: give 1 to 4096`},
		{func(c *Config) { c.Limits.Offers = 0 }, `limits.offers: 0: give 1 to 1048576`},
		{func(c *Config) { c.Limits.Pipes = 0 }, `limits.pipes: 0: give 1 to 65536`},
		{func(c *Config) { c.Limits.Items = 0 }, `limits.items: 0: give 1 to 4194304`},
		{func(c *Config) { c.Limits.BlockIDs = 0 }, `limits.block_ids: 0: give 1 to 1073741824`},
		{func(c *Config) { c.Limits.SessionPinned = 0 }, `limits.session_pinned: 0B: give 4KiB to 1048576TiB`},
		{func(c *Config) { c.Limits.RingMemory = 1 << 20 }, `limits.ring_memory: 1MiB: give 64MiB to 1024TiB`},
		{func(c *Config) { c.Limits.TotalPinned = 1 }, `limits.total_pinned: 1B: give 4KiB to 1048576TiB`},
		{func(c *Config) { c.Advanced.Inline = 65 << 10 }, `advanced.inline: 65KiB: give 0B to 64KiB`},
		{func(c *Config) { c.Advanced.Window = 1 }, `advanced.window: 1B: give 1MiB to 1GiB`},
		{func(c *Config) { c.Advanced.GoMaxProcs = -1 }, `advanced.gomaxprocs: -1: give 0 to 1024`},
		{func(c *Config) { c.Advanced.MemoryLimit = 1 }, `advanced.memory_limit: 1B: give 64MiB to 1024TiB`},
		{func(c *Config) { c.Advanced.Spin = 0 }, `advanced.spin: 0s: give 1ns to 1s`},
		{func(c *Config) { c.Advanced.FenceGrace = 0 }, `advanced.fence_grace: 0s: give 1ms to 1m0s`},
		{func(c *Config) { c.Advanced.DrainWait = 0 }, `advanced.drain_wait: 0s: give 1ms to 24h0m0s`},
		{func(c *Config) { c.Peers.Heartbeat = 1 }, `peers.heartbeat: 1ns: give 10ms to 1m0s`},
		{func(c *Config) { c.Peers.IdleClose = 0 }, `peers.idle_close: 0s: give 10ms to 8760h0m0s`},
		{func(c *Config) { c.Peers.DialMax = 0 }, `peers.dial_max: 0s: give 10ms to 24h0m0s`},
		{func(c *Config) { c.TCP.Congestion = "CUBIC!" }, `tcp.congestion: "CUBIC!": give a name as in net.ipv4.tcp_available_congestion_control, such as "cubic", or nothing for the system's`},
		{func(c *Config) { c.TCP.Spin = Duration(time.Second) }, `tcp.spin: 1s: give 0s to 10ms`},
		{func(c *Config) { c.Offers.DefaultLease = 0 }, `offers.default_lease: 0s: give 1ms to 24h0m0s`},
		{func(c *Config) { c.Offers.MaxLease = Duration(25 * time.Hour) }, `offers.max_lease: 25h0m0s: give 1ms to 24h0m0s`},
		{func(c *Config) { c.Offers.OrphanLease = -1 }, `offers.orphan_lease: -1ns: give 0s to 24h0m0s`},
		{func(c *Config) { c.Offers.OfferWait = 0 }, `offers.offer_wait: 0s: give 1ms to 24h0m0s`},
		{func(c *Config) { c.Offers.Tombstone = 0 }, `offers.tombstone: 0s: give 1ms to 24h0m0s`},
		{func(c *Config) { c.Offers.MaxLease = Duration(time.Second) }, `offers.default_lease: 30s: is above offers.max_lease, 1s`},
		{func(c *Config) { c.TLS.Key = "" }, `tls.key: missing: peers authenticate each other. Make files with "kvpipectl certs init" and "kvpipectl certs node", or set listen = "off" and name no peers, by peers.nodes or peers.allow`},
		{func(c *Config) { c.Insecure = true }, `insecure: works on loopback addresses alone, but listen is "[::]:7650": remove insecure and give tls.ca, tls.cert and tls.key (kvpipectl certs makes them), or set listen to an address such as "127.0.0.1:7650"`},
		{func(c *Config) {
			c.Insecure, c.Listen, c.Peers.Nodes = true, "off", map[string]string{"b": "10.0.0.1:1"}
		}, `insecure: works on loopback addresses alone, but peers.nodes.b is "10.0.0.1:1"`},
	} {
		cfg := good()
		c.change(&cfg)
		if err := cfg.Check(); err == nil {
			t.Errorf("accepted, want %s", c.want)
		} else if err.Error() != c.want {
			t.Errorf("\n got %s\nwant %s", err, c.want)
		}
	}
}

// TestCheckTellsAll: one error a line, in a fixed order.
func TestCheckTellsAll(t *testing.T) {
	c := good()
	c.TLS, c.CRC, c.Node = TLS{}, "x", ""
	lines := strings.Split(c.Check().Error(), "\n")
	var keys []string
	for _, l := range lines {
		key, _, _ := strings.Cut(l, ":")
		keys = append(keys, key)
	}
	if got, want := strings.Join(keys, " "), "crc node tls.ca tls.cert tls.key"; got != want {
		t.Errorf("complaints about %q, want %q", got, want)
	}
}
