package driver

import (
	"bytes"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// layers opens a worker's session with a block of 4 KiB for each layer, at these offsets, filled with the layer's number and fill.
func (r *rig) layers(id transfer.SessionID, engine string, fill byte, at ...uint64) []byte {
	r.tb.Helper()
	const size = 4096
	mem, views := make([]byte, size*len(at)), []layout.View{}
	for i, base := range at {
		views = append(views, layout.View{
			Region: 1, Base: base, NumBlocks: 1, BlockStride: size, TokenStride: size / 16, HeadStride: size / 16, ContentBytes: size / 16, Layer: uint32(i),
			Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
		})
		copy(mem[base:], bytes.Repeat([]byte{fill + byte(i)}, size))
	}
	l, err := layout.New(views, []layout.Field{{Key: "model", Value: "m"}}, nil)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.clients.mem[id] = mem
	r.Event(transfer.SessionOpened{Session: id, Engine: engine, Instance: "i", Owner: "o", Role: transfer.Worker, TPWorld: 1, PPWorld: 1, Credits: 1 << 20})
	r.Event(transfer.LayoutSet{Session: id, Layout: l})
	return mem
}

// TestLayersInOnePlace: what a take ends with when the consumer has two layers in one place. None is ever done with bytes of another layer.
func TestLayersInOnePlace(t *testing.T) {
	for name, c := range map[string]struct {
		producer []uint64
		status   transfer.Status
		reason   transfer.Reason
	}{
		"the producer has two": {[]uint64{0, 4096}, transfer.Failed, transfer.Incompatible},
		"so has the producer":  {[]uint64{0, 0}, transfer.Done, transfer.OK},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			src, dst := r.layers(1, "prefill", 1, c.producer...), r.layers(2, "decode", 0x10, 0, 0)
			before := bytes.Clone(dst)
			r.offer(1, "k", 0)
			take := r.take(2, "k", 0)
			n := 2
			if c.status == transfer.Failed {
				n = 1 // the offer stays
				src = before
			}
			if end := r.completions(n)[take]; end.Status != c.status || end.Reason != c.reason || !bytes.Equal(dst[:4096], src[:4096]) {
				t.Errorf("%v %v: %s; the block begins with %d, want %d", end.Status, end.Reason, end.Text, dst[0], src[0])
			}
		})
	}
}
