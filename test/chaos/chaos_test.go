package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/test/cluster"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

var (
	cycles = flag.Int("cycles", 100, "how often somebody is killed or stopped, on one node and on two together")
	rounds = flag.Int("rounds", 1000, "how many takes are cancelled, by each transport")
	seed   = flag.Uint64("seed", 0, "of the choice of victims and moments; 0: drawn, and told when the test fails")
)

// settings is what the daemons are told: orphans do not outlive the test's patience, and there are GPUs.
func settings(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("\n[offers]\ndefault_lease = \"1s\"\ntombstone = \"2s\"\n[gpu]\nnvml = %q\n", fakenvml.Library(t))
}

// gpus is a box of eight.
const gpus = "h200"

// world is a producer and a consumer with their daemons, which are one and the same on one node.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	daemons []*cluster.Node
	prefill *cluster.Engine
	decode  *cluster.Engine
	between *proxy        // of the two nodes; nil: none
	cancels int           // takes of a hundred that are cancelled
	time    time.Duration // of takes; 0: a second or so
	rest    cluster.Rest
	box     *fakenvml.Box // the GPUs of every node
	lost    bool          // one of them is
	ends    bool          // they have those of a pipe and of a lookup buffer, from the producer to the consumer
	ledgers []*cluster.Ledger
}

func newWorld(t *testing.T, nodes int, with ...string) *world {
	t.Helper()
	w := describe(t, nodes, with...)
	w.begin()
	return w
}

// describe makes a world in which nothing runs yet. Its daemons are told with.
func describe(t *testing.T, nodes int, with ...string) *world {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("choices made with -seed=%d", s)
		}
	})
	c := cluster.New(t)
	w := &world{t: t, rng: rand.New(rand.NewPCG(s, uint64(nodes))), rest: cluster.Rest{}, cancels: 15, ends: true, box: fakenvml.New(t, fakenvml.Scenario(t, gpus))}
	for i := range nodes {
		w.daemons = append(w.daemons, c.Node(fmt.Sprintf("node-%d", i)))
	}
	sys, _ := cluster.TwoNUMANodes(t)
	for _, n := range w.daemons {
		n.Args, n.Env = append(n.Args, "--sys", sys), []string{w.box.Env()}
		n.Beats = "200ms" // given up sooner than daemons are stopped for, at times
		n.Configure(strings.Join(with, "\n") + settings(t))
	}
	return w
}

// begin starts everybody. The consumer's daemon knows the producer's.
func (w *world) begin() {
	w.t.Helper()
	from, to := w.daemons[0], w.daemons[len(w.daemons)-1]
	peer := ""
	if from != to {
		peer = from.Name
		if w.between != nil {
			to.KnowsAt(from.Name, w.between.addr)
		} else {
			to.Knows(from)
			from.Knows(to)
		}
	}
	for _, n := range w.daemons {
		n.Start()
	}
	var sizes sync.Map // by request
	w.decode = cluster.NewEngine(w.t, "decode", to, func(word string, rest []string) {
		switch n, known := sizes.Load(rest[0]); {
		case word == "cancelled" && known: // the offer is still there
			w.decode.Tell("take %s %s %s", rest[0], n, peer)
		case word == "ok":
			sizes.Delete(rest[0])
		}
	})
	w.prefill = cluster.NewEngine(w.t, "prefill", from, func(word string, rest []string) {
		if word == "offer" {
			sizes.Store(rest[0], rest[1])
			w.decode.Tell("take %s %s %s", rest[0], rest[1], peer)
		}
	})
	w.decode.Time, w.prefill.Time = w.time, w.time
	if w.ends {
		pipe, lookup := cluster.NewLedger(w.t), cluster.NewLedger(w.t)
		w.ledgers = []*cluster.Ledger{pipe, lookup}
		w.prefill.Pipe, w.decode.Pipe = "send p "+pipe.Path, "recv p "+pipe.Path+" "+peer
		w.prefill.Lookup, w.decode.Lookup = "own l "+lookup.Path, "select l "+lookup.Path+" "+peer
	}
	w.decode.Start(w.cancels)
	w.prefill.Start(0)
}

// flowing waits until n more requests have been handed over, right in every word, and some items of the pipe and entries of the buffer for each.
func (w *world) flowing(n int) {
	w.t.Helper()
	ok, piped, found := w.decode.Count("ok"), w.decode.Count("piped"), w.decode.Count("found")
	w.decode.Waits("ok", ok+n)
	if w.ends {
		w.decode.Waits("piped", piped+n)
		w.decode.Waits("found", found+n)
	}
}

