/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving from a pipe. Items are asked for by number, some of them ahead of the caller, and returned in that order. When a call
 * times out, what it asked for stays asked for, and the next call returns it.
 */
#include "pipe.h"

#include <string.h>

#define AWAKE 512u /* waits between two naps, at most */

static struct kv_get *slot(struct kvpipe_pipe *p, uint64_t n)
{
	return &p->gets[n % p->window];
}

/* Whether the next item has come or failed, or is to be asked for: no call has yet, or another call collected its failure. */
static bool front_ended(void *arg)
{
	struct kvpipe_pipe *p = arg;
	enum kv_get_state state = slot(p, p->next)->state;

	return p->end.over || state == KV_GET_NONE || state == KV_GET_LANDED || state == KV_GET_FAILED ||
	       (p->end.shorts != NULL && kv_get_pumpable(&p->end));
}

bool kv_recv_ready(struct kv_end *e)
{
	return front_ended(e);
}

/* How many items may be on their way at a time: the window, or fewer where there is less room. Needs lock. */
static uint64_t reach(struct kvpipe_pipe *p)
{
	struct kv_end *e = &p->end;

	if (e->hint == 0 || e->pool == NULL)
		return p->window;
	uint32_t need = kv_pool_need(e->pool, e->hint), fit = need == 0 ? p->window : kv_get_share(e) / need;
	return fit < p->window ? fit : p->window;
}

/*
 * Whether it is time to ask for more. Items are asked for in lots, when half are still to come, to save a round trip to the daemon
 * and its peer for each. Large items, whose number the room limits and not the window, are asked for when three quarters are still
 * to come: to a peer, five messages pass before bytes do. Needs lock.
 */
static bool wants_more(struct kvpipe_pipe *p)
{
	uint64_t waiting = p->asked - p->next, most = reach(p);

	return waiting == 0 || (p->started && waiting <= (most < p->window ? most * 3 / 4 : most / 2));
}

/* Asks for the next item, and for others after it as far as the window and the room reach. Needs pump. */
static int ask(struct kvpipe_pipe *p, int64_t deadline)
{
	struct kv_end *e = &p->end;
	int err = 0;

	for (;;) {
		pthread_mutex_lock(&e->kv->lock);
		uint64_t n = p->asked;
		struct kv_get *g = slot(p, n);
		bool front = n == p->next;
		/* A GET without room would only be told the item's size, and cost a second round trip. */
		bool room = e->hint == 0 || (e->pool != NULL && e->ahead + kv_pool_need(e->pool, e->hint) <= kv_get_share(e));
		bool go = front || (p->started && n - p->next < p->window && room);
		int64_t expires = p->started ? kv_now() + KV_AHEAD_NS : deadline;
		if (go) {
			p->asked++;
			p->expires = expires;
			g->order = n;
		}
		pthread_mutex_unlock(&e->kv->lock);
		if (!go)
			return 0;
		struct kv_ask a = { .match = KVPIPE_MATCH_NEXT, .seq = n };
		err = kv_get_ask(e, g, &a, front, expires);
		if (err != 0) {
			pthread_mutex_lock(&e->kv->lock);
			p->asked = n;
			pthread_mutex_unlock(&e->kv->lock);
			/* What was asked for before is still on its way. */
			return front ? err : 0;
		}
	}
}

/* Sees to it that the next item is on its way, and others ahead of it. */
static int pump(struct kvpipe_pipe *p, int64_t deadline)
{
	struct kv_end *e = &p->end;
	int64_t patience = kv_get_patience(deadline);
	int err = 0;

	pthread_mutex_lock(&e->pump);
	pthread_mutex_lock(&e->kv->lock);
	struct kv_get *g = slot(p, p->next);
	struct kv_ask a = { .match = KVPIPE_MATCH_NEXT, .seq = p->next };
	bool again = p->asked > p->next && g->state == KV_GET_NONE; /* it failed, and the caller was told */
	bool more = wants_more(p), shorts = e->shorts != NULL;
	p->started = p->started || shorts;
	if (again)
		g->order = p->next;
	if (again && !p->started)
		p->expires = deadline;
	pthread_mutex_unlock(&e->kv->lock);
	if (again)
		err = kv_get_ask(e, g, &a, true, p->started ? kv_now() + KV_AHEAD_NS : deadline);
	if (err == 0 && shorts)
		err = kv_get_pump(e, patience);
	if (err == KV_LATER)
		err = -KVPIPE_E_TIMEOUT;
	if (err == 0 && more)
		err = ask(p, deadline);
	pthread_mutex_unlock(&e->pump);
	return err;
}

