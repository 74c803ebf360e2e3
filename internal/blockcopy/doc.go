// Package blockcopy owns the copying of blocks between two memories of other
// processes: fast, with stores that go past the caches, and safe, since either
// memory may be truncated or unmapped by its owner at any moment. Such a fault
// is an error value here, and harms nothing else in the process.
//
// Long lists are copied in pieces of at most a page, four pieces at a time,
// line by line in turn, while the beginnings of the next four are fetched:
// so the memory is kept busy where a plain loop over random blocks would wait
// for it. Stores are non-temporal (AVX-512, else AVX2), which spares reading
// the destination first. Where processors fetch ahead over the ends of pages,
// or are slow at stores to four pages in turn, pieces are as long as runs are,
// four or two at a time; where one of them still waits for memory, every line is
// fetched early. Tiny runs and short lists are copied by the
// runtime's own copy, which leaves the bytes in the cache for whoever reads them
// next. On other processors everything is.
//
// Whatever was copied is visible to all processors before a call returns, so
// a caller may announce it with an ordinary atomic store, also after an error.
package blockcopy
