/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a session: HELLO out, WELCOME with the rings back. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int put(const char *what, const char *s, size_t min, char *to, size_t max)
{
	size_t len;
	int err = kv_check_text(what, s, max, &len);

	if (err == 0 && len < min)
		err = kv_err(KVPIPE_E_INVALID, "%s is required, 1 to %zu bytes", what, max);
	if (err == 0 && len > 0)
		memcpy(to, s, len);
	return err;
}

static int entries(const char *what, uint32_t value, uint32_t def, uint32_t *out)
{
	*out = value == 0 ? def : value;
	if ((*out & (*out - 1)) != 0 || *out > 65536)
		return kv_err(KVPIPE_E_INVALID, "connect: %s is %u: must be a power of two, at most 65536", what, *out);
	return 0;
}

static int make_hello(const struct kvpipe_connect_opts *o, struct kvpipe_hello *h)
{
	*h = (struct kvpipe_hello){
		.abi_min = KVPIPE_ABI_MIN,
		.abi_max = KVPIPE_ABI,
		.role = o->role,
		.tp_world = 1,
		.pp_world = 1,
		.pid = (uint32_t)getpid(),
	};
	int err = kv_check_zero("connect", o->reserved, KV_COUNT(o->reserved));
	if (err == 0 && o->flags != 0)
		err = kv_err(KVPIPE_E_INVALID, "connect: flags is %#x: must be 0", o->flags);
	if (err == 0 && o->role != KVPIPE_ROLE_WORKER && o->role != KVPIPE_ROLE_SCHEDULER)
		err = kv_err(KVPIPE_E_INVALID, "connect: role is %u: must be KVPIPE_ROLE_WORKER (1) or _SCHEDULER (2)", o->role);
	if (err == 0)
		err = entries("sq_entries", o->sq_entries, 1024, &h->sq_entries);
	if (err == 0)
		err = entries("cq_entries", o->cq_entries, 4096, &h->cq_entries);
	if (err == 0)
		err = put("connect: engine_id", o->engine_id, 1, h->engine, sizeof(h->engine));
	if (err == 0)
		err = put("connect: instance", o->instance, 0, h->instance, sizeof(h->instance));
	if (err != 0)
		return err;
	strncpy(h->library, kvpipe_version(), sizeof(h->library) - 1);
	/* Every take gets a slot while there are free ones: the daemon notes there whether bytes were granted. */
	h->layer_slots = h->cq_entries / 2 > KVPIPE_MAX_INFLIGHT ? KVPIPE_MAX_INFLIGHT : h->cq_entries / 2;
	if (h->layer_slots < 1024)
		h->layer_slots = 1024;
	h->tp_world = o->tp_world == 0 ? 1 : o->tp_world;
	h->pp_world = o->pp_world == 0 ? 1 : o->pp_world;
	if (o->role == KVPIPE_ROLE_SCHEDULER)
		return 0;
	h->tp_rank = o->tp_rank;
	h->pp_rank = o->pp_rank;
	if (h->tp_rank >= h->tp_world || h->pp_rank >= h->pp_world)
		return kv_err(KVPIPE_E_INVALID, "connect: rank (tp %u, pp %u) is outside the world (tp %u, pp %u)", h->tp_rank,
			      h->pp_rank, h->tp_world, h->pp_world);
	return 0;
}

int kv_welcome(struct kv_message *m, struct kvpipe_welcome *w, struct kv_rings *r)
{
	memset(w, 0, sizeof(*w));
	memcpy(w, m->body, m->head.len < sizeof(*w) ? m->head.len : sizeof(*w));
	/* Checked before anything that another version may do differently. */
	if (w->abi < KVPIPE_ABI_MIN || w->abi > KVPIPE_ABI)
		return kv_err(KVPIPE_E_INCOMPATIBLE,
			      "libkvpipe %s speaks ring protocol %u to %u, kvpiped %.64s chose %u: install matching versions",
			      kvpipe_version(), KVPIPE_ABI_MIN, KVPIPE_ABI, w->daemon, w->abi);
	if (m->head.len != sizeof(*w) || m->nfds != 4)
		return kv_err(KVPIPE_E_INCOMPATIBLE, "welcome of %u bytes with %d fds, must be %zu with 4", m->head.len, m->nfds,
			      sizeof(*w));
	m->nfds = 0; /* the rings own them now */
	return kv_rings_map(r, w, m->fds);
}

/* Applies the first WELCOME, with what stays as it is whichever daemon comes later. */
static int take_welcome(kvpipe_t *kv, struct kv_message *m)
{
	struct kvpipe_welcome w;
	struct kv_names *names;
	int err = kv_welcome(m, &w, &kv->rings);

	if (err == 0)
		err = kv_names_new(&w, &names);
	if (err != 0)
		return err;
	kv_welcome_apply(kv, &w, names);
	kv->rank = w.rank;
	kv->max_ids = w.max_ids;
	kv->max_views = w.max_views;
	memcpy(kv->instance, w.instance, strnlen(w.instance, sizeof(w.instance)));
	memcpy(kv->hello.instance, w.instance, sizeof(w.instance));
	return 0;
}

