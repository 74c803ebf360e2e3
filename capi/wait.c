/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting. One waiter at a time sleeps on the daemon's eventfd itself, so that a single waiter is woken by the daemon alone;
 * the others sleep on condition variables of their own. A thread that takes completions off the ring wakes those concerned.
 * A sleeper that leaves hands its place to another waiter.
 */
#include "internal.h"

#include <poll.h>

static bool layer_ready(const kvpipe_t *kv, const struct kv_op *op, uint32_t layers)
{
	if (op->layer_slot == KV_NO_SLOT)
		return false;
	const struct kvpipe_layer_slot *slot = &kv->rings.layers[op->layer_slot];
	/* Until the daemon has taken the slot over, its count is that of an older take. */
	return kvpipe_load_acquire(&slot->user_data) == op->id && kvpipe_load_acquire(&slot->ready) >= layers;
}

static bool fulfilled(const kvpipe_t *kv, const struct kv_waiter *w)
{
	if (w->kind == KV_WAIT_WHEN)
		return w->when(w->arg);
	const struct kv_op *op = kv_op_find(kv, w->op);
	if (w->kind == KV_WAIT_CANCEL) {
		const struct kv_op *target = kv_op_find(kv, w->target);
		if (target == NULL || target->state != KV_RUNNING || op == NULL)
			return true;
		/* NOT_FOUND: it has just ended, and its completion is on the way. */
		return op->state != KV_RUNNING && op->end.c.status != KVPIPE_DONE && op->end.c.reason != KVPIPE_E_NOT_FOUND;
	}
	if (op == NULL || op->detached)
		return true;
	switch (w->kind) {
	case KV_WAIT_RELEASED:
		return op->state == KV_RELEASED;
	case KV_WAIT_LAYER:
		return op->state != KV_RUNNING || layer_ready(kv, op, w->layers);
	default:
		return op->state != KV_RUNNING;
	}
}

static void wake(kvpipe_t *kv, struct kv_waiter *w)
{
	/* The sleeper may have missed the daemon's bell, when somebody else cleared it. */
	if (w == kv->sleeper)
		kv_event_signal(kv->rings.cq_event);
	else
		pthread_cond_signal(&w->cond);
}

void kv_wake_waiters(kvpipe_t *kv)
{
	for (struct kv_waiter *w = kv->waiters; w != NULL; w = w->next) {
		if (fulfilled(kv, w))
			wake(kv, w);
	}
}

static void others_wake(kvpipe_t *kv, const struct kv_waiter *self)
{
	for (struct kv_waiter *w = kv->waiters; w != NULL; w = w->next) {
		if (w != self && fulfilled(kv, w))
			wake(kv, w);
	}
}

static void count(kvpipe_t *kv, const struct kv_waiter *w, int d)
{
	struct kv_op *op = w->kind == KV_WAIT_WHEN ? NULL : kv_op_find(kv, w->op);

	if (op == NULL)
		return;
	if (w->kind == KV_WAIT_END)
		op->end_waiters += (uint32_t)d;
	else if (w->kind == KV_WAIT_RELEASED)
		op->release_waiters += (uint32_t)d;
}

/* The daemon rings once for each number, so what comes while the woken sleeper is on its way to look costs no further ring. */
static uint32_t next_sleep(kvpipe_t *kv)
{
	if (++kv->sleep <= KV_RING_ALWAYS)
		kv->sleep = KV_RING_ALWAYS + 1;
	return kv->sleep;
}

static void sleep_on_ring(kvpipe_t *kv, struct kv_waiter *self, int64_t deadline)
{
	struct pollfd p = { .fd = kv->rings.cq_event, .events = POLLIN };
	uint32_t *waiting = &kv->rings.c->cq_waiting;

	/*
	 * A bell that woke a sleeper is cleared by the next sleeper: done now, while the daemon is at work, that costs nobody
	 * time. With kvpipe_fd() others look at the bell, so it is cleared at once.
	 */
	if (kv->rung)
		kv_event_clear(kv->rings.cq_event);
	kv->rung = false;
	kv->sleeper = self;
	if (!kv->fd_used)
		__atomic_store_n(waiting, next_sleep(kv), __ATOMIC_RELAXED);
	kvpipe_full_barrier();
	/* Last look: what came before the barrier does not ring. */
	kv_drain(kv);
	others_wake(kv, self);
	if (!fulfilled(kv, self)) {
		kv_settle(kv);
		pthread_mutex_unlock(&kv->lock);
		struct timespec ts = kv_timespec(deadline - kv_now());
		int n = ppoll(&p, 1, &ts, NULL);
		pthread_mutex_lock(&kv->lock);
		if (n > 0 && kv->fd_used)
			kv_event_clear(kv->rings.cq_event);
		else if (n > 0)
			kv->rung = true;
	}
	if (!kv->fd_used)
		__atomic_store_n(waiting, 0u, __ATOMIC_RELAXED);
	kv->sleeper = NULL;
	if (kv->swapping)
		pthread_cond_broadcast(&kv->back);
	kv_drain(kv);
	others_wake(kv, self);
}

static void enlist(kvpipe_t *kv, struct kv_waiter *w)
{
	kv_cond_init(&w->cond);
	w->prev = NULL;
	w->next = kv->waiters;
	if (kv->waiters != NULL)
		kv->waiters->prev = w;
	kv->waiters = w;
	count(kv, w, 1);
}

static void delist(kvpipe_t *kv, struct kv_waiter *w)
{
	if (w->prev != NULL)
		w->prev->next = w->next;
	else
		kv->waiters = w->next;
	if (w->next != NULL)
		w->next->prev = w->prev;
	count(kv, w, -1);
	pthread_cond_destroy(&w->cond);
	/* Somebody must watch the ring while anybody waits. */
	if (kv->sleeper == NULL && kv->waiters != NULL)
		pthread_cond_signal(&kv->waiters->cond);
}

bool kv_wait_until(kvpipe_t *kv, struct kv_waiter *w, int64_t deadline)
{
	kv_drain(kv);
	if (kv->waiters != NULL)
		kv_wake_waiters(kv);
	if (fulfilled(kv, w))
		return true;
	if (deadline <= kv_now())
		return false;
	struct timespec ts = kv_timespec(deadline);
	bool done;
	enlist(kv, w);
	while (!(done = fulfilled(kv, w)) && deadline > kv_now()) {
		if (kv->sleeper == NULL && !kv->swapping) {
			sleep_on_ring(kv, w, deadline);
		} else {
			kv_settle(kv); /* what was collected for others came with a bell that the sleeper does not hear any more */
			if (pthread_cond_timedwait(&w->cond, &kv->lock, &ts) != 0) { /* if this process stood still, the sleeper may not have looked yet */
				kv_drain(kv);
				others_wake(kv, w);
			}
		}
	}
	delist(kv, w);
	return done;
}
