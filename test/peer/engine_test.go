package peer

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

const (
	blockBytes  = 4096
	blockTokens = 16
	blocks      = 64
)

var token = []byte("a token of 24 characters")

// engine is a worker's session with memory and a layout.
type engine struct {
	*sessiontest.Client
	t      *testing.T
	n      *cluster.Node
	mem    []byte
	block  int // bytes of each block
	serial uint64
}

// join opens a session at the node's daemon.
func join(n *cluster.Node, name string) *engine { n.T.Helper(); return joinWith(n, name, blockBytes) }

// joinWith is join with blocks of so many bytes.
func joinWith(n *cluster.Node, name string, block int) *engine {
	n.T.Helper()
	c, err := sessiontest.Dial(n.Socket, sessiontest.Options{Engine: name, TPWorld: 1, PPWorld: 1, Timeout: cluster.Patience})
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(c.Kill)
	region, mem, err := c.Alloc(blocks * block)
	if err != nil {
		n.T.Fatal(err)
	}
	stride := uint64(block / blockTokens)
	err = c.SetLayout([]layout.View{{
		Region: region, NumBlocks: blocks, BlockStride: stride * blockTokens, TokenStride: stride, HeadStride: stride,
		ContentBytes: stride, Kind: layout.Paged, BlockSize: blockTokens, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "m"}}, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	return &engine{Client: c, t: n.T, n: n, mem: mem, block: block}
}

// list names the first n blocks, in an order of the engine's own.
func list(n int, step uint32) []layout.BlockList {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i) * step % blocks
	}
	return []layout.BlockList{{NTokens: uint32(n * blockTokens), IDs: ids}}
}

// offer puts n blocks of bytes that only this key has under the key.
func (e *engine) offer(key string, n int) {
	e.t.Helper()
	for i := range e.mem {
		e.mem[i] = pattern(key, i)
	}
	if _, err := e.Submit(&transfer.OfferOp{Key: []byte(key), Token: token, Consumers: 1, Sealed: true, Lease: 60e9, Blocks: list(n, 1)}); err != nil {
		e.t.Fatal(err)
	}
}

func pattern(key string, i int) byte { return key[i%len(key)] ^ byte(i>>12) }

// take asks for the key at peer and returns how that ended.
func (e *engine) take(key, peer string, n int) *sessiontest.Completion {
	e.t.Helper()
	clear(e.mem)
	e.serial++
	user, err := e.Submit(&transfer.TakeOp{
		Key: []byte(key), Token: token, Peer: peer, TakeID: e.serial, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Time(cluster.Patience), Blocks: list(n, 5),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	c, _, err := e.WaitFor(user)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// handOvers counts them all: a key names one hand-over for good, also when its engine is another process by then.
var handOvers atomic.Uint64

// handOver moves n blocks, one to all, under a key of its own, and checks every byte.
func handOver(from, to *engine, peer string, n int) {
	from.t.Helper()
	key := fmt.Sprintf("%s-%d-%s", from.n.Name, handOvers.Add(1), to.n.Name)
	from.offer(key, n)
	c := to.take(key, peer, n)
	if c.Status != uint16(transfer.Done) {
		from.t.Fatalf("take of %s at %q: status %d, %+v", key, peer, c.Status, c.Cause())
	}
	for i := range n {
		at := i * 5 % blocks * from.block
		if want := from.mem[i*from.block : (i+1)*from.block]; !bytes.Equal(to.mem[at:at+from.block], want) {
			from.t.Fatalf("block %d of %s differs", i, key)
		}
	}
	end, err := from.Wait()
	if err != nil || end.Status != uint16(transfer.Done) {
		from.t.Fatalf("offer: %+v, %v", end, err)
	}
}

// refused wants a take to fail with a reason, and a text for people that has all of parts.
func (e *engine) refused(peer string, reason transfer.Reason, parts ...string) {
	e.t.Helper()
	c := e.take("no-such-key", peer, 1)
	if c.Status != uint16(transfer.Failed) || c.Reason != uint16(reason) {
		e.t.Errorf("take at %q: status %d, %+v", peer, c.Status, c.Cause())
	}
	for _, p := range parts {
		if !strings.Contains(c.Text, p) {
			e.t.Errorf("take at %q: %q does not say %q", peer, c.Text, p)
		}
	}
}
