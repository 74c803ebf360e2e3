/* SPDX-License-Identifier: Apache-2.0 */
/* kvpipe_poll() and the fd that says when to call it. */
#include "endpoint.h"

#include <stdlib.h>

/* Hands out the oldest foreign completion, which is still in the ring. False: out of memory. */
static bool take_foreign(kvpipe_t *kv, struct kvpipe_completion *out)
{
	struct kvpipe_cqe e = kv->rings.cqes[kv->cq_head & (kv->rings.cq_entries - 1)];
	struct kvpipe_result head;
	size_t size;

	if (kv_result_check(&kv->rings, &e, &head, &size) != 0) {
		kv_broken(kv, "completion of another session: result of %u bytes at %llu", e.result_len,
			  (unsigned long long)e.result_off);
		size = 0;
		head = (struct kvpipe_result){ 0 };
	}
	struct kv_note n = { .c = kv_completion(&e), .blob = NULL };
	n.c.flags |= KVPIPE_C_FOREIGN;
	if (size > 0) {
		struct kv_blob *blob = kv_thread_alloc(size);
		if (blob == NULL)
			return false;
		kv_result_fill(&kv->rings, &e, &head, blob);
		n.blob = blob;
	}
	if (!kv_note_deliver(&n, out))
		return false;
	kv_owe_foreign(kv, &n.c);
	kv->cq_head++;
	kvpipe_store_release(&kv->rings.c->cq_head, (uint32_t)kv->cq_head);
	kv_advance(kv);
	return true;
}

static bool poll_one(kvpipe_t *kv, struct kvpipe_completion *out)
{
	struct kv_note *n = kv->first;
	bool foreign = kv->cq_head != kv->seen;

	if (foreign && (n == NULL || kv->cq_head < n->order))
		return take_foreign(kv, out);
	if (n == NULL || !kv_note_deliver(n, out))
		return false;
	kv_note_drop(kv, n);
	struct kv_op *op = n->op;
	if (op == NULL)
		kv_note_free_foreign(n);
	else if (op->detached && op->state == KV_RELEASED && !op->end.queued && !op->quarantine.queued && !op->release.queued)
		kv_op_remove(kv, op);
	return true;
}

static bool collectable(const kvpipe_t *kv)
{
	return kv->first != NULL || kv->cq_head != kv->seen;
}

/* What kvpipe_poll() returns when everything was collected: 0, or why the session is over. */
static int nothing(kvpipe_t *kv)
{
	if (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_GONE)
		return 0;
	pthread_mutex_lock(&kv->lock);
	int err = collectable(kv) ? 0 : kv_ended(kv); /* what came at its end just now is collected first */
	pthread_mutex_unlock(&kv->lock);
	return err;
}

int kvpipe_poll(kvpipe_t *kv, struct kvpipe_completion *out, uint32_t cap)
{
	int n = kv_enter(kv);

	if (n != 0)
		return n;
	if (out == NULL && cap > 0)
		return kv_err(KVPIPE_E_INVALID, "poll: out is NULL, cap is %u", cap);
	bool fd_used = __atomic_load_n(&kv->fd_used, __ATOMIC_RELAXED);
	if (!fd_used && __atomic_load_n(&kv->pending, __ATOMIC_RELAXED) == 0 &&
	    kvpipe_load_acquire(&kv->rings.d->cq_tail) == (uint32_t)__atomic_load_n(&kv->seen, __ATOMIC_RELAXED))
		return nothing(kv);
	KV_UNCANCELLED;
	kv_thread_reset();
	pthread_mutex_lock(&kv->lock);
	if (fd_used && !kv->swapping) /* cleared before looking, so that what comes later rings again */
		kv_event_clear(kv->rings.cq_event);
	kv_drain(kv);
	kv_wake_waiters(kv);
	if (cap > INT32_MAX)
		cap = INT32_MAX;
	while ((uint32_t)n < cap && poll_one(kv, &out[n]))
		n++;
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return n > 0 || cap == 0 ? n : nothing(kv);
}

void kv_settle(kvpipe_t *kv)
{
	/* That the session is over counts, too: kvpipe_poll() says so as often as it is called. */
	bool something = kv->end != NULL ? kv->end->ready(kv->end) : collectable(kv) || kv->state == KV_GONE;

	__atomic_store_n(&kv->pending, something ? 1u : 0u, __ATOMIC_RELAXED);
	if (!kv->fd_used)
		return;
	/* A listener for edges gets one for each new completion, even if another left older ones uncollected. */
	if (something && (kv->fresh || !kv->ready_set))
		kv_event_signal(kv->ready);
	else if (!something && kv->ready_set)
		kv_event_clear(kv->ready);
	kv->ready_set = something;
	kv->fresh = false;
}

int kvpipe_fd(const kvpipe_t *kv)
{
	KV_UNCANCELLED;
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	kvpipe_t *w = (kvpipe_t *)(uintptr_t)kv;
	pthread_mutex_lock(&w->lock);
	if (!w->fd_used) {
		/* From now on the daemon rings for every completion, whether anybody sleeps or not. */
		__atomic_store_n(&w->fd_used, true, __ATOMIC_RELAXED);
		__atomic_store_n(&w->rings.c->cq_waiting, KV_RING_ALWAYS, __ATOMIC_RELAXED);
		kvpipe_full_barrier();
		kv_drain(w);
		kv_wake_waiters(w);
		kv_settle(w);
	}
	pthread_mutex_unlock(&w->lock);
	return kv->epoll;
}
