package daemon

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// producerEnv makes this program a producer: "SOCKET RANK RANKS".
const producerEnv = "KVPIPE_DAEMON_TEST_PRODUCER"

const (
	orphanBlocks  = 256
	orphanOffered = 6 // blocks of the sealed offer
)

var orphanToken = []byte("0123456789abcdef")

// pattern is what a rank's block has under its offer.
func pattern(rank, block int) []byte {
	return bytes.Repeat([]byte{byte(rank), byte(block), byte(block >> 8), 0xa5}, blockBytes/4)
}

// offered are the blocks that the producer offers: some next to each other, some not.
var offered = []uint32{3, 4, 5, 100, 77, 255}

// producing is the connection of a producer. The collector closes connections that nobody holds.
var producing *sessiontest.Client

// produce is a worker in a process of its own that offers a finished prefill, and one that is not, and waits to be killed.
func produce(what string) int {
	if err := tryProduce(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {} // until it is killed
}

func tryProduce(what string) error {
	var socket string
	var rank, ranks uint32
	if _, err := fmt.Sscan(what, &socket, &rank, &ranks); err != nil {
		return err
	}
	c, err := sessiontest.Dial(socket, sessiontest.Options{Engine: "prefill", Instance: "one", TPRank: rank, TPWorld: ranks, PPWorld: 1})
	if err != nil {
		return err
	}
	producing = c
	fd, err := sys.MemfdCreate("cache", orphanBlocks*blockBytes, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	if err != nil {
		return err
	}
	mem, err := sys.Mmap(fd, orphanBlocks*blockBytes, sys.ProtWrite)
	if err != nil {
		return err
	}
	region, err := c.Register(fd, orphanBlocks*blockBytes)
	if err != nil {
		return err
	}
	if err := c.SetLayout([]layout.View{cacheView(region, rank, ranks)}, []layout.Field{{Key: "model", Value: "m"}}, 0); err != nil {
		return err
	}
	info, err := sys.Identify(fd)
	if err != nil {
		return err
	}
	fmt.Println(info.Ino)
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // until all ranks are there
		return err
	}
	for _, b := range offered {
		copy(mem[b*blockBytes:], pattern(int(rank), int(b)))
	}
	if err := c.Progress(5 << 16); err != nil { // nobody looks at it before the process is dead
		return err
	}
	for _, op := range []*transfer.OfferOp{
		{Key: []byte("finished"), Sealed: true, After: 5 << 16, Blocks: []layout.BlockList{{NTokens: 16 * uint32(len(offered)), IDs: offered}}},
		{Key: []byte("open"), Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{8}}}},
		{Key: []byte("unwritten"), Sealed: true, After: 6 << 16, Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{9}}}},
	} {
		op.Token, op.Consumers, op.Lease = orphanToken, 2, 60e9
		if _, err := c.Submit(op); err != nil {
			return err
		}
	}
	return nil
}

// cacheView is a rank's share of two heads' caches.
func cacheView(region layout.RegionID, rank, ranks uint32) layout.View {
	return layout.View{
		Region: region, NumBlocks: orphanBlocks, BlockStride: blockBytes, TokenStride: blockBytes / 16, HeadStride: blockBytes / 16, ContentBytes: blockBytes / 16,
		Kind: layout.Paged, BlockSize: 16, FirstHead: rank, Heads: 1, TotalHeads: ranks, Part: "kv",
	}
}

// producer is that process as the test sees it.
type producer struct {
	cmd   *exec.Cmd
	begin *os.File // written to: it offers
	ino   uint64   // of its memory
}

func (n *node) produce(rank, ranks int) *producer {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", producerEnv, n.cfg.Socket, rank, ranks))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	in, begin, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stdin = in
	err = cmd.Start()
	_ = in.Close()
	p := &producer{cmd: cmd, begin: begin}
	n.t.Cleanup(p.kill)
	if err == nil {
		_, err = fmt.Fscan(out, &p.ino)
	}
	if err != nil {
		n.t.Fatalf("producer: %v", err)
	}
	return p
}

