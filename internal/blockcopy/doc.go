// Package blockcopy owns the copying of blocks between memories of other
// processes. It is fast, with stores that go past the caches. And it is safe,
// since either memory may be truncated or unmapped by its owner at any moment:
// such a fault is an error value here, and harms nothing else in the process.
//
// Long lists are copied in pieces of at most a page. Four pieces take turns,
// line by line, while the beginnings of the next four are fetched. So the
// memory is kept busy, where a plain loop over random blocks would wait for it.
// Stores are non-temporal (AVX-512, else AVX2), which spares reading the
// destination first. Some processors fetch ahead beyond the end of a page, or
// are slow at stores to four pages in turn. There, pieces are as long as runs,
// and four or two of them take turns; where the processor still waits for
// memory, every line is fetched early. Tiny runs and short lists are copied by
// the runtime's own copy, which leaves the bytes in the cache for whoever reads
// them next. Other processors use it for everything.
//
// Whatever was copied is visible to all processors before a call returns, even
// with an error. So a caller may announce it with an ordinary atomic store.
package blockcopy
