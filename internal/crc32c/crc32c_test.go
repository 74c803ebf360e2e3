package crc32c

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func TestMain(m *testing.M) { leak.Main(m) }

func random(n int) []byte {
	rng := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = rng.Read(b)
	return b
}

// want is what the standard library says.
func want(crc uint32, p []byte) uint32 {
	return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), p)
}

// The examples of RFC 3720, and what follows from repeating them.
func TestKnownSums(t *testing.T) {
	up, down, ones := make([]byte, 32), make([]byte, 32), make([]byte, 32)
	for i := range up {
		up[i], down[i], ones[i] = byte(i), byte(31-i), 0xff
	}
	for _, tc := range []struct {
		name string
		p    []byte
		want uint32
	}{
		{"nothing", nil, 0},
		{"zeros", make([]byte, 32), 0x8a9136aa},
		{"ones", ones, 0x62a8ab43},
		{"up", up, 0x46dd794e},
		{"down", down, 0x113fdb5c},
		{"digits", []byte("123456789"), 0xe3069283},
	} {
		if got := Checksum(tc.p); got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.name, got, tc.want)
		}
	}
}

// Every length around the sizes that the kernel goes by, from every alignment.
func TestAgreesWithTheStandardLibrary(t *testing.T) {
	b := random(5*stride + 64)
	for n := range len(b) - 64 {
		for at := range 64 {
			if n > 2*stride && n%stride > 2 && n%stride < stride-2 && at > 0 {
				continue
			}
			crc := uint32(n) * 0x9e3779b1
			if got, want := Update(crc, b[at:at+n]), want(crc, b[at:at+n]); got != want {
				t.Fatalf("%d bytes from %d: %#x, want %#x", n, at, got, want)
			}
		}
	}
}

// Without the kernel the other tests compare the standard library with itself.
func TestTheKernelIsTested(t *testing.T) {
	if !wide {
		t.Skip("this processor has no AVX-512 with VPCLMULQDQ: fold is not tested here")
	}
	b := random(4 * stride)
	if got, want := ^fold(^uint32(7), b), want(7, b); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// What is summed in parts has the sum of the whole.
func TestParts(t *testing.T) {
	b := random(64 << 10)
	whole := want(0, b)
	for range 200 {
		var got uint32
		for rest := b; len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			got = Update(got, rest[:n])
			rest = rest[n:]
		}
		if got != whole {
			t.Fatalf("%#x, want %#x", got, whole)
		}
	}
}

// Each bit counts, wherever it lies.
func TestEachBitCounts(t *testing.T) {
	b := random(2*stride + 100)
	good := Checksum(b)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		if Checksum(b) == good {
			t.Fatalf("bit %d of byte %d does not change the sum", i%8, i/8)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

// An owner that cuts its file while the bytes are summed costs a panic that can be recovered, nothing more.
func TestFault(t *testing.T) {
	const size = 64 << 10
	fd, err := sys.MemfdCreate("crc32c-test", size, sys.MemfdOptions{Prefault: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Close(fd) }()
	b, err := sys.Mmap(fd, size, sys.ProtWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Munmap(b) }()
	before := Checksum(b)
	if err := sys.Truncate(fd, size/2); err != nil {
		t.Fatal(err)
	}
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() == nil {
				t.Error("bytes that are gone were summed")
			}
		}()
		Checksum(b)
	}()
	if got := Checksum(make([]byte, size)); got != before {
		t.Errorf("afterwards %#x, want %#x", got, before)
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), []byte("123456789"), 4)
	f.Add(uint32(0xffffffff), random(3*stride+7), stride)
	f.Fuzz(func(t *testing.T, crc uint32, p []byte, cut int) {
		cut = min(max(cut, 0), len(p))
		if got, want := Update(Update(crc, p[:cut]), p[cut:]), want(crc, p); got != want {
			t.Errorf("%#x, want %#x", got, want)
		}
	})
}

var sink uint32

// In the cache, and where most of it has to come from memory.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{256, 512, 1 << 10, 8 << 10, 64 << 10} {
		for _, total := range []int{256 << 10, 512 << 20} {
			buf := random(total)
			for _, way := range []struct {
				name   string
				update func(uint32, []byte) uint32
			}{{"here", Update}, {"library", want}} {
				b.Run(fmt.Sprintf("%d of %d KiB, %s", n, total>>10, way.name), func(b *testing.B) {
					b.SetBytes(int64(n))
					at := 0
					for b.Loop() {
						sink = way.update(0, buf[at:at+n])
						at = (at + n) % total
					}
				})
			}
		}
	}
}
