/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations: what each one's state is, from submission to kvpipe_op_free(). */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

struct kv_op *kv_op_new(uint8_t opcode)
{
	struct kv_op *op = calloc(1, sizeof(*op));

	if (op == NULL) {
		kv_err(KVPIPE_E_QUOTA, "out of memory");
		return NULL;
	}
	op->opcode = opcode;
	op->layer_slot = KV_NO_SLOT;
	op->more_end = &op->more;
	op->end.op = op->quarantine.op = op->release.op = op;
	return op;
}

void kv_op_destroy(struct kv_op *op)
{
	free(op->end.blob);
	free(op->quarantine.blob);
	free(op->release.blob);
	kv_saved_free(op->record);
	kv_saved_free(op->more);
	free(op);
}

static struct kv_op **bucket(const kvpipe_t *kv, uint64_t id)
{
	return (struct kv_op **)(uintptr_t)&kv->buckets[id % KV_BUCKETS]; /* ids count up: evenly filled */
}

struct kv_op *kv_op_find(const kvpipe_t *kv, uint64_t id)
{
	struct kv_op *op = *bucket(kv, id);

	while (op != NULL && op->id != id)
		op = op->hash_next;
	return op;
}

int kv_op_insert(kvpipe_t *kv, struct kv_op *op, uint64_t *id)
{
	int err = kv_ended(kv);

	if (err != 0)
		return err;
	if (!op->internal) {
		if (kv->inflight >= kv->max_inflight)
			return kv_err(KVPIPE_E_QUOTA,
				      "%u operations are not released yet, the limit is %u (the daemon's limits.inflight, at most a third of "
				      "cq_entries = %u): wait for some, or raise that",
				      kv->inflight, kv->max_inflight, kv->hello.cq_entries);
		if (kv->queued >= kv->rings.cq_entries)
			return kv_err(KVPIPE_E_QUOTA, "%u completions were not collected: call kvpipe_poll() or kvpipe_wait()",
				      kv->queued);
		if (kv->records - kv->small >= KV_MAX_RECORDS)
			return kv_err(KVPIPE_E_QUOTA,
				      "%u operations are remembered, the limit is %u: give those that ended to kvpipe_op_free()",
				      kv->records - kv->small, KV_MAX_RECORDS);
		kv->inflight++;
	} else if ((op->opcode == KVPIPE_OPCODE_EXTEND || op->opcode == KVPIPE_OPCODE_SEAL) && !op->again && kv->small >= KV_MAX_RECORDS) {
		return kv_err(KVPIPE_E_QUOTA, "%u extensions and the like are not answered yet, the limit is %u: wait for the daemon, or withdraw offers",
			      kv->small, KV_MAX_RECORDS);
	}
	op->id = ++kv->next_id;
	op->state = KV_RUNNING;
	struct kv_op **at = bucket(kv, op->id);
	op->hash_next = *at;
	*at = op;
	op->live_prev = kv->live_last;
	if (kv->unsent == NULL)
		kv->unsent = op;
	if (kv->live_last != NULL)
		kv->live_last->live_next = op;
	else
		kv->live = op;
	kv->live_last = op;
	kv->records++;
	kv->small += op->internal;
	kv_helper_before(kv, op->deadline);
	if (id != NULL)
		*id = op->id;
	return 0;
}

bool kv_ops_wait(const kvpipe_t *kv)
{
	for (const struct kv_op *op = kv->live; op != NULL; op = op->live_next) {
		const struct kv_op *target = op->target != 0 ? kv_op_find(kv, op->target) : NULL;
		if (op->target == 0 || (target != NULL && target->state == KV_RUNNING))
			return true;
	}
	return false;
}

static void unlive(kvpipe_t *kv, struct kv_op *op)
{
	if (op->live_prev != NULL)
		op->live_prev->live_next = op->live_next;
	else
		kv->live = op->live_next;
	if (op->live_next != NULL)
		op->live_next->live_prev = op->live_prev;
	else
		kv->live_last = op->live_prev;
	if (kv->unsent == op)
		kv->unsent = op->live_next;
	if (op->layer_slot != KV_NO_SLOT)
		kv->slots[kv->nslots++] = op->layer_slot;
	op->layer_slot = KV_NO_SLOT;
	if (!op->internal)
		kv->inflight--;
}

void kv_op_remove(kvpipe_t *kv, struct kv_op *op)
{
	struct kv_op **at = bucket(kv, op->id);

	while (*at != op)
		at = &(*at)->hash_next;
	*at = op->hash_next;
	if (op->state != KV_RELEASED)
		unlive(kv, op);
	kv_note_drop(kv, &op->end);
	kv_note_drop(kv, &op->quarantine);
	kv_note_drop(kv, &op->release);
	kv->records--;
	kv->small -= op->internal;
	kv_op_destroy(op);
}

