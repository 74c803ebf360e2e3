// Package ring is the Go side of include/kvpipe/ring.h: the structs that cross between libkvpipe and the daemon, and
// the two shared-memory rings. It knows bytes, not their meaning.
//
// Everything works on []byte, so tests run on heap memory under the race detector. The daemon uses two memfds: ring_c,
// which the client writes, and ring_d, which the daemon writes. Indices are free-running uint32. sync/atomic is
// sequentially consistent and so gives the orderings that kvpipe/barrier.h asks for.
//
// The client is not trusted. An entry is read once into private memory, and only the copy is used. A client can punch
// holes into ring_c, and memory can run out while a page is fetched. So every access to ring_c survives a fault and
// reports ErrFault. ErrIndex and ErrFault are permanent: whoever gets one ends the session.
//
// Nothing here locks: Submissions and Completions each belong to one goroutine at a time.
package ring
