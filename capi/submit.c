/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a submission where the daemon sees it. */
#include "endpoint.h"

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

/* An error if the submission can never fit this daemon, however empty its rings are. Needs sq.lock. */
static int fits(kvpipe_t *kv, uint8_t opcode, size_t size)
{
	if ((kv->ops >> opcode & 1) == 0)
		return kv_err(KVPIPE_E_INCOMPATIBLE, "kvpiped %s does not know operation %u", kv_names(kv)->daemon, opcode);
	if (size > kv->rings.record_bytes)
		return kv_err(KVPIPE_E_QUOTA, "the operation's record needs %zu bytes, the limit is %u", size,
			      kv->rings.record_bytes);
	return 0;
}

#define WAITS 1

/* 0: there is room for entry and record; WAITS: it waits for the next daemon; -BUSY, without a text: no room now. Needs sq.lock. */
static int room(kvpipe_t *kv, uint8_t opcode, size_t size, uint64_t *off)
{
	int err = fits(kv, opcode, size);

	if (err != 0)
		return err;
	if (kv_awaits(__atomic_load_n(&kv->state, __ATOMIC_RELAXED)))
		return WAITS;
	if (!kv_sq_refresh(&kv->sq, &kv->rings)) {
		uint32_t head = kvpipe_load_acquire(&kv->rings.d->sq_head);
		pthread_mutex_lock(&kv->lock);
		kv_broken(kv, "sq_head is %u, sq_tail %u", head, kv->sq.tail);
		err = kv_ended(kv);
		pthread_mutex_unlock(&kv->lock);
		return err;
	}
	if (kv->sq.tail - kv->sq.head >= kv->rings.sq_entries)
		return -KVPIPE_E_BUSY;
	return kv_arena_reserve(&kv->sq, &kv->rings, size, off) ? 0 : -KVPIPE_E_BUSY;
}

/*
 * Called between two looks for room. The daemon reads no submissions of a client that leaves too many completions uncollected, and
 * while an end's caller waits here, nobody else may be collecting the end's.
 */
static int meanwhile(kvpipe_t *kv)
{
	struct kv_end *e = kv->end;

	pthread_mutex_lock(&kv->lock);
	if (e != NULL)
		kv_end_look(e);
	int err = kv_ended(kv);
	if (e != NULL)
		kv_end_unlock(e);
	else
		pthread_mutex_unlock(&kv->lock);
	return err;
}

/*
 * Waits until there is room; returns with sq.lock held (0, WAITS), or with an error and without it. The daemon announces room
 * nowhere, so this looks again after a pause of at most 1 ms. Once it has found the queue full, it goes on only when a quarter is
 * free, as long as the daemon takes entries: the rest keeps the daemon busy, and to go on at each free entry would cost a nap each.
 */
static int wait_for_room(kvpipe_t *kv, uint8_t opcode, size_t size, int64_t deadline, uint64_t *off)
{
	int64_t pause = 20000;
	uint32_t seen = 0;

	for (bool first = true;; first = false) {
		bool last = !first && kv_now() >= deadline; /* before it looks: this process may have stood still */
		pthread_mutex_lock(&kv->sq.lock);
		int err = room(kv, opcode, size, off);
		uint32_t waiting = kv->sq.tail - kv->sq.head, entries = kv->rings.sq_entries, arena = kv->rings.record_bytes;
		bool moves = kv->sq.head != seen;
		seen = kv->sq.head;
		if (err >= 0 && (first || !moves || entries - waiting >= entries / 4 || last))
			return err;
		if (err == -KVPIPE_E_BUSY)
			kv_ring_bell(kv);
		pthread_mutex_unlock(&kv->sq.lock);
		if (err < 0 && err != -KVPIPE_E_BUSY)
			return err;
		err = meanwhile(kv);
		if (err != 0)
			return err;
		if (last)
			return kv_err(KVPIPE_E_BUSY,
				      "the submission queue is full: %u of %u entries, record of %zu bytes in an arena of %u: try again later",
				      waiting, entries, size, arena);
		struct timespec ts = kv_timespec(pause);
		nanosleep(&ts, NULL);
		pause = pause < KV_MS / 2 ? pause * 2 : KV_MS;
	}
}

void kv_ring_bell(kvpipe_t *kv)
{
	/* The daemon sets need_wakeup, then looks at sq_tail once more: one of the two sees the other. */
	kvpipe_full_barrier();
	uint32_t asleep = kvpipe_load_acquire(&kv->rings.d->need_wakeup);
	if (asleep != 0 && (asleep == KV_RING_ALWAYS || asleep != kv->sq.rung)) {
		kv->sq.rung = asleep;
		kv_event_signal(kv->rings.sq_event);
	}
}

int kv_layer_slot(kvpipe_t *kv, struct kv_op *op)
{
	if (op->opcode != KVPIPE_OPCODE_TAKE || op->notice)
		return 0;
	if (kv->nslots > 0)
		op->layer_slot = kv->slots[--kv->nslots];
	else if (op->layered)
		return kv_err(KVPIPE_E_QUOTA, "%u takes are not released yet: no layer slot is left for one with KVPIPE_OP_LAYERED",
			      kv->rings.layer_slots);
	return 0;
}

