/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of operations when the daemon is gone. Nothing touches memory any more, so operations that only waited for
 * that are released. Offers, and takes to which no bytes were granted, go on: the next daemon is told of them as if nothing
 * had happened.
 */
#include "internal.h"

#include <string.h>

/* Whether bytes of the take may have been written. */
static bool granted(const kvpipe_t *kv, const struct kv_op *op)
{
	uint32_t head = kvpipe_load_acquire(&kv->rings.d->sq_head);

	if (!op->begun || (int32_t)(head - op->sq_index) <= 0)
		return false; /* the daemon has not seen it */
	if ((kv->says & KVPIPE_SAYS_GRANTED) == 0 || op->layer_slot == KV_NO_SLOT)
		return true; /* not known, so they may have been */
	const struct kvpipe_layer_slot *slot = &kv->rings.layers[op->layer_slot];
	return kvpipe_load_acquire(&slot->user_data) == op->id && kvpipe_load_acquire(&slot->granted) != 0;
}

/* Has the next daemon, whenever it comes, tell the ranks of a scheduler's take that it has ended. */
static void leave_notice(kvpipe_t *kv, struct kv_op *op)
{
	struct kv_saved *record = op->record;
	uint32_t flags = KVPIPE_OP_RESTARTED;

	if (kv->role != KVPIPE_ROLE_SCHEDULER || record == NULL || (kv->says & KVPIPE_SAYS_GRANTED) == 0)
		return;
	struct kv_op *n = kv_op_new(KVPIPE_OPCODE_TAKE);
	if (n == NULL)
		return;
	n->internal = n->abandoned = n->notice = true;
	n->tag = op->tag;
	n->timeout_ns = KV_OP_NS;
	n->deadline = INT64_MAX;
	if (kv_op_insert(kv, n, NULL) != 0) {
		kv_op_destroy(n);
		return;
	}
	n->record = record;
	op->record = NULL;
	memcpy(record->record + offsetof(struct kvpipe_rec_take, flags), &flags, sizeof(flags));
}

static void end_take(kvpipe_t *kv, struct kv_op *op)
{
	leave_notice(kv, op);
	kv_op_end_here(kv, op, KVPIPE_E_RESTARTED, "the daemon went away while bytes were granted: take again", false);
}

/* Ends the cancels and withdrawals that were under way: they have what they wanted. */
static void settle_cancels(kvpipe_t *kv)
{
	const struct kvpipe_completion done = { .status = KVPIPE_DONE, .rank = kv->rank, .epoch = kv->epoch };
	struct kv_op *op, *next;

	for (op = kv->live; op != NULL; op = next) {
		next = op->live_next;
		if (op->state != KV_RUNNING || (op->opcode != KVPIPE_OPCODE_CANCEL && op->opcode != KVPIPE_OPCODE_WITHDRAW))
			continue;
		struct kv_op *target = kv_op_find(kv, op->target);
		if (target != NULL)
			target->withdrawn = true;
		kv_op_end(kv, op, &done, NULL, NULL);
	}
}

/* Whether op was to be added to an offer that has ended, and so is no later daemon's. */
static bool added_in_vain(const kvpipe_t *kv, const struct kv_op *op)
{
	if (op->opcode != KVPIPE_OPCODE_EXTEND && op->opcode != KVPIPE_OPCODE_SEAL)
		return false;
	const struct kv_op *offer = kv_op_find(kv, op->target);
	return offer == NULL || offer->state != KV_RUNNING;
}

static void lose(kvpipe_t *kv, struct kv_op *op)
{
	if (op->state == KV_ENDED) {
		kv_op_release_here(kv, op);
	} else if (op->again) {
		kv_op_remove(kv, op); /* its offer has its record */
	} else if (op->opcode == KVPIPE_OPCODE_TAKE && !op->notice && granted(kv, op)) {
		end_take(kv, op);
	} else if (op->withdrawn) {
		kv_op_cancel_here(kv, op);
	} else if (added_in_vain(kv, op)) {
		kv_op_end_here(kv, op, KVPIPE_E_EXPIRED, "the offer has ended", false);
	} else if (op->opcode > KVPIPE_OPCODE_DROP) {
		kv_op_end_here(kv, op, KVPIPE_E_RESTARTED, "the daemon went away: this does not survive its restart", false);
	} else {
		op->begun = op->sent = op->spoiled = false; /* the next one may take it whole */
		op->next_more = op->more;
		op->layer_slot = KV_NO_SLOT;
		/* Its consumers may have renewed the lease, and cannot now. */
		if (op->opcode == KVPIPE_OPCODE_OFFER)
			op->deadline = kv_after(kv_after(kv_now(), op->timeout_ns), KV_GRACE_NS);
	}
}

static void session_lost(kvpipe_t *kv)
{
	struct kv_op *op, *next;

	settle_cancels(kv);
	for (op = kv->live; op != NULL; op = next) {
		next = op->live_next;
		lose(kv, op);
	}
	kv_notes_keep_foreign(kv);
	kv_notes_settle_foreign(kv);
	kv->unsent = kv->live;
	kv->helper.ping = 0;
	kv->life++;
	kv_set_state(kv, KV_AWAY);
	kv_wake_waiters(kv);
	kv_settle(kv);
}

void kv_daemon_gone(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->sq.lock);
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv); /* what it said before it went still counts, also that it broke the protocol */
	bool over = kv->closing || kv->role == KVPIPE_ROLE_ENDPOINT || kv_is_over(kv->state);
	if (!over)
		session_lost(kv);
	pthread_mutex_unlock(&kv->lock);
	pthread_mutex_unlock(&kv->sq.lock);
	if (over)
		kv_session_over(kv, KVPIPE_E_UNAVAILABLE, "the daemon went away");
	else
		kv_ctl_lose_all(kv);
}
