package blockcopy

import (
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkBlocks copies 1 GiB of blocks at random places between two mappings
// with each implementation, split between one and two goroutines. Rounds of
// all of them alternate, so that a busy machine slows all alike, and medians
// count; "x" is the rate relative to one goroutine that uses the runtime's
// copy, which is as fast as C's memcpy. Run it with -benchtime=7x on an idle
// machine.
func BenchmarkBlocks(b *testing.B) {
	const total = 1 << 30
	src, dst := warm(b, total), warm(b, total)
	for _, block := range []int{64 << 10, 8 << 10, 4 << 10, 1 << 10, 512} {
		b.Run(fmt.Sprintf("%dB", block), func(b *testing.B) {
			runs := randomRuns(dst, src, block)
			reference := func() {
				for i := range runs {
					copy(runs[i].Dst, runs[i].Src)
				}
			}
			var base []time.Duration
			type result struct {
				name string
				fn   func() error
				took []time.Duration
			}
			var results []*result
			for _, k := range kernels() {
				for _, workers := range []int{1, 2} {
					results = append(results, &result{
						name: fmt.Sprintf("%v-%d", k, workers),
						fn:   func() error { return parallel(k, runs, workers) },
					})
				}
			}
			for b.Loop() {
				start := time.Now()
				reference()
				base = append(base, time.Since(start))
				for _, r := range results {
					start := time.Now()
					if err := r.fn(); err != nil {
						b.Fatal(err)
					}
					r.took = append(r.took, time.Since(start))
				}
			}
			rate := func(d time.Duration) float64 { return total / d.Seconds() / 1e9 }
			ref := median(base)
			b.ReportMetric(rate(ref), "reference-GB/s")
			for _, r := range results {
				took := median(r.took)
				b.ReportMetric(rate(took), r.name+"-GB/s")
				b.ReportMetric(ref.Seconds()/took.Seconds(), r.name+"-x")
			}
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// warm maps size bytes with all page tables filled.
func warm(b *testing.B, size int) []byte {
	m, _ := shared(b, size)
	for i := 0; i < len(m); i += page {
		m[i] = byte(i >> 12)
	}
	return m
}

// randomRuns pairs the blocks of src and dst at random.
func randomRuns(dst, src []byte, block int) []Run {
	n := len(src) / block
	from, to := rand.New(rand.NewSource(1)).Perm(n), rand.New(rand.NewSource(2)).Perm(n)
	runs := make([]Run, n)
	for i := range runs {
		s, d := from[i]*block, to[i]*block
		runs[i] = Run{Dst: dst[d : d+block], Src: src[s : s+block]}
	}
	return runs
}

func parallel(k kernel, runs []Run, workers int) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		part := runs[len(runs)*w/workers : len(runs)*(w+1)/workers]
		wg.Go(func() { _, errs[w] = copyRuns(k, part, nil) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkSmall is the price of the guard: a single block that is in the
// cache, as in a small hand-over.
func BenchmarkSmall(b *testing.B) {
	for _, n := range []int{64, 512, 4 << 10, 8 << 10, 16 << 10, 31 << 10, 64 << 10} {
		src, dst := make([]byte, n), make([]byte, n)
		b.Run(fmt.Sprintf("%d/guarded", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := Copy(dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/bare", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}