void kv_publish(kvpipe_t *kv, const struct kvpipe_sqe *e)
{
	struct kv_sq *sq = &kv->sq;
	uint32_t at = sq->tail & (kv->rings.sq_entries - 1);

	kv->rings.sqes[at] = *e;
	if (e->rec_len > 0)
		kv_arena_commit(sq, e->rec_off, e->rec_len);
	sq->ends[at] = sq->used;
	sq->tail++;
	kvpipe_store_release(&kv->rings.c->sq_tail, sq->tail);
}

/* Needs lock. */
static int list(kvpipe_t *kv, struct kv_op *op, kvpipe_op_t *id)
{
	int err = op->sent ? kv_layer_slot(kv, op) : 0;

	if (err == 0)
		err = kv_op_insert(kv, op, id);
	if (err != 0 && op->layer_slot != KV_NO_SLOT) {
		kv->slots[kv->nslots++] = op->layer_slot;
		op->layer_slot = KV_NO_SLOT;
	}
	return err;
}

static int insert(kvpipe_t *kv, struct kv_op *op, struct kvpipe_sqe *e, kvpipe_op_t *id)
{
	pthread_mutex_lock(&kv->lock);
	int err = list(kv, op, id);
	if (err == -KVPIPE_E_QUOTA) { /* what is in the way may have ended, and no thread has looked yet */
		kv_drain(kv);
		err = list(kv, op, id);
		kv_wake_waiters(kv);
		kv_settle(kv);
	}
	if (err == 0) {
		e->user_data = op->id;
		e->layer_slot = op->layer_slot;
	}
	pthread_mutex_unlock(&kv->lock);
	return err;
}

int kv_sq_begin(kvpipe_t *kv, uint8_t opcode, size_t size, int64_t deadline, uint64_t *off)
{
	int err = wait_for_room(kv, opcode, size, deadline, off);

	if (err != WAITS)
		return err;
	pthread_mutex_unlock(&kv->sq.lock); /* what is submitted in parts is not kept for another daemon */
	return kv_err(KVPIPE_E_UNAVAILABLE, "the daemon went away: open it again once it is back");
}

void kv_sq_publish(kvpipe_t *kv, struct kvpipe_sqe *e, uint64_t off)
{
	e->rec_off = e->rec_len > 0 ? off : 0;
	kv_publish(kv, e);
	kv_ring_bell(kv);
	pthread_mutex_unlock(&kv->sq.lock);
}

/* Whether an operation is sent again to the next daemon. Those that end others are settled without one. */
static bool keeps(uint8_t opcode)
{
	return opcode != KVPIPE_OPCODE_WITHDRAW && opcode != KVPIPE_OPCODE_CANCEL;
}

/* Writes the record into the arena and keeps a copy; without a daemon, makes only the copy. Needs sq.lock. */
static int encode(kvpipe_t *kv, const struct kv_submission *s, struct kv_op *op, size_t size, struct kvpipe_sqe *e)
{
	if (!op->sent) {
		op->record = kv_saved_new(s->opcode, size);
		if (op->record == NULL)
			return -KVPIPE_E_QUOTA;
		op->record->len = (uint32_t)write_record(op->record->record, s);
		return 0;
	}
	uint8_t *at = kv->rings.records + (e->rec_off & (kv->rings.record_bytes - 1));
	e->rec_len = (uint32_t)write_record(at, s);
	if (e->rec_len == 0)
		e->rec_off = 0;
	if (!keeps(s->opcode))
		return 0;
	op->record = kv_saved_new(s->opcode, e->rec_len);
	if (op->record == NULL)
		return -KVPIPE_E_QUOTA;
	memcpy(op->record->record, at, e->rec_len);
	return 0;
}

int kv_submit(kvpipe_t *kv, const struct kv_submission *s, struct kv_op *op, kvpipe_op_t *id)
{
	size_t size = bound(s);
	struct kvpipe_sqe e = {
		.op = s->opcode,
		.timeout_ns = s->lets_daemon ? 0 : (uint64_t)s->timeout_ns,
		.target = s->target,
		.tag = s->tag,
	};
	int err = wait_for_room(kv, s->opcode, size, kv_now() + KV_ROOM_NS, &e.rec_off);

	if (err < 0) {
		kv_op_destroy(op);
		return err;
	}
	op->begun = op->sent = err == 0;
	op->sq_index = kv->sq.tail;
	op->timeout_ns = s->timeout_ns;
	op->lets_daemon = s->lets_daemon;
	op->target = s->target;
	op->tag = s->tag;
	op->deadline = kv_after(kv_after(kv_now(), s->timeout_ns), KV_GRACE_NS);
	err = encode(kv, s, op, size, &e);
	bool sent = op->sent;
	if (err == 0)
		err = insert(kv, op, &e, id);
	if (err != 0) {
		pthread_mutex_unlock(&kv->sq.lock);
		kv_op_destroy(op);
		return err;
	}
	/* From here on the operation may end, and be freed by another thread, at any time. */
	if (sent) {
		kv_publish(kv, &e);
		kv_ring_bell(kv);
	} else {
		kv_helper_kick(kv);
	}
	pthread_mutex_unlock(&kv->sq.lock);
	return 0;
}
