/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session's one thread. It reads the control socket (answers, BYE, end of file), ends operations whose deadline
 * passed while the daemon was silent, and runs no code of the caller's. No completion passes through it on the way
 * to a waiter. Of an end with many items under way it collects what nobody may be waiting for. All signals are blocked in it.
 *
 * Only this thread notices that the daemon is lost, and it brings the session back to the next one (attach.c).
 */
#include "internal.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bye(kvpipe_t *kv, const struct kv_message *m)
{
	struct kvpipe_ack why = { .reason = KVPIPE_E_CLOSED };
	char said[KV_TEXT], text[KV_TEXT];

	if (!kv_ctl_ack(m, &why, said))
		said[0] = '\0';
	snprintf(text, sizeof(text), "the daemon ended the session: %.480s",
		 said[0] != '\0' ? said : kvpipe_strerror((int)why.reason));
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv);
	if (why.reason != KVPIPE_E_UNAVAILABLE || kv->role == KVPIPE_ROLE_ENDPOINT) { /* what a pipe holds does not come back */
		kv_session_end(kv, KV_BYE, why.reason == KVPIPE_E_UNAVAILABLE ? KVPIPE_E_UNAVAILABLE : KVPIPE_E_CLOSED, text);
	} else if (kv->state == KV_LIVE || kv->state == KV_REPLAY) {
		kv_set_state(kv, KV_LEAVING); /* a daemon will be back; this one is fencing now */
		kv->helper.ping = 0;
		kv_offers_left(kv);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
}

static void malformed(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	kv_broken(kv, "malformed control message");
	pthread_mutex_unlock(&kv->lock);
}

/* Reads what is in the socket. False: end of file. */
static bool read_all(kvpipe_t *kv, struct kv_message *m)
{
	int got;

	while ((got = kv_ctl_recv(kv->ctl.fd, m, 0)) != 0) {
		if (got == KV_RECV_EOF)
			return false;
		kv_ctl_close_fds(m); /* none of these messages carries any for us */
		if (got == KV_RECV_BAD)
			malformed(kv);
		else if (m->head.type == KVPIPE_CTL_ACK && kv->helper.ping != 0 && m->head.seq == kv->helper.ping) {
			kv->helper.ping = 0;
			pthread_mutex_lock(&kv->lock);
			kv_offers_alive(kv, true);
			pthread_mutex_unlock(&kv->lock);
		} else if (m->head.type == KVPIPE_CTL_ACK) {
			kv_ctl_answer(kv, m);
		} else if (m->head.type == KVPIPE_CTL_BYE) {
			bye(kv, m);
		}
		/* Anything else comes from a newer daemon, and is meant for a library that asked for it. */
	}
	return true;
}

static bool read_socket(kvpipe_t *kv, struct kv_message *m)
{
	__atomic_store_n(&kv->helper.reading, true, __ATOMIC_RELEASE);
	bool more = read_all(kv, m);
	__atomic_store_n(&kv->helper.reading, false, __ATOMIC_RELEASE);
	return more;
}

