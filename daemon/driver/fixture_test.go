package driver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/local"
)

const patience = time.Minute

// atOnce is up to how many blocks takes are moved while the machine waits.
const atOnce = 64

// clients stand in for the session server: memory on the heap, completions in a channel.
type clients struct {
	mu  sync.Mutex
	mem map[transfer.SessionID][]byte

	done  chan transfer.Complete // nil: they are thrown away
	ended []transfer.EndSession  // by whoever runs the driver
}

func (c *clients) Granted(transfer.Granted)                 {}
func (c *clients) Rouse(transfer.Rouse)                     {}
func (c *clients) Ring()                                    {}
func (c *clients) LayerReady(transfer.LayerReady)           {}
func (c *clients) WatchProgress(transfer.WatchProgress)     {}
func (c *clients) EndSession(e transfer.EndSession)         { c.ended = append(c.ended, e) }
func (c *clients) SessionDrained(transfer.SessionID)        {}
func (c *clients) SessionOrphaned(transfer.SessionOrphaned) {}
func (c *clients) Brought(transfer.Brought)                 {}
func (c *clients) RegionDrained(transfer.RegionDrained)     {}
func (c *clients) Resolve(s transfer.SessionID, r plan.Run) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mem[s]
	if r.Off > uint64(len(b)) || r.Len > uint64(len(b))-r.Off {
		return nil, false
	}
	return b[r.Off : r.Off+r.Len], true
}

// Complete keeps e, unless nobody looks.
func (c *clients) Complete(e transfer.Complete) {
	if c.done != nil {
		c.done <- e
	}
}

// nobody stands in for the channels of a node without peers.
type nobody struct{ driver *Driver }

func (n *nobody) Barred(string, string) string { return "" }

func (n *nobody) Dial(hint string) {
	n.driver.Event(transfer.DialFailed{Hint: hint, Final: true, Cause: transfer.Cause{Reason: transfer.NotFound, Text: "nobody there"}})
}
func (n *nobody) Queue(string, uint64, transfer.Msg, bool) {}
func (n *nobody) Flush()                                   {}

type rig struct {
	*Driver
	tb      testing.TB
	clients *clients
	machine *transfer.Machine
	next    uint64
}

// sinkTo lets transports report to a driver that is made after them.
type sinkTo struct{ d *Driver }

func (s *sinkTo) Event(ev transfer.Event) { s.d.Event(ev) }

// newRig runs a driver with a machine and the local transport, without peers.
func newRig(tb testing.TB, change func(*Config)) *rig {
	tb.Helper()
	to := new(sinkTo)
	carrier, err := local.New(local.Config{Workers: 1, Sink: to})
	if err != nil {
		tb.Fatal(err)
	}
	seed := uint64(1)
	r := &rig{tb: tb, clients: &clients{mem: map[transfer.SessionID][]byte{}, done: make(chan transfer.Complete, 1024)}}
	r.machine = transfer.New(transfer.Config{Node: "n", AtOnce: atOnce, Random: func() uint64 { seed = seed*6364136223846793005 + 1; return seed }})
	peers := new(nobody)
	cfg := Config{Machine: r.machine, Sessions: r.clients, Peers: peers, Transports: []transport.Transport{carrier}, Known: []string{"local", "tcp"}, Node: "n", Inline: 32 << 10, PlanInline: 8192, Planners: 1}
	if change != nil {
		change(&cfg)
	}
	r.Driver = New(cfg)
	to.d, peers.driver = r.Driver, r.Driver
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		<-ended
		if err := carrier.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// session opens a worker's session with one view of n blocks of size bytes, filled with fill.
func (r *rig) session(id transfer.SessionID, engine string, n, size int, fill byte) []byte {
	r.tb.Helper()
	mem := make([]byte, n*size)
	for i := range mem {
		mem[i] = fill
	}
	r.clients.mem[id] = mem
	const tokens = 16
	per := uint64(size / tokens)
	l, err := layout.New([]layout.View{{
		Region: 1, NumBlocks: uint64(n), BlockStride: uint64(size), TokenStride: per, HeadStride: per, ContentBytes: per, Kind: layout.Paged,
		BlockSize: tokens, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.Event(transfer.SessionOpened{Session: id, Engine: engine, Instance: "i", Owner: "o", Role: transfer.Worker, TPWorld: 1, PPWorld: 1, Credits: 1 << 20})
	r.Event(transfer.LayoutSet{Session: id, Layout: l})
	return mem
}

var token = []byte("0123456789abcdef")

func (r *rig) offer(s transfer.SessionID, key string, blocks ...uint32) uint64 {
	r.next++
	r.Queue(transfer.Submit{Session: s, UserData: r.next, Op: &transfer.OfferOp{
		Key: []byte(key), Token: token, Lease: 60e9, Consumers: 1, Sealed: true, Blocks: []layout.BlockList{{NTokens: 16 * uint32(len(blocks)), IDs: blocks}},
	}})
	r.Flush()
	return r.next
}

func (r *rig) take(s transfer.SessionID, key string, blocks ...uint32) uint64 {
	r.next++
	r.Queue(transfer.Submit{Session: s, UserData: r.next, Op: &transfer.TakeOp{
		Key: []byte(key), Token: token, TakeID: r.next, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 30e9,
		Blocks: []layout.BlockList{{NTokens: 16 * uint32(len(blocks)), IDs: blocks}},
	}})
	r.Flush()
	return r.next
}

// completion waits for the one of an operation; others are an error.
func (r *rig) completions(n int) map[uint64]transfer.Complete {
	r.tb.Helper()
	got := map[uint64]transfer.Complete{}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for len(got) < n {
		select {
		case c := <-r.clients.done:
			got[c.UserData] = c
		case <-limit.C:
			r.tb.Fatalf("%d of %d completions: %v", len(got), n, got)
		}
	}
	return got
}
