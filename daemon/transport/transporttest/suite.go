package transporttest

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Run runs the whole suite. The package's leak gate finds goroutines and descriptors that are left behind.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, p *Pair)
	}{
		{"shapes", shapes},
		{"unexpected slices touch nothing", unexpected},
		{"late slices touch nothing", late},
		{"a slice that the plan lacks", beyondPlan},
		{"regions that are gone", regionsGone},
		{"memory that faults", faults},
		{"fence under load", fenceUnderLoad},
		{"memory can be reused after a consumer's fence", reuseDestination},
		{"memory can be reused after a producer's fence", reuseSource},
		{"fence of nothing", fenceNothing},
		{"links die", linksDie},
		{"channel goes down", channelDown},
		{"pings are answered", pings},
		{"close with work in flight", closeBusy},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := open(t)
			// Cleanups unmap the test's memory after this function returns. A deferred Close ends the pair before them.
			defer func() {
				p.Close()
				p.SrcSink.Check(t)
				p.DstSink.Check(t)
			}()
			test.run(t, p)
		})
	}
}

func shapes(t *testing.T, p *Pair) {
	for _, s := range Shapes(t) {
		t.Run(s.Name, func(t *testing.T) {
			h := p.begin(t, s)
			h.src.Fill(1)
			h.dst.Fill(2)
			want := h.expected(clone(h.dst), h.all()...)
			h.expect()
			h.postAll()
			h.landAll()
			h.fence()
			h.same(want)
		})
	}
}

func unexpected(t *testing.T, p *Pair) {
	s := Blocks(t, 24, 64<<10, 0)
	h := p.begin(t, s)
	h.src.Fill(1)
	before := clone(h.dst)
	h.postAll()
	for i := range s.Plan.Slices() {
		p.SrcSink.Sent(t, h.sentKey(i, 0))
	}
	p.settle(t)
	if c, ok := p.DstSink.HasLanded(h.landedKey(0, 0)); ok {
		t.Errorf("an unexpected slice was reported: %+v", c)
	}
	h.fenceProducer()
	h.same(before)
}

// settle moves expected slices, enough that on every link whatever was sent before them has arrived.
func (p *Pair) settle(t *testing.T) {
	t.Helper()
	if p.probe == nil {
		s := Blocks(t, 128, 32<<10, 64<<10)
		p.probe = p.begin(t, s)
	}
	h := p.beginIn(t, p.probe.s, p.probe.src, p.probe.dst)
	h.expect()
	h.postAll()
	h.landAll()
	h.fence()
}

func late(t *testing.T, p *Pair) {
	s := Blocks(t, 24, 64<<10, 0)
	h := p.begin(t, s)
	h.src.Fill(1)
	h.dst.Fill(2)
	h.expect()
	h.postAll()
	h.landAll()
	h.fenceConsumer()
	h.dst.Fill(3)
	before := clone(h.dst)
	for i := range s.Plan.Slices() {
		h.post(i, 1)
		p.SrcSink.Sent(t, h.sentKey(i, 1))
	}
	p.settle(t)
	h.fenceProducer()
	h.same(before)
}

func beyondPlan(t *testing.T, p *Pair) {
	h := p.begin(t, Blocks(t, 4, 64<<10, 0))
	h.expect()
	n := h.s.Plan.Slices()
	h.post(n, 0)
	h.want(p.SrcSink.Sent(t, h.sentKey(n, 0)), transfer.Invalid, "SliceSent", n)
	h.fence()
}

func regionsGone(t *testing.T, p *Pair) {
	for _, s := range []Shape{Blocks(t, 3, 8<<10, 0), Blocks(t, 3, 64<<10, 0), Bytes(t, 2*transport.AtATime)} { // small slices may take another path
		h := p.begin(t, s)
		h.expect()
		h.src.gone.Store(true)
		h.post(0, 0)
		h.want(p.SrcSink.Sent(t, h.sentKey(0, 0)), transfer.Unavailable, "SliceSent", 0)
		h.src.gone.Store(false)
		h.dst.gone.Store(true)
		h.post(0, 1)
		h.want(p.SrcSink.Sent(t, h.sentKey(0, 1)), transfer.OK, "SliceSent", 0)
		h.want(p.DstSink.Landed(t, h.landedKey(0, 1)), transfer.Unavailable, "SliceLanded", 0)
		h.fence()
	}
}

func faults(t *testing.T, p *Pair) {
	for _, s := range []Shape{Blocks(t, 3, 8<<10, 0), Blocks(t, 40, 64<<10, 0), Blocks(t, 2000, 128, 0), Bytes(t, 2*transport.AtATime)} {
		h := p.begin(t, s)
		h.src.Fill(1)
		h.expect()
		h.src.Protect(t, sys.ProtNone)
		h.post(0, 0)
		h.want(p.SrcSink.Sent(t, h.sentKey(0, 0)), transfer.Corrupt, "SliceSent", 0)
		h.src.Protect(t, sys.ProtWrite)

		h.dst.Protect(t, sys.ProtRead)
		h.post(0, 1)
		h.want(p.SrcSink.Sent(t, h.sentKey(0, 1)), transfer.OK, "SliceSent", 0)
		h.want(p.DstSink.Landed(t, h.landedKey(0, 1)), transfer.Corrupt, "SliceLanded", 0)
		h.dst.Protect(t, sys.ProtWrite)

		// The faults did no harm.
		want := h.expected(clone(h.dst), 0)
		h.post(0, 2)
		h.want(p.SrcSink.Sent(t, h.sentKey(0, 2)), transfer.OK, "SliceSent", 0)
		h.want(p.DstSink.Landed(t, h.landedKey(0, 2)), transfer.OK, "SliceLanded", 0)
		h.same(want)
		h.fence()
	}
}

func fenceNothing(t *testing.T, p *Pair) {
	h := p.begin(t, Blocks(t, 4, 64<<10, 0))
	h.fence() // neither posted nor expected
	h = p.begin(t, h.s)
	h.expect()
	h.fence()
}
