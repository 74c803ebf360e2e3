/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy past the caches, for what is read only after more was written than they hold: an ordinary one reads the destination first,
 * and drives out what is still needed. Two pages at a time, which memory serves faster than one.
 */
#include "endpoint.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define PAGE 4096u
#define LINE 64u

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

/* to is aligned to a line; returns how much it copied: pairs of pages. */
__attribute__((target("avx2"))) static size_t stream(uint8_t *to, const uint8_t *from, size_t n)
{
	size_t done = 0;

	for (; n - done >= 2 * PAGE; done += 2 * PAGE) {
		for (size_t at = done; at < done + PAGE; at += LINE) {
			stream_line(to + at, from + at);
			stream_line(to + at + PAGE, from + at + PAGE);
		}
	}
	_mm_sfence(); /* whoever is told of the bytes finds them */
	return done;
}

void kv_copy_past(uint8_t *to, const uint8_t *from, size_t n)
{
	size_t head = -(uintptr_t)to % LINE;

	if (!can_stream() || n < head + 2 * PAGE) {
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
