/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemons that were told of memory, do not have the session, and had not fenced when the helper left them. Their sockets are kept
 * until the end of file, which a killed daemon sends as well; memory does not go back to its owner before. The helper watches the
 * sockets wherever it waits, and goes on trying to come back meanwhile.
 */
#include "internal.h"

#include <unistd.h>

void kv_untold(kvpipe_t *kv)
{
	const struct kv_helper *h = &kv->helper;

	pthread_mutex_lock(&kv->lock);
	kv->told = h->telling || h->nunfenced > 0;
	pthread_cond_broadcast(&kv->back);
	pthread_mutex_unlock(&kv->lock);
}

void kv_unfenced_watch(const kvpipe_t *kv, struct pollfd p[KV_UNFENCED])
{
	const struct kv_helper *h = &kv->helper;

	for (uint32_t i = 0; i < KV_UNFENCED; i++)
		p[i] = (struct pollfd){ .fd = i < h->nunfenced ? h->unfenced[i] : -1, .events = POLLIN };
}

void kv_unfenced_look(kvpipe_t *kv, const struct pollfd p[KV_UNFENCED])
{
	struct kv_helper *h = &kv->helper;
	struct kv_message m = { .body = h->body };
	uint32_t n = h->nunfenced, left = 0;

	for (uint32_t i = 0; i < n; i++) {
		int got = p[i].revents != 0 ? kv_ctl_recv(h->unfenced[i], &m, 0) : 0;
		kv_ctl_close_fds(&m); /* nothing that it says matters any more */
		if (got == KV_RECV_EOF)
			close(h->unfenced[i]);
		else
			h->unfenced[left++] = h->unfenced[i];
	}
	h->nunfenced = left;
	if (left < n)
		kv_untold(kv);
}

bool kv_unfenced_await(kvpipe_t *kv)
{
	const struct kv_helper *h = &kv->helper;

	while (h->nunfenced > 0) {
		if (kv_helper_wait(kv, h->unfenced[0], INT64_MAX) == KV_STOP)
			return false;
	}
	return true;
}

void kv_unfenced_close(kvpipe_t *kv)
{
	struct kv_helper *h = &kv->helper;

	for (uint32_t i = 0; i < h->nunfenced; i++) {
		kv_await_fence(h->unfenced[i], kv->close_by);
		close(h->unfenced[i]);
	}
	h->nunfenced = 0;
}
