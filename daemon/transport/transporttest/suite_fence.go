package transporttest

import (
	"bytes"
	"math/rand"
	"runtime"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// fenceUnderLoad fences every second of several transfers that run at the same time. The others must not notice.
func fenceUnderLoad(t *testing.T, p *Pair) {
	s := Blocks(t, 128, 64<<10, 256<<10)
	var hands []*hand
	var want [][][]byte
	for i := range 6 {
		h := p.begin(t, s)
		h.src.Fill(uint64(i))
		want = append(want, h.expected(clone(h.dst), h.all()...))
		h.expect()
		hands = append(hands, h)
	}
	for i := range s.Plan.Slices() {
		for _, h := range hands {
			h.post(i, 0)
		}
	}
	for i, h := range hands {
		if i%2 == 0 {
			h.fence()
		}
	}
	for i, h := range hands {
		for k := range s.Plan.Slices() {
			if c := p.SrcSink.Sent(t, h.sentKey(k, 0)); i%2 == 0 && c.Reason != transfer.OK && c.Reason != transfer.Cancelled {
				t.Errorf("SliceSent of fenced slice %d: %+v", k, c)
			}
		}
		if i%2 == 1 {
			h.landAll()
			h.fence()
			h.same(want[i])
		}
	}
}

// reuseDestination tests the promise itself: what the owner writes into the blocks after Fenced stays there.
func reuseDestination(t *testing.T, p *Pair) {
	rounds := p.rounds(1000)
	s := Blocks(t, 48, 16<<10, 96<<10)
	src := NewMemory(t, s.Src...)
	src.Fill(1)
	// Bytes of a round could arrive during the next rounds, so look at its memory again after those.
	dst := []*Memory{NewMemory(t, s.Dst...), NewMemory(t, s.Dst...), NewMemory(t, s.Dst...)}
	canary := make([]byte, len(dst[0].ranks[0]))
	r := rand.New(rand.NewSource(5))
	for round := range rounds {
		m := dst[round%len(dst)]
		if round >= len(dst) {
			setBytes(canary, byte(round-len(dst)))
			if !bytes.Equal(m.ranks[0], canary) {
				t.Fatalf("round %d: bytes landed after the fence", round-len(dst))
			}
		}
		h := p.beginIn(t, s, src, m)
		h.expect()
		n := s.Plan.Slices()
		for i := range n {
			h.post(i, 0)
		}
		for range r.Intn(40) {
			runtime.Gosched()
		}
		if r.Intn(2) == 0 { // some slices have landed
			p.SrcSink.Sent(t, h.sentKey(r.Intn(n), 0))
		}
		h.fenceConsumer()
		m.Set(byte(round))
		for i := range n {
			p.SrcSink.Sent(t, h.sentKey(i, 0))
		}
		h.fenceProducer()
		p.SrcSink.Reset()
		p.DstSink.Reset()
	}
	p.settle(t)
	for i, m := range dst {
		last := rounds - 1
		for last%len(dst) != i {
			last--
		}
		setBytes(canary, byte(last))
		if !bytes.Equal(m.ranks[0], canary) {
			t.Fatalf("round %d: bytes landed after the fence", last)
		}
	}
}

// rounds returns n, or a tenth of it where a round takes longer and finds as much.
func (p *Pair) rounds(n int) int {
	if p.Brief || testing.Short() || raceEnabled {
		return n / 10
	}
	return n
}

// reuseSource overwrites the source once its reads are fenced. No slice that landed whole may show the new bytes.
func reuseSource(t *testing.T, p *Pair) {
	s := Blocks(t, 48, 16<<10, 96<<10)
	src, dst := NewMemory(t, s.Src...), NewMemory(t, s.Dst...)
	r := rand.New(rand.NewSource(6))
	for round := range p.rounds(200) {
		src.Fill(uint64(round))
		dst.Set(0)
		h := p.beginIn(t, s, src, dst)
		whole := h.expected(clone(dst), h.all()...)
		h.expect()
		h.postAll()
		for range r.Intn(30) {
			runtime.Gosched()
		}
		h.fenceProducer()
		src.Set(0xee)
		if p.SrcPeer != "" {
			p.settle(t) // what was sent has arrived
		}
		h.fenceConsumer()
		for i := range s.Plan.Slices() {
			if c, ok := p.DstSink.HasLanded(h.landedKey(i, 0)); !ok || c.Reason != transfer.OK {
				continue
			}
			for _, run := range s.Plan.Dst(i, nil) {
				if got, _ := dst.Dst(run); !bytes.Equal(got, whole[run.Rank][run.Off:][:run.Len]) {
					t.Fatalf("round %d: slice %d landed with bytes that were written after the producer's fence", round, i)
				}
			}
		}
		p.SrcSink.Reset()
		p.DstSink.Reset()
	}
}
