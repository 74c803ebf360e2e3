/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of operations, for when the daemon does not keep them. */
#include "internal.h"

#define SILENT "the deadline passed and the daemon does not answer"
#define AWAY "the deadline passed while the daemon was away: start it again"
#define LEASE "the lease ran out while the daemon was away: start it again"

/* Nothing touches its memory: no daemon knows of it. */
static void end_away(kvpipe_t *kv, struct kv_op *op)
{
	bool offer = op->opcode == KVPIPE_OPCODE_OFFER;
	const char *text = kv->state == KV_AWAY && kv->refused != 0 ? kv->refusal : offer ? LEASE : AWAY;

	kv_op_end_here(kv, op, offer ? KVPIPE_E_EXPIRED : KVPIPE_E_TIMEOUT, text, false);
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
		if (op->deadline > now) {
			next = op->deadline < next ? op->deadline : next;
		} else if (kv->state == KV_AWAY || (kv_awaits(kv->state) && !op->begun)) {
			end_away(kv, op);
		} else if (op->opcode == KVPIPE_OPCODE_OFFER && (kv->state == KV_LIVE || kv->state == KV_REPLAY)) {
			*ask = true;
		} else {
			kv_op_end_here(kv, op, KVPIPE_E_TIMEOUT, SILENT, true);
		}
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	return next;
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
			kv_op_end_here(kv, op, KVPIPE_E_TIMEOUT, SILENT, true);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
}