// strike kills, ends or stops somebody and brings it back. A GPU of every node is lost meanwhile, or is there again.
func (w *world) strike() string {
	w.t.Helper()
	if w.lost = !w.lost; w.lost {
		w.box.Say("GPU-h3", "answer 15")
	} else {
		w.box.Set(fakenvml.Scenario(w.t, gpus))
	}
	moment := time.Duration(w.rng.Int64N(int64(20 * time.Millisecond)))
	pause := time.Duration(w.rng.Int64N(int64(300 * time.Millisecond)))
	victim, kill := w.rng.IntN(2+len(w.daemons)), w.rng.IntN(3) > 0
	<-time.After(moment) // any instruction will do; no event says which one was the last right one
	switch victim {
	case 0, 1:
		e := []*cluster.Engine{w.prefill, w.decode}[victim]
		if kill {
			e.Kill()
			e.Start(w.cancels)
			return e.Role + " killed"
		}
		w.stop(e.Cmd.Process.Signal, pause)
		return e.Role + " stopped for " + pause.String()
	}
	n := w.daemons[victim-2]
	if kill {
		return n.Name + " " + w.restart(n)
	}
	w.stop(n.Cmd.Process.Signal, 3*pause) // longer than its peers' patience, at times
	return n.Name + " stopped for " + (3 * pause).String()
}

// restart ends a daemon as a crash or a service manager does, and perhaps the next one too, while clients come back to that.
func (w *world) restart(n *cluster.Node) string {
	w.t.Helper()
	end, how := n.Kill, "killed"
	if w.rng.IntN(2) == 0 {
		end, how = n.Stop, "ended"
	}
	again := func(end func()) {
		end()
		for _, l := range w.ledgers {
			l.Ended(n == w.daemons[len(w.daemons)-1], n == w.daemons[0])
		}
		n.Start()
	}
	again(end)
	if w.rng.IntN(3) > 0 {
		return how
	}
	n.Says("session opened") // what that one had is on its way
	<-time.After(time.Duration(w.rng.Int64N(int64(3 * time.Millisecond))))
	again(n.Stop)
	return how + ", and the next one ended at once"
}

func (w *world) stop(signal func(os.Signal) error, pause time.Duration) {
	w.t.Helper()
	if err := signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	<-time.After(pause)
	if err := signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

// atRest lets all work end and looks for what is left of it. The pipe and the buffer may stay open, and go on then.
func (w *world) atRest() {
	w.t.Helper()
	open := w.ends && w.rng.IntN(2) == 0
	for _, e := range []*cluster.Engine{w.prefill, w.decode} {
		if open {
			e.Quiet()
		} else {
			e.Silent()
		}
	}
	for _, n := range w.daemons {
		cluster.Eventually(w.t, n.Name+" knows its GPUs", func() bool {
			var s admin.Status
			return n.Ctl.Get(w.t.Context(), "status", nil, &s) == nil && s.GPUs.State == "ok" && s.GPUs.Count == 8
		})
		if each := 2 / len(w.daemons); open {
			cluster.Drained(w.t, n, each, 2*each, w.rest)
		} else {
			cluster.Clean(w.t, n, each, w.rest)
		}
	}
	w.prefill.Tell("go")
	w.decode.Tell("go")
}

// Whoever is killed or stopped, at whatever instruction: what is delivered is right and in time, the others go on, and nothing is
// left behind.
func TestChaos(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			w := newWorld(t, nodes)
			w.flowing(20)
			w.atRest()
			for i := range *cycles / 2 {
				what := w.strike()
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

// A take that is cancelled says when its blocks are free; they are written to at once, and nothing else lands in them.
func TestCancelledBlocksAreReusedAtOnce(t *testing.T) {
	for nodes, transport := range map[int]string{1: "local", 2: "tcp"} {
		t.Run(transport, func(t *testing.T) {
			w := describe(t, nodes)
			w.cancels, w.ends = 90, false
			w.begin()
			w.decode.Waits("cancelled", *rounds)
			w.atRest()
			t.Logf("taken: %v", w.decode.All())
		})
	}
}

// Whatever happens to the bytes between two daemons: none that is wrong is delivered, and all goes on when it is over.
func TestABadNetwork(t *testing.T) {
	w := describe(t, 2, `crc = "on"`)
	w.between = newProxy(t, w.daemons[0].Addr, w.rng.Uint64())
	w.begin()
	w.flowing(5)
	for i := range *cycles / 2 {
		f := healthy + 1 + fault(w.rng.IntN(int(faults)-1))
		if i < int(faults)-1 {
			f = fault(i + 1) // each at least once
		}
		w.between.inflict(f)
		<-time.After(time.Duration(w.rng.Int64N(int64(400 * time.Millisecond)))) // longer than the peers' patience, at times
		w.between.inflict(healthy)
		w.flowing(5)
		w.atRest()
		if t.Failed() {
			t.Fatalf("cycle %d: %s", i, f)
		}
	}
	t.Logf("taken: %v", w.decode.All())
}