// produceAll starts an engine's processes and has them offer once all of them are there.
func (n *node) produceAll(ranks int) (all []*producer) {
	n.t.Helper()
	for rank := range ranks {
		all = append(all, n.produce(rank, ranks))
	}
	for _, p := range all {
		if _, err := p.begin.Write([]byte{1}); err != nil {
			n.t.Fatal(err)
		}
	}
	eventually(n.t, "all offers are there", func() bool {
		s := n.offers()
		return s["finished"] == "sealed" && s["open"] == "open" && s["unwritten"] == "sealed"
	})
	return all
}

func (p *producer) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.begin.Close()
}

// resident is how much of a file this process, the daemon's, has mapped and in memory. No mapping: -1.
func resident(t *testing.T, ino uint64) int {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, inside := -1, false
	for s := bufio.NewScanner(f); s.Scan(); {
		words := strings.Fields(s.Text())
		switch {
		case len(words) >= 5 && strings.Contains(words[0], "-"):
			if inside = words[4] == strconv.FormatUint(ino, 10); inside {
				n = max(n, 0)
			}
		case inside && words[0] == "Rss:":
			kb, _ := strconv.Atoi(words[1])
			n += kb << 10
		}
	}
	return n
}

// offers returns the states of the offers by key.
func (n *node) offers() map[string]string {
	states := map[string]string{}
	for _, o := range get[[]admin.Offer](n, "offers") {
		states[o.Key] = o.State
	}
	return states
}

// TestOrphans kills the processes of a producer of one and of two ranks. Its finished prefill is taken by engines on its own
// node and on another one, past a new instance; all else of its memory is the system's at once, and the rest after the last take.
func TestOrphans(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
			a, b := pair(t, nil)
			dead := a.produceAll(ranks)
			for _, p := range dead {
				eventually(t, "the daemon has mapped all of the region", func() bool { return resident(t, p.ino) == orphanBlocks*blockBytes })
				p.kill()
			}
			for _, p := range dead {
				eventually(t, "only offered blocks are left", func() bool { return resident(t, p.ino) == orphanOffered*blockBytes })
			}
			if s := a.offers(); len(s) != 1 || s["finished"] != "orphaned" {
				t.Errorf("offers of the dead engine: %v", s)
			}
			eventually(t, "the sessions are gone, their memory counts", func() bool {
				s := get[admin.Status](a, "status")
				kept := uint64(ranks * orphanOffered * blockBytes)
				return s.Counts.Sessions == 0 && s.Counts.Orphaned == ranks && s.Orphaned == kept && s.Pinned == kept
			})

			successor := a.join("prefill", 8) // the same engine again
			for i, n := range []*node{a, b} {
				takeOrphan(t, n, ranks, uint64(i+1))
			}
			for _, p := range dead {
				eventually(t, "all of the dead engine's memory is returned", func() bool { return resident(t, p.ino) == -1 })
			}
			eventually(t, "nothing is left", func() bool {
				s := get[admin.Status](a, "status")
				return s.Counts.Orphaned == 0 && s.Orphaned == 0 && s.Counts.Offers == 0 && s.Counts.HoldsShared == 0
			})
			handOver(successor, b.join("another", 8), "a", "next", "", token())
		})
	}
}

