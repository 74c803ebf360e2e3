/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of pipes and lookup buffers: how one is opened beside its parent's session, who is inside, how it ends. */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Names no operation. */
#define NOBODY (1ull << 62)

static int check(const struct kv_end_opts *o, size_t *name_len, size_t *peer_len)
{
	int err = kv_check_text(o->what, o->name, KVPIPE_MAX_NAME, name_len);

	if (err == 0 && *name_len == 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: name is required, 1 to %u bytes", o->what, KVPIPE_MAX_NAME);
	if (err == 0 && o->token_len != 0)
		err = kv_check_bytes("token", o->token, o->token_len, KVPIPE_MIN_TOKEN, KVPIPE_MAX_TOKEN);
	if (err == 0)
		err = kv_check_text("peer", o->peer, KVPIPE_MAX_PEER, peer_len);
	if (err == 0 && o->capacity > 1ull << 40)
		err = kv_err(KVPIPE_E_INVALID, "%s: capacity is %llu bytes: at most 2^40", o->what, (unsigned long long)o->capacity);
	if (err == 0 && o->linger_ns < 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: linger_ns is %lld: times are not negative", o->what, (long long)o->linger_ns);
	if (err == 0 && o->capacity > 0 && *peer_len > 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: peer is \"%s\": a name lives on its own node: leave peer to the other end",
			     o->what, o->peer);
	if (err == 0 && o->capacity == 0 && o->linger_ns != 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: linger_ns is %lld: it is for the other end", o->what, (long long)o->linger_ns);
	return err;
}

static int connect_beside(kvpipe_t *parent, int64_t deadline, kvpipe_t **out)
{
	struct kv_paths paths = { .named = "", .n = 1 };
	struct kvpipe_hello h = {
		.abi_min = KVPIPE_ABI_MIN,
		.abi_max = KVPIPE_ABI,
		.role = KVPIPE_ROLE_ENDPOINT,
		.tp_world = 1,
		.pp_world = 1,
		.sq_entries = 1024,
		.cq_entries = 4096,
		.layer_slots = 1,
		.pid = (uint32_t)getpid(),
	};

	strncpy(h.library, kvpipe_version(), sizeof(h.library) - 1);
	memcpy(h.engine, parent->hello.engine, sizeof(h.engine));
	memcpy(paths.path[0], parent->path, sizeof(paths.path[0]));
	return kv_session_open(&h, &paths, deadline, out);
}

/* Waits for a daemon, as other calls do, and connects to it. A daemon that is there but gives no session is not asked again. */
static int connect_when_there(kvpipe_t *parent, const char *what, int64_t deadline, uint64_t *life, kvpipe_t **out)
{
	for (;;) {
		int err = kv_await_session(parent, what, deadline, life);
		if (err == 0 && kv_now() >= deadline)
			return kv_err(KVPIPE_E_TIMEOUT, "%s: " KV_UNASKED, what);
		if (err == 0) {
			err = connect_beside(parent, deadline, out);
			if (err == -KVPIPE_E_UNAVAILABLE && kv_now() >= deadline) /* the parent's daemon is there, and silent */
				return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon does not answer: " KV_LOOK, what);
		}
		if (err != -KVPIPE_E_UNAVAILABLE || *life == 0 || kv_now() >= deadline)
			return err;
		/* It may have gone, and the parent's helper may not have heard of that yet. */
		int there = kv_request(parent, what, *life, KVPIPE_CTL_PING, NULL, 0, -1, deadline, NULL);
		if (there != KV_LOST)
			return there != 0 ? there : err;
	}
}

int kv_end_sync(struct kv_end *e, const char *what, int64_t deadline)
{
	/* The daemon's machine answers a CANCEL in its turn, also one of nothing. */
	return kv_end_ask(e, what, KVPIPE_OPCODE_CANCEL, NOBODY, deadline);
}

static int bind_end(struct kv_end *e, const struct kv_end_opts *o, size_t peer_len, int64_t deadline)
{
	struct kvpipe_rec_bind rec = {
		.kind = o->kind,
		.capacity = o->capacity,
		.linger_ns = (uint64_t)o->linger_ns,
		.name_len = (uint16_t)strlen(e->name),
		.token_len = (uint16_t)o->token_len,
		.peer_len = (uint16_t)peer_len,
	};
	struct kv_record r = {
		.opcode = KVPIPE_OPCODE_BIND,
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { e->name, rec.name_len }, { o->token, o->token_len }, { o->peer, peer_len } },
	};

	if (kv_now() >= deadline)
		return kv_end_says(e, KVPIPE_E_TIMEOUT, o->what, KV_UNASKED);
	pthread_mutex_lock(&e->kv->lock);
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_BIND);
	pthread_mutex_unlock(&e->kv->lock);
	int err = op == NULL ? kv_err(KVPIPE_E_QUOTA, "out of memory") : kv_end_submit(e, op, &r, deadline, &e->bind);
	if (err == 0)
		err = kv_end_sync(e, o->what, deadline);
	pthread_mutex_lock(&e->kv->lock);
	int over = kv_end_error(e, o->what); /* why it is over says more than that an answer did not come */
	pthread_mutex_unlock(&e->kv->lock);
	if (over == 0 && err == -KVPIPE_E_TIMEOUT)
		return kv_end_says(e, KVPIPE_E_TIMEOUT, o->what, "the daemon does not answer: " KV_LOOK);
	return over != 0 || err >= 0 ? over : err;
}

/* The memory of a home's arena takes as long as the kernel needs. That is not the daemon's time. */
static int furnish(struct kv_end *e, int64_t *deadline)
{
	int64_t begun = kv_now();
	int err = kv_end_make(e, kv_home_bytes(e->capacity), e->capacity);

	*deadline = kv_after(*deadline, kv_now() - begun);
	return err != 0 ? err : kv_end_tell(e, *deadline);
}

/* One attempt. *life: which of the parent's daemons it was made with. */
static int attempt(kvpipe_t *parent, const struct kv_end_opts *o, struct kv_end *e, size_t peer_len, int64_t *deadline, uint64_t *life)
{
	int err = connect_when_there(parent, o->what, *deadline, life, &e->kv);

	if (err != 0)
		return err;
	pthread_mutex_lock(&e->kv->lock);
	e->kv->end = e;
	pthread_mutex_unlock(&e->kv->lock);
	if (e->home)
		err = furnish(e, deadline);
	return err != 0 ? err : bind_end(e, o, peer_len, *deadline);
}

/* Whether the daemon has gone under an end that is being opened. One that refuses the end, or breaks the protocol, has not. */
static bool left(struct kv_end *e)
{
	if (e->kv == NULL)
		return false;
	pthread_mutex_lock(&e->kv->lock);
	bool gone = (e->kv->state == KV_GONE || e->kv->state == KV_BYE) && e->kv->end_reason == KVPIPE_E_UNAVAILABLE;
	pthread_mutex_unlock(&e->kv->lock);
	return gone;
}

/* Undoes an attempt whose daemon has gone. That daemon had only the end's name, which the next one does not know: it is as if
 * nothing had been asked for. */
static void start_over(struct kv_end *e, int64_t deadline)
{
	kv_close(e->kv, deadline);
	e->kv = NULL;
	if (e->pool != NULL)
		kv_pool_unref(e->pool);
	e->pool = NULL;
	kv_end_drop_made(e);
	kv_eops_drop(e);
	e->over = false;
	e->bind = 0;
}

static int open_beside(kvpipe_t *parent, const struct kv_end_opts *o, struct kv_end *e, size_t peer_len, int64_t *deadline)
{
	for (uint64_t asked = 0, life = 0;; asked = life) {
		int err = attempt(parent, o, e, peer_len, deadline, &life);
		/* The same daemon is tried twice, as the parent may not have heard yet that it went; but not for ever. */
		if (err == 0 || !left(e) || life == asked)
			return err;
		start_over(e, *deadline);
	}
}

static void link_to(struct kv_end *e, kvpipe_t *parent)
{
	kv_process_lock();
	e->parent = parent;
	e->next = parent->ends;
	if (e->next != NULL)
		e->next->prev = e;
	parent->ends = e;
	kv_process_unlock();
}

/* Needs the process lock, which guards the ends of all sessions: several threads may close an end and its parent. */
static void unlink_it(struct kv_end *e)
{
	if (e->parent == NULL)
		return;
	if (e->prev != NULL)
		e->prev->next = e->next;
	else
		e->parent->ends = e->next;
	if (e->next != NULL)
		e->next->prev = e->prev;
	e->parent = NULL;
	e->prev = e->next = NULL;
}

int kv_end_open(kvpipe_t *parent, const struct kv_end_opts *o, struct kv_end *e)
{
	int64_t deadline = kv_now() + KV_CALL_NS;
	size_t name_len, peer_len;
	int err = kv_enter(parent);

	if (err == 0)
		err = check(o, &name_len, &peer_len);
	if (err == 0)
		err = kv_over(parent);
	if (err != 0) {
		free(e);
		return err;
	}
	e->process = kv_process_mark();
	memcpy(e->name, o->name, name_len);
	e->home = o->capacity > 0;
	e->lookup = o->kind == KVPIPE_BIND_OWN || o->kind == KVPIPE_BIND_SELECT;
	e->capacity = o->capacity;
	e->ready = o->ready;
	e->refs = 1;
	pthread_mutex_init(&e->gate, NULL);
	pthread_mutex_init(&e->pump, NULL);
	pthread_cond_init(&e->idle, NULL);
	err = open_beside(parent, o, e, peer_len, &deadline);
	if (err != 0) {
		char why[KV_TEXT];
		snprintf(why, sizeof(why), "%s", kvpipe_last_error());
		e->bind = 0; /* nothing is to be sealed */
		if (e->kv != NULL && err == -KVPIPE_E_TIMEOUT)
			e->kv->curt = true;
		kv_end_finish(e, deadline); /* what is fenced is nobody's: no time beyond the call's is waited for it */
		kv_end_unref(e);
		return kv_err((enum kvpipe_reason)-err, "%s", why); /* not the error of the close, of a daemon that stands still */
	}
	link_to(e, parent);
	return 0;
}

int kv_end_enter(struct kv_end *e, const char *what)
{
	if (e == NULL)
		return kv_err(KVPIPE_E_INVALID, "%s: the handle is NULL", what);
	if (!kv_process_is(e->process))
		return kv_err(KVPIPE_E_CLOSED, "%s: it belongs to the parent process: connect and open it again after fork()", what);
	pthread_mutex_lock(&e->gate);
	bool closing = e->closing;
	if (!closing)
		e->users++;
	pthread_mutex_unlock(&e->gate);
	return closing ? kv_err(KVPIPE_E_CLOSED, "%s: \"%s\" was closed", what, e->name) : 0;
}

void kv_end_leave(struct kv_end *e)
{
	pthread_mutex_lock(&e->gate);
	if (--e->users == 0 && e->closing)
		pthread_cond_broadcast(&e->idle);
	pthread_mutex_unlock(&e->gate);
}

void kv_end_ref(struct kv_end *e)
{
	pthread_mutex_lock(&e->gate);
	e->refs++;
	pthread_mutex_unlock(&e->gate);
}

void kv_end_unref(struct kv_end *e)
{
	if (kv_process_is(e->process)) {
		pthread_mutex_lock(&e->gate);
		bool last = --e->refs == 0;
		pthread_mutex_unlock(&e->gate);
		if (!last)
			return;
		pthread_cond_destroy(&e->idle);
		pthread_mutex_destroy(&e->pump);
		pthread_mutex_destroy(&e->gate);
	} else if (__atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL) != 0) { /* in a child, the gate may be held by a thread that is not here */
		return;
	}
	kv_eops_drop(e);
	free(e->declines);
	free(e->cancels);
	free(e);
}

