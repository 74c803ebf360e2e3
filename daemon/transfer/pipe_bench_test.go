package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// BenchmarkPipe is the machine's part of an item of 4 KiB through a pipe within the node: its put, the get that takes it, and both
// completions; with gets that wait for items, and with items that wait for gets.
func BenchmarkPipe(b *testing.B) {
	for _, ahead := range []string{"gets", "puts"} {
		b.Run(ahead+" ahead", func(b *testing.B) {
			const window = 32
			e := newEnds(b, nil)
			tx, rx := e.open(1, send), e.open(2, recv)
			e.done = nil
			blocks, meta := []layout.BlockList{{NTokens: 4096, IDs: make([]uint32, 16)}}, []byte("meta")
			at := func(slot int) []layout.BlockList {
				own := blocks[0]
				own.IDs = make([]uint32, 16)
				for i := range own.IDs {
					own.IDs[i] = uint32(slot%window*16 + i)
				}
				return []layout.BlockList{own}
			}
			lists := make([][]layout.BlockList, window)
			for i := range lists {
				lists[i] = at(i)
			}
			put := func(i int) {
				e.submit(1, &transfer.PutOp{Target: tx, Form: transfer.MatchNext, Bytes: 4096, Meta: meta, Blocks: lists[i%window]})
			}
			get := func(i int) {
				e.submit(2, &transfer.GetOp{Target: rx, Match: transfer.MatchNext, Seq: uint64(i), Room: 4096, Timeout: 30e9, Blocks: lists[i%window]})
			}
			first, second := get, put
			if ahead == "puts" {
				first, second = put, get
			}
			for i := range window - 1 {
				first(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				first(i + window - 1)
				second(i)
				if len(e.done) != 2 {
					b.Fatalf("%d completions: %+v", len(e.done), e.done)
				}
				e.done = e.done[:0]
				e.step(transfer.CreditsReturned{Session: 1, N: 1})
				e.step(transfer.CreditsReturned{Session: 2, N: 1})
			}
		})
	}
}

// BenchmarkSelect is the machine's part of an entry that is inserted and selected beside n others.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := newEnds(b, nil)
			own := e.open(1, &transfer.BindOp{Kind: transfer.BindOwn, Name: "b", Capacity: 1 << 30})
			sel := e.open(2, &transfer.BindOp{Kind: transfer.BindSelect, Name: "b"})
			tokens := func(i int) []uint32 {
				t := make([]uint32, 64)
				for k := range t {
					t[k] = uint32(i >> (4 * (k & 7)) & 15)
				}
				return t
			}
			insert := func(t []uint32) {
				e.submit(1, &transfer.PutOp{Target: own, Form: transfer.MatchPrefix, Bytes: 256, Tokens: t, Blocks: blocksOf(0, 256)})
			}
			for i := range n {
				insert(tokens(i))
			}
			e.done = nil
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				t := tokens(i % n)
				e.submit(2, &transfer.GetOp{Target: sel, Match: transfer.MatchPrefix, Room: 256, Timeout: 30e9, Tokens: t, Blocks: blocksOf(1, 256)})
				insert(t)
				if len(e.done) != 2 {
					b.Fatalf("%d completions: %+v", len(e.done), e.done)
				}
				e.done = e.done[:0]
				e.step(transfer.CreditsReturned{Session: 1, N: 1})
				e.step(transfer.CreditsReturned{Session: 2, N: 1})
			}
		})
	}
}
