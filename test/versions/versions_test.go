package versions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/test/cluster"
)

// world is a producer on node a and a consumer on node b, each with a daemon and a library of its own version.
type world struct {
	t               *testing.T
	a, b            *cluster.Node
	prefill, decode *cluster.Engine
}

// setting says who is a version ahead.
type setting struct{ daemonA, daemonB, libraryA, libraryB bool }

func newWorld(t *testing.T, s setting) *world {
	t.Helper()
	c := cluster.New(t)
	w := &world{t: t, a: c.Node("a"), b: c.Node("b")}
	w.b.Knows(w.a)
	w.a.Knows(w.b)
	w.upgrade(w.a, s.daemonA)
	w.upgrade(w.b, s.daemonB)
	w.decode = cluster.NewEngine(t, "decode", w.b, nil)
	w.prefill = cluster.NewEngine(t, "prefill", w.a, func(word string, rest []string) {
		if word == "offer" {
			w.decode.Tell("take %s %s a", rest[0], rest[1])
		}
	})
	w.decode.Env, w.prefill.Env = library(s.libraryB), library(s.libraryA)
	w.decode.Start(0)
	w.prefill.Start(0)
	return w
}

func library(ahead bool) []string {
	if !ahead {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + filepath.Join(next, "lib")}
}

// upgrade starts a node's daemon, or starts it again, in the next version or in this one.
func (w *world) upgrade(n *cluster.Node, ahead bool) {
	w.t.Helper()
	if n.Cmd != nil {
		n.Stop()
	}
	n.Binary = ""
	if ahead {
		n.Binary = filepath.Join(next, "kvpiped")
	}
	n.Start()
}

// flowing waits until some more requests have been handed over, right in every word.
func (w *world) flowing() {
	w.t.Helper()
	w.decode.Waits("ok", w.decode.Count("ok")+10)
}

// TestOneApart: neighbouring versions hand over in both directions, by what both speak.
func TestOneApart(t *testing.T) {
	for name, c := range map[string]struct {
		setting
		want uint32 // version of the peer protocol
	}{
		"the consumer's daemon is ahead": {setting{daemonB: true}, 1},
		"the producer's daemon is ahead": {setting{daemonA: true}, 1},
		"both daemons are ahead":         {setting{daemonA: true, daemonB: true}, 2},
		"both libraries are ahead":       {setting{libraryA: true, libraryB: true}, 1},
		"everything is ahead":            {setting{true, true, true, true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.setting)
			w.flowing()
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.decode.Cmd.Process.Pid))
			if got := strings.Contains(string(maps), next+"/lib/libkvpipe.so.0"); err != nil || got != c.libraryB {
				t.Errorf("the consumer has the next library: %v, want %v (%v)", got, c.libraryB, err)
			}
			if p := w.b.Peer("a"); p.State != "up" || p.Protocol != c.want {
				t.Errorf("b sees a as %q, by version %d of the protocol, want %d", p.State, p.Protocol, c.want)
			}
		})
	}
}

// TestUpgradeAndBack: daemons are upgraded and downgraded by a version under engines that go on, one node after the other.
func TestUpgradeAndBack(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		t.Run(map[bool]string{false: "this library", true: "the next library"}[ahead], func(t *testing.T) {
			w := newWorld(t, setting{libraryA: ahead, libraryB: ahead})
			w.flowing()
			for _, up := range []bool{true, false} {
				for _, n := range []*cluster.Node{w.a, w.b} {
					w.upgrade(n, up)
					w.flowing()
				}
			}
			w.prefill.Quiet()
			w.decode.Quiet()
		})
	}
}
