package transporttest

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// linksDie breaks the links in the middle of a transfer and then goes on as the machine would: what has not landed is
// sent again with the next attempt.
func linksDie(t *testing.T, p *Pair) {
	if p.KillLinks == nil {
		return // a transport without links
	}
	s := Blocks(t, 512, 64<<10, 0)
	h := p.begin(t, s)
	h.src.Fill(1)
	want := h.expected(clone(h.dst), h.all()...)
	h.expect()
	h.postAll()
	p.DstSink.Landed(t, h.landedKey(2, 0))
	p.DstSink.LinkLost(t, p.KillLinks())
	for i := range s.Plan.Slices() {
		c := p.SrcSink.Sent(t, h.sentKey(i, 0))
		if c.Reason != transfer.OK && c.Reason != transfer.PeerGone {
			t.Errorf("SliceSent of slice %d: %+v", i, c)
		}
	}
	p.settle(t) // the new links work
	for i := range s.Plan.Slices() {
		if c, ok := p.DstSink.HasLanded(h.landedKey(i, 0)); ok && c.Reason == transfer.OK {
			continue
		} else if ok && c.Reason != transfer.PeerGone {
			t.Errorf("SliceLanded of slice %d: %+v", i, c)
		}
		h.post(i, 1)
		h.want(p.SrcSink.Sent(t, h.sentKey(i, 1)), transfer.OK, "SliceSent", i)
		// The first attempt may have waited for a new link and be the one that lands. The other one is then a second
		// copy.
		h.want(p.DstSink.LandedEither(t, h.landedKey(i, 0), h.landedKey(i, 1)), transfer.OK, "SliceLanded", i)
	}
	h.same(want)
	h.fence()
}

func channelDown(t *testing.T, p *Pair) {
	if p.Down == nil {
		return // a transport without channels
	}
	s := Blocks(t, 512, 64<<10, 0)
	h := p.begin(t, s)
	h.src.Fill(1)
	h.expect()
	h.postAll()
	p.SrcSink.Sent(t, h.sentKey(0, 0))
	p.Down()
	// Nothing lands any more, with or without a fence.
	h.dst.Set(0x5c)
	before := clone(h.dst)
	for i := range s.Plan.Slices() {
		if c := p.SrcSink.Sent(t, h.sentKey(i, 0)); c.Reason != transfer.OK && c.Reason != transfer.PeerGone {
			t.Errorf("SliceSent of slice %d: %+v", i, c)
		}
	}
	h.post(0, 1)
	h.want(p.SrcSink.Sent(t, h.sentKey(0, 1)), transfer.PeerGone, "SliceSent", 0)
	h.same(before)
	h.fence()
}

func closeBusy(t *testing.T, p *Pair) {
	s := Blocks(t, 512, 64<<10, 0)
	h := p.begin(t, s)
	h.src.Fill(1)
	h.expect()
	h.postAll()
	p.Close()
	for i := range s.Plan.Slices() {
		switch c := p.SrcSink.Sent(t, h.sentKey(i, 0)); c.Reason {
		case transfer.OK, transfer.Closed, transfer.PeerGone:
		default:
			t.Errorf("SliceSent of slice %d: %+v", i, c)
		}
	}
	// Any touch of this memory would show in a report, or end the process.
	h.src.Protect(t, sys.ProtNone)
	h.dst.Protect(t, sys.ProtNone)
	h.post(0, 1)
	h.want(p.SrcSink.Sent(t, h.sentKey(0, 1)), transfer.Closed, "SliceSent", 0)
	h.fence()
}
