package transporttest

import (
	"math"
	"math/rand"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Bench measures how fast the blocks of one plan move, over and over between the same memories.
type Bench struct {
	shape    Shape
	src, dst *Memory
}

// window is how many slices may be posted and not yet sent. The machine has such a limit too.
const window = 16

// NewBench places n blocks of size bytes at random at both ends.
func NewBench(b testing.TB, n, size int) *Bench {
	g := geometry{layers: 1, blocks: n + n/8 + 1, tokens: 16, heads: 8, content: uint64(size / 128), total: 8}
	x := &Bench{shape: blocks(b, rand.New(rand.NewSource(1)), g, n, 0)}
	x.src, x.dst = sharedMemory(b, x.shape.Src...), sharedMemory(b, x.shape.Dst...)
	x.src.Fill(1)
	x.dst.Set(1)
	return x
}

// Memcpy measures the runtime's copy of the same list, on one thread.
func (x *Bench) Memcpy(b *testing.B) {
	var list [][2][]byte
	for i := range x.shape.Plan.Slices() {
		for _, r := range x.shape.Plan.Pairs(i, nil) {
			list = append(list, [2][]byte{x.dst.ranks[r.DstRank][r.DstOff:][:r.Len], x.src.ranks[r.SrcRank][r.SrcOff:][:r.Len]})
		}
	}
	best := x.best(b)
	for b.Loop() {
		best.start()
		for _, r := range list {
			copy(r[0], r[1])
		}
		best.stop()
	}
}

// best keeps the fastest round: what the code can do when nothing else wants the processor.
type best struct {
	b     *testing.B
	bytes uint64
	began time.Time
	least time.Duration
}

func (x *Bench) best(b *testing.B) *best {
	b.SetBytes(int64(x.shape.Plan.Bytes()))
	return &best{b: b, bytes: x.shape.Plan.Bytes(), least: math.MaxInt64}
}

func (t *best) start() { t.began = time.Now() }

func (t *best) stop() {
	if d := time.Since(t.began); d < t.least {
		t.least = d
		t.b.ReportMetric(float64(t.bytes)/float64(d), "best-GB/s")
	}
}

// Run measures a transport. Each round is a transfer of its own, from Expect to the fences.
func (x *Bench) Run(b *testing.B, open Open) {
	p := open(b)
	defer p.Close()
	ends := make(chan struct{}, 2*x.shape.Plan.Slices())
	landed := make(chan struct{}, x.shape.Plan.Slices())
	p.SrcSink.hook = func(ev transfer.Event) {
		switch ev.(type) {
		case transfer.SliceSent:
			ends <- struct{}{}
		case transfer.SliceLanded:
			landed <- struct{}{}
		}
	}
	if p.DstSink != p.SrcSink {
		p.DstSink.hook = func(ev transfer.Event) {
			if _, ok := ev.(transfer.SliceLanded); ok {
				landed <- struct{}{}
			}
		}
	}
	best := x.best(b)
	b.ReportAllocs()
	for b.Loop() {
		best.start()
		h := p.beginIn(b, x.shape, x.src, x.dst)
		h.expect()
		n := x.shape.Plan.Slices()
		for i := range n {
			if i >= window {
				<-ends
			}
			h.post(i, 0)
		}
		for range min(n, window) {
			<-ends
		}
		for range n {
			<-landed
		}
		h.fence()
		p.SrcSink.Reset()
		p.DstSink.Reset()
		best.stop()
	}
}
