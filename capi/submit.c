/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a submission where the daemon sees it. */
#include "internal.h"

#include <string.h>
#include <time.h>

static size_t bound(const struct kv_submission *s)
{
	size_t n = s->head_len;

	for (size_t i = 0; i < KV_COUNT(s->strings); i++)
		n += s->strings[i].len;
	n = (n + 7) / 8 * 8;
	for (uint32_t i = 0; i < s->nblocks; i++)
		n += kv_blocks_bound(&s->blocks[i]);
	return n;
}

static size_t write_record(uint8_t *to, const struct kv_submission *s)
{
	size_t n = 0;

	if (s->head == NULL)
		return 0;
	memcpy(to, s->head, s->head_len);
	n += s->head_len;
	for (size_t i = 0; i < KV_COUNT(s->strings); i++) {
		if (s->strings[i].len > 0)
			memcpy(to + n, s->strings[i].p, s->strings[i].len);
		n += s->strings[i].len;
	}
	while (n % 8 != 0)
		to[n++] = 0;
	for (uint32_t i = 0; i < s->nblocks; i++)
		n += kv_blocks_encode(to + n, &s->blocks[i]);
	return n;
}

/* 0: there is room for entry and record; -BUSY without a text: not now. Needs sq.lock. */
static int room(kvpipe_t *kv, size_t size, uint64_t *off)
{
	if (!kv_sq_refresh(&kv->sq, &kv->rings)) {
		uint32_t head = kvpipe_load_acquire(&kv->rings.d->sq_head);
		pthread_mutex_lock(&kv->lock);
		kv_broken(kv, "sq_head is %u, sq_tail %u", head, kv->sq.tail);
		int err = kv_ended(kv);
		pthread_mutex_unlock(&kv->lock);
		return err;
	}
	if (kv->sq.tail - kv->sq.head >= kv->rings.sq_entries)
		return -KVPIPE_E_BUSY;
	return kv_arena_reserve(&kv->sq, &kv->rings, size, off) ? 0 : -KVPIPE_E_BUSY;
}

static void ring_bell(kvpipe_t *kv)
{
	/* The daemon sets need_wakeup, then looks at sq_tail once more: one of the two sees the other. */
	kvpipe_full_barrier();
	if (kvpipe_load_acquire(&kv->rings.d->need_wakeup) != 0)
		kv_event_signal(kv->rings.sq_event);
}

/*
 * Waits until there is room; returns with sq.lock held, or with an error and without it. The daemon announces room
 * nowhere, and a full queue is rare: look again after a while, at most 1 ms.
 */
static int wait_for_room(kvpipe_t *kv, size_t size, int64_t deadline, uint64_t *off)
{
	int64_t pause = 20000;

	for (;;) {
		pthread_mutex_lock(&kv->sq.lock);
		int err = room(kv, size, off);
		if (err == 0)
			return 0;
		uint32_t waiting = kv->sq.tail - kv->sq.head;
		pthread_mutex_unlock(&kv->sq.lock);
		if (err != -KVPIPE_E_BUSY)
			return err;
		pthread_mutex_lock(&kv->lock);
		err = kv_ended(kv);
		pthread_mutex_unlock(&kv->lock);
		if (err != 0)
			return err;
		ring_bell(kv);
		if (kv_now() >= deadline)
			return kv_err(KVPIPE_E_BUSY,
				      "the submission queue is full: %u of %u entries, record of %zu bytes in an arena of %u: try again later",
				      waiting, kv->rings.sq_entries, size, kv->rings.record_bytes);
		struct timespec ts = kv_timespec(pause);
		nanosleep(&ts, NULL);
		pause = pause < KV_MS / 2 ? pause * 2 : KV_MS;
	}
}

static int layer_slot(kvpipe_t *kv, struct kv_op *op)
{
	if (!op->layered)
		return 0;
	if (kv->nslots == 0)
		return kv_err(KVPIPE_E_QUOTA, "%u takes with KVPIPE_OP_LAYERED are not released yet, that is the limit",
			      kv->rings.layer_slots);
	op->layer_slot = kv->slots[--kv->nslots];
	return 0;
}

static int insert(kvpipe_t *kv, struct kv_op *op, struct kvpipe_sqe *e)
{
	pthread_mutex_lock(&kv->lock);
	int err = layer_slot(kv, op);
	if (err == 0)
		err = kv_op_insert(kv, op, &e->user_data);
	if (err != 0 && op->layer_slot != KV_NO_SLOT)
		kv->slots[kv->nslots++] = op->layer_slot;
	e->layer_slot = op->layer_slot;
	pthread_mutex_unlock(&kv->lock);
	return err;
}

int kv_sq_begin(kvpipe_t *kv, uint8_t opcode, size_t size, int64_t deadline, uint64_t *off)
{
	if ((kv->ops >> opcode & 1) == 0)
		return kv_err(KVPIPE_E_INCOMPATIBLE, "kvpiped %s does not know operation %u", kv->daemon, opcode);
	if (size > kv->rings.record_bytes)
		return kv_err(KVPIPE_E_QUOTA, "the operation's record needs %zu bytes, the limit is %u", size,
			      kv->rings.record_bytes);
	return wait_for_room(kv, size, deadline, off);
}

void kv_sq_publish(kvpipe_t *kv, struct kvpipe_sqe *e, uint64_t off)
{
	struct kv_sq *sq = &kv->sq;
	uint32_t at = sq->tail & (kv->rings.sq_entries - 1);

	if (e->rec_len > 0) {
		e->rec_off = off;
		kv_arena_commit(sq, off, e->rec_len);
	}
	kv->rings.sqes[at] = *e;
	sq->ends[at] = sq->used;
	sq->tail++;
	kvpipe_store_release(&kv->rings.c->sq_tail, sq->tail);
	ring_bell(kv);
	pthread_mutex_unlock(&sq->lock);
}

int kv_submit(kvpipe_t *kv, const struct kv_submission *s, struct kv_op *op, kvpipe_op_t *id)
{
	struct kv_sq *sq = &kv->sq;
	size_t size = bound(s);
	uint64_t off = 0;
	int err = kv_sq_begin(kv, s->opcode, size, kv_now() + KV_ROOM_NS, &off);

	if (err != 0) {
		kv_op_destroy(op);
		return err;
	}
	struct kvpipe_sqe e = {
		.op = s->opcode,
		.timeout_ns = (uint64_t)s->timeout_ns,
		.target = s->target,
		.tag = s->tag,
	};
	e.rec_len = (uint32_t)write_record(kv->rings.records + (off & (kv->rings.record_bytes - 1)), s);
	op->sq_index = sq->tail;
	op->timeout_ns = s->timeout_ns;
	op->tag = s->tag;
	op->deadline = kv_after(kv_after(kv_now(), s->timeout_ns), KV_GRACE_NS);
	err = insert(kv, op, &e);
	if (err != 0) {
		pthread_mutex_unlock(&sq->lock);
		kv_op_destroy(op);
		return err;
	}
	/* From here on the operation may end, and be freed by another thread, at any time. */
	*id = e.user_data;
	kv_sq_publish(kv, &e, off);
	return 0;
}