// takeOrphan takes the finished prefill into an engine on n that has all heads.
func takeOrphan(t *testing.T, n *node, ranks int, id uint64) {
	t.Helper()
	c, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: fmt.Sprintf("decode-%d", id), TPWorld: 1, PPWorld: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	region, mem, err := c.Alloc(ranks * orphanBlocks * blockBytes)
	if err != nil {
		t.Fatal(err)
	}
	v := cacheView(region, 0, uint32(ranks))
	v.Heads, v.HeadStride, v.BlockStride = uint32(ranks), blockBytes, uint64(ranks*blockBytes)
	if err := c.SetLayout([]layout.View{v}, []layout.Field{{Key: "model", Value: "m"}}, 0); err != nil {
		t.Fatal(err)
	}
	e := &engine{Client: c, t: t, mem: mem}
	ids := []uint32{1, 2, 3, 9, 8, 7}
	end := e.do(&transfer.TakeOp{
		Key: []byte("finished"), Token: orphanToken, Peer: "a", TakeID: id, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9,
		Blocks: []layout.BlockList{{NTokens: 16 * uint32(len(ids)), IDs: ids}},
	})
	if end.Status != uint16(transfer.Done) {
		t.Fatalf("take of the dead engine's offer: status %d, %+v", end.Status, end.Cause())
	}
	for i, id := range ids {
		for rank := range ranks {
			at := (int(id)*ranks + rank) * blockBytes
			if !bytes.Equal(mem[at:at+blockBytes], pattern(rank, int(offered[i]))) {
				t.Errorf("block %d of rank %d has wrong bytes", offered[i], rank)
			}
		}
	}
}

// TestSuccessorAtOnce: a new instance that is faster than the news of the old one's death takes nothing away from what that finished.
// Under the same key its own offer wins.
func TestSuccessorAtOnce(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	for round := range 20 {
		dead := n.produceAll(1)[0]
		dead.kill()
		e := n.join("prefill", 8) // names no instance
		if s := n.offers()["finished"]; s != "orphaned" {
			t.Fatalf("round %d: the finished offer is %q", round, s)
		}
		heir := token()
		user, err := e.Submit(&transfer.OfferOp{Key: []byte("finished"), Token: heir, Consumers: 1, Sealed: true, Lease: 60e9, Blocks: e.all()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new offer takes the old one's place", func() bool { return n.offers()["finished"] == "sealed" })
		eventually(t, "the old one's memory is returned", func() bool { return resident(t, dead.ino) == -1 })
		if c := e.do(&transfer.WithdrawOp{Target: user}); c.Status != uint16(transfer.WasCancelled) && c.Status != uint16(transfer.Done) {
			t.Fatalf("withdraw: %+v", c.Cause())
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOrphansEnd: they end with the orphan lease, and without one with their engine. An engine that says goodbye takes its offers with it.
func TestOrphansEnd(t *testing.T) {
	for name, lease := range map[string]config.Duration{"short": 50e6, "off": 0} {
		t.Run(name, func(t *testing.T) {
			n := start(t, "a", t.TempDir(), func(c *config.Config) { c.Offers.OrphanLease = lease })
			p := n.produceAll(1)[0]
			p.kill()
			eventually(t, "its memory is returned", func() bool { return resident(t, p.ino) == -1 })
			if s := n.offers(); len(s) != 0 {
				t.Errorf("offers are left: %v", s)
			}
		})
	}
	t.Run("goodbye", func(t *testing.T) {
		n := start(t, "a", t.TempDir(), nil)
		e := n.join("prefill", 8)
		if _, err := e.Submit(&transfer.OfferOp{Key: []byte("k"), Token: token(), Consumers: 1, Sealed: true, Lease: 60e9, Blocks: e.all()}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the offer is there", func() bool { return n.offers()["k"] == "sealed" })
		if _, err := e.Request(ring.CtlBye, nil); err != nil {
			t.Fatal(err)
		}
		if s := n.offers(); len(s) != 0 {
			t.Errorf("offers are left: %v", s)
		}
	})
	t.Run("daemon stops", func(t *testing.T) {
		n := start(t, "a", t.TempDir(), nil)
		p := n.produceAll(1)[0]
		p.kill()
		eventually(t, "one is left", func() bool { return n.offers()["finished"] == "orphaned" && len(n.offers()) == 1 })
		n.stop()
		if resident(t, p.ino) != -1 {
			t.Error("the daemon has stopped and still maps the dead engine's memory")
		}
	})
}
