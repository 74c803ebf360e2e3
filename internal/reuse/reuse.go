// Package reuse keeps buffers from one use to the next. Small payloads would otherwise be half of the garbage that a
// hand-over makes.
package reuse

import "sync"

// Buffers is a stock of buffers. The zero value is empty and ready, and a nil *Buffers never has one. It is safe for
// concurrent use.
type Buffers struct {
	mu   sync.Mutex
	free [][]byte
}

const (
	most    = 16       // buffers that are kept
	largest = 64 << 10 // bytes of one that is kept
)

// Get returns n bytes of any content, and hardly more memory than that: whoever counts them may have to keep them for
// long. They are the caller's.
func (b *Buffers) Get(n int) []byte {
	if b == nil {
		return make([]byte, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.free) - 1; i >= 0; i-- {
		if p := b.free[i]; fits(n, cap(p)) {
			b.drop(i)
			return p[:n]
		}
	}
	if len(b.free) > 0 {
		b.drop(0) // n bytes will take its place
	}
	return make([]byte, n)
}

// fits says whether a buffer of that capacity may hold n bytes.
func fits(n, capacity int) bool { return n <= capacity && capacity <= 2*n+512 }

// drop takes a buffer out of the stock. The caller holds mu.
func (b *Buffers) drop(i int) {
	last := len(b.free) - 1
	b.free[i] = b.free[last]
	b.free[last] = nil
	b.free = b.free[:last]
}

// Put takes a buffer that nobody uses any more. Whoever goes on reading it reads what the next user writes.
func (b *Buffers) Put(p []byte) {
	if b == nil || cap(p) == 0 || cap(p) > largest {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) < most {
		b.free = append(b.free, p)
	}
}
