/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena of an end, with a bitmap of the blocks in use. Blocks are taken from below, which keeps the part in use small, and warm
 * in caches. An item gets one run of blocks when there is one, else whatever runs are free. So nothing is ever moved, and nothing
 * is refused as long as enough blocks are free.
 */
#include "endpoint.h"

#include <stdlib.h>
#include <string.h>

uint32_t kv_block_bytes(uint64_t capacity)
{
	uint32_t block = 256;

	while (block < 4096 && block < capacity / (2 * KV_ITEMS))
		block *= 2;
	while (block < KV_BLOCK_MAX && 2 * kv_home_bytes(capacity) / block >= KV_BLOCKS_MAX) /* a receiving end's arena is twice as large */
		block *= 2;
	return block;
}

/*
 * More than the capacity, as items take whole blocks and their tensors begin at multiples of KV_ALIGN. With a quarter more, items of
 * 1,700 bytes in five tensors fill any capacity: such an item takes 2048 bytes, as blocks are larger than that only for capacities
 * that KV_ITEMS such items do not fill.
 */
uint64_t kv_home_bytes(uint64_t capacity)
{
	return capacity + capacity / 4 + 65536;
}

int kv_pool_new(uint64_t bytes, uint32_t block, struct kv_pool **out)
{
	struct kv_pool *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	int err = kv_memory_make("arena", (bytes + 4095) / 4096 * 4096, 0, &p->memory);
	if (err != 0) {
		free(p);
		return err;
	}
	p->process = kv_process_mark();
	p->block = block;
	p->nblocks = p->nfree = (uint32_t)((bytes + 4095) / 4096 * 4096 / block);
	p->refs = 1;
	p->used = calloc(p->nblocks / 64 + 1, sizeof(*p->used));
	pthread_mutex_init(&p->lock, NULL);
	if (p->used == NULL) {
		kv_pool_unref(p);
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	*out = p;
	return 0;
}

void kv_pool_unref(struct kv_pool *p)
{
	pthread_mutex_lock(&p->lock);
	bool last = --p->refs == 0;
	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	kv_memory_drop(&p->memory);
	pthread_mutex_destroy(&p->lock);
	free(p->used);
	free(p);
}

void kv_pool_forget(struct kv_pool *p)
{
	/* The lock may be held by a thread that is not here. */
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	free(p->used);
	free(p);
}

const struct kv_run *kv_runs(const struct kv_span *s)
{
	return s->nruns == 1 ? &s->one : s->many;
}

uint32_t kv_pool_need(const struct kv_pool *p, uint64_t bytes)
{
	return (uint32_t)((bytes + p->block - 1) / p->block);
}

/* The first block from `at` on whose bit is as asked; `end` if there is none below it. */
static uint32_t next(const struct kv_pool *p, uint32_t at, uint32_t end, bool used)
{
	while (at < end) {
		uint64_t word = p->used[at / 64];
		word = (used ? word : ~word) >> at % 64;
		if (word != 0) {
			at += (uint32_t)__builtin_ctzll(word);
			return at < end ? at : end;
		}
		at = at / 64 * 64 + 64;
	}
	return end;
}

static void mark(struct kv_pool *p, struct kv_run r, bool used)
{
	uint32_t at = r.first, end = r.first + r.n;

	while (at < end) {
		uint32_t bits = 64 - at % 64 < end - at ? 64 - at % 64 : end - at;
		uint64_t mask = (bits == 64 ? ~0ull : (1ull << bits) - 1) << at % 64;
		p->used[at / 64] = used ? p->used[at / 64] | mask : p->used[at / 64] & ~mask;
		at += bits;
	}
	if (used) {
		p->nfree -= r.n;
		p->low = p->low == r.first ? end : p->low;
	} else {
		p->nfree += r.n;
		p->low = r.first < p->low ? r.first : p->low;
	}
}

/* One run of n blocks, or none: {.n = 0}. */
static struct kv_run find(struct kv_pool *p, uint32_t n)
{
	uint32_t at = next(p, p->low, p->nblocks, false);

	p->low = at;
	while (p->nblocks - at >= n) {
		uint32_t end = next(p, at, at + n, true);
		if (end - at == n)
			return (struct kv_run){ at, n };
		at = next(p, end, p->nblocks, false);
	}
	return (struct kv_run){ 0 };
}

/* Takes whatever runs are free, from below. The caller knows that there are enough blocks. False: out of memory. */
static bool gather(struct kv_pool *p, uint32_t n, struct kv_span *out)
{
	uint32_t room = 0, at = p->low;

	while (n > 0) {
		if (out->nruns == room) {
			room = room == 0 ? 16 : room * 2;
			struct kv_run *more = realloc(out->many, room * sizeof(*more));
			if (more == NULL) {
				for (uint32_t i = 0; i < out->nruns; i++)
					mark(p, out->many[i], false);
				free(out->many);
				return false;
			}
			out->many = more;
		}
		at = next(p, at, p->nblocks, false);
		uint32_t end = next(p, at, n < p->nblocks - at ? at + n : p->nblocks, true);
		struct kv_run r = { at, end - at };
		mark(p, r, true);
		out->many[out->nruns++] = r;
		n -= r.n;
		at = end;
	}
	return true;
}

bool kv_pool_fits(struct kv_pool *p, uint32_t blocks)
{
	pthread_mutex_lock(&p->lock);
	bool fits = p->nfree >= blocks;
	pthread_mutex_unlock(&p->lock);
	return fits;
}

bool kv_pool_take(struct kv_pool *p, uint32_t blocks, struct kv_span *out)
{
	*out = (struct kv_span){ .blocks = blocks };
	if (blocks == 0)
		return true;
	pthread_mutex_lock(&p->lock);
	bool ok = p->nfree >= blocks;
	if (ok) {
		out->one = find(p, blocks);
		if (out->one.n > 0) {
			mark(p, out->one, true);
			out->nruns = 1;
		} else {
			ok = gather(p, blocks, out);
		}
	}
	pthread_mutex_unlock(&p->lock);
	if (!ok)
		*out = (struct kv_span){ 0 };
	return ok;
}

static void unmark(struct kv_pool *p, const struct kv_span *s)
{
	for (uint32_t i = 0; i < s->nruns; i++)
		mark(p, kv_runs(s)[i], false);
}

void kv_pool_give(struct kv_pool *p, struct kv_span *s)
{
	if (s->nruns > 0) {
		pthread_mutex_lock(&p->lock);
		unmark(p, s);
		pthread_mutex_unlock(&p->lock);
		free(s->many);
	}
	*s = (struct kv_span){ 0 };
}

void kv_pool_trim(struct kv_pool *p, struct kv_span *s, uint32_t blocks)
{
	pthread_mutex_lock(&p->lock);
	while (s->blocks > blocks) {
		struct kv_run *r = s->many == NULL ? &s->one : &s->many[s->nruns - 1];
		uint32_t n = s->blocks - blocks < r->n ? s->blocks - blocks : r->n;
		mark(p, (struct kv_run){ r->first + r->n - n, n }, false);
		r->n -= n;
		s->blocks -= n;
		if (r->n == 0)
			s->nruns--;
		if (s->nruns == 1 && s->many != NULL) {
			s->one = s->many[0];
			free(s->many);
			s->many = NULL;
		}
	}
	pthread_mutex_unlock(&p->lock);
}

bool kv_pool_lend(struct kv_pool *p, const struct kv_span *s, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	bool ok = s->nruns == 1 && p->lent + s->blocks <= limit;
	if (ok) {
		p->lent += s->blocks;
		p->refs++;
	}
	pthread_mutex_unlock(&p->lock);
	return ok;
}

uint32_t kv_pool_lent(struct kv_pool *p)
{
	pthread_mutex_lock(&p->lock);
	uint32_t lent = p->lent;
	pthread_mutex_unlock(&p->lock);
	return lent;
}

void kv_pool_return(struct kv_pool *p, struct kv_span *s)
{
	pthread_mutex_lock(&p->lock);
	p->lent -= s->blocks;
	unmark(p, s);
	pthread_mutex_unlock(&p->lock);
	kv_pool_unref(p);
}

static void turn_to(struct kv_sink *k, const struct kv_run *run)
{
	k->run = run;
	k->at = (uint8_t *)k->pool->memory.addr + (size_t)run->first * k->pool->block;
	k->left = (size_t)run->n * k->pool->block;
}

void kv_sink_open(struct kv_sink *k, const struct kv_pool *p, const struct kv_span *s)
{
	*k = (struct kv_sink){ .pool = p };
	if (s->nruns > 0)
		turn_to(k, kv_runs(s));
}

static void forward(struct kv_sink *k, const uint8_t *from, size_t n)
{
	while (n > 0) {
		if (k->left == 0)
			turn_to(k, k->run + 1);
		size_t some = n < k->left ? n : k->left;
		if (from != NULL) {
			if (k->past)
				kv_copy_past(k->at, from, some);
			else
				memcpy(k->at, from, some);
			from += some;
		}
		k->at += some;
		k->left -= some;
		n -= some;
	}
}

void kv_sink_write(struct kv_sink *k, const void *from, size_t n)
{
	forward(k, from, n);
}

void kv_sink_skip(struct kv_sink *k, size_t n)
{
	forward(k, NULL, n);
}

void kv_span_read(const struct kv_pool *p, const struct kv_span *s, uint8_t *to, size_t n)
{
	for (const struct kv_run *r = kv_runs(s); n > 0; r++) {
		size_t run = (size_t)r->n * p->block, some = n < run ? n : run;
		memcpy(to, (const uint8_t *)p->memory.addr + (size_t)r->first * p->block, some);
		to += some;
		n -= some;
	}
}
