package hostile

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/test/cluster"
)

var (
	minutes = flag.Float64("minutes", 0, "how long all attacks take, clients' and peers'; 0: a fixed number of attacks")
	attacks = flag.Int("attacks", 100, "how many attacks of each attacker, without -minutes")
	seed    = flag.Uint64("seed", 0, "of the attacks; 0: drawn, and told when the test fails")
)

// attack is one attempt; it leaves nothing of its own behind.
type attack func(t *testing.T, n *cluster.Node, r *rand.Rand)

// besiege attacks the nodes from several sides while two engines hand KV over, and wants the daemons to stay as they are: the
// same processes, within bounds, serving right, and with nothing left of the attackers: no more files and mappings than before.
func besiege(t *testing.T, nodes []*cluster.Node, peer string, all ...attack) {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("attacked with -seed=%d", s)
		}
	})
	from, to := nodes[0], nodes[len(nodes)-1]
	decode := cluster.NewEngine(t, "decode", to, nil)
	prefill := cluster.NewEngine(t, "prefill", from, func(word string, rest []string) {
		if word == "offer" {
			decode.Tell("take %s %s %s", rest[0], rest[1], peer)
		}
	})
	decode.Start(0)
	prefill.Start(0)
	decode.Waits("ok", 20)
	rest := cluster.Rest{}
	clean := func() {
		t.Helper()
		prefill.Quiet()
		decode.Quiet()
		for _, n := range nodes {
			n.Alive()
			bounded(t, n)
			cluster.Clean(t, n, 2/len(nodes), rest)
		}
	}
	clean()
	prefill.Tell("go")
	decode.Tell("go")

	ctx, cancel := context.WithCancel(context.Background())
	if *minutes > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(*minutes*float64(time.Minute)/2))
	}
	defer cancel()
	var attackers sync.WaitGroup
	var i uint64
	for _, a := range all {
		i++
		r := rand.New(rand.NewPCG(s, i))
		attackers.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed() && (*minutes > 0 || n < *attacks); n++ {
				a(t, nodes[n%len(nodes)], r)
			}
		})
	}
	attackers.Wait()
	decode.Waits("ok", decode.Count("ok")+20)
	clean()
	t.Logf("taken meanwhile: %v", decode.All())
}

// heap is what a daemon may have of memory of its own, attacked or not. The limit of its runtime is 512 MiB; without leaks it is
// far from that.
const heap = 256 << 20

// bounded looks at the daemon's memory: its own, not what it maps of its clients.
func bounded(t *testing.T, n *cluster.Node) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", n.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil || kib<<10 > heap {
				t.Errorf("%s has %d KiB of memory of its own (%v), at most %d", n.Name, kib, err, heap>>10)
			}
			return
		}
	}
	t.Error("no RssAnon")
}