/* Ends the calls of other threads and waits for them. False: another thread was first, and has closed the end by now. */
static bool close_gate(struct kv_end *e)
{
	pthread_mutex_lock(&e->gate);
	bool first = !e->closing;
	e->closing = true;
	pthread_mutex_unlock(&e->gate);
	if (first && e->kv != NULL) {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_over(e, KVPIPE_E_CLOSED, "it was closed");
		kv_end_unlock(e);
	}
	pthread_mutex_lock(&e->gate);
	while (e->users > 0 || (!first && !e->finished))
		pthread_cond_wait(&e->idle, &e->gate);
	pthread_mutex_unlock(&e->gate);
	return first;
}

void kv_end_finish(struct kv_end *e, int64_t deadline)
{
	if (!kv_process_is(e->process)) {
		kvpipe_close(e->kv); /* in a child: frees only what is the child's own */
		if (e->pool != NULL)
			kv_pool_forget(e->pool);
		if (e->made != NULL)
			kv_pool_forget(e->made);
		e->kv = NULL;
		e->pool = e->made = NULL;
		return;
	}
	kv_process_lock();
	unlink_it(e);
	kv_process_unlock();
	if (!close_gate(e))
		return;
	/* Everything that was sent has been submitted. A daemon that does not answer seals nothing: it gets a second, no more. */
	if (e->home && e->bind != 0) {
		int64_t second = kv_now() + KV_SEC;
		(void)kv_end_ask(e, "close", KVPIPE_OPCODE_SEAL, e->bind, second < deadline ? second : deadline);
	}
	kv_close(e->kv, deadline);
	if (e->pool != NULL)
		kv_pool_unref(e->pool);
	kv_end_drop_made(e);
	pthread_mutex_lock(&e->gate);
	e->kv = NULL;
	e->pool = NULL;
	e->finished = true;
	pthread_cond_broadcast(&e->idle);
	pthread_mutex_unlock(&e->gate);
}