/* Whether something lies unread in the socket. */
static bool unread(const kvpipe_t *kv)
{
	struct pollfd p = { .fd = kv->ctl.fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

bool kv_helper_has_more(const kvpipe_t *kv)
{
	return unread(kv) || __atomic_load_n(&kv->helper.reading, __ATOMIC_ACQUIRE);
}

/*
 * Acts on deadlines that passed; returns when to look again. Consumers renew an offer's lease, so when its deadline has
 * passed the daemon is asked, and the offer ends only if the daemon is silent. If it was this process that stood still, the
 * answer lies unread in the socket.
 */
static int64_t deadlines(kvpipe_t *kv)
{
	struct kv_helper *h = &kv->helper;
	int64_t now = kv_now();
	bool ask = false;

	pthread_mutex_lock(&kv->lock);
	if (h->ping != 0 && now >= h->ping_end && !unread(kv)) {
		h->ping = 0;
		kv_offers_alive(kv, false);
	}
	int64_t next = kv_deadlines(kv, now, &ask);
	if (ask && h->ping == 0) {
		h->ping = kv_ctl_next_seq(kv);
		/* A daemon whose socket takes no message is as silent as one that answers none. */
		(void)kv_ctl_send(kv->ctl.fd, KVPIPE_CTL_PING, h->ping, NULL, 0, -1, 0);
		h->ping_end = kv_now() + KV_GRACE_NS; /* its time begins now, though this process stood still before it asked */
	}
	if (h->ping != 0 && h->ping_end < next)
		next = h->ping_end;
	h->target = next;
	pthread_mutex_unlock(&kv->lock);
	return next;
}

enum kv_came kv_helper_wait(kvpipe_t *kv, int fd, int64_t until)
{
	struct pollfd p[2 + KV_UNFENCED] = {
		{ .fd = kv->helper.wake, .events = POLLIN },
		{ .fd = fd, .events = POLLIN },
	};

	for (;;) {
		int64_t next = deadlines(kv), now = kv_now();
		next = next < until ? next : until;
		struct timespec ts = kv_timespec(next > now ? next - now : 0);
		p[0].revents = p[1].revents = 0;
		kv_unfenced_watch(kv, p + 2);
		(void)ppoll(p, KV_COUNT(p), next == INT64_MAX ? NULL : &ts, NULL);
		kv_unfenced_look(kv, p + 2);
		if (p[0].revents != 0)
			kv_event_clear(kv->helper.wake);
		pthread_mutex_lock(&kv->lock);
		bool stop = kv->helper.stop;
		bool kicked = __atomic_exchange_n(&kv->helper.kicked, false, __ATOMIC_RELAXED) && kv->state != KV_AWAY;
		pthread_mutex_unlock(&kv->lock);
		if (stop) {
			kv_event_signal(kv->helper.wake); /* for the next wait, which would not hear of it again */
			return KV_STOP;
		}
		if (p[1].revents != 0)
			return KV_CAME;
		if (kicked || kv_now() >= until)
			return KV_AGAIN;
	}
}

static enum kv_state state_of(kvpipe_t *kv)
{
	return (enum kv_state)__atomic_load_n(&kv->state, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
	kvpipe_t *kv = arg;
	struct kv_message m = { .body = kv->helper.body };
	enum kv_came came = KV_AGAIN;

	while (came != KV_STOP) {
		if (state_of(kv) == KV_AWAY) {
			came = kv_reattach(kv, &m);
			continue;
		}
		/* If something is left to send, as the ring was full, it looks again soon. */
		bool all = state_of(kv) != KV_REPLAY || kv_replay(kv);
		all = kv_withdraw_spoiled(kv) && all;
		int64_t again = all ? INT64_MAX : kv_now() + KV_MS, look = kv_put_mind(kv);
		came = kv_helper_wait(kv, state_of(kv) == KV_GONE ? -1 : kv->ctl.fd, look < again ? look : again);
		if (came == KV_CAME && !read_socket(kv, &m))
			kv_daemon_gone(kv);
	}
	kv_unfenced_close(kv);
	return NULL;
}

int kv_helper_start(kvpipe_t *kv)
{
	sigset_t all, old;

	kv->helper.body = malloc(KVPIPE_CTL_MAX);
	if (kv->helper.body == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&kv->helper.thread, NULL, run, kv);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return kv_err(KVPIPE_E_QUOTA, "cannot start the session's thread: %s", strerror(err));
	kv->helper.started = true;
	pthread_setname_np(kv->helper.thread, "kvpipe");
	return 0;
}

void kv_helper_stop(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	kv->helper.stop = true;
	pthread_mutex_unlock(&kv->lock);
	kv_event_signal(kv->helper.wake);
	pthread_join(kv->helper.thread, NULL);
	kv->helper.started = false;
}

void kv_helper_before(kvpipe_t *kv, int64_t deadline)
{
	/* It mostly sleeps until the deadline of an older operation, which may have ended long ago: then no system call is needed. */
	if (deadline < kv->helper.target) {
		kv->helper.target = deadline;
		kv_event_signal(kv->helper.wake);
	}
}

void kv_helper_kick(kvpipe_t *kv)
{
	__atomic_store_n(&kv->helper.kicked, true, __ATOMIC_RELAXED);
	kv_event_signal(kv->helper.wake);
}
