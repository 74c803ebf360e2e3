/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block lists on their way into the arena: as ids or as runs, whichever is smaller. The list is read once, copied and
 * counted in the same pass; only lists that are mostly runs are then read again, and those are cheap to read.
 */
#include "internal.h"

#include <string.h>

#define STEP 64u /* ids per inner loop; a constant, so that it becomes vector code */

size_t kv_blocks_bound(const struct kvpipe_blocks *b)
{
	return sizeof(struct kvpipe_rec_group) + ((size_t)b->count * 4 + 7) / 8 * 8;
}

/* Does `next` continue the run that `id` is in? Holes continue holes; ids do not run into KVPIPE_NO_BLOCK. */
static inline uint32_t continues(uint32_t id, uint32_t next)
{
	/* Without branches, for the vectoriser. */
	uint32_t hole = next == KVPIPE_NO_BLOCK;
	uint32_t first = next == 0;
	uint32_t step = next - id;
	uint32_t same = step == 0, one = step == 1;

	return (one & ~hole & ~first & 1u) | (same & hole);
}

/* Copies the ids and returns the number of runs in them. */
static size_t copy_ids(uint32_t *restrict dst, const uint32_t *restrict ids, size_t n)
{
	size_t i = 0, runs = n > 0;

	for (; i + STEP < n; i += STEP) {
		uint32_t more = 0;
		for (size_t k = 0; k < STEP; k++) {
			dst[i + k] = ids[i + k];
			more += continues(ids[i + k], ids[i + k + 1]);
		}
		runs += STEP - more;
	}
	for (; i < n; i++) {
		dst[i] = ids[i];
		if (i + 1 < n)
			runs += 1 - continues(ids[i], ids[i + 1]);
	}
	return runs;
}

static void write_runs(uint32_t *dst, const uint32_t *ids, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t end = i + 1;
		while (end < n && continues(ids[end - 1], ids[end]))
			end++;
		*dst++ = ids[i];
		*dst++ = (uint32_t)(end - i);
		i = end;
	}
}

size_t kv_blocks_encode(uint8_t *to, const struct kvpipe_blocks *b)
{
	struct kvpipe_rec_group g = {
		.group = b->group,
		.first_token = b->first_token,
		.ntokens = b->ntokens,
		.form = KVPIPE_FORM_IDS,
		.count = b->count,
	};
	uint32_t *dst = (uint32_t *)(void *)(to + sizeof(g));
	size_t words = b->count;
	size_t runs = copy_ids(dst, b->ids, b->count);

	if (runs * 2 < b->count) {
		write_runs(dst, b->ids, b->count);
		g.form = KVPIPE_FORM_RUNS;
		g.count = (uint32_t)runs;
		words = runs * 2;
	}
	memcpy(to, &g, sizeof(g));
	if (words % 2 != 0)
		dst[words++] = 0;
	return sizeof(g) + words * 4;
}

int kv_blocks_check(const kvpipe_t *kv, const struct kvpipe_blocks *blocks, uint32_t n, uint64_t *groups)
{
	uint64_t total = 0;

	*groups = 0;
	if (n > KVPIPE_MAX_GROUPS)
		return kv_err(KVPIPE_E_INVALID, "nblocks is %u: at most %u groups", n, KVPIPE_MAX_GROUPS);
	if (n > 0 && blocks == NULL)
		return kv_err(KVPIPE_E_INVALID, "blocks is NULL, nblocks is %u", n);
	for (uint32_t i = 0; i < n; i++) {
		const struct kvpipe_blocks *b = &blocks[i];
		if (b->group >= KVPIPE_MAX_GROUPS)
			return kv_err(KVPIPE_E_INVALID, "blocks[%u].group is %u: must be below %u", i, b->group, KVPIPE_MAX_GROUPS);
		if ((*groups >> b->group & 1) != 0)
			return kv_err(KVPIPE_E_INVALID, "blocks[%u].group is %u: that group is there twice", i, b->group);
		if (b->count > 0 && b->ids == NULL)
			return kv_err(KVPIPE_E_INVALID, "blocks[%u].ids is NULL, count is %u", i, b->count);
		if (b->ntokens > UINT32_MAX - b->first_token)
			return kv_err(KVPIPE_E_INVALID, "blocks[%u]: first_token %u + ntokens %u is past 32 bits", i,
				      b->first_token, b->ntokens);
		*groups |= 1ull << b->group;
		total += b->count;
	}
	if (total > kv->max_ids)
		return kv_err(KVPIPE_E_QUOTA, "%llu block ids, the limit is %u per operation", (unsigned long long)total,
			      kv->max_ids);
	return 0;
}