void kv_end_await(struct kv_end *e)
{
	pthread_mutex_lock(&e->gate);
	while (!e->finished)
		pthread_cond_wait(&e->idle, &e->gate);
	pthread_mutex_unlock(&e->gate);
}

void kv_ends_finish(kvpipe_t *parent, int64_t deadline)
{
	for (;;) {
		kv_process_lock();
		struct kv_end *e = parent->ends;
		if (e != NULL) {
			parent->ends = e->next;
			unlink_it(e);
			kv_end_ref(e);
		}
		kv_process_unlock();
		if (e == NULL)
			return;
		kv_end_finish(e, deadline);
		kv_end_unref(e);
	}
}

int kv_end_timeout(const char *what, int64_t timeout_ns, int64_t *deadline)
{
	if (timeout_ns < 0 || timeout_ns == KVPIPE_FOREVER)
		return kv_err(KVPIPE_E_INVALID, "%s: timeout of %lld ns: must be 0 or more, and finite", what, (long long)timeout_ns);
	*deadline = kv_after(kv_now(), timeout_ns);
	return 0;
}

void kv_end_over(struct kv_end *e, enum kvpipe_reason reason, const char *text)
{
	if (e->over)
		return; /* the first reason stands */
	e->over = true;
	e->reason = reason;
	snprintf(e->text, sizeof(e->text), "%s", text);
	e->kv->fresh = true;
}

