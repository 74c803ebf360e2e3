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
	while (kv->first != NULL) {
		struct kv_note *n = kv->first;
		kv->first = n->next;
		if (n->op == NULL)
			kv_note_free_foreign(n);
	}
	while (kv->owed != NULL) {
		struct kv_note *n = kv->owed;
		kv->owed = n->next;
		kv_note_free_foreign(n);
	}
	for (size_t i = 0; i < KV_BUCKETS; i++) {
		while (kv->buckets[i] != NULL) {
			struct kv_op *op = kv->buckets[i];
			kv->buckets[i] = op->hash_next;
			kv_op_destroy(op);
		}
	}
	while (kv->ctl.pending != NULL) {
		struct kv_pending *p = kv->ctl.pending;
		kv->ctl.pending = p->next;
		if (p->orphan) /* in a forked child, others lie on the stacks of the parent's threads */
			free(p);
	}
	free(kv->helper.body);
	free(kv->sq.ends);
	free(kv->slots);
	free(kv->layers);
	free(kv->layout);
	while (kv->names != NULL) {
		struct kv_names *n = (struct kv_names *)(uintptr_t)kv->names;
		kv->names = n->older;
		free(n);
	}
	free(kv);
}

void kv_await_fence(int sock, int64_t deadline)
{
	struct kv_message m = { .body = malloc(KVPIPE_CTL_MAX) };
	int got = m.body != NULL ? 1 : 0;

	shutdown(sock, SHUT_WR);
	while (got == 1 || got == KV_RECV_BAD) {
		got = kv_ctl_recv(sock, &m, deadline);
		kv_ctl_close_fds(&m);
	}
	free(m.body);
}

void kvpipe_close(kvpipe_t *kv)
{
	KV_UNCANCELLED;
	kv_close(kv, kv_now() + KV_CALL_NS);
}

void kv_close(kvpipe_t *kv, int64_t deadline)
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
	kv_ends_finish(kv, deadline);
	if (kv->helper.started) {
		pthread_mutex_lock(&kv->lock);
		bool attached = kv->state == KV_LIVE || kv->state == KV_REPLAY;
		uint64_t life = kv->life;
		kv->closing = true;
		kv->close_by = deadline;
		pthread_mutex_unlock(&kv->lock);
		if (attached && !kv->curt) /* a daemon that goes meanwhile has fenced */
			kv_request(kv, "close", life, KVPIPE_CTL_BYE, NULL, 0, -1, deadline, NULL);
		kv_helper_stop(kv);
		if (!kv->curt && (kv->state == KV_BYE || kv->state == KV_BROKEN || kv->state == KV_LEAVING))
			kv_await_fence(kv->ctl.fd, deadline);
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
	pthread_rwlock_destroy(&kv->ctl.in_use);
	pthread_cond_destroy(&kv->back);
	pthread_mutex_destroy(&kv->layout_lock);
	free_memory(kv);
}
