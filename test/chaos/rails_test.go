package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// rails are two NICs on each of two nodes, one network each. The channel goes over kv.
type rails struct {
	*world
	*wire
}

const second = "kv1"

func newRails(t *testing.T, with string) *rails {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: network namespaces need CAP_SYS_ADMIN")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("no iproute2: %v", err)
	}
	if out, err := exec.Command("unshare", "--net", "ip", "link", "add", "kv0", "type", "veth", "peer", "kv1").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces or no veth here: %v: %s", err, out)
	}
	r := &rails{wire: newWire(t, fmt.Sprintf("kvrails%d", os.Getpid()))}
	r.run("", "ip", "link", "add", second, "netns", r.names[0], "type", "veth", "peer", second, "netns", r.names[1])
	for i, n := range r.names {
		r.run("", "ip", "-n", n, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", second)
		r.run("", "ip", "-n", n, "link", "set", second, "up")
	}
	r.world = describe(t, 2)
	r.cancels, r.time = 0, 20*time.Second // whoever waits for a NIC that is down waits longer
	for i, n := range r.daemons {
		n.Beats = "1s" // nobody is given up for being busy: no hand-over may fail
		n.Configure(with + "\ntcp.streams = 4" + settings(n.T))
		n.In, n.Addr = r.names[i], addrs[i]+":7650"
		n.Args = append(n.Args, "--listen", "0.0.0.0:7650") // instead of n.Addr alone
	}
	return r
}

// over waits until the data links of both nodes go over these NICs.
func (r *rails) over(want string) {
	r.world.t.Helper()
	for i, n := range r.daemons {
		cluster.Eventually(r.world.t, n.Name+"'s data links go over "+want, func() bool {
			var e admin.Explain
			if n.Ctl.Get(r.world.t.Context(), "explain", map[string][]string{"peer": {r.daemons[1-i].Name}}, &e) != nil {
				return false
			}
			var got []string
			for _, s := range e.Streams {
				if s.NIC != s.PeerNIC { // they have the same names here
					return false
				}
				got = append(got, s.NIC)
			}
			slices.Sort(got)
			return strings.Join(got, " ") == want
		})
	}
}

// sent is what a NIC of the producer's node has sent.
func (r *rails) sent(nic string) int {
	r.world.t.Helper()
	out := r.run("", "ip", "netns", "exec", r.names[0], "cat", "/sys/class/net/"+nic+"/statistics/tx_bytes")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		r.world.t.Fatal(err)
	}
	return n
}

// carries waits until the NIC has carried data, not only heartbeats, while requests are handed over.
func (r *rails) carries(nic string) {
	r.world.t.Helper()
	before := r.sent(nic)
	cluster.Eventually(r.world.t, nic+" carries data", func() bool { r.flowing(1); return r.sent(nic) > before+1<<20 })
}

// Two nodes with two NICs each use both. One that is taken down, at either end or by the configuration, while bytes move over it, costs no
// hand-over: its links go over the other, and come back when it does.
func TestRails(t *testing.T) {
	for _, plain := range []bool{true, false} {
		t.Run(map[bool]string{false: "tls", true: "plain"}[plain], func(t *testing.T) {
			r := newRails(t, fmt.Sprintf("data_plain = %v", plain))
			r.begin()
			r.flowing(5)
			r.over("kv kv kv1 kv1")
			r.carries("kv")
			r.carries(second)
			for _, end := range r.names {
				r.run("", "ip", "-n", end, "link", "set", second, "down")
				r.flowing(10)
				r.over("kv kv kv kv")
				for _, n := range r.daemons {
					n.Says("NIC not used any more", "nic="+second, "reason=down")
				}
				r.run("", "ip", "-n", end, "link", "set", second, "up")
				r.over("kv kv kv1 kv1")
				r.carries(second)
			}
			for _, n := range r.daemons {
				before, err := os.ReadFile(n.Config)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(n.Config, append([]byte("nic_deny = [\"kv?\"]\n"), before...), 0o600); err != nil {
					t.Fatal(err)
				}
				n.Reload()
				r.flowing(5)
				r.over("kv kv kv kv")
				if err := os.WriteFile(n.Config, before, 0o600); err != nil {
					t.Fatal(err)
				}
				n.Reload()
				r.over("kv kv kv1 kv1")
			}
			// Of what fails, "no room" is the engine's own: it has no free blocks.
			if n := r.decode.Count("failed") - r.decode.Count("failed: no room"); n > 0 {
				t.Errorf("%d hand-overs failed: %v", n, r.decode.All())
			}
			r.atRest()
			t.Logf("taken: %v", r.decode.All())
		})
	}
}
