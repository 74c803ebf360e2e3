/* SPDX-License-Identifier: Apache-2.0 */
/* The fake daemon's thread. */
#include "fake_internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static void default_submission(struct fake *f, const struct kvpipe_sqe *e)
{
	fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

/* Counts what was handled, so that a test which waited for it may change what the next one finds. Called with the lock held. */
static void handled(struct fake *f, unsigned int *counter)
{
	(*counter)++;
	pthread_cond_broadcast(&f->changed);
}

static void serve_submissions(struct fake *f)
{
	uint8_t *record = f->record;
	uint32_t mask, rmask;

	for (;;) {
		lock(f);
		if (f->c == NULL || f->paused) {
			unlock(f);
			return;
		}
		struct kvpipe_sqe *sq = (struct kvpipe_sqe *)(void *)fake_area(f, KVPIPE_RING_SQ, &mask);
		uint8_t *records = fake_area(f, KVPIPE_RING_RECORDS, &rmask);
		uint32_t tail = kvpipe_load_acquire(&f->ring_c->sq_tail);
		CHECK(tail - f->sq_head <= mask + 1);
		if (tail == f->sq_head) {
			unlock(f);
			return;
		}
		struct kvpipe_sqe e = sq[f->sq_head & mask];
		CHECK_INT(e.rec_off % 8, 0);
		CHECK_INT(e.rec_len % 8, 0);
		CHECK((e.rec_off & rmask) + e.rec_len <= (uint64_t)rmask + 1);
		memcpy(record, records + (e.rec_off & rmask), e.rec_len);
		kvpipe_store_release(&f->ring_d->sq_head, ++f->sq_head);
		f->last = e;
		void (*submission)(struct fake *, const struct kvpipe_sqe *, const uint8_t *) = f->conf.submission;
		unlock(f);
		if (submission != NULL)
			submission(f, &e, record);
		else
			default_submission(f, &e);
		lock(f);
		handled(f, &f->submissions);
		unlock(f);
	}
}

static void hello(struct fake *f, const struct kvpipe_ctl *head, const uint8_t *body)
{
	CHECK_INT(head->type, KVPIPE_CTL_HELLO);
	CHECK_INT(head->len, sizeof(f->hello));
	memcpy(&f->hello, body, sizeof(f->hello));
	if (f->conf.farewell)
		fake_bye(f, f->conf.refuse, f->conf.refusal);
	else if (f->conf.refuse != 0)
		fake_ack(f, head->seq, f->conf.refuse, 0, f->conf.refusal);
	else if (f->conf.hang_up)
		f->hang_up = true;
	else if (!f->conf.silent)
		fake_open_session(f, head->seq);
}

static uint64_t next_region(struct fake *f)
{
	lock(f);
	uint64_t id = ++f->next_region;
	unlock(f);
	return id;
}

static void serve_socket(struct fake *f)
{
	uint8_t *body = f->body;
	struct kvpipe_ctl head;
	struct iovec iov[2] = { { &head, sizeof(head) }, { body, sizeof(f->body) } };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control.buf, .msg_controllen = sizeof(control.buf) };
	int fd = -1;

	ssize_t n = recvmsg(f->conn, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	lock(f);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN) {
			f->client_gone = true;
			pthread_cond_broadcast(&f->changed);
			if (!f->fence_long)
				fake_close_session(f);
		}
		unlock(f);
		return;
	}
	CHECK(n >= (ssize_t)sizeof(head));
	CHECK_INT(head.magic, KVPIPE_MAGIC);
	CHECK_INT(head.len, n - (ssize_t)sizeof(head));
	CHECK(head.flags == 0 && head.reserved[0] == 0 && head.reserved[1] == 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (c != NULL)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if (f->c == NULL) {
		hello(f, &head, body);
	} else {
		unlock(f);
		if (f->conf.request == NULL || !f->conf.request(f, &head, body, fd))
			fake_ack(f, head.seq, 0, head.type == KVPIPE_CTL_REGISTER ? next_region(f) : 0, NULL);
		if (fd >= 0)
			close(fd);
		lock(f);
	}
	handled(f, &f->requests[head.type % TYPES]);
	unlock(f);
}

static void listen_at(struct fake *f)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	strcpy(addr.sun_path, f->path);
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(f->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(f->listener, 8) == 0);
}

static void *serve(void *arg)
{
	struct fake *f = arg;

	for (;;) {
		lock(f);
		if (f->dead && f->listener >= 0) {
			close(f->listener);
			unlink(f->path);
			f->listener = -1;
		} else if (!f->dead && f->listener < 0) {
			listen_at(f);
		}
		if (f->hang_up)
			fake_close_session(f);
		bool stop = f->stop, paused = f->paused, fencing = f->conn >= 0 && f->client_gone;
		/* Before sleeping: ask to be woken, then look once more. */
		bool work = false;
		if (f->c != NULL && !paused) {
			__atomic_store_n(&f->ring_d->need_wakeup, 1 + ++f->sleep, __ATOMIC_RELAXED);
			kvpipe_full_barrier();
			work = kvpipe_load_acquire(&f->ring_c->sq_tail) != f->sq_head;
		}
		struct pollfd p[3] = {
			{ .fd = f->bell, .events = POLLIN },
			{ .fd = paused || fencing ? -1 : f->conn >= 0 ? f->conn : f->listener, .events = POLLIN },
			{ .fd = paused ? -1 : f->sq_event, .events = POLLIN },
		};
		bool listening = f->conn < 0;
		unlock(f);
		if (stop)
			return NULL;
		CHECK(poll(p, 3, work ? 0 : -1) >= 0);
		uint64_t count;
		for (int i = 0; i < 3; i += 2) {
			if (p[i].revents != 0)
				CHECK(read(p[i].fd, &count, sizeof(count)) == sizeof(count));
		}
		if (p[1].revents != 0 && listening) {
			int conn = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
			CHECK(conn >= 0);
			lock(f);
			f->conn = conn;
			f->client_gone = false;
			unlock(f);
		} else if (p[1].revents != 0) {
			serve_socket(f);
		}
		lock(f);
		if (f->ring_d != NULL)
			__atomic_store_n(&f->ring_d->need_wakeup, 0, __ATOMIC_RELAXED);
		unlock(f);
		serve_submissions(f);
	}
}

