package guest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/test/cluster"
)

const (
	far     = "/opt/guest/far" // the other node, in a network namespace
	nearIP  = "10.77.0.1"
	farIP   = "10.77.0.2"
	farConf = `node = "far"
socket = "/opt/guest/far/s"
admin = "/opt/guest/far/a"
listen = "10.77.0.2:7650"
metrics = "off"
[tls]
ca = "/opt/guest/ca/ca.crt"
cert = "/opt/guest/ca/far.crt"
key = "/opt/guest/ca/far.key"
[peers]
nodes = { guest = "10.77.0.1:7650" }
heartbeat = "500ms"
dial_max = "500ms"
`
)

// peers: with certificates the peers' socket opens and another node takes what is offered here. When the link goes down, this node goes
// on; when it is back, so do both.
func (g *guest) peers() {
	for _, c := range []string{
		"ip netns add far", "ip link add near0 type veth peer name far0 netns far", "ip addr add " + nearIP + "/24 dev near0", "ip link set near0 up",
		"ip -n far link set lo up", "ip -n far addr add " + farIP + "/24 dev far0", "ip -n far link set far0 up",
		"kvpipectl certs init --ca /opt/guest/ca", "kvpipectl certs node guest --ca /opt/guest/ca", "kvpipectl certs node far --ca /opt/guest/ca",
		"install -m 644 /opt/guest/ca/ca.crt /opt/guest/ca/guest.crt /etc/kvpipe", "install -m 600 -o kvpipe /opt/guest/ca/guest.key /etc/kvpipe",
	} {
		words := strings.Fields(c)
		g.run(words[0], words[1:]...)
	}
	// The daemon's name is the host's, by which a purge knows the node's certificate.
	if err := syscall.Sethostname([]byte("guest")); err != nil {
		g.step.Fatal(err)
	}
	g.edit("\nlisten = \"off\"\n", "\nlisten = \"[::]:7650\"\n")
	g.edit(`#ca = ""`, `ca = "/etc/kvpipe/ca.crt"`)
	g.edit(`#cert = ""`, `cert = "/etc/kvpipe/guest.crt"`)
	g.edit(`#key = ""`, `key = "/etc/kvpipe/guest.key"`)
	g.edit(`#nodes = {}`, `nodes = { far = "`+farIP+`:7650" }`)
	g.edit(`#heartbeat = "1s"`, `heartbeat = "500ms"`)
	g.run("systemctl", "enable", "kvpiped-peer.socket")
	g.run("systemctl", "stop", "kvpiped.socket")
	g.run("systemctl", "start", "kvpiped-peer.socket", service)
	flowing(g.decode, 5)
	if got := g.run("ss", "-Hltnp", "sport = :7650"); !strings.Contains(got, "systemd") || !strings.Contains(got, "kvpiped") {
		g.step.Errorf("who listens for peers: %s", got)
	}

	decode := g.farNode()
	flowing(decode, 10)
	pid := g.show("MainPID")
	g.run("ip", "link", "set", "near0", "down")
	g.eventually("the peer is missed", func() bool { return !g.up("far") })
	flowing(g.decode, 10)
	g.run("ip", "link", "set", "near0", "up")
	flowing(decode, 10)
	if now := g.show("MainPID"); now != pid {
		g.step.Errorf("the daemon was %s and is %s", pid, now)
	}
}

// farNode starts the other node and an engine there, which takes what an engine here offers it.
func (g *guest) farNode() *cluster.Engine {
	if err := os.MkdirAll(far, 0o755); err != nil {
		g.step.Fatal(err)
	}
	if err := os.WriteFile(far+"/k.toml", []byte(farConf), 0o600); err != nil {
		g.step.Fatal(err)
	}
	daemon := exec.Command("ip", "netns", "exec", "far", "kvpiped", "--config", far+"/k.toml")
	daemon.Stdout, daemon.Stderr = os.Stdout, os.Stderr
	if err := daemon.Start(); err != nil {
		g.step.Fatal(err)
	}
	g.step.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	g.eventually("the far daemon is ready", func() bool { return try("kvpipectl", "status", "--admin", far+"/a") != "" && exists(far+"/s") })
	decode := g.engine("decode", "far", far+"/s", 0, nil)
	prefill := g.engine("prefill", "guest", socket, 0, func(word string, rest []string) {
		if word == "offer" {
			decode.Tell("take %s %s guest", rest[0], rest[1])
		}
	})
	decode.As, prefill.As = nil, nil
	// Another pair of engines than the one that is there: engines have names.
	decode.Name, prefill.Name = "decode-far", "prefill-far"
	g.start(decode, 0)
	g.start(prefill, 0)
	g.step.Cleanup(func() { prefill.Kill(); decode.Kill() })
	return decode
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// up tells whether the channel to a node is up.
func (g *guest) up(node string) bool {
	var all []admin.Peer
	if err := g.ctl.Get(g.step.Context(), "peers", nil, &all); err != nil {
		g.step.Fatal(fmt.Errorf("peers: %w", err))
	}
	for _, p := range all {
		if p.Node == node {
			return p.State == "up"
		}
	}
	return false
}
