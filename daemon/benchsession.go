package daemon

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// benchSession is one of the daemon's own sessions with its machine: it has its own memory, and submits operations.
type benchSession struct {
	id        transfer.SessionID
	engine    string
	transport string // the only one by which its blocks may leave
	mem       []byte
	results   chan result   // of operations, for whoever measures; nil: nobody does
	drained   chan struct{} // nothing touches the memory any more
}

// result is a completion and when it came.
type result struct {
	transfer.Complete
	at time.Time
}

const (
	benchCredits = 64
	benchRegion  = 1
)

// newBenchSession maps and fills the memory of n blocks.
func newBenchSession(id transfer.SessionID, s benchSpec, n int) (*benchSession, error) {
	mem, err := sys.MmapAnon(n*int(s.size), sys.ProtWrite)
	if err != nil {
		return nil, fmt.Errorf("memory to measure with: %w", err)
	}
	for at := 0; at < len(mem); at += 4096 { // gives it pages of its own, instead of the zero page
		mem[at] = 1
	}
	return &benchSession{id: id, engine: fmt.Sprintf("bench-%x", uint64(id)), transport: s.transport, mem: mem, drained: make(chan struct{})}, nil
}

// open tells the machine of the session.
func (b *benchSession) open(events func(transfer.Event), s benchSpec) error {
	l, err := layout.New([]layout.View{{
		Region: benchRegion, NumBlocks: uint64(len(b.mem)) / s.size, BlockStride: s.size, TokenStride: s.size, HeadStride: s.size, ContentBytes: s.size,
		Kind: layout.Paged, BlockSize: 1, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "bench", Value: "kvpipe"}}, nil)
	if err != nil {
		return err
	}
	events(transfer.SessionOpened{
		Session: b.id, Engine: b.engine, Owner: "kvpiped", Role: transfer.Worker, TPWorld: 1, PPWorld: 1, Credits: benchCredits,
	})
	events(transfer.LayoutSet{Session: b.id, Layout: l})
	return nil
}

func (b *benchSession) resolve(r layout.RegionID, off, n uint64) ([]byte, bool) {
	if size := uint64(len(b.mem)); r != benchRegion || off > size || n > size-off {
		return nil, false
	}
	return b.mem[off : off+n : off+n], true
}

// told queues a completion. It does not block: at most benchCredits wait, and more are dropped.
func (b *benchSession) told(c transfer.Complete) {
	select {
	case b.results <- result{c, time.Now()}:
	default:
	}
}

// shuffled returns n blocks from first on in random order, like those of an engine that has run for a while.
func shuffled(first, n int) []layout.BlockList {
	ids := make([]uint32, n)
	for i, p := range rand.Perm(n) {
		ids[i] = uint32(first + p)
	}
	return []layout.BlockList{{NTokens: uint32(n), IDs: ids}}
}