int kv_end_says(const struct kv_end *e, enum kvpipe_reason reason, const char *what, const char *text)
{
	char quoted[KVPIPE_MAX_NAME + 3];

	snprintf(quoted, sizeof(quoted), "\"%s\"", e->name);
	if (strstr(text, quoted) != NULL)
		return kv_err(reason, "%s: %s", what, text);
	return kv_err(reason, "%s: %s: %s", what, quoted, text);
}

int kv_end_error(struct kv_end *e, const char *what)
{
	return e->over ? kv_end_says(e, e->reason, what, e->text) : kv_ended(e->kv);
}

bool kv_end_wait(struct kv_end *e, bool (*when)(void *arg), void *arg, int64_t deadline)
{
	struct kv_waiter w = { .kind = KV_WAIT_WHEN, .when = when, .arg = arg };

	return kv_wait_until(e->kv, &w, deadline);
}

void kv_end_look(struct kv_end *e)
{
	if (e->kv->fd_used) /* cleared before looking, so that what comes later rings again */
		kv_event_clear(e->kv->rings.cq_event);
	kv_drain(e->kv);
}

void kv_end_nap(struct kv_end *e)
{
	struct timespec ts = kv_timespec(KV_NAP_NS);

	kv_end_unlock(e);
	nanosleep(&ts, NULL);
	pthread_mutex_lock(&e->kv->lock);
	kv_end_look(e);
}

void kv_end_unlock(struct kv_end *e)
{
	if (e->kv->waiters != NULL)
		kv_wake_waiters(e->kv);
	kv_settle(e->kv);
	pthread_mutex_unlock(&e->kv->lock);
}
