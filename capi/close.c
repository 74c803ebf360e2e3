/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a session, from our side. */
#include "internal.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void free_memory(kvpipe_t *kv)
{
	for (size_t i = 0; i < KV_BUCKETS; i++) {
		while (kv->buckets[i] != NULL) {
			struct kv_op *op = kv->buckets[i];
			kv->buckets[i] = op->hash_next;
			kv_op_destroy(op);
		}
	}
	while (kv->ctl.pending != NULL) { /* orphans: nobody waits any more */
		struct kv_pending *p = kv->ctl.pending;
		kv->ctl.pending = p->next;
		free(p);
	}
	free(kv->sq.ends);
	free(kv->slots);
	free(kv->layers);
	free(kv);
}

/* The daemon ends the session by itself: its end of file says that it has fenced. */
static void await_fence(kvpipe_t *kv)
{
	struct kv_message m = { .body = malloc(KVPIPE_CTL_MAX) };
	int64_t deadline = kv_now() + KV_CALL_NS;
	int got = m.body != NULL ? 1 : 0;

	shutdown(kv->ctl.fd, SHUT_WR);
	while (got == 1 || got == KV_RECV_BAD) {
		got = kv_ctl_recv(kv->ctl.fd, &m, deadline);
		kv_ctl_close_fds(&m);
	}
	free(m.body);
}

void kvpipe_close(kvpipe_t *kv)
{
	if (kv == NULL)
		return;
	if (!kv_process_is(kv->process)) {
		/* A forked child: mappings are not here, locks may be held by threads that are not here, and the numbers
		 * of our descriptors may be others' by now. */
		kv_regions_drop(kv, false);
		free_memory(kv);
		return;
	}
	kv_ends_finish(kv);
	if (kv->helper.started) {
		if (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) == KV_LIVE)
			kv_request(kv, "close", KVPIPE_CTL_BYE, NULL, 0, -1, kv_now() + KV_CALL_NS, NULL);
		kv_helper_stop(kv);
		if (kv->state == KV_BYE || kv->state == KV_BROKEN)
			await_fence(kv);
	}
	kv_regions_drop(kv, true);
	kv_rings_unmap(&kv->rings);
	close_fd(kv->epoll);
	close_fd(kv->ready);
	close_fd(kv->helper.wake);
	close_fd(kv->ctl.fd);
	pthread_mutex_destroy(&kv->lock);
	pthread_mutex_destroy(&kv->sq.lock);
	pthread_mutex_destroy(&kv->ctl.lock);
	pthread_mutex_destroy(&kv->region_lock);
	pthread_mutex_destroy(&kv->layout_lock);
	free_memory(kv);
}
