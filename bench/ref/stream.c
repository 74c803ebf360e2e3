/* Copies four blocks in turn, so that the memory is busy while a single block
 * would wait for it. Non-temporal stores avoid reading the destination first. */
#include <string.h>

#include "stream.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WAYS 4

bool stream_can(void)
{
	return __builtin_cpu_supports("avx512f") || __builtin_cpu_supports("avx2");
}

__attribute__((target("avx512f"))) static void four_avx512(uint8_t *const dst[WAYS], const uint8_t *const src[WAYS],
                                                           size_t block)
{
	for (size_t at = 0; at < block; at += 64) {
		__m512i line[WAYS];
		for (int i = 0; i < WAYS; i++)
			line[i] = _mm512_loadu_si512(src[i] + at);
		for (int i = 0; i < WAYS; i++)
			_mm512_stream_si512((__m512i *)(void *)(dst[i] + at), line[i]);
	}
}

__attribute__((target("avx2"))) static void four_avx2(uint8_t *const dst[WAYS], const uint8_t *const src[WAYS],
                                                      size_t block)
{
	for (size_t at = 0; at < block; at += 64) {
		__m256i half[WAYS][2]; /* halves of a line; the processor writes it whole */
		for (int i = 0; i < WAYS; i++)
			for (int h = 0; h < 2; h++)
				half[i][h] = _mm256_loadu_si256((const __m256i *)(const void *)(src[i] + at + 32 * h));
		for (int i = 0; i < WAYS; i++)
			for (int h = 0; h < 2; h++)
				_mm256_stream_si256((__m256i *)(void *)(dst[i] + at + 32 * h), half[i][h]);
	}
}

static void four(uint8_t *const dst[WAYS], const uint8_t *const src[WAYS], size_t block)
{
	if (__builtin_cpu_supports("avx512f"))
		four_avx512(dst, src, block);
	else
		four_avx2(dst, src, block);
}

void stream_copy(uint8_t *dst, const uint32_t *to, const uint8_t *src, const uint32_t *from, size_t n, size_t block)
{
	size_t i = 0;
	for (; i + WAYS <= n; i += WAYS) {
		uint8_t *d[WAYS];
		const uint8_t *s[WAYS];
		for (size_t k = 0; k < WAYS; k++) {
			d[k] = dst + (size_t)to[i + k] * block;
			s[k] = src + (size_t)from[i + k] * block;
		}
		four(d, s, block);
	}
	for (; i < n; i++)
		memcpy(dst + (size_t)to[i] * block, src + (size_t)from[i] * block, block);
	_mm_sfence();
}

#else

bool stream_can(void)
{
	return false;
}

void stream_copy(uint8_t *dst, const uint32_t *to, const uint8_t *src, const uint32_t *from, size_t n, size_t block)
{
	for (size_t i = 0; i < n; i++)
		memcpy(dst + (size_t)to[i] * block, src + (size_t)from[i] * block, block);
}

#endif
