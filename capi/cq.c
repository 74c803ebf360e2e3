/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The completion queue. A thread that polls or waits takes everything new off the ring, for all threads.
 *
 * Completions of our own operations go to their operation. Those of the engine's other sessions ("foreign") stay in the
 * ring until kvpipe_poll() asks for them: cq_head stops at the oldest of them, while reading goes on behind it. So nothing
 * is copied for a caller that may never ask, none is lost, and our own are never held up. The bound is this: the daemon
 * accepts an operation only when it has room for its completions in every session concerned, so a ring full of
 * uncollected foreign completions makes it refuse new operations.
 */
#include "endpoint.h"

#include <stdlib.h>

static bool is_terminal(uint16_t status)
{
	return status == KVPIPE_DONE || status == KVPIPE_FAILED || status == KVPIPE_CANCELLED;
}

/* The daemon ends an operation that the library has ended already: now it is over there, too. */
static void late_end(kvpipe_t *kv, struct kv_op *op, struct kvpipe_completion c, struct kv_blob *blob)
{
	if (op->local_end && (c.flags & KVPIPE_C_MORE) == 0) {
		c.status = KVPIPE_RELEASED;
		c.reason = KVPIPE_OK;
		kv_op_release(kv, op, &c, NULL);
	}
	free(blob);
}

static void apply(kvpipe_t *kv, const struct kvpipe_cqe *e)
{
	struct kv_op *op = kv_op_find(kv, e->user_data);
	struct kvpipe_completion c = kv_completion(e);
	const char *text = NULL;
	struct kvpipe_result head;
	struct kv_blob *blob = NULL;
	size_t size;

	if (op == NULL) /* it is of a small operation whose caller went away */
		return;
	if (e->status < KVPIPE_DONE || e->status > KVPIPE_QUARANTINED ||
	    kv_result_check(&kv->rings, e, &head, &size) != 0) {
		kv_broken(kv, "completion of operation %llu: status %u, result of %u bytes at %llu",
			  (unsigned long long)e->user_data, e->status, e->result_len, (unsigned long long)e->result_off);
		return;
	}
	if (size > 0 && (head.nfailed > 0 || head.text_len > 0)) {
		blob = malloc(size);
		if (blob != NULL) {
			kv_result_fill(&kv->rings, e, &head, blob);
		} else if (is_terminal(e->status) && op->state == KV_RUNNING) {
			op->end.all_failed = head.nfailed > 0;
			text = "out of memory: which blocks failed is not known";
		}
	}
	/* A take that was refused names no blocks: the daemon has not looked at them. */
	if (op->state == KV_RUNNING && op->opcode == KVPIPE_OPCODE_TAKE && e->status == KVPIPE_FAILED && head.nfailed == 0)
		op->end.all_failed = true;
	if (e->status == KVPIPE_RELEASED)
		kv_op_release(kv, op, &c, blob);
	else if (e->status == KVPIPE_QUARANTINED)
		kv_op_quarantine(kv, op, &c, blob);
	else if (op->state == KV_RUNNING)
		kv_op_end(kv, op, &c, blob, text);
	else
		late_end(kv, op, c, blob);
}

void kv_drain(kvpipe_t *kv)
{
	uint32_t mask = kv->rings.cq_entries - 1;
	uint32_t seen = (uint32_t)kv->seen;
	uint32_t tail = kvpipe_load_acquire(&kv->rings.d->cq_tail);

	if (tail == seen || kv->state == KV_BROKEN)
		return;
	/* It moved back, or past what the ring holds: from cq_head to seen lies what was read and not collected yet. */
	if (tail - seen > kv->rings.cq_entries - (seen - (uint32_t)kv->cq_head)) {
		kv_broken(kv, "cq_tail is %u, cq_head %u, entries %u", tail, (uint32_t)kv->cq_head, kv->rings.cq_entries);
		return;
	}
	while (seen != tail && kv->state != KV_BROKEN) {
		struct kvpipe_cqe e = kv->rings.cqes[seen & mask];
		/* Counted first, so that what it queues is ordered behind it. */
		__atomic_store_n(&kv->seen, kv->seen + 1, __ATOMIC_RELAXED);
		seen++;
		if (kv->end != NULL)
			kv_end_completion(kv->end, &e);
		else if (e.user_data != 0)
			apply(kv, &e);
	}
	kv_advance(kv);
}

void kv_advance(kvpipe_t *kv)
{
	uint32_t mask = kv->rings.cq_entries - 1;
	uint64_t head = kv->cq_head;

	while (head != kv->seen && (kv->end != NULL || kv->rings.cqes[head & mask].user_data != 0))
		head++;
	if (head != kv->cq_head) {
		kv->cq_head = head;
		kvpipe_store_release(&kv->rings.c->cq_head, (uint32_t)head);
	}
}
