package daemon

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Limits of kvpipectl bench. A hand-over of many blocks moves benchBytes. Within one node, where the daemon holds both
// source and destination, 64 MiB are mapped.
const (
	benchBytes      = 32 << 20
	benchMaxSeconds = 60
	benchMaxSizes   = 16
)

var benchSizes = []uint64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

// Bench measures what each transport on the allow-list moves from a peer to this node, or within it: first a single
// block of 4 KiB, then hand-overs of many blocks of each size at random places. All memory is the daemons' own and
// exists only during the measurement.
func (v view) Bench(ctx context.Context, peer string, o admin.BenchOptions, row func(admin.BenchRow)) error {
	if err := checkBench(&o); err != nil {
		return err
	}
	if peer == v.cfg.Node {
		peer = ""
	}
	if peer != "" {
		if _, err := v.status(peer); err != nil {
			return err
		}
	}
	if v.bench.stop.Err() != nil {
		return errStopping
	}
	if !v.bench.asking.TryLock() {
		return &admin.Failure{Code: http.StatusConflict, Message: "another measurement runs on this node", Hint: "wait until it ends"}
	}
	defer v.bench.asking.Unlock()
	ctx, cancel := v.bench.scope(ctx)
	defer cancel()
	if err := v.bench.meet(ctx, peer); err != nil {
		return err
	}
	for _, t := range v.carriers.list {
		if err := v.benchTransport(ctx, t, peer, o, row); err != nil {
			return err
		}
	}
	return nil
}

// benchTransport makes the rows of one transport. If it cannot reach the peer, or fails, a row says why.
func (v view) benchTransport(ctx context.Context, t transport.Transport, peer string, o admin.BenchOptions, row func(admin.BenchRow)) error {
	if r := t.Probe(peer); !r.OK {
		row(admin.BenchRow{Transport: t.Name(), Error: r.Reason})
		return nil
	}
	shapes := []benchSpec{{transport: t.Name(), size: 4 << 10, blocks: 1}}
	for _, size := range o.Sizes {
		shapes = append(shapes, benchSpec{transport: t.Name(), size: size, blocks: int(max(benchBytes/size, 1))})
	}
	for _, s := range shapes {
		r, err := v.bench.measure(ctx, peer, s, o.Seconds)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			row(admin.BenchRow{Transport: t.Name(), Bytes: s.size, Blocks: s.blocks, Error: err.Error()})
			return nil
		}
		row(r)
	}
	return nil
}

func checkBench(o *admin.BenchOptions) error {
	bad := func(format string, args ...any) error {
		return &admin.Failure{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	if o.Seconds == 0 {
		o.Seconds = 1
	}
	if len(o.Sizes) == 0 {
		o.Sizes = benchSizes
	}
	if !(o.Seconds > 0 && o.Seconds <= benchMaxSeconds) {
		return bad("seconds: %v: give a number above 0, at most %d", o.Seconds, benchMaxSeconds)
	}
	if len(o.Sizes) > benchMaxSizes {
		return bad("sizes: %d of them: give at most %d", len(o.Sizes), benchMaxSizes)
	}
	for _, s := range o.Sizes {
		if err := checkBenchSize(s); err != nil {
			return bad("sizes: %v", err)
		}
	}
	return nil
}

func checkBenchSize(size uint64) error {
	if size < 64 || size > benchBytes || size&(size-1) != 0 {
		return fmt.Errorf("%d: give powers of two from 64 to %d", size, benchBytes)
	}
	return nil
}

var errStopping error = &admin.Failure{Code: http.StatusServiceUnavailable, Message: "the daemon is stopping"}
