package tcp

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// BenchmarkRandomBlocks moves 1 GiB of blocks at random places over loopback links.
func BenchmarkRandomBlocks(b *testing.B) {
	for _, size := range []int{64 << 10, 8 << 10} {
		bench := transporttest.NewBench(b, 1<<30/size, size)
		for _, kind := range []struct {
			name   string
			cfg    Config
			secure bool
		}{
			{"plain", Config{CRC: CRCOff}, false},
			{"crc", Config{CRC: CRCOn}, false},
			{"tls", Config{}, true},
		} {
			for _, links := range []int{1, 2} {
				b.Run(fmt.Sprintf("%dKiB/%s/links=%d", size>>10, kind.name, links), func(b *testing.B) {
					bench.Run(b, opener(kind.cfg, links, kind.secure, false))
				})
			}
		}
	}
}

// BenchmarkRuns moves 128 MiB in runs of one length, named to the kernel or staged: where the two cross is DefaultStaged.
func BenchmarkRuns(b *testing.B) {
	for size := 256; size <= 32<<10; size *= 2 {
		bench := transporttest.NewBench(b, 128<<20/size, size)
		for _, kind := range []struct {
			name   string
			staged int
		}{{"direct", -1}, {"staged", 1 << 30}} {
			b.Run(fmt.Sprintf("%dB/%s", size, kind.name), func(b *testing.B) {
				bench.Run(b, opener(Config{CRC: CRCOff, Staged: kind.staged}, 2, false, false))
			})
		}
	}
}

// BenchmarkSmall moves one 4 KiB slice at a time, each as a transfer of its own.
func BenchmarkSmall(b *testing.B) {
	transporttest.NewBench(b, 1, 4<<10).Run(b, opener(Config{CRC: CRCOff}, 2, false, false))
}
