package sim

import (
	"flag"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

var (
	seeds = flag.Int("seeds", 200, "how many seeds TestSim runs")
	first = flag.Uint64("first", 1, "the first of them")
	one   = flag.Uint64("seed", 0, "run this seed alone, with its trace when -v is given")

	unrest = flag.Bool("unrest", false, "in each seed of TestSim daemons are restarted again and again")
)

// A seed lives on a few megabytes and leaves them all as garbage: collecting less often nearly halves the processor time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	leak.Main(m)
}

// live runs a seed, in which more may be made to happen. A machine that panics breaks a promise like any other: the seed is told.
func live(o Options, more ...func(*Cluster)) (c *Cluster, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	c = New(o)
	for _, f := range more {
		f(c)
	}
	return c, c.Run()
}

// TestSim lets the machines live through trouble and checks the promises after every step.
func TestSim(t *testing.T) {
	if *one != 0 {
		replay(t, *one)
		return
	}
	steps := 0
	seen := make([]int, len(rare))
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		c, err := live(Options{Seed: seed, Unrest: *unrest})
		if err != nil {
			t.Errorf("seed %d: %v\nreplay: go test ./daemon/transfer/sim -run '^TestSim$' -seed=%d -unrest=%v -v", seed, err, seed, *unrest)
			if t.Failed() {
				return
			}
		}
		steps += c.Steps()
		for i, r := range rare {
			seen[i] += r.count(c)
		}
	}
	t.Logf("%d seeds, %d events", *seeds, steps)
	for i, r := range rare {
		t.Logf("%d %s", seen[i], r.what)
		if seen[i] == 0 && enough() {
			t.Errorf("no %s: what holds of them is not looked at any more", r.what)
		}
	}
}

// rare is what promises are broken by and a seed need not have. Enough of them have all of it.
var rare = []struct {
	what  string
	count func(*Cluster) int
}{
	{"configurations that were read again", func(c *Cluster) int { return c.reloads }},
	{"takes of two groups, of which one has the last tokens alone", func(c *Cluster) int { return c.slid }},
	{"layers reported of takes of two groups", func(c *Cluster) int { return c.readied }},
	{"takes moved at once", func(c *Cluster) int { return c.movedNow }},
	{"whole takes of engines on several nodes", func(c *Cluster) int { return c.gathered }},
	{"offers that outlived their engine", func(c *Cluster) int { return c.outlived }},
	{"sessions that outlived their daemon", func(c *Cluster) int { return c.resumed }},
	{"regions that were given up for a while", func(c *Cluster) int { return c.napped }},
	{"ranks that were replaced by others", func(c *Cluster) int { return c.replaced }},
	{"sessions that came back too late", func(c *Cluster) int { return c.rebuffed }},
	{"sessions that died and left something to be read", func(c *Cluster) int { return c.readOut }},
}

// enough says that the seeds are those of which it is known what they have. Others, of which somebody chose the first, may have less.
func enough() bool { return *first == 1 && *seeds >= 200 }

// everySeed runs so many seeds, or the one that is asked for, and shows every cluster once its seed is over. It returns how many it ran.
func everySeed(t *testing.T, n int, options func(seed uint64) Options, saw func(*Cluster)) (ran uint64) {
	t.Helper()
	from, to := *first, *first+uint64(n)
	if *one != 0 {
		from, to = *one, *one+1
	}
	for seed := from; seed < to; seed++ {
		o := options(seed)
		if *one != 0 && testing.Verbose() {
			o.Trace = func(line string) { fmt.Println(line) }
		}
		c, err := live(o)
		if err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./daemon/transfer/sim -run '^%s$' -seed=%d -v", seed, err, t.Name(), seed)
		}
		saw(c)
	}
	return to - from
}

// TestSimEnds is TestSim with pipes and lookup buffers.
func TestSimEnds(t *testing.T) {
	received, despite, reunited := 0, 0, 0
	ran := everySeed(t, *seeds, func(seed uint64) Options {
		return Options{Seed: seed, Ends: true}
	}, func(c *Cluster) {
		received += c.received
		despite += c.despite
		reunited += c.reunited
	})
	if reunited == 0 && *one == 0 && enough() {
		t.Error("no home met a node again that had items of it of which it had not heard: what holds of them is not looked at any more")
	}
	t.Logf("%d seeds, %d items received, %d again after long partitions, after %d of which a word was due", ran, received, despite, reunited)
}

// TestSimTight is both with daemons that keep little for their peers: whoever is put off gets in once there is room, and in the end there is.
func TestSimTight(t *testing.T) {
	crowded := 0
	ran := everySeed(t, *seeds/2, func(seed uint64) Options {
		return Options{Seed: seed, Tight: true, Ends: seed%2 == 0}
	}, func(c *Cluster) {
		crowded += c.crowded
	})
	if crowded == 0 && *one == 0 && enough() {
		t.Error("there was always room: the limits bound nothing")
	}
	t.Logf("%d seeds, %d times there was no room", ran, crowded)
}

// TestSimMad is all of them with a node that is mad: it costs the others what they have with it, and nothing of what they have among them.
func TestSimMad(t *testing.T) {
	strange := 0
	ran := everySeed(t, *seeds/8, func(seed uint64) Options { // these have most to do
		return Options{Seed: seed, Mad: true, Ends: seed%3 == 0, Tight: seed%5 == 0}
	}, func(c *Cluster) {
		strange += c.mad.strange
	})
	t.Logf("%d seeds, %d messages that no machine meant", ran, strange)
}

// TestSimRagged is TestSim with offers that lack blocks, ranks that cut tokens in ways of their own, and copies of slices that come late.
func TestSimRagged(t *testing.T) {
	lacked, spoiled, uneven := 0, 0, 0
	ran := everySeed(t, *seeds/2, func(seed uint64) Options {
		return Options{Seed: seed, Ragged: true, Unrest: seed%3 == 0, Tight: seed%5 == 0, Mad: seed%7 == 0}
	}, func(c *Cluster) {
		lacked += c.lacked
		spoiled += c.spoiled
		uneven += c.uneven
	})
	if (lacked == 0 || spoiled == 0 || uneven == 0) && *one == 0 && enough() {
		t.Error("no such takes: what holds of them is not looked at any more")
	}
	t.Logf("%d seeds, %d takes lacked blocks, %d of these were spoiled while they waited for their fence, %d lists were for ranks that differ", ran, lacked, spoiled, uneven)
}

// TestSimRaggedEnds is TestSimEnds on nodes that stand still and whose devices have errors. Some pipes are closed before anybody came to receive, and
// some ends come with a wrong token.
func TestSimRaggedEnds(t *testing.T) {
	received, words := 0, 0
	ran := everySeed(t, *seeds/4, func(seed uint64) Options {
		return Options{Seed: seed, Ragged: true, Ends: true, Unrest: seed%3 == 0, Tight: seed%5 == 0, Mad: seed%7 == 0}
	}, func(c *Cluster) {
		received += c.received
		words += c.words
	})
	if words == 0 && *one == 0 && enough() {
		t.Error("no pipe was closed before anybody came: what holds of them is not looked at any more")
	}
	t.Logf("%d seeds, %d items received, %d pipes were closed before anybody came", ran, received, words)
}

func replay(t *testing.T, seed uint64) {
	o := Options{Seed: seed, Unrest: *unrest}
	if testing.Verbose() {
		o.Trace = func(line string) { fmt.Println(line) }
	}
	if _, err := live(o); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}
