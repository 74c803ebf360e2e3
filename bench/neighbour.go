package main

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/kvpipe/kvpipe/bench/stats"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// A neighbour opens a session now and then, registers memory, submits a number of operations and leaves. An honest
// and a hostile one do equally much. What the hostile one writes is nonsense, and it does not collect its
// completions.
const (
	neighbourEvery = 10 * time.Millisecond
	neighbourOps   = 40
	neighbourBytes = 64 << 10
)

// neighbourGroup compares another client's p99 beside a hostile client with its p99 beside an honest one.
func neighbourGroup(limit float64) group {
	const row = "4 KiB local, p99 beside a hostile client"
	return group{
		name:    "neighbour",
		targets: []target{{row, stats.AtMost, limit}},
		run: func(e *env, r *rows) error {
			p, err := e.smallLocal(false)
			if err != nil {
				return err
			}
			defer p.stop()
			var beside, honest trips
			with := func(live func(*sessiontest.Client, *rand.Rand)) func() (answer, error) {
				return func() (answer, error) {
					stop := p.a.d.neighbour(live)
					a, err := p.handOvers(e.small, p.a, p.b)
					if died := stop(); err == nil {
						err = died
					}
					return a, err
				}
			}
			if err := e.smallTurns([]part{{&beside, with(liveBadly)}, {&honest, with(liveWell)}}); err != nil {
				return err
			}
			r.ratio(row, us("hostile", beside.p99), us("honest", honest.p99), "")
			return nil
		},
	}
}

// neighbour has somebody live at the daemon until the returned function is called. That function says why one could
// not.
func (d *daemon) neighbour(live func(*sessiontest.Client, *rand.Rand)) (stop func() error) {
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		tick := time.NewTicker(neighbourEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				done <- nil
				return
			case <-tick.C:
			}
			c, err := sessiontest.Dial(d.socket, sessiontest.Options{Engine: "neighbour", SQ: 64, CQ: 256, Records: 1 << 16})
			if err != nil {
				done <- err
				return
			}
			if err := settle(c); err != nil {
				c.Kill()
				done <- err
				return
			}
			live(c, r)
			_ = c.Close() // the daemon has usually thrown the hostile one out
		}
	}()
	return func() error { close(quit); return <-done }
}

func settle(c *sessiontest.Client) error {
	region, _, err := c.Alloc(neighbourBytes)
	if err != nil {
		return err
	}
	return c.SetLayout([]layout.View{{
		Region: region, NumBlocks: neighbourBytes / 4096, BlockStride: 4096, TokenStride: 256, HeadStride: 256, ContentBytes: 256,
		Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "bench"}}, 0)
}

// liveWell submits offers and drops, and collects their completions.
func liveWell(c *sessiontest.Client, _ *rand.Rand) {
	for i := range neighbourOps {
		if _, err := c.Submit(offerOf(byte(i % 2))); err != nil {
			return
		}
		if _, err := c.Submit(&transfer.DropOp{Key: []byte{byte(i % 2)}, Token: neighbourToken}); err != nil {
			return
		}
		for range 2 {
			if _, err := c.Wait(); err != nil {
				return
			}
		}
	}
}

var neighbourToken = []byte("a neighbour's own token")

func offerOf(key byte) *transfer.OfferOp {
	return &transfer.OfferOp{Key: []byte{key}, Token: neighbourToken, Consumers: 1, Sealed: true, Lease: 1e9, Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}}}
}

// liveBadly submits as much, but damaged entries and records. At the end it writes over its whole ring.
func liveBadly(c *sessiontest.Client, r *rand.Rand) {
	for i := range 2 * neighbourOps {
		e, rec := sessiontest.Encode(offerOf(byte(r.Uint32())))
		e.UserData = uint64(i) + 1
		binary.LittleEndian.PutUint32(rec[r.IntN(len(rec)/4)*4:], r.Uint32()>>r.IntN(32))
		e.Op = uint8(r.IntN(12))
		_, _ = c.Rings.Submit(e, rec)
		_ = c.Wake()
	}
	mem := c.Bytes()
	for at := 0; at < len(mem); at += 8 {
		binary.LittleEndian.PutUint64(mem[at:], r.Uint64())
	}
	_ = c.Wake()
	_, _ = c.Bye()
}
