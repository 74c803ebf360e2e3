/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meta of an item tells its receiver what the item is; the daemon carries it and never looks inside. It has a version byte,
 * the number of members and two zero bytes; then for each member {u8 present, u8 dtype, u8 ndim, u8 0, u32 offset / 64, u64
 * shape[ndim]}. It comes from another process, perhaps on another node, so everything in it is checked.
 */
#include "endpoint.h"

#include <string.h>

#define VERSION 1

size_t kv_meta_encode(uint8_t *to, const struct kv_member *members, uint32_t n)
{
	uint8_t *at = to;

	*at++ = VERSION;
	*at++ = (uint8_t)n;
	*at++ = 0;
	*at++ = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct kv_member *m = &members[i];
		uint32_t offset = (uint32_t)(m->offset / KV_ALIGN), ndim = m->present ? m->ndim : 0;
		*at++ = m->present;
		*at++ = (uint8_t)(m->present ? m->dtype : 0);
		*at++ = (uint8_t)ndim;
		*at++ = 0;
		memcpy(at, &offset, 4);
		memcpy(at + 4, m->shape, ndim * 8);
		at += 4 + ndim * 8;
	}
	return (size_t)(at - to);
}

/* Whether the member's bytes lie within `bytes`. */
static bool sound(const struct kv_member *m, uint64_t bytes)
{
	uint64_t n = kvpipe_dtype_size(m->dtype);

	if (n == 0 || m->offset > bytes || !kv_shape_exists(m->ndim, m->shape, n))
		return false;
	for (uint32_t i = 0; i < m->ndim; i++) {
		if (m->shape[i] == 0)
			return true;
	}
	for (uint32_t i = 0; i < m->ndim; i++)
		n *= m->shape[i];
	return n <= bytes - m->offset;
}

uint32_t kv_meta_decode(const uint8_t *meta, size_t len, uint64_t bytes, struct kv_member *members, uint32_t max)
{
	const uint8_t *at = meta, *end = meta + len;

	if (len < 4 || at[0] != VERSION || at[1] == 0 || at[1] > max || at[2] != 0 || at[3] != 0)
		return 0;
	uint32_t n = at[1];
	at += 4;
	for (uint32_t i = 0; i < n; i++) {
		struct kv_member *m = &members[i];
		uint32_t offset;
		if (end - at < 8)
			return 0;
		*m = (struct kv_member){ .present = at[0] == 1, .dtype = at[1], .ndim = at[2] };
		memcpy(&offset, at + 4, 4);
		m->offset = (uint64_t)offset * KV_ALIGN;
		if (at[0] > 1 || at[3] != 0 || m->ndim > KVPIPE_MAX_DIMS || (size_t)(end - at) < 8 + m->ndim * 8)
			return 0;
		memcpy(m->shape, at + 8, m->ndim * 8);
		at += 8 + m->ndim * 8;
		if (m->present && !sound(m, bytes))
			return 0;
	}
	return at == end ? n : 0;
}
