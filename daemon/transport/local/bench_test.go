package local

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// BenchmarkRandomBlocks moves 1 GiB of blocks at random places; "memcpy" is one thread's copy of the very same list.
func BenchmarkRandomBlocks(b *testing.B) {
	for _, size := range []int{64 << 10, 8 << 10} {
		bench := transporttest.NewBench(b, 1<<30/size, size)
		b.Run(fmt.Sprintf("%dKiB/memcpy", size>>10), func(b *testing.B) { bench.Memcpy(b) })
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dKiB/workers=%d", size>>10, workers), func(b *testing.B) { bench.Run(b, open(workers)) })
		}
	}
}

// BenchmarkSmall moves one 4 KiB slice at a time, each as a transfer of its own.
func BenchmarkSmall(b *testing.B) {
	transporttest.NewBench(b, 1, 4<<10).Run(b, open(1))
}
