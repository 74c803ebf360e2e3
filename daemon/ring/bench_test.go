package ring

import "testing"

// BenchmarkRoundTrip is one submission and its completion, both ends on one goroutine: the rings' own cost.
func BenchmarkRoundTrip(b *testing.B) {
	p := newPair(b, Sizes{SQ: 1024, CQ: 4096, Records: 1 << 20, Layers: 1})
	rec := make([]byte, 200)
	var scratch []byte
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.client.Submit(SQE{UserData: 1}, rec); err != nil {
			b.Fatal(err)
		}
		var e SQE
		if ok, err := p.sq.Next(&e); !ok {
			b.Fatal(err)
		}
		scratch, _ = p.sq.Record(scratch, e.RecOff, e.RecLen)
		p.sq.Advance()
		if err := p.cq.Put(&CQE{UserData: e.UserData}, nil, false); err != nil {
			b.Fatal(err)
		}
		_ = p.cq.Waiting()
		p.client.Next()
		if _, n, err := p.cq.Consumed(); n != 1 {
			b.Fatal(err)
		}
	}
}
