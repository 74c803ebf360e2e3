/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends again what the last daemon knew, in the order in which it was submitted, each offer with its accepted extensions. What
 * callers submit meanwhile queues behind that. A ring full at a time is sent, under sq.lock and lock.
 */
#include "internal.h"

#include <string.h>

/* AGAIN, where op names blocks: the daemon judges whether op was about the ranks that are there now. */
static uint8_t flags_of(const struct kv_op *op, const kvpipe_t *kv)
{
	bool names_blocks = op->opcode == KVPIPE_OPCODE_OFFER || op->opcode == KVPIPE_OPCODE_TAKE;

	return names_blocks && (kv->says & KVPIPE_SAYS_AGAIN) != 0 ? KVPIPE_SQE_AGAIN : 0;
}

static bool push(kvpipe_t *kv, struct kv_op *op, const struct kv_saved *s, int64_t timeout_ns)
{
	struct kvpipe_sqe e = {
		.op = s != NULL ? s->opcode : op->opcode,
		.flags = flags_of(op, kv),
		.user_data = op->id,
		.timeout_ns = (uint64_t)timeout_ns,
		.target = op->target,
		.tag = op->tag,
		.layer_slot = op->layer_slot,
		.rec_len = s != NULL ? s->len : 0,
	};

	if (kv->sq.tail - kv->sq.head >= kv->rings.sq_entries ||
	    !kv_arena_reserve(&kv->sq, &kv->rings, e.rec_len, &e.rec_off))
		return false;
	if (s != NULL && e.rec_len > 0)
		memcpy(kv->rings.records + (e.rec_off & (kv->rings.record_bytes - 1)), s->record, e.rec_len);
	else
		e.rec_off = 0;
	op->sq_index = kv->sq.tail;
	kv_publish(kv, &e);
	return true;
}

/* Sends an extension of an offer, as an operation that nobody waits for. False: no room. */
static bool push_more(kvpipe_t *kv, const struct kv_op *offer, const struct kv_saved *s)
{
	struct kv_op *op = kv_op_new(s->opcode);

	if (op == NULL)
		return false;
	op->internal = op->abandoned = op->again = true;
	op->begun = op->sent = true;
	op->target = offer->id;
	op->timeout_ns = KV_CALL_NS;
	op->deadline = INT64_MAX; /* its offer has one */
	if (kv_op_insert(kv, op, NULL) != 0) {
		kv_op_destroy(op);
		return false;
	}
	if (push(kv, op, s, op->timeout_ns))
		return true;
	kv_op_remove(kv, op);
	return false;
}

static int64_t time_left(const struct kv_op *op)
{
	int64_t left = op->deadline - KV_GRACE_NS - kv_now();

	if (op->opcode == KVPIPE_OPCODE_OFFER)
		return op->lets_daemon ? 0 : op->timeout_ns; /* a lease begins anew */
	if (op->notice)
		return op->timeout_ns;
	return left > KV_MS ? left : KV_MS;
}

/* Ends op here if it cannot be sent: what it acts on has ended, or this daemon has no room for it at all. False: it can be sent. */
static bool settle_here(kvpipe_t *kv, struct kv_op *op)
{
	const struct kv_op *target = op->target != 0 ? kv_op_find(kv, op->target) : NULL;
	const struct kvpipe_completion done = {
		.status = KVPIPE_DONE,
		.flags = target != NULL && target->state == KV_ENDED ? KVPIPE_C_MORE : 0, /* as this daemon would say */
		.rank = kv->rank,
		.epoch = kv->epoch,
	};

	if (op->target != 0 && (target == NULL || target->state != KV_RUNNING)) {
		if (op->opcode == KVPIPE_OPCODE_CANCEL || op->opcode == KVPIPE_OPCODE_WITHDRAW)
			kv_op_end(kv, op, &done, NULL, NULL);
		else
			kv_op_end_here(kv, op, KVPIPE_E_EXPIRED, "the offer has ended", false);
		return true;
	}
	for (const struct kv_saved *s = op->record; s != NULL; s = s == op->record ? op->more : s->next) {
		if (s->len > kv->rings.record_bytes || (kv->ops >> s->opcode & 1) == 0) {
			kv_op_end_here(kv, op, KVPIPE_E_QUOTA, "the daemon of after the restart has no room for it", false);
			return true;
		}
	}
	return false;
}

