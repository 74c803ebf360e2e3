/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the arena of an end known to its daemon: the memory, and one layout over it. A daemon that stands still is asked again
 * later. */
#include "endpoint.h"

/*
 * Called after an attempt that was not answered in time. Waits until the daemon answers a PING. By then it has answered the
 * earlier requests, too, and a registration that nobody waited for is undone. So registrations do not pile up and pin the memory
 * several times.
 */
static int answers(struct kv_end *e, int64_t deadline)
{
	uint64_t life = 0;
	int err = kv_await_daemon(e->kv, "register", deadline, &life);

	if (err == 0 && life != 0)
		err = kv_request(e->kv, "register", life, KVPIPE_CTL_PING, NULL, 0, -1, deadline, NULL);
	return err == KV_LOST ? 0 : err; /* the next step reports it */
}

/* Tells the daemon of the memory and of the layout over it. It may know the layout already, from an earlier attempt. */
static int tell(struct kv_end *e, int64_t deadline)
{
	const struct kv_pool *p = e->made;
	const struct kvpipe_field field = { "kvpipe", "bytes" };
	struct kvpipe_view v = {
		.num_blocks = p->nblocks, .block_stride = p->block, .token_stride = 1, .head_stride = 1, .content_bytes = 1,
		.kind = KVPIPE_VIEW_PAGED, .block_size = p->block, .heads = 1, .total_heads = 1, .part = "kv",
	};
	int err = 0;

	/* The session gets a descriptor of its own: the memory is the pool's, which may outlive the session. */
	if (e->region == 0)
		err = kv_region_add_fd(e->kv, p->memory.fd, (uint64_t)p->nblocks * p->block, deadline, &e->region);
	v.region = e->region;
	return err != 0 ? err : kv_layout_set(e->kv, &v, 1, &field, 1, deadline);
}

void kv_end_drop_made(struct kv_end *e)
{
	if (e->made != NULL)
		kv_pool_unref(e->made);
	e->made = NULL;
	e->region = 0;
}

int kv_end_make(struct kv_end *e, uint64_t bytes, uint64_t capacity)
{
	return kv_pool_new(bytes, kv_block_bytes(capacity), &e->made);
}

int kv_end_tell(struct kv_end *e, int64_t deadline)
{
	int err = tell(e, deadline);

	if (err == 0) {
		pthread_mutex_lock(&e->kv->lock);
		e->pool = e->made;
		e->made = NULL;
		e->share = e->pool->nblocks / 8 * 3;
		e->both = e->pool->nblocks / 2;
		pthread_mutex_unlock(&e->kv->lock);
	} else if (err != -KVPIPE_E_TIMEOUT && e->region == 0) { /* else the daemon may have it pinned: the next attempt uses it again */
		kv_end_drop_made(e);
	}
	return err;
}

int kv_end_furnish(struct kv_end *e, uint64_t bytes, uint64_t capacity, int64_t deadline)
{
	int err;

	if (e->made != NULL) {
		err = answers(e, deadline);
		if (err != 0 && err != -KVPIPE_E_TIMEOUT && e->region == 0)
			kv_end_drop_made(e);
	} else {
		err = kv_end_make(e, bytes, capacity);
		int64_t least = kv_now() + KV_SEC; /* making large memory takes a while, which is not the daemon's fault */
		deadline = deadline > least ? deadline : least;
	}
	return err != 0 ? err : kv_end_tell(e, deadline);
}
