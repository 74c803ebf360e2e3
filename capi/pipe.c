/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes: opening, sending, closing. Receiving is recv.c. */
#include "pipe.h"

#include <stdlib.h>

static int check(struct kvpipe_pipe_opts *o)
{
	int err = kv_check_zero("pipe", o->reserved, KV_COUNT(o->reserved));

	if (err == 0 && o->flags != 0)
		err = kv_err(KVPIPE_E_INVALID, "pipe: flags is %#x: must be 0", o->flags);
	if (err == 0 && o->end != KVPIPE_SEND && o->end != KVPIPE_RECV)
		err = kv_err(KVPIPE_E_INVALID, "pipe: end is %u: must be KVPIPE_SEND (1) or KVPIPE_RECV (2)", o->end);
	if (err == 0 && o->end == KVPIPE_RECV && o->capacity != 0)
		err = kv_err(KVPIPE_E_INVALID, "pipe: capacity is %llu: the sender's end says it", (unsigned long long)o->capacity);
	if (err == 0 && o->end == KVPIPE_SEND && o->window != 0)
		err = kv_err(KVPIPE_E_INVALID, "pipe: window is %u: it is for the receiver's end", o->window);
	if (err == 0 && o->window > KV_WINDOW_MAX)
		err = kv_err(KVPIPE_E_INVALID, "pipe: window is %u: at most %u", o->window, KV_WINDOW_MAX);
	if (o->end == KVPIPE_SEND && o->capacity == 0)
		o->capacity = KV_PIPE_BYTES;
	if (o->window == 0)
		o->window = KV_WINDOW;
	return err;
}

int kvpipe_pipe_open(kvpipe_t *kv, const struct kvpipe_pipe_opts *opts, kvpipe_pipe_t **out)
{
	KV_UNCANCELLED;
	struct kvpipe_pipe_opts o;
	int err = kv_enter(kv);

	if (err == 0 && out == NULL)
		err = kv_err(KVPIPE_E_INVALID, "pipe: out is NULL");
	if (err == 0)
		err = kv_copy_opts("pipe", opts, &o, sizeof(o));
	if (err == 0)
		err = check(&o);
	if (err != 0)
		return err;
	bool send = o.end == KVPIPE_SEND;
	struct kvpipe_pipe *p = calloc(1, sizeof(*p) + (send ? 0 : o.window) * sizeof(*p->gets));
	if (p == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	p->window = o.window;
	const struct kv_end_opts e = {
		.what = "pipe",
		.kind = send ? KVPIPE_BIND_SEND : KVPIPE_BIND_RECV,
		.name = o.name,
		.capacity = o.capacity,
		.token = o.token,
		.token_len = o.token_len,
		.peer = o.peer,
		.linger_ns = o.linger_ns,
		.ready = send ? kv_put_ready : kv_recv_ready,
	};
	err = kv_end_open(kv, &e, &p->end);
	if (err == 0)
		*out = p;
	return err;
}

/* Enters the end, which must be the sending one. */
static int enter_sender(kvpipe_pipe_t *p, const char *what)
{
	int err = kv_end_enter(&p->end, what);

	if (err == 0 && !p->end.home) {
		err = kv_err(KVPIPE_E_INVALID, "%s: this is the receiving end of \"%s\"", what, p->end.name);
		kv_end_leave(&p->end);
	}
	return err;
}

int kvpipe_pipe_send(kvpipe_pipe_t *p, const struct kvpipe_tensor *t, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	const struct kv_put put = { .what = "send", .form = KVPIPE_MATCH_NEXT, .members = { t }, .count = 1 };
	int err = p == NULL ? kv_err(KVPIPE_E_INVALID, "send: the pipe is NULL") : enter_sender(p, "send");

	if (err != 0)
		return err;
	err = kv_end_put(&p->end, &put, timeout_ns);
	kv_end_leave(&p->end);
	return err;
}

struct flush {
	struct kv_flush put; /* first */
	const struct kv_end *e;
};

static bool all_received(void *arg)
{
	const struct flush *f = arg;

	return f->e->over || f->put.left == 0;
}

/* Waits until what was sent before is received, whatever others send meanwhile. Returns how many items are left. Needs lock. */
static uint32_t wait_for_items(struct kv_end *e, int64_t deadline)
{
	struct flush f = { .put = { .next = e->flushes, .last = e->sent, .left = e->items }, .e = e };

	e->flushes = &f.put;
	kv_end_wait(e, all_received, &f, deadline);
	struct kv_flush **at = &e->flushes;
	while (*at != &f.put)
		at = &(*at)->next;
	*at = f.put.next;
	return f.put.left;
}

int kvpipe_pipe_flush(kvpipe_pipe_t *p, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	int64_t deadline;
	int err = p == NULL ? kv_err(KVPIPE_E_INVALID, "flush: the pipe is NULL") : enter_sender(p, "flush");

	if (err != 0)
		return err;
	struct kv_end *e = &p->end;
	err = kv_end_timeout("flush", timeout_ns, &deadline);
	if (err == 0) {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		uint32_t left = wait_for_items(e, deadline);
		err = kv_end_error(e, "flush");
		if (err == 0 && left > 0) /* python/kvpipe/_end.py puts its caller's time in the place of "within TIME:" */
			err = kv_err(KVPIPE_E_TIMEOUT, "flush: %u item%s of \"%s\" %s not received within %s: does its receiver run?", left,
				     KV_PLURAL(left), e->name, left == 1 ? "was" : "were", KV_SPAN(timeout_ns));
		kv_end_unlock(e);
	}
	kv_end_leave(e);
	return err;
}

int kvpipe_pipe_fd(kvpipe_pipe_t *p)
{
	int fd = p == NULL ? kv_err(KVPIPE_E_INVALID, "pipe_fd: the pipe is NULL") : kv_end_enter(&p->end, "pipe_fd");

	if (fd == 0) {
		fd = kvpipe_fd(p->end.kv);
		kv_end_leave(&p->end);
	}
	return fd;
}

void kvpipe_pipe_close(kvpipe_pipe_t *p)
{
	KV_UNCANCELLED;
	if (p == NULL)
		return;
	kv_end_finish(&p->end, kv_now() + KV_CALL_NS);
	for (uint32_t i = 0; !p->end.home && i < p->window; i++)
		kvpipe_msg_free(p->gets[i].msg);
	kv_end_unref(&p->end);
}