/* False: no room. */
static bool send_again(kvpipe_t *kv, struct kv_op *op)
{
	if (!op->begun) {
		if (settle_here(kv, op))
			return true;
		if (op->layer_slot == KV_NO_SLOT)
			(void)kv_layer_slot(kv, op); /* without a slot it does not report its layers */
		if (!push(kv, op, op->record, time_left(op)))
			return false;
		op->begun = true;
	}
	for (; op->next_more != NULL; op->next_more = op->next_more->next) {
		if (!push_more(kv, op, op->next_more))
			return false;
	}
	op->sent = true;
	return true;
}

bool kv_replay(kvpipe_t *kv)
{
	bool all = false;

	pthread_mutex_lock(&kv->sq.lock);
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv); /* answers to what was sent so far: no other thread may be looking */
	if (kv->state != KV_REPLAY) {
		all = true;
	} else if (!kv_sq_refresh(&kv->sq, &kv->rings)) {
		kv_broken(kv, "sq_head is %u, sq_tail %u", kvpipe_load_acquire(&kv->rings.d->sq_head), kv->sq.tail);
		all = true;
	} else {
		struct kv_op *op;
		while ((op = kv->unsent) != NULL) {
			if (op->state == KV_RUNNING && !op->sent && !send_again(kv, op))
				break;
			if (kv->unsent == op)
				kv->unsent = op->live_next;
		}
		all = op == NULL;
		if (all)
			kv_set_state(kv, KV_LIVE);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	kv_ring_bell(kv);
	pthread_mutex_unlock(&kv->sq.lock);
	return all;
}

void kv_op_answered(kvpipe_t *kv, struct kv_op *op, bool done)
{
	if (op->opcode != KVPIPE_OPCODE_EXTEND && op->opcode != KVPIPE_OPCODE_SEAL)
		return;
	struct kv_op *offer = kv_op_find(kv, op->target);
	if (offer == NULL || offer->state != KV_RUNNING)
		return;
	if (!op->again && done && op->record != NULL) {
		*offer->more_end = op->record;
		offer->more_end = &op->record->next;
		op->record = NULL;
	} else if (op->again && !done) {
		offer->spoiled = kv->spoiled = true;
		kv_helper_kick(kv);
	}
}

/* Ends the spoiled offers here. Returns the first that the daemon still has and can be told of, or 0. */
static uint64_t first_spoiled(kvpipe_t *kv)
{
	uint64_t id = 0;

	pthread_mutex_lock(&kv->lock);
	for (struct kv_op *op = kv->spoiled ? kv->live : NULL; op != NULL; op = op->live_next) {
		if (!op->spoiled)
			continue;
		if (op->state == KV_RUNNING)
			kv_op_end_here(kv, op, KVPIPE_E_RESTARTED, "the daemon of after the restart did not take it whole", true);
		if (id == 0 && op->local_end)
			id = op->id;
	}
	kv->spoiled = id != 0;
	kv_wake_waiters(kv);
	kv_settle(kv);
	/* Until everything is sent again (LIVE), a withdrawal is only kept, and might pass its deadline before it is sent. */
	if (kv->state != KV_LIVE)
		id = 0;
	pthread_mutex_unlock(&kv->lock);
	return id;
}

/* False: not now. */
static bool withdraw(kvpipe_t *kv, uint64_t offer)
{
	const struct kv_submission s = { .opcode = KVPIPE_OPCODE_WITHDRAW, .timeout_ns = KV_CALL_NS, .target = offer };
	struct kv_op *op = kv_op_new(s.opcode);
	uint64_t id;

	if (op == NULL)
		return false;
	op->internal = op->abandoned = true;
	int err = kv_submit(kv, &s, op, &id); /* a session that ends meanwhile ends the offer, too */
	if (err == -KVPIPE_E_BUSY || err == -KVPIPE_E_QUOTA)
		return false;
	pthread_mutex_lock(&kv->lock);
	op = kv_op_find(kv, offer);
	if (op != NULL)
		op->spoiled = false;
	pthread_mutex_unlock(&kv->lock);
	return true;
}

bool kv_withdraw_spoiled(kvpipe_t *kv)
{
	uint64_t id;

	while ((id = first_spoiled(kv)) != 0) {
		if (!withdraw(kv, id))
			return false;
	}
	return true;
}
