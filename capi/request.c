/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the control socket. Any thread asks and waits; the helper reads the answers and hands them out. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

uint32_t kv_ctl_next_seq(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->ctl.lock);
	if (++kv->ctl.seq == 0)
		kv->ctl.seq = 1;
	uint32_t seq = kv->ctl.seq;
	pthread_mutex_unlock(&kv->ctl.lock);
	return seq;
}

static void unlink_pending(struct kv_ctl *ctl, const struct kv_pending *p)
{
	for (struct kv_pending **at = &ctl->pending; *at != NULL; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			return;
		}
	}
}

/* A registration that is answered after its caller gave up must be undone: nobody knows the region's id. */
static void leave_orphan(struct kv_ctl *ctl, const struct kv_pending *p)
{
	struct kv_pending *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return; /* the daemon drops the region with the session */
	o->seq = p->seq;
	o->orphan = true;
	o->next = ctl->pending;
	ctl->pending = o;
}

static int refused(const char *what, const struct kv_pending *p)
{
	const char *text = p->text[0] != '\0' ? p->text : kvpipe_strerror((int)p->ack.reason);
	uint32_t reason = p->ack.reason <= KVPIPE_E_CLOSED ? p->ack.reason : KVPIPE_E_INVALID;

	return kv_err((enum kvpipe_reason)reason, "%s: %s", what, text);
}

int kv_await_daemon(kvpipe_t *kv, const char *what, int64_t deadline, uint64_t *life)
{
	struct timespec ts = kv_timespec(deadline);
	int err = 0;

	pthread_mutex_lock(&kv->lock);
	while ((kv->state == KV_LEAVING || kv->state == KV_AWAY) && kv_now() < deadline)
		pthread_cond_timedwait(&kv->back, &kv->lock, &ts);
	if (kv->state == KV_AWAY && kv->refused != 0)
		err = kv_err(KVPIPE_E_UNAVAILABLE, "%s: %s", what, kv->refusal);
	else if (kv->state == KV_LEAVING)
		err = kv_err(KVPIPE_E_UNAVAILABLE, "%s: the daemon is stopping, and has not ended yet: start it again once it has", what);
	else if (kv->state == KV_AWAY)
		err = kv_err(KVPIPE_E_UNAVAILABLE, "%s: the daemon went away and is not back: start it again", what);
	*life = kv->state == KV_GONE ? 0 : kv->life;
	pthread_mutex_unlock(&kv->lock);
	return err;
}

int kv_await_session(kvpipe_t *kv, const char *what, int64_t deadline, uint64_t *life)
{
	int err = kv_await_daemon(kv, what, deadline, life);

	return err != 0 ? err : kv_over(kv);
}

/* Waits while a daemon that was told of the memory, but does not have the session, may still write there. */
int kv_await_untold(kvpipe_t *kv, const char *what, int64_t deadline)
{
	struct timespec ts = kv_timespec(deadline);

	while (kv->told && kv_now() < deadline)
		pthread_cond_timedwait(&kv->back, &kv->lock, &ts);
	if (kv->told)
		return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon of after the restart was told of the memory, and has not fenced it yet: call again",
			      what);
	return 0;
}

/* False: the daemon of that life is gone. */
static bool enlist(kvpipe_t *kv, uint64_t life, struct kv_pending *p)
{
	struct kv_ctl *ctl = &kv->ctl;

	p->seq = kv_ctl_next_seq(kv);
	pthread_mutex_lock(&ctl->lock);
	bool there = ctl->life == life && life != 0;
	if (there) {
		p->next = ctl->pending;
		ctl->pending = p;
	}
	pthread_mutex_unlock(&ctl->lock);
	return there;
}

/* The helper does not replace the socket meanwhile. It need not wait long: a dead daemon's socket refuses at once. */
static int send_request(kvpipe_t *kv, uint64_t life, struct kv_pending *p, const void *body, size_t len, int fd, int64_t deadline)
{
	int err = KV_LOST;

	pthread_rwlock_rdlock(&kv->ctl.in_use);
	if (enlist(kv, life, p))
		err = kv_ctl_send(kv->ctl.fd, p->type, p->seq, body, len, fd, deadline);
	pthread_rwlock_unlock(&kv->ctl.in_use);
	return err;
}

