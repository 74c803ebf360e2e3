/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a session, and how it ends when we are not the ones who end it. */
#include "endpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int kv_enter(const kvpipe_t *kv)
{
	if (kv == NULL)
		return kv_err(KVPIPE_E_INVALID, "the session is NULL");
	if (!kv_process_is(kv->process))
		return kv_err(KVPIPE_E_CLOSED, "the session belongs to the parent process: connect again after fork()");
	return 0;
}

bool kv_awaits(int state)
{
	return state == KV_LEAVING || state == KV_AWAY || state == KV_REPLAY;
}

bool kv_is_over(int state)
{
	return state == KV_BYE || state == KV_BROKEN || state == KV_GONE;
}

int kv_ended(kvpipe_t *kv)
{
	switch (kv->state) {
	case KV_BYE:
	case KV_BROKEN:
		return kv_err(kv->end_reason, "%s", kv->end_text);
	case KV_GONE:
		return kv_err(kv->end_reason, "%s: close the session and connect again", kv->end_text);
	default:
		break;
	}
	uint32_t closed = kvpipe_load_acquire(&kv->rings.d->closed);
	if (closed != 0 && !kv_awaits(kv->state) && closed != KVPIPE_E_UNAVAILABLE) /* its BYE is on the way to the helper */
		return kv_err(KVPIPE_E_CLOSED, "the daemon ended the session: %s", kvpipe_strerror((int)closed));
	return 0;
}

int kv_over(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	int err = kv_ended(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}

void kv_set_state(kvpipe_t *kv, enum kv_state state)
{
	__atomic_store_n(&kv->state, (int)state, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&kv->back);
}

/* Ends the session for good; the first reason stands. */
static void set_end(kvpipe_t *kv, enum kv_state state, enum kvpipe_reason reason, const char *text)
{
	if (kv->state != KV_BYE && kv->state != KV_BROKEN) {
		kv->end_reason = reason;
		snprintf(kv->end_text, sizeof(kv->end_text), "%s", text);
	}
	kv_set_state(kv, state);
}

static void changed(kvpipe_t *kv)
{
	kv_wake_waiters(kv);
	kv_settle(kv);
}

void kv_session_end(kvpipe_t *kv, enum kv_state state, enum kvpipe_reason reason, const char *text)
{
	struct kv_op *op, *next;

	if (kv_is_over(kv->state))
		return;
	set_end(kv, state, reason, text);
	for (op = kv->live; op != NULL; op = next) {
		next = op->live_next;
		if (op->state == KV_RUNNING)
			kv_op_end_here(kv, op, reason, kv->end_text, true);
	}
	if (kv->end != NULL) /* a daemon that leaves will be back, without what the pipe held */
		kv_end_over(kv->end, reason == KVPIPE_E_UNAVAILABLE ? KVPIPE_E_RESTARTED : reason, kv->end_text);
	changed(kv);
}

void kv_session_over(kvpipe_t *kv, enum kvpipe_reason reason, const char *text)
{
	struct kv_op *op, *next;

	pthread_mutex_lock(&kv->lock);
	kv_drain(kv); /* what it said before it went still counts */
	set_end(kv, KV_GONE, reason, text);
	kv->helper.ping = 0; /* nobody answers it any more, and its end of file stays unread in the socket */
	kv->fresh = true;
	for (op = kv->live; op != NULL; op = next) {
		next = op->live_next;
		if (op->state == KV_RUNNING)
			kv_op_end_here(kv, op, kv->end_reason, kv->end_text, false);
		else
			kv_op_release_here(kv, op);
	}
	kv_notes_keep_foreign(kv); /* nothing touches what other sessions' operations held here, either */
	kv_notes_settle_foreign(kv);
	if (kv->end != NULL)
		kv_end_over(kv->end, KVPIPE_E_RESTARTED,
			    "the daemon went away, and what was in it with it: open it again once the daemon is back");
	changed(kv);
	pthread_mutex_unlock(&kv->lock);
	kv_ctl_lose_all(kv);
}

void kv_broken(kvpipe_t *kv, const char *fmt, ...)
{
	char text[KV_TEXT];
	va_list ap;

	if (kv->state != KV_LIVE && kv->state != KV_REPLAY && kv->state != KV_LEAVING)
		return;
	int n = snprintf(text, sizeof(text), "the daemon broke the ring protocol: ");
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	/* Our end of file makes the daemon fence; its end of file then tells us that it has. */
	shutdown(kv->ctl.fd, SHUT_WR);
	kv_session_end(kv, KV_BROKEN, KVPIPE_E_CLOSED, text);
}

static const char *own_text(const kvpipe_t *kv, const char *text)
{
	return kv != NULL && kv_process_is(kv->process) ? text : "";
}

const struct kv_names *kv_names(const kvpipe_t *kv)
{
	return __atomic_load_n(&kv->names, __ATOMIC_ACQUIRE);
}

const char *kvpipe_node(const kvpipe_t *kv)
{
	return own_text(kv, kv != NULL ? kv_names(kv)->node : NULL);
}

const char *kvpipe_instance(const kvpipe_t *kv)
{
	return own_text(kv, kv != NULL ? kv->instance : NULL);
}

const char *kvpipe_advertise(const kvpipe_t *kv)
{
	return own_text(kv, kv != NULL ? kv_names(kv)->advertise : NULL);
}

/* A daemon that stands still keeps its socket open, so the heartbeat tells: each call compares it with what was seen before. */
static bool beating(kvpipe_t *kv)
{
	uint64_t beat = kvpipe_load_acquire(&kv->rings.d->heartbeat);
	int64_t now = kv_now();

	if (beat != __atomic_load_n(&kv->beat, __ATOMIC_RELAXED)) {
		__atomic_store_n(&kv->beat_seen, now, __ATOMIC_RELAXED);
		__atomic_store_n(&kv->beat, beat, __ATOMIC_RELEASE);
		return true;
	}
	return beat == 0 || now - __atomic_load_n(&kv->beat_seen, __ATOMIC_RELAXED) < KV_CALL_NS;
}

int kvpipe_connected(const kvpipe_t *kv)
{
	if (kv == NULL || !kv_process_is(kv->process))
		return 0;
	int state = __atomic_load_n(&kv->state, __ATOMIC_RELAXED);
	if ((state != KV_LIVE && state != KV_REPLAY) || kvpipe_load_acquire(&kv->rings.d->closed) != 0)
		return 0;
	return beating((kvpipe_t *)(uintptr_t)kv) ? 1 : 0;
}
