/* SPDX-License-Identifier: Apache-2.0 */
/* Another daemon becomes the session's: its rings, its socket, what it says of itself. */
#include "internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void text(char *to, const char *from, size_t n)
{
	size_t len = strnlen(from, n);

	memcpy(to, from, len);
	to[len] = '\0';
}

int kv_names_new(const struct kvpipe_welcome *w, struct kv_names **out)
{
	struct kv_names *n = calloc(1, sizeof(*n));

	*out = n;
	if (n == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	text(n->node, w->node, sizeof(w->node));
	text(n->advertise, w->advertise, sizeof(w->advertise));
	text(n->daemon, w->daemon, sizeof(w->daemon));
	return 0;
}

void kv_welcome_apply(kvpipe_t *kv, const struct kvpipe_welcome *w, struct kv_names *n)
{
	/* The old names are kept: callers may hold pointers to them. */
	n->older = kv->names;
	if (n->older != NULL && memcmp(n->node, n->older->node, sizeof(*n) - offsetof(struct kv_names, node)) == 0)
		free(n);
	else
		__atomic_store_n(&kv->names, n, __ATOMIC_RELEASE);
	kv->abi = w->abi;
	kv->epoch = w->epoch;
	kv->features = w->features;
	kv->ops = w->ops;
	kv->says = w->says;
	kv->max_pinned_bytes = w->max_pinned_bytes;
	kv->max_regions = w->max_regions;
	kv->max_inflight = w->max_inflight;
	kv->hello.session = w->session;
	memcpy(kv->hello.secret, w->secret, sizeof(kv->hello.secret));
}

int kv_furnish(kvpipe_t *kv, const struct kv_rings *r)
{
	uint64_t *ends = calloc(r->sq_entries, sizeof(*ends));
	uint32_t *slots = calloc(r->layer_slots, sizeof(*slots));

	if (ends == NULL || slots == NULL) {
		free(ends);
		free(slots);
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	free(kv->sq.ends);
	free(kv->slots);
	kv->sq.tail = kv->sq.head = 0;
	kv->sq.used = kv->sq.freed = 0;
	kv->sq.rung = 0;
	kv->sq.ends = ends;
	kv->slots = slots;
	kv->nslots = 0;
	for (uint32_t i = 0; i < r->layer_slots; i++)
		slots[kv->nslots++] = r->layer_slots - 1 - i;
	return 0;
}

/* Swaps the rings, all or nothing: what can fail comes first. Then everything that counts positions in the rings begins anew. */
static int swap(kvpipe_t *kv, struct kv_rings *rings)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (kv->fd_used)
		__atomic_store_n(&rings->c->cq_waiting, KV_RING_ALWAYS, __ATOMIC_RELAXED);
	if (epoll_ctl(kv->epoll, EPOLL_CTL_ADD, rings->cq_event, &ev) != 0)
		return kv_err(KVPIPE_E_QUOTA, "cannot watch the new eventfd: %s", strerror(errno));
	/* The old one's daemon is gone: nobody rings it. */
	(void)epoll_ctl(kv->epoll, EPOLL_CTL_DEL, kv->rings.cq_event, NULL);
	int err = kv_rings_replace(&kv->rings, rings);
	if (err != 0) {
		/* Closing it would not take it out of the epoll set: the daemon has it open, too. */
		(void)epoll_ctl(kv->epoll, EPOLL_CTL_DEL, rings->cq_event, NULL);
		return err;
	}
	kv->cq_head = 0;
	__atomic_store_n(&kv->seen, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&kv->beat, 0, __ATOMIC_RELEASE);
	kv->rung = false;
	kv_notes_renumber(kv);
	kvpipe_full_barrier();
	kv_progress_show(kv);
	return 0;
}

/* Makes the thread that sleeps on the cq eventfd sleep elsewhere until there is a new one: poll() would not notice the exchange.
 * Needs lock. */
static void wake_sleeper(kvpipe_t *kv)
{
	kv->swapping = true;
	if (kv->sleeper != NULL)
		kv_event_signal(kv->rings.cq_event);
	while (kv->sleeper != NULL)
		pthread_cond_wait(&kv->back, &kv->lock);
}

int kv_install(kvpipe_t *kv, struct kv_rings *rings, const struct kvpipe_welcome *w, int sock)
{
	struct kv_names *names;
	int err = kv_names_new(w, &names);

	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->sq.lock);
	pthread_mutex_lock(&kv->lock);
	wake_sleeper(kv);
	/* A thread that closes a session which is away does not wait for the fence of a next daemon, so there must be none.
	 * If a region was unregistered, invalidated or revalidated since this daemon was told of it, the daemon is told again. */
	err = kv->closing ? -KVPIPE_E_CLOSED : kv_regions_stale(kv) ? -KVPIPE_E_BUSY : kv_furnish(kv, rings);
	if (err == 0)
		err = swap(kv, rings);
	if (err == 0) {
		kv_welcome_apply(kv, w, names);
		names = NULL;
		pthread_rwlock_wrlock(&kv->ctl.in_use);
		pthread_mutex_lock(&kv->ctl.lock);
		close(kv->ctl.fd);
		kv->ctl.fd = sock;
		kv->ctl.life = kv->life;
		pthread_mutex_unlock(&kv->ctl.lock);
		pthread_rwlock_unlock(&kv->ctl.in_use);
		kv->helper.ping = 0;
		kv->helper.telling = false;
		kv_regions_woke(kv);
		kv->told = kv->helper.nunfenced > 0;
		kv_set_state(kv, KV_REPLAY);
	}
	kv->swapping = false;
	if (kv->waiters != NULL) /* one of them is the next sleeper */
		pthread_cond_signal(&kv->waiters->cond);
	pthread_mutex_unlock(&kv->lock);
	pthread_mutex_unlock(&kv->sq.lock);
	free(names);
	return err;
}