/*
 * False: there is no answer in time. Needs ctl.lock. If it was this process that stood still, the answer lies unread in the socket,
 * and the helper is about to hand it out: it has KV_GRACE_NS in which this process runs.
 */
static bool await_answer(kvpipe_t *kv, struct kv_pending *p, int64_t deadline)
{
	struct timespec ts = kv_timespec(deadline);
	int looks = KV_GRACE_NS / KV_MS;

	while (!p->done) {
		if (pthread_cond_timedwait(&p->cond, &kv->ctl.lock, &ts) == 0 || p->done)
			continue;
		if (looks-- == 0 || !kv_helper_has_more(kv))
			return false;
		ts = kv_timespec(kv_now() + KV_MS);
	}
	return true;
}

int kv_request(kvpipe_t *kv, const char *what, uint64_t life, uint16_t type, const void *body, size_t len, int fd,
	       int64_t deadline, uint64_t *value)
{
	struct kv_ctl *ctl = &kv->ctl;
	struct kv_pending p = { .type = type };
	int64_t start = kv_now();

	kv_cond_init(&p.cond);
	int err = send_request(kv, life, &p, body, len, fd, deadline);
	if (err == KV_LOST) {
		pthread_cond_destroy(&p.cond);
		return err;
	}
	if (err == -KVPIPE_E_UNAVAILABLE) /* its end of file has come: the helper is about to tell everybody */
		err = 0;
	pthread_mutex_lock(&ctl->lock);
	bool waited = err == 0;
	if (waited && !await_answer(kv, &p, deadline))
		err = start < deadline ? kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon does not answer within %s: " KV_LOOK, what, KV_SPAN(deadline - start))
				       : kv_err(KVPIPE_E_TIMEOUT, "%s: " KV_UNASKED, what);
	unlink_pending(ctl, &p);
	if (waited && err != 0 && type == KVPIPE_CTL_REGISTER)
		leave_orphan(ctl, &p);
	pthread_mutex_unlock(&ctl->lock);
	pthread_cond_destroy(&p.cond);

	if (err == 0 && p.lost)
		return KV_LOST;
	if (err == 0 && p.ack.reason != KVPIPE_OK)
		return refused(what, &p);
	if (err == 0 && value != NULL)
		*value = p.ack.value;
	return err;
}

void kv_ctl_answer(kvpipe_t *kv, const struct kv_message *m)
{
	struct kv_ctl *ctl = &kv->ctl;
	struct kv_pending *p;
	struct kvpipe_ack ack;
	char text[KV_TEXT];
	uint64_t undo = 0;

	if (!kv_ctl_ack(m, &ack, text)) {
		pthread_mutex_lock(&kv->lock);
		kv_broken(kv, "control message %u: malformed ack of %u bytes", m->head.seq, m->head.len);
		pthread_mutex_unlock(&kv->lock);
		return;
	}
	pthread_mutex_lock(&ctl->lock);
	for (p = ctl->pending; p != NULL && p->seq != m->head.seq;)
		p = p->next;
	if (p != NULL && p->orphan) {
		unlink_pending(ctl, p);
		undo = ack.reason == KVPIPE_OK ? ack.value : 0;
		free(p);
	} else if (p != NULL) {
		p->ack = ack;
		memcpy(p->text, text, sizeof(p->text));
		p->done = true;
		pthread_cond_signal(&p->cond);
	}
	pthread_mutex_unlock(&ctl->lock);
	if (undo != 0) {
		struct kvpipe_unregister body = { .region = undo, .timeout_ns = (uint64_t)KV_CALL_NS };
		kv_ctl_send(ctl->fd, KVPIPE_CTL_UNREGISTER, kv_ctl_next_seq(kv), &body, sizeof(body), -1,
			    kv_now() + KV_GRACE_NS);
	}
}

void kv_ctl_lose_all(kvpipe_t *kv)
{
	struct kv_ctl *ctl = &kv->ctl;

	pthread_mutex_lock(&ctl->lock);
	ctl->life = 0;
	struct kv_pending *next;
	for (struct kv_pending *p = ctl->pending; p != NULL; p = next) {
		next = p->next;
		if (p->orphan) {
			unlink_pending(ctl, p);
			free(p);
		} else if (!p->done) {
			p->lost = p->done = true;
			pthread_cond_signal(&p->cond);
		}
	}
	pthread_mutex_unlock(&ctl->lock);
}
