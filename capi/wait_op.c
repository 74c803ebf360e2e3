/* SPDX-License-Identifier: Apache-2.0 */
/* kvpipe_wait() and its kin: what callers wait for. */
#include "internal.h"

static int unknown(kvpipe_op_t id)
{
	return kv_err(KVPIPE_E_NOT_FOUND, "operation %llu is not known to this session, or was freed", (unsigned long long)id);
}

/* An operation that callers may name; needs lock. */
static struct kv_op *visible(kvpipe_t *kv, kvpipe_op_t id)
{
	struct kv_op *op = kv_op_find(kv, id);

	return op == NULL || op->internal || op->detached ? NULL : op;
}

static int deadline_of(kvpipe_t *kv, const char *what, kvpipe_op_t id, int64_t *timeout_ns, int64_t *deadline)
{
	int64_t now = kv_now();

	if (*timeout_ns < 0)
		return kv_err(KVPIPE_E_INVALID, "%s: timeout of %lld ns is negative", what, (long long)*timeout_ns);
	struct kv_op *op = visible(kv, id);
	if (op == NULL)
		return unknown(id);
	if (*timeout_ns == KVPIPE_FOREVER) /* nothing waits for ever */
		*timeout_ns = kv_after(op->deadline > now ? op->deadline : now, KV_FOREVER_NS) - now;
	*deadline = kv_after(now, *timeout_ns);
	return 0;
}

/* By the words for a layer, python/kvpipe/take.py tells a take that still runs from one that ran into its own deadline. */
static int not_yet(kvpipe_op_t id, const char *what, int64_t timeout_ns, const char *advice)
{
	return kv_err(KVPIPE_E_TIMEOUT, "operation %llu: %s after %s: wait again%s", (unsigned long long)id, what, KV_SPAN(timeout_ns),
		      advice);
}

int kvpipe_wait(kvpipe_t *kv, kvpipe_op_t id, int64_t timeout_ns, struct kvpipe_completion *out)
{
	KV_UNCANCELLED;
	struct kv_waiter w = { .op = id, .kind = KV_WAIT_END };
	struct kvpipe_completion unused;
	int64_t deadline;
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	kv_thread_reset();
	pthread_mutex_lock(&kv->lock);
	err = deadline_of(kv, "wait", id, &timeout_ns, &deadline);
	bool ran = err == 0 && visible(kv, id)->state == KV_RUNNING;
	if (err == 0 && !kv_wait_until(kv, &w, deadline)) {
		err = not_yet(id, "still running", timeout_ns, ", or cancel it");
	} else if (err == 0) {
		struct kv_op *op = visible(kv, id);
		if (op == NULL) {
			err = unknown(id);
		} else if (!kv_note_deliver(&op->end, out != NULL ? out : &unused)) {
			err = kv_err(KVPIPE_E_QUOTA, "out of memory");
			if (ran && !op->waited && !op->end.queued) { /* it was left to those who waited; now poll has it */
				kv_note_push(kv, &op->end);
				op->waited = true;
			}
		} else {
			op->waited = true;
			kv_note_drop(kv, &op->end);
		}
	}
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}

int kvpipe_wait_released(kvpipe_t *kv, kvpipe_op_t id, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kv_waiter w = { .op = id, .kind = KV_WAIT_RELEASED };
	int64_t deadline;
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	err = deadline_of(kv, "wait_released", id, &timeout_ns, &deadline);
	if (err == 0 && !kv_wait_until(kv, &w, deadline)) {
		err = not_yet(id, "not released yet", timeout_ns, " before its memory is used");
	} else if (err == 0) {
		struct kv_op *op = visible(kv, id);
		if (op == NULL)
			err = unknown(id);
		else
			kv_note_drop(kv, &op->release);
	}
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}

/* 0, or the error of a take that failed, in the words of its completion. The completion stays for whoever collects it. */
static int layer_outcome(kvpipe_t *kv, kvpipe_op_t id)
{
	struct kv_op *op = visible(kv, id);

	if (op == NULL)
		return unknown(id);
	if (op->state == KV_RUNNING || op->end.c.status == KVPIPE_DONE)
		return 0;
	uint32_t reason = op->end.c.reason != 0 ? op->end.c.reason : KVPIPE_E_CANCELLED;
	return kv_err((enum kvpipe_reason)reason, "operation %llu failed: %s", (unsigned long long)id, kv_note_text(&op->end));
}

int kvpipe_wait_layer(kvpipe_t *kv, kvpipe_op_t id, uint32_t layer, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kv_waiter w = { .op = id, .kind = KV_WAIT_LAYER };
	int64_t deadline;
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	err = deadline_of(kv, "wait_layer", id, &timeout_ns, &deadline);
	struct kv_op *op = err == 0 ? visible(kv, id) : NULL;
	if (err == 0 && !op->layered) {
		err = kv_err(KVPIPE_E_INVALID, "operation %llu is not a take with KVPIPE_OP_LAYERED", (unsigned long long)id);
	} else if (err == 0) {
		w.layers = kv_layer_rank(kv, op->groups, layer);
		if (w.layers == 0)
			err = kv_err(KVPIPE_E_INVALID, "layer %u is not among those of operation %llu", layer,
				     (unsigned long long)id);
	}
	if (err == 0)
		err = kv_wait_until(kv, &w, deadline) ? layer_outcome(kv, id) : not_yet(id, "layer not in place yet", timeout_ns, "");
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}
