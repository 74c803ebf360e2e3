/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coming back to a daemon that was restarted. The helper sends HELLO with the old session's id and secret, then what the last
 * daemon had been told in control messages: regions first, since layouts name them. Everybody else waits meanwhile. Before
 * kv_install() other threads see only this much, under lock: whether a daemon was told of memory, its names for regions, and why
 * it did not take the session.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct attempt {
	kvpipe_t *kv;
	struct kv_message *m;
	int sock; /* negative: there is none; -errno of the dial */
	struct kvpipe_welcome welcome;
	struct kv_rings rings;
	enum kv_came came; /* of the last exchange */
	enum kvpipe_reason reason; /* why a daemon refused, or is not reached; 0: none is there */
	char text[KV_TEXT];
};

/* Decides from the daemon's refusal whether it is of use to try again. */
static enum kv_came judge(struct attempt *a, uint32_t reason, const char *text)
{
	a->reason = reason != KVPIPE_OK && reason <= KVPIPE_E_CLOSED ? (enum kvpipe_reason)reason : KVPIPE_E_INVALID;
	switch (reason) {
	case KVPIPE_E_UNAVAILABLE: /* it is about to go */
	case KVPIPE_E_BUSY:        /* what was before us has not ended yet */
	case KVPIPE_E_QUOTA:       /* others may leave */
	case KVPIPE_E_TIMEOUT:
	case KVPIPE_E_PEER_GONE:
		snprintf(a->text, sizeof(a->text), "the daemon of after the restart does not take the session yet: %.400s",
			 text[0] != '\0' ? text : kvpipe_strerror((int)reason));
		return KV_AGAIN;
	default:
		snprintf(a->text, sizeof(a->text), "the daemon of after the restart refused the session: %.400s",
			 text[0] != '\0' ? text : kvpipe_strerror((int)reason));
		return KV_OVER;
	}
}

/* A daemon may be there, but something on our side keeps the session from it. It is tried again. */
static enum kv_came apart(struct attempt *a)
{
	a->reason = KVPIPE_E_UNAVAILABLE;
	snprintf(a->text, sizeof(a->text), "the session does not reach the daemon of after the restart yet: %.400s", kvpipe_last_error());
	return KV_AGAIN;
}

/* A daemon is there and has not answered. It is tried again. */
static enum kv_came silent(struct attempt *a)
{
	a->reason = KVPIPE_E_UNAVAILABLE;
	snprintf(a->text, sizeof(a->text), "the daemon of after the restart does not answer: " KV_LOOK);
	return KV_AGAIN;
}

/* Sends a request and waits for its answer: an ACK, whose value goes to *value, or, to HELLO, a WELCOME, which stays in m with its
 * descriptors. */
static enum kv_came exchange(struct attempt *a, uint16_t type, const void *body, size_t len, int fd, uint64_t *value)
{
	uint32_t seq = kv_ctl_next_seq(a->kv);
	int64_t end = kv_now() + KV_CALL_NS;
	struct kvpipe_ack ack;
	char text[KV_TEXT];

	int err = kv_ctl_send(a->sock, type, seq, body, len, fd, 0);
	if (err != 0)
		return err == -KVPIPE_E_QUOTA ? apart(a) : err == -KVPIPE_E_TIMEOUT ? silent(a) : KV_AGAIN;
	for (;;) {
		enum kv_came came = kv_helper_wait(a->kv, a->sock, end);
		if (came != KV_CAME)
			return came == KV_AGAIN ? silent(a) : came;
		int got = kv_ctl_recv(a->sock, a->m, 0);
		if (got < 0)
			return a->m->full ? judge(a, KVPIPE_E_QUOTA, kv_why(EMFILE)) : KV_AGAIN;
		if (got == 0)
			continue;
		if (a->m->head.type == KVPIPE_CTL_WELCOME && type == KVPIPE_CTL_HELLO)
			return KV_CAME;
		kv_ctl_close_fds(a->m);
		bool bye = a->m->head.type == KVPIPE_CTL_BYE;
		if (!bye && (a->m->head.type != KVPIPE_CTL_ACK || a->m->head.seq != seq))
			continue;
		if (!kv_ctl_ack(a->m, &ack, text))
			return KV_AGAIN;
		if (bye || ack.reason != KVPIPE_OK)
			return judge(a, ack.reason, text);
		if (value != NULL)
			*value = ack.value;
		return KV_CAME;
	}
}

