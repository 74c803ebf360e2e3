/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of operations, for when the daemon does not keep them. */
#include "internal.h"

#include <stdio.h>

#define SILENT "and the daemon does not answer: " KV_LOOK
#define AWAY "while the daemon was away: start it again"
#define STOPPING "while the daemon was stopping: start it again once it has ended"
#define BACK "before the daemon, which is back after a restart, had room for it: try again, or see \"kvpipectl doctor\""

static void end_late(kvpipe_t *kv, struct kv_op *op, enum kvpipe_reason reason, const char *meanwhile, bool more)
{
	char text[KV_TEXT];

	snprintf(text, sizeof(text), "the %s of %s passed %s", op->opcode == KVPIPE_OPCODE_OFFER ? "lease" : "deadline",
		 KV_SPAN(op->timeout_ns), meanwhile);
	kv_op_end_here(kv, op, reason, text, more);
}

/* Ends an operation that no daemon knows of: nothing touches its memory. */
static void end_away(kvpipe_t *kv, struct kv_op *op)
{
	enum kvpipe_reason reason = op->opcode == KVPIPE_OPCODE_OFFER ? KVPIPE_E_EXPIRED : KVPIPE_E_TIMEOUT;

	if (kv->state == KV_AWAY && kv->refused != 0)
		kv_op_end_here(kv, op, reason, kv->refusal, false);
	else
		end_late(kv, op, reason, kv->state == KV_REPLAY ? BACK : kv->state == KV_LEAVING ? STOPPING : AWAY, false);
}

/*
 * Gives an overdue small operation more time if nobody waits for it: it lasts as long as what it acts on. A stopping daemon leaves
 * it to the next one, and nobody could get an offer without an extension that the library has accepted.
 */
static bool lasts(kvpipe_t *kv, struct kv_op *op, int64_t now)
{
	const struct kv_op *target = op->abandoned && op->target != 0 ? kv_op_find(kv, op->target) : NULL;

	if (target == NULL || target->state != KV_RUNNING)
		return false;
	op->deadline = target->deadline > now ? target->deadline : now + KV_CALL_NS;
	return true;
}

int64_t kv_deadlines(kvpipe_t *kv, int64_t now, bool *ask)
{
	struct kv_op *op, *next_op;
	int64_t next = INT64_MAX;

	for (op = kv->live; op != NULL; op = op->live_next) {
		if (op->state == KV_RUNNING && op->deadline <= now) {
			kv_drain(kv); /* its completion may lie in the ring, uncollected */
			break;
		}
	}
	for (op = kv->live; op != NULL; op = next_op) {
		next_op = op->live_next;
		if (op->state != KV_RUNNING)
			continue;
		if (op->deadline > now || lasts(kv, op, now)) {
			next = op->deadline < next ? op->deadline : next;
		} else if (kv->state == KV_AWAY || (kv_awaits(kv->state) && !op->begun)) {
			end_away(kv, op);
		} else if (op->opcode == KVPIPE_OPCODE_OFFER && (kv->state == KV_LIVE || kv->state == KV_REPLAY)) {
			*ask = true;
		} else {
			end_late(kv, op, KVPIPE_E_TIMEOUT, SILENT, true);
		}
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	return next;
}

void kv_offers_left(kvpipe_t *kv)
{
	int64_t until = kv_now() + 2 * KV_CALL_NS;

	for (struct kv_op *op = kv->live; op != NULL; op = op->live_next) {
		if (op->opcode == KVPIPE_OPCODE_OFFER && op->state == KV_RUNNING && op->deadline < until)
			op->deadline = until;
	}
}

void kv_offers_alive(kvpipe_t *kv, bool alive)
{
	struct kv_op *op, *next;
	int64_t now = kv_now();

	for (op = kv->live; op != NULL; op = next) {
		next = op->live_next;
		if (op->opcode != KVPIPE_OPCODE_OFFER || op->state != KV_RUNNING || op->deadline > now)
			continue;
		if (alive)
			op->deadline = kv_after(now, op->timeout_ns > KV_SEC ? op->timeout_ns : KV_SEC);
		else
			end_late(kv, op, KVPIPE_E_TIMEOUT, SILENT, true);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
}
