package chaos

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/test/cluster"
)

var network = flag.Int("network", 0, "how often packets between two network namespaces are lost or refused, encrypted or not; "+
	"needs root, in a network namespace of its own: test/rigs/network.sh")

// Whatever happens to the packets between two nodes: every operation ends by its deadline, nothing that is wrong is delivered, all goes on
// when it is over, also when a daemon was started anew meanwhile, and nothing is left behind.
func TestNetwork(t *testing.T) {
	if *network == 0 {
		t.Skip("-network=0: test/rigs/network.sh runs it, in namespaces of its own")
	}
	for _, plain := range []bool{false, true} {
		name := map[bool]string{false: "tls", true: "plain"}[plain]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			w := describe(t, 2, fmt.Sprintf("data_plain = %v", plain))
			wire := newWire(t, name)
			for i, n := range w.daemons {
				n.In, n.Addr = wire.names[i], addrs[i]+":7650"
			}
			w.begin()
			w.flowing(20)
			w.atRest()
			for i := range *network {
				what := w.under(wire, troubles[i%len(troubles)], i >= len(troubles))
				w.flowing(5)
				w.atRest()
				if t.Failed() {
					t.Fatalf("cycle %d: %s", i, what)
				}
			}
			t.Logf("taken: %v", w.decode.All())
		})
	}
}

// under lets the network suffer for a while that may be longer than the peers' patience, once or on and off, but not before packets have
// met with it. Meanwhile, when harder, somebody may be killed.
func (w *world) under(wire *wire, tr trouble, harder bool) string {
	w.t.Helper()
	what, times := tr.name, 1
	if w.rng.IntN(3) == 0 {
		what, times = what+", on and off", 6
	}
	for i := range times {
		wire.suffer(tr)
		if harder && i == 0 {
			what += ", " + w.strike()
		}
		<-time.After(time.Duration(w.rng.Int64N(int64(1500*time.Millisecond) / int64(times)))) // no event ends it
		cluster.Eventually(w.t, "packets suffer: "+what, func() bool { return wire.suffered() > 0 })
		wire.heal()
	}
	return what
}