static enum kv_came hello(struct attempt *a)
{
	enum kv_came came = exchange(a, KVPIPE_CTL_HELLO, &a->kv->hello, sizeof(a->kv->hello), -1, NULL);

	if (came != KV_CAME)
		return came;
	if (a->m->head.type != KVPIPE_CTL_WELCOME)
		return KV_AGAIN;
	int err = kv_welcome(a->m, &a->welcome, &a->rings);
	kv_ctl_close_fds(a->m);
	if (err == 0 && a->welcome.rank != a->kv->rank)
		err = kv_err(KVPIPE_E_INCOMPATIBLE, "welcome: rank is %u, it was %u", a->welcome.rank, a->kv->rank);
	return err == 0 ? KV_CAME : judge(a, (uint32_t)-err, kvpipe_last_error());
}

/*
 * Notes the region's state, of which the daemon is about to be told. False: it was unregistered meanwhile. What the engine's scheduler
 * brings along may be about what the memory held before a nap, and nobody could tell a daemon to end it. So the daemon hears that the
 * memory was away, even if it is back.
 */
static bool tell(const struct attempt *a, struct kv_region *r, bool *away)
{
	kvpipe_t *kv = a->kv;

	pthread_mutex_lock(&kv->lock);
	bool here = !r->gone;
	if (here) {
		*away = r->told = r->invalid;
		r->wakes = !*away && r->napped && (a->welcome.says & KVPIPE_SAYS_INVALID) != 0;
		r->unsure = false;
		kv->helper.telling |= !*away;
		kv->told |= !*away;
	}
	pthread_mutex_unlock(&kv->lock);
	return here;
}

static enum kv_came regions(struct attempt *a)
{
	kvpipe_t *kv = a->kv;
	bool away;

	kv_regions_sweep(kv);
	for (struct kv_region *r = kv->regions; r != NULL; r = r->next) {
		struct kvpipe_register body = r->body;
		uint64_t id = 0;
		if (!tell(a, r, &away)) /* start over without it */
			return KV_AGAIN;
		if (away && (a->welcome.says & KVPIPE_SAYS_INVALID) == 0)
			return judge(a, KVPIPE_E_UNAVAILABLE, "it is older than invalid regions: revalidate them, or run a newer one");
		bool invalid = away || r->wakes;
		body.flags |= invalid ? KVPIPE_REGISTER_INVALID : 0;
		enum kv_came came = exchange(a, KVPIPE_CTL_REGISTER, &body, sizeof(body), invalid ? -1 : r->fd, &id);
		pthread_mutex_lock(&kv->lock);
		r->remote = came == KV_CAME ? id : r->remote;
		pthread_mutex_unlock(&kv->lock);
		if (came != KV_CAME)
			return came;
	}
	return KV_CAME;
}

static int send_layout(void *arg, const void *body, size_t len)
{
	struct attempt *a = arg;

	a->came = exchange(a, KVPIPE_CTL_LAYOUT, body, len, -1, NULL);
	return a->came == KV_CAME ? 0 : KV_LOST;
}

static enum kv_came layout(struct attempt *a)
{
	kvpipe_t *kv = a->kv;

	pthread_mutex_lock(&kv->lock);
	/* A layout whose memory was unregistered stays the session's, but the daemon is not told of it: every operation is refused. */
	const struct kv_layout *l = kv_layout_whole(kv) ? kv->layout : NULL;
	pthread_mutex_unlock(&kv->lock);
	a->came = KV_CAME;
	if (l != NULL && kv_layout_messages(kv, l, send_layout, a) != 0 && a->came == KV_CAME)
		a->came = KV_AGAIN; /* out of memory, or a region was given up just now */
	return a->came;
}

/* Only now, with the layout, does the daemon know what the memory is of. */
static enum kv_came wake(struct attempt *a)
{
	enum kv_came came = KV_CAME;

	for (struct kv_region *r = a->kv->regions; r != NULL && came == KV_CAME; r = r->next) {
		struct kvpipe_revalidate body = { .region = r->remote };
		if (r->wakes)
			came = exchange(a, KVPIPE_CTL_REVALIDATE, &body, sizeof(body), r->fd, NULL);
	}
	return came;
}

/*
 * The daemon knows our memory but does not have the session. Until it has fenced, it may move bytes there at the word of the
 * engine's scheduler. Waits for the fence (true), at most 5 s (false). In both cases the daemon is asked again. When it has not
 * fenced, its socket is kept: closing the session, or taking memory back, waits for the fence.
 */
