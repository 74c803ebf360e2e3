// Package crc32c computes CRC32C checksums (RFC 3720, appendix B.4) of large payloads faster than hash/crc32, with the
// same result. Where the processor multiplies polynomials of 64 bytes at a time, memory that is not in its cache is
// summed 2.7 times as fast: on Zen 5 blocks of 64 KiB at 33 GB/s instead of 12, of 8 KiB at 25 instead of 9.6, from the
// cache at 66 instead of 32 (BenchmarkUpdate).
//
// A fault while the bytes are read, because their owner has cut the file that they lie in, panics where
// debug.SetPanicOnFault is set, and leaves nothing behind.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the checksum of p.
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update returns the checksum of what crc is the checksum of, followed by p. It may be called by many threads.
func Update(crc uint32, p []byte) uint32 {
	if n := len(p) &^ (stride - 1); wide && n >= worthFolding {
		// The state is kept inverted between calls.
		crc = ^fold(^crc, p[:n])
		p = p[n:]
	}
	return crc32.Update(crc, table, p)
}

const (
	stride = 256 // what fold goes by, in bytes

	// worthFolding is the size from which fold is faster.
	worthFolding = 512
)
