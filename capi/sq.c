/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The submission queue and the arena of its records.
 *
 * The arena is a ring of bytes with free-running ends. Records are taken in the order of their entries and become free
 * in that order, when sq_head passes the entry. A record never wraps: one that would begins at the arena's start. In an
 * empty arena records begin there, too, which keeps a small part of it warm in both processes' caches.
 */
#include "internal.h"

#include <string.h>

bool kv_sq_refresh(struct kv_sq *sq, const struct kv_rings *r)
{
	uint32_t head = kvpipe_load_acquire(&r->d->sq_head);

	if (sq->tail - head > sq->tail - sq->head)
		return false; /* moved back, or past what was submitted */
	if (head != sq->head) {
		sq->freed = sq->ends[(head - 1) & (r->sq_entries - 1)];
		sq->head = head;
	}
	return true;
}

bool kv_arena_reserve(const struct kv_sq *sq, const struct kv_rings *r, uint64_t size, uint64_t *off)
{
	uint64_t all = r->record_bytes;
	uint64_t start = sq->used;
	uint64_t at = start & (all - 1);

	bool empty = sq->freed == sq->used;

	if (at != 0 && (empty || at + size > all))
		start += all - at;
	if (start + size - (empty ? start : sq->freed) > all)
		return false;
	*off = start;
	return true;
}

void kv_arena_commit(struct kv_sq *sq, uint64_t off, uint64_t size)
{
	if (sq->freed == sq->used)
		sq->freed = off;
	sq->used = off + size;
}