static bool part(struct attempt *a, enum kv_came why)
{
	int64_t end = kv_now() + KV_CALL_NS;

	if (why != KV_AGAIN) /* the session is at its end */
		(void)kv_ctl_send(a->sock, KVPIPE_CTL_BYE, kv_ctl_next_seq(a->kv), NULL, 0, -1, 0);
	shutdown(a->sock, SHUT_WR);
	while (kv_helper_wait(a->kv, a->sock, end) == KV_CAME) {
		int got = kv_ctl_recv(a->sock, a->m, 0);
		if (got == KV_RECV_EOF)
			return true;
		kv_ctl_close_fds(a->m);
	}
	return false;
}

/*
 * Keeps the reason for calls that time out meanwhile: the advice to start a daemon would not help them. While a daemon has not
 * fenced yet, the reason that it gave stands: that it is not done with the session, or does not answer, is no news.
 */
static void remember(kvpipe_t *kv, const struct attempt *a, enum kv_came came)
{
	if (kv->helper.nunfenced > 0 && came != KV_OVER)
		return;
	pthread_mutex_lock(&kv->lock);
	kv->refused = a->reason;
	if (kv->refused != 0)
		memcpy(kv->refusal, a->text, sizeof(kv->refusal));
	pthread_mutex_unlock(&kv->lock);
}

/* The same as soon as a daemon is there, unless the one before has said more: to wait for its answer takes longer than most calls do. */
static void found(struct attempt *a)
{
	if (a->kv->refused == 0) /* the helper alone writes it */
		remember(a->kv, a, silent(a));
	a->reason = KVPIPE_OK;
}

static enum kv_came attempt(struct attempt *a)
{
	struct kv_paths paths = { .n = 1 };
	const char *path;

	kv_regions_sweep(a->kv); /* also while no daemon takes the session: the system gets the pages back */
	if (a->kv->helper.nunfenced == KV_UNFENCED) /* nowhere to keep another one's socket */
		return KV_AGAIN;
	memcpy(paths.path[0], a->kv->path, sizeof(paths.path[0]));
	/* Only a full backlog can take time here. */
	int err = kv_dial(&paths, kv_now() + 50 * KV_MS, &a->sock, &path);
	if (err != 0)
		return kv_nobody(-a->sock) ? KV_AGAIN : apart(a);
	found(a);
	enum kv_came came = hello(a);
	if (came == KV_CAME)
		came = regions(a);
	if (came == KV_CAME)
		came = layout(a);
	if (came == KV_CAME)
		came = wake(a);
	if (came != KV_CAME)
		return came;
	err = kv_install(a->kv, &a->rings, &a->welcome, a->sock);
	if (err == -KVPIPE_E_QUOTA)
		return apart(a);
	return err == 0 ? KV_CAME : err == -KVPIPE_E_CLOSED ? KV_STOP : KV_AGAIN;
}

/* Leaves a daemon that does not have the session. */
static void leave(struct attempt *a, enum kv_came why)
{
	struct kv_helper *h = &a->kv->helper;

	if (a->sock < 0)
		return;
	kv_rings_unmap(&a->rings);
	if (h->telling && !part(a, why))
		h->unfenced[h->nunfenced++] = a->sock;
	else
		close(a->sock);
}

/*
 * A restarted daemon is mostly back soon, so it is asked often at first, and later two to four times a second. The jitter spreads
 * out the many clients that lost it together.
 */
static int64_t pause_after(int64_t away)
{
	int64_t most = away / 8;
	uint16_t r = 0;

	most = most < 5 * KV_MS ? 5 * KV_MS : most > KV_SEC / 2 ? KV_SEC / 2 : most;
	(void)kv_random(&r, sizeof(r));
	return most / 2 + most / 2 * r / UINT16_MAX;
}

enum kv_came kv_reattach(kvpipe_t *kv, struct kv_message *m)
{
	int64_t since = kv_now();

	for (;;) {
		struct attempt a = { .kv = kv, .m = m, .sock = -1, .rings = { .sq_event = -1, .cq_event = -1 } };
		enum kv_came came = attempt(&a);
		remember(kv, &a, came);
		if (came != KV_CAME)
			leave(&a, came);
		kv->helper.telling = false;
		kv_untold(kv);
		if (came == KV_OVER && !kv_unfenced_await(kv))
			came = KV_STOP;
		if (came == KV_OVER)
			kv_session_over(kv, a.reason, a.text);
		if (came == KV_AGAIN)
			came = kv_helper_wait(kv, -1, kv_now() + pause_after(kv_now() - since));
		if (came != KV_AGAIN)
			return came;
	}
}