static int greet(kvpipe_t *kv, int64_t deadline)
{
	struct kv_message m = { .body = malloc(KVPIPE_CTL_MAX) };
	int64_t start = kv_now();
	struct kvpipe_ack ack;
	char why[KV_TEXT];

	if (m.body == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	int err = kv_ctl_send(kv->ctl.fd, KVPIPE_CTL_HELLO, kv_ctl_next_seq(kv), &kv->hello,
			      sizeof(kv->hello), -1, deadline);
	/* A daemon that closed the connection before it read the HELLO may have said why. */
	int got = kv_ctl_recv(kv->ctl.fd, &m, err == 0 ? deadline : 0);
	if (got > 0)
		err = 0;
	if (err == 0 && got == 0)
		err = kv_err(KVPIPE_E_UNAVAILABLE, "%s: the daemon does not answer within %s: " KV_LOOK, kv->path, KV_SPAN(deadline - start));
	else if (err == 0 && got < 0 && m.full)
		err = kv_err(KVPIPE_E_QUOTA, "connect: %s", kv_why(EMFILE));
	else if (err == 0 && got == KV_RECV_BAD)
		err = kv_err(KVPIPE_E_INCOMPATIBLE, "%s: a malformed message instead of a welcome: is it kvpiped?", kv->path);
	else if (err == 0 && got < 0)
		err = kv_err(KVPIPE_E_UNAVAILABLE, "%s: the daemon closed the connection without a reason", kv->path);
	else if (err == 0 && m.head.type == KVPIPE_CTL_WELCOME)
		err = take_welcome(kv, &m);
	else if (err == 0 && (m.head.type == KVPIPE_CTL_ACK || m.head.type == KVPIPE_CTL_BYE) && kv_ctl_ack(&m, &ack, why) &&
		 ack.reason != KVPIPE_OK) { /* BYE: the daemon is stopping, and welcomes no session */
		if (ack.reason == KVPIPE_E_INCOMPATIBLE) /* with its version, or with the instance's other ranks */
			err = kv_err(KVPIPE_E_INCOMPATIBLE, "connect: %s (this is libkvpipe %s, which speaks ring protocol %u to %u)", why,
				     kvpipe_version(), KVPIPE_ABI_MIN, KVPIPE_ABI);
		else
			err = kv_err(ack.reason <= KVPIPE_E_CLOSED ? (enum kvpipe_reason)ack.reason : KVPIPE_E_UNAVAILABLE,
				     "connect: %s", why[0] != '\0' ? why : kvpipe_strerror((int)ack.reason));
	} else if (err == 0)
		err = kv_err(KVPIPE_E_INCOMPATIBLE, "%s: message type %u instead of a welcome: is it kvpiped?", kv->path,
			     m.head.type);
	kv_ctl_close_fds(&m);
	free(m.body);
	return err;
}

static int unfurnished(int why)
{
	if (kv_forbidden(why))
		return kv_err(KVPIPE_E_UNAVAILABLE, "connect: no eventfds: %s: " KV_ALLOW("eventfd2 and epoll_create1"), strerror(why));
	return kv_err(KVPIPE_E_QUOTA, "connect: no eventfds: %s", kv_why(why));
}

/* What the session needs besides the rings. */
static int furnish(kvpipe_t *kv)
{
	struct epoll_event ev = { .events = EPOLLIN };

	int err = kv_furnish(kv, &kv->rings);
	if (err != 0)
		return err;
	kv->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	kv->helper.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	kv->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (kv->ready < 0 || kv->helper.wake < 0 || kv->epoll < 0 ||
	    epoll_ctl(kv->epoll, EPOLL_CTL_ADD, kv->rings.cq_event, &ev) != 0 ||
	    epoll_ctl(kv->epoll, EPOLL_CTL_ADD, kv->ready, &ev) != 0)
		return unfurnished(errno);
	return kv_helper_start(kv);
}

static kvpipe_t *session_new(void)
{
	kvpipe_t *kv = calloc(1, sizeof(*kv));

	if (kv == NULL)
		return NULL;
	kv->regions_end = &kv->regions;
	kv->life = kv->ctl.life = 1;
	kv->process = kv_process_mark();
	kv->ready = kv->epoll = kv->helper.wake = kv->ctl.fd = -1;
	kv->rings.sq_event = kv->rings.cq_event = -1;
	pthread_mutex_init(&kv->lock, NULL);
	pthread_mutex_init(&kv->sq.lock, NULL);
	pthread_mutex_init(&kv->ctl.lock, NULL);
	pthread_rwlock_init(&kv->ctl.in_use, NULL);
	kv_cond_init(&kv->back);
	pthread_mutex_init(&kv->layout_lock, NULL);
	return kv;
}

int kv_session_open(const struct kvpipe_hello *hello, const struct kv_paths *paths, int64_t deadline, kvpipe_t **out)
{
	kvpipe_t *kv = session_new();
	const char *path;

	if (kv == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	kv->role = hello->role;
	kv->hello = *hello;
	int err = kv_random(&kv->take_id, sizeof(kv->take_id)) ? 0 : kv_err(KVPIPE_E_UNAVAILABLE, "connect: no random bytes");
	if (err == 0)
		err = kv_dial(paths, deadline, &kv->ctl.fd, &path);
	if (err == 0) {
		memcpy(kv->path, path, strlen(path) + 1);
		err = greet(kv, deadline);
	}
	if (err == 0)
		err = furnish(kv);
	if (err != 0) {
		kvpipe_close(kv);
		return err;
	}
	*out = kv;
	return 0;
}

int kvpipe_connect(const struct kvpipe_connect_opts *opts, kvpipe_t **out)
{
	KV_UNCANCELLED;
	struct kvpipe_connect_opts o;
	struct kv_paths paths;

	if (out == NULL)
		return kv_err(KVPIPE_E_INVALID, "connect: out is NULL");
	*out = NULL;
	int err = kv_copy_opts("connect", opts, &o, sizeof(o));
	struct kvpipe_hello hello;
	if (err == 0)
		err = make_hello(&o, &hello);
	if (err == 0)
		err = kv_check_timeout("connect: timeout_ns", &o.timeout_ns, KV_CALL_NS);
	if (err == 0)
		err = kv_find_socket(o.socket, &paths);
	return err != 0 ? err : kv_session_open(&hello, &paths, kv_after(kv_now(), o.timeout_ns), out);
}
