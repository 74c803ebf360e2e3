/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes block lists into the arena: as ids or as runs, whichever is smaller. Lists of long runs and lists without runs
 * are read once; nearly all lists are of one of these kinds.
 */
#include "internal.h"

#include <string.h>

/* Four ids at once, on every machine that has vectors. aligned(4): the caller chooses where ids lie. */
typedef uint32_t ids4 __attribute__((vector_size(16), aligned(4), may_alias));

size_t kv_blocks_bound(const struct kvpipe_blocks *b)
{
	return sizeof(struct kvpipe_rec_group) + ((size_t)b->count * 4 + 7) / 8 * 8;
}

/* Whether `next` continues the run that `id` is in. A hole continues a hole; a run of ids does not go on to KVPIPE_NO_BLOCK. */
static bool continues(uint32_t id, uint32_t next)
{
	return next == KVPIPE_NO_BLOCK ? id == next : next != 0 && next - id == 1;
}

/* The same for four; all bits of an element are set where it holds. */
static ids4 continues4(ids4 id, ids4 next)
{
	ids4 hole = (ids4)(next == KVPIPE_NO_BLOCK);
	ids4 one = (ids4)(next - id == 1) & (ids4)(next != 0);

	return (one & ~hole) | ((ids4)(next == id) & hole);
}

/* Copies the ids and returns the number of runs in them. */
static size_t copy_ids(uint32_t *restrict dst, const uint32_t *restrict ids, size_t n)
{
	size_t i = 0, more = 0;
	ids4 count = { 0 };

	for (; i + 8 < n; i += 8) { /* ids[i + 8] is looked at, too, so one id is left over */
		ids4 a = *(const ids4 *)(ids + i), b = *(const ids4 *)(ids + i + 4);
		*(ids4 *)(dst + i) = a;
		*(ids4 *)(dst + i + 4) = b;
		count -= continues4(a, *(const ids4 *)(ids + i + 1)) + continues4(b, *(const ids4 *)(ids + i + 5));
	}
	for (; i < n; i++) {
		dst[i] = ids[i];
		more += i + 1 < n && continues(ids[i], ids[i + 1]);
	}
	more += (size_t)count[0] + count[1] + count[2] + count[3];
	return n - more;
}

/* The length of the run that ids begin with; n is at least 1. */
static size_t run_length(const uint32_t *ids, size_t n)
{
	uint32_t first = ids[0], step = first != KVPIPE_NO_BLOCK;
	const ids4 rise = { 0, step, 2 * step, 3 * step };
	size_t i = 0;

	if (step != 0 && n > KVPIPE_NO_BLOCK - first)
		n = KVPIPE_NO_BLOCK - first;
	for (; i + 8 <= n; i += 8) {
		uint32_t at = first + step * (uint32_t)i;
		ids4 wrong = (*(const ids4 *)(ids + i) ^ (at + rise)) | (*(const ids4 *)(ids + i + 4) ^ (at + 4 * step + rise));
		if ((wrong[0] | wrong[1] | wrong[2] | wrong[3]) != 0)
			break;
	}
	while (i < n && ids[i] == first + step * (uint32_t)i)
		i++;
	return i;
}

/*
 * Writes runs and returns their number. Gives up and returns n when the runs are no smaller than the ids, as there is room for no
 * more than those. It gives up earlier when the list has few long runs: more than `patience` runs beyond one for every four ids.
 */
static size_t write_runs(uint32_t *dst, const uint32_t *ids, size_t n, size_t patience)
{
	size_t runs = 0;

	for (size_t i = 0; i < n; runs++) {
		if (runs > i / 4 + patience || (runs + 1) * 2 >= n)
			return n;
		size_t len = run_length(ids + i, n - i);
		dst[2 * runs] = ids[i];
		dst[2 * runs + 1] = (uint32_t)len;
		i += len;
	}
	return runs;
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
	/*
	 * Tries long runs first. Otherwise copies the ids and counts their runs, and encodes once more if runs are smaller after all. If
	 * the caller writes to its ids meanwhile, the result is some list that takes no more room.
	 */
	size_t runs = b->count < 64 ? b->count : write_runs(dst, b->ids, b->count, 4);

	if (runs * 2 >= b->count) {
		runs = copy_ids(dst, b->ids, b->count);
		if (runs * 2 < b->count) {
			runs = write_runs(dst, b->ids, b->count, b->count);
			if (runs * 2 >= b->count)
				(void)copy_ids(dst, b->ids, b->count);
		}
	}
	if (runs * 2 < b->count) {
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