struct fake *fake_start(const struct fake_conf *conf)
{
	struct fake *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	CHECK(f != NULL);
	if (conf != NULL)
		f->conf = *conf;
	strcpy(f->dir, "/tmp/kvpipe-fake-XXXXXX");
	CHECK(mkdtemp(f->dir) != NULL);
	snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
	f->record = malloc(8u << 20);
	CHECK(f->record != NULL);
	listen_at(f);
	f->bell = eventfd(0, EFD_CLOEXEC);
	f->conn = f->sq_event = f->cq_event = -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->changed, &attr);
	CHECK(pthread_create(&f->thread, NULL, serve, f) == 0);
	return f;
}

void fake_stop(struct fake *f)
{
	lock(f);
	f->stop = true;
	ring(f->bell);
	unlock(f);
	pthread_join(f->thread, NULL);
	lock(f);
	fake_close_session(f);
	unlock(f);
	if (f->listener >= 0)
		close(f->listener);
	close(f->bell);
	unlink(f->path);
	rmdir(f->dir);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f->record);
	free(f);
}

void fake_hang_up(struct fake *f)
{
	lock(f);
	f->hang_up = true;
	f->fence_long = false;
	ring(f->bell);
	unlock(f);
}

void fake_die(struct fake *f)
{
	lock(f);
	f->hang_up = f->dead = true;
	ring(f->bell);
	unlock(f);
}

void fake_return(struct fake *f)
{
	lock(f);
	f->dead = false;
	ring(f->bell);
	unlock(f);
}

void fake_fence_long(struct fake *f)
{
	lock(f);
	f->fence_long = true;
	unlock(f);
}

void fake_refuse(struct fake *f, uint32_t reason, const char *text)
{
	lock(f);
	f->conf.refuse = reason;
	f->conf.refusal = text;
	unlock(f);
}

void fake_refuse_for_nothing(struct fake *f)
{
	lock(f);
	f->conf.farewell = true;
	f->conf.refuse = KVPIPE_OK;
	f->conf.refusal = "";
	unlock(f);
}

void fake_dull(struct fake *f, bool dull)
{
	lock(f);
	f->dull = dull;
	unlock(f);
}

void fake_resize(struct fake *f, const struct fake_conf *sizes)
{
	lock(f);
	f->conf.sq = sizes->sq;
	f->conf.cq = sizes->cq;
	f->conf.records = sizes->records;
	f->conf.results = sizes->results;
	f->conf.layers = sizes->layers;
	unlock(f);
}

void fake_restart_regions(struct fake *f, uint64_t next)
{
	lock(f);
	f->next_region = next - 1;
	unlock(f);
}

void fake_set_submission(struct fake *f, void (*submission)(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record))
{
	lock(f);
	f->conf.submission = submission;
	unlock(f);
}

void fake_pause(struct fake *f, bool paused)
{
	lock(f);
	f->paused = paused;
	ring(f->bell);
	unlock(f);
}

const char *fake_path(const struct fake *f)
{
	return f->path;
}

void *fake_arg(const struct fake *f)
{
	return f->conf.arg;
}

kvpipe_t *fake_connect_as(struct fake *f, uint32_t role)
{
	kvpipe_t *kv;
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .socket = f->path, .engine_id = "e", .role = role);

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	return kv;
}

kvpipe_t *fake_connect(struct fake *f)
{
	return fake_connect_as(f, KVPIPE_ROLE_WORKER);
}

kvpipe_op_t fake_take(kvpipe_t *kv, uint64_t tag, int64_t timeout_ns)
{
	const uint32_t ids[] = { 3, 5 };
	const struct kvpipe_blocks blocks[] = { { .group = 2, .ntokens = 2, .count = 2, .ids = ids },
						{ .group = 5, .ntokens = 2, .count = 2, .ids = ids } };
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = "0123456789abcdef", .token_len = 16,
						.blocks = blocks, .nblocks = 2, .tag = tag, .timeout_ns = timeout_ns);
	kvpipe_op_t op;
	int err;

	do /* its thread may get no processor for as long as a submission waits for room */
		err = kvpipe_take(kv, &o, &op);
	while (err == -KVPIPE_E_BUSY);
	CHECK_INT(err, 0);
	return op;
}

void fake_nothing(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	(void)f;
	(void)e;
	(void)record;
}
