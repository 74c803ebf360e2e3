/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy past the caches, for bytes that are read only after more was written than caches hold. An ordinary copy reads the
 * destination first, and drives out of the caches what is still needed. Both halves are copied side by side, as memory serves two
 * streams faster than one. Two neighbouring pages would not do: processors that prefetch across page ends would fetch all twice.
 */
#include "endpoint.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE  64u
#define LEAST 8192u /* bytes: less is not worth it */

static bool can_stream(void)
{
	return __builtin_cpu_supports("avx2");
}

__attribute__((target("avx2"))) static void stream_line(uint8_t *to, const uint8_t *from)
{
	__m256i a = _mm256_loadu_si256((const __m256i *)(const void *)from);
	__m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + LINE / 2));

	_mm256_stream_si256((__m256i *)(void *)to, a);
	_mm256_stream_si256((__m256i *)(void *)(to + LINE / 2), b);
}

/* `to` is aligned to a line. Returns how much it copied: all but the end. */
__attribute__((target("avx2"))) static size_t stream(uint8_t *to, const uint8_t *from, size_t n)
{
	const size_t half = n / 2 / LINE * LINE;

	for (size_t at = 0; at < half; at += LINE) {
		stream_line(to + at, from + at);
		stream_line(to + half + at, from + half + at);
	}
	_mm_sfence(); /* the bytes are there before anybody is told of them */
	return 2 * half;
}

void kv_copy_past(uint8_t *to, const uint8_t *from, size_t n)
{
	size_t head = -(uintptr_t)to % LINE;

	if (!can_stream() || n < head + LEAST) {
		memcpy(to, from, n);
		return;
	}
	memcpy(to, from, head);
	size_t done = head + stream(to + head, from + head, n - head);
	memcpy(to + done, from + done, n - done);
}
#else
void kv_copy_past(uint8_t *to, const uint8_t *from, size_t n)
{
	memcpy(to, from, n);
}
#endif
