package guest

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// rdma: the daemon, in its sandbox, shows an RDMA device that the kernel makes of a NIC (soft-RoCE) from when it comes until it goes, and
// what becomes of its port meanwhile.
func (g *guest) rdma() {
	pid := g.show("MainPID")
	for _, c := range []string{
		"modprobe --all --dirname " + filepath.Join(*tree, "build/guest/kernel") + " crc32_generic rdma_rxe",
		"ip link add roce0 type veth peer name roce1", "ip addr add 10.78.0.1/24 dev roce0", "ip link set roce1 up", "ip link set roce0 up",
		"rdma link add rxe0 type rxe netdev roce0",
	} {
		words := strings.Fields(c)
		g.run(words[0], words[1:]...)
	}
	g.port("active, with a GID of the NIC's address", func(p *admin.RDMAPort) bool {
		return p != nil && p.State == "ACTIVE" && slices.ContainsFunc(p.GIDs, func(x admin.GID) bool { return x.GID == "10.78.0.1" })
	})
	p := g.rxe()
	if p.Number != 1 || p.LinkLayer != "Ethernet" || p.NIC != "roce0" {
		g.step.Errorf("the port of rxe0: %+v", p)
	}
	for _, x := range p.GIDs {
		if x.Type != "RoCE v2" || x.NIC != "roce0" {
			g.step.Errorf("a GID of rxe0: %+v", x)
		}
	}
	table := g.run("kvpipectl", "nics")
	for _, words := range []string{"roce0 veth up rxe0", "rxe0/1 ACTIVE Ethernet roce0 10.78.0.1", "rxe0/1 to IPv4 peers: RoCE v2, IPv4, routable"} {
		if !slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool { return inOrder(line, strings.Fields(words)) }) {
			g.step.Errorf("no line with %s in:\n%s", words, table)
		}
	}
	g.run("ip", "link", "set", "roce0", "down")
	g.port("not active", func(p *admin.RDMAPort) bool { return p != nil && p.State == "DOWN" })
	g.run("ip", "link", "set", "roce0", "up")
	g.port("active again", func(p *admin.RDMAPort) bool { return p != nil && p.State == "ACTIVE" })
	g.run("rdma", "link", "delete", "rxe0")
	g.port("gone", func(p *admin.RDMAPort) bool { return p == nil })
	g.run("ip", "link", "delete", "roce0")
	flowing(g.decode, 5)
	if now := g.show("MainPID"); now != pid {
		g.step.Errorf("the daemon was %s and is %s", pid, now)
	}
}

// port waits for what kvpipectl says of rxe0's.
func (g *guest) port(what string, ok func(*admin.RDMAPort) bool) {
	g.step.Helper()
	g.eventually("the port of rxe0 is "+what, func() bool { return ok(g.rxe()) })
}

// rxe is the port of rxe0; nil when there is none.
func (g *guest) rxe() *admin.RDMAPort {
	g.step.Helper()
	var all admin.NICs
	if err := json.Unmarshal([]byte(g.run("kvpipectl", "nics", "--json")), &all); err != nil {
		g.step.Fatal(err)
	}
	for _, d := range all.RDMA {
		if d.Name == "rxe0" && len(d.Ports) == 1 {
			return &d.Ports[0]
		}
	}
	return nil
}

// inOrder tells whether a line has all words, one after the other.
func inOrder(line string, words []string) bool {
	for _, w := range words {
		_, rest, found := strings.Cut(line, w)
		if !found {
			return false
		}
		line = rest
	}
	return true
}