/* After a wait: the next item, or why not. -TIMEOUT with *retry: look again. Needs lock. */
static int collect(struct kvpipe_pipe *p, int64_t timeout_ns, kvpipe_msg_t **out, bool *retry)
{
	struct kv_end *e = &p->end;
	struct kv_get *g = slot(p, p->next);

	*retry = false;
	if (g->state == KV_GET_LANDED) {
		p->started = true;
		p->next++;
		return kv_get_end(e, g, "recv", out);
	}
	if (g->state == KV_GET_FAILED) {
		enum kvpipe_reason reason = g->reason;
		/* A reason that is final ends the pipe's end for good, and so does a lost item. Any other is told once, and the item is asked
		 * for again. */
		if (g->lost || reason == KVPIPE_E_CLOSED || reason == KVPIPE_E_PEER_GONE || reason == KVPIPE_E_DENIED ||
		    reason == KVPIPE_E_BUSY || reason == KVPIPE_E_RESTARTED)
			kv_end_over(e, reason, g->text);
		if (reason == KVPIPE_E_TIMEOUT)
			memcpy(p->said, g->text, sizeof(p->said));
		int told = kv_get_end(e, g, "recv", out);
		/* The item was asked for by its id, and is gone or no longer reserved. Asked by its number, the home says what is true now. */
		bool stale = reason == KVPIPE_E_EXPIRED || (reason == KVPIPE_E_NOT_FOUND && g->again);
		*retry = reason == KVPIPE_E_TIMEOUT;
		if (!stale)
			return told;
	}
	int err = kv_end_error(e, "recv");
	if (err != 0)
		return err;
	*retry = g->state == KV_GET_NONE || e->shorts != NULL;
	/* python/kvpipe/_end.py puts its caller's time in the place of "within TIME:". */
	if (!p->started && p->said[0] != '\0')
		return kv_err(KVPIPE_E_TIMEOUT, "recv: nothing came within %s: %s", KV_SPAN(timeout_ns), p->said);
	return kv_err(KVPIPE_E_TIMEOUT, "recv: nothing came within %s: %s \"%s\"", KV_SPAN(timeout_ns),
		      p->started ? "nothing was sent to" : "nobody sent anything yet to", e->name);
}

/*
 * When items come faster than a thread can be woken for each, a nap brings several at once. Whether they do is tried now and then:
 * after a nap that brought few (say, as the sender waits for an answer to each) the next wait goes without a nap, after another
 * such nap the next two waits, then four, up to AWAKE. Needs lock.
 */
static void nap(struct kvpipe_pipe *p, int64_t deadline)
{
	struct kv_end *e = &p->end;
	uint64_t n = p->next;

	if (!p->started || p->window < 8 || front_ended(p) || deadline - kv_now() < KV_MS)
		return;
	if (p->awake > 0) {
		p->awake--;
		return;
	}
	kv_end_nap(e);
	while (n < p->asked && slot(p, n)->state == KV_GET_LANDED)
		n++;
	if (n - p->next >= 4)
		p->vain = 0;
	else if (p->vain < AWAKE)
		p->vain += p->vain == 0 ? 1 : p->vain;
	p->awake = p->vain;
}

static int receive(struct kvpipe_pipe *p, int64_t timeout_ns, int64_t deadline, kvpipe_msg_t **out)
{
	struct kv_end *e = &p->end;
	bool retry, more;
	int err = 0;
	/* The first item is asked for with the caller's timeout, so that the daemon can say why nothing came; but with a second at
	 * least, or a distant daemon's answer would always be too late. */
	int64_t least = kv_now() + KV_SEC, first = deadline > least ? deadline : least;

	do {
		pthread_mutex_lock(&e->kv->lock);
		more = slot(p, p->next)->state != KV_GET_LANDED;
		pthread_mutex_unlock(&e->kv->lock);
		if (more)
			err = pump(p, first);
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		int64_t until = deadline;
		if (!p->started && p->expires <= deadline) /* the daemon's answer is about to come */
			until = kv_after(deadline, KV_GRACE_NS);
		nap(p, deadline);
		if (err == 0 || e->over)
			kv_end_wait(e, front_ended, p, until);
		if (err == 0 || e->over)
			err = collect(p, timeout_ns, out, &retry);
		else
			retry = false;
		more = err == 0 && p->window > 1 && wants_more(p);
		kv_end_unlock(e);
	} while (err != 0 && retry && kv_now() < deadline);
	if (more)
		(void)pump(p, first); /* an error of it comes back with the next item */
	return err;
}

int kvpipe_pipe_recv(kvpipe_pipe_t *p, int64_t timeout_ns, kvpipe_msg_t **out)
{
	KV_UNCANCELLED;
	int64_t deadline;
	int err = out == NULL || p == NULL ? kv_err(KVPIPE_E_INVALID, "recv: the pipe or out is NULL") : 0;

	if (err == 0)
		err = kv_end_timeout("recv", timeout_ns, &deadline);
	if (err == 0)
		err = kv_end_enter(&p->end, "recv");
	if (err != 0)
		return err;
	*out = NULL;
	if (p->end.home)
		err = kv_err(KVPIPE_E_INVALID, "recv: this is the sending end of \"%s\"", p->end.name);
	else
		err = receive(p, timeout_ns, deadline, out);
	kv_end_leave(&p->end);
	return err;
}
