/* Copying blocks past the caches, as fast as plain C can. */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor has the instructions for it. */
bool stream_can(void);

/* Copies the n blocks src[from[i]] to dst[to[i]], four in turn, with
 * non-temporal stores, which are complete when it returns. block must be a
 * multiple of 64, and both memories aligned to 64. */
void stream_copy(uint8_t *dst, const uint32_t *to, const uint8_t *src,
		 const uint32_t *from, size_t n, size_t block);

#endif