static void set_note(struct kv_note *n, const struct kvpipe_completion *c, struct kv_blob *blob, const char *text)
{
	n->c = *c;
	n->c.op = n->op->detached ? 0 : n->op->id;
	if (n->op->detached)
		n->c.flags |= KVPIPE_C_FOREIGN;
	n->blob = blob;
	n->text = text;
}

static void released(kvpipe_t *kv, struct kv_op *op)
{
	unlive(kv, op);
	op->state = KV_RELEASED;
}

void kv_op_end(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob, const char *text)
{
	bool more = (c->flags & KVPIPE_C_MORE) != 0;

	set_note(&op->end, c, blob, text);
	if (op->internal) {
		kv_op_answered(kv, op, c->status == KVPIPE_DONE);
		/* MORE in its completion speaks of its target. */
		released(kv, op);
		if (op->abandoned)
			kv_op_remove(kv, op);
		return;
	}
	kv_saved_free(op->more);
	op->more = op->next_more = NULL;
	if (op->opcode == KVPIPE_OPCODE_OFFER) {
		op->record = kv_saved_key(op->record); /* for kv_offer_ended() */
	} else {
		kv_saved_free(op->record);
		op->record = NULL;
	}
	if (more)
		op->state = KV_ENDED;
	else
		released(kv, op);
	if (op->end_waiters == 0 || op->detached)
		kv_note_push(kv, &op->end);
}

/* Makes a result of the text, like those that the daemon sends. NULL: out of memory; then the reason's own words have to do. */
static struct kv_blob *said(const char *text)
{
	size_t len = strlen(text);
	struct kv_blob *b = malloc(sizeof(*b) + len + 1);

	if (b != NULL) {
		*b = (struct kv_blob){ .text_len = (uint32_t)len };
		memcpy(b->runs, text, len + 1);
	}
	return b;
}

void kv_op_end_here(kvpipe_t *kv, struct kv_op *op, enum kvpipe_reason reason, const char *text, bool more)
{
	struct kvpipe_completion c = {
		.tag = op->tag,
		.status = KVPIPE_FAILED,
		.reason = reason,
		.flags = more ? KVPIPE_C_MORE : 0,
		.rank = kv->rank,
		.epoch = kv->epoch,
	};

	op->local_end = true;
	op->end.all_failed = op->opcode == KVPIPE_OPCODE_TAKE;
	kv_op_end(kv, op, &c, said(text), NULL);
}

void kv_op_cancel_here(kvpipe_t *kv, struct kv_op *op)
{
	struct kvpipe_completion c = {
		.tag = op->tag,
		.status = KVPIPE_CANCELLED,
		.reason = KVPIPE_E_CANCELLED,
		.rank = kv->rank,
		.epoch = kv->epoch,
	};

	op->local_end = true;
	kv_op_end(kv, op, &c, NULL, NULL);
}

void kv_op_quarantine(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob)
{
	if (op->state != KV_ENDED || op->quarantine.c.status != 0) {
		free(blob);
		return;
	}
	set_note(&op->quarantine, c, blob, NULL);
	kv_note_push(kv, &op->quarantine);
}

void kv_op_release(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob)
{
	if (op->state != KV_ENDED) {
		free(blob);
		return;
	}
	set_note(&op->release, c, blob, NULL);
	released(kv, op);
	if (op->release_waiters == 0 || op->detached)
		kv_note_push(kv, &op->release);
}

void kv_op_release_here(kvpipe_t *kv, struct kv_op *op)
{
	struct kvpipe_completion c = {
		.op_id = op->end.c.op_id,
		.status = KVPIPE_RELEASED,
		.tag = op->tag,
		.rank = kv->rank,
		.epoch = kv->epoch,
	};

	kv_op_release(kv, op, &c, NULL);
}

int kvpipe_op_released(kvpipe_t *kv, kvpipe_op_t id)
{
	KV_UNCANCELLED;
	int rc = kv_enter(kv);

	if (rc != 0)
		return rc;
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv);
	struct kv_op *op = kv_op_find(kv, id);
	if (op == NULL || op->internal || op->detached)
		rc = kv_err(KVPIPE_E_NOT_FOUND, "operation %llu is not known to this session", (unsigned long long)id);
	else
		rc = op->state == KV_RELEASED;
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return rc;
}

static void make_foreign(struct kv_note *n)
{
	n->c.op = 0;
	n->c.flags |= KVPIPE_C_FOREIGN;
}

void kvpipe_op_free(kvpipe_t *kv, kvpipe_op_t id)
{
	KV_UNCANCELLED;
	if (kv_enter(kv) != 0)
		return;
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv);
	struct kv_op *op = kv_op_find(kv, id);
	if (op != NULL && !op->internal && !op->detached) {
		op->detached = true;
		if (op->state == KV_ENDED && op->end_waiters > 0 && !op->waited)
			kv_note_push(kv, &op->end); /* it was left to the waiters, who do not see it any more */
		make_foreign(&op->end);
		make_foreign(&op->quarantine);
		make_foreign(&op->release);
		if (op->state == KV_RELEASED)
			kv_op_remove(kv, op);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
}
