/* SPDX-License-Identifier: Apache-2.0 */
#include "fakedaemon.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <kvpipe/barrier.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define TYPES 16

struct fake {
	struct fake_conf conf;
	char dir[64], path[96];
	int listener, bell; /* bell: something changed for the thread */
	pthread_t thread;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t changed;
	bool stop, paused, hang_up, client_gone;
	int conn, sq_event, cq_event;
	struct kvpipe_hello hello;
	struct kvpipe_welcome welcome;
	uint8_t *c, *d;
	struct kvpipe_ring_c *ring_c;
	struct kvpipe_ring_d *ring_d;
	struct kvpipe_sqe last;
	uint64_t results_used, next_region;
	uint32_t sq_head, cq_tail;
	unsigned int submissions, requests[TYPES];
};

static void lock(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
}

static void unlock(struct fake *f)
{
	pthread_mutex_unlock(&f->lock);
}

static void ring(int fd)
{
	uint64_t one = 1;

	CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
}

/* ---- the control socket ---- */

static void send_fds(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len, const int *fds, size_t n)
{
	struct kvpipe_ctl head = { .magic = KVPIPE_MAGIC, .type = type, .len = len, .seq = seq };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)body, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} control;

	memset(&control, 0, sizeof(control));
	if (n > 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	/* A client that went away meanwhile is not an error. */
	(void)sendmsg(f->conn, &msg, MSG_NOSIGNAL);
}

void fake_send(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len)
{
	send_fds(f, type, seq, body, len, NULL, 0);
}

static void send_ack(struct fake *f, uint16_t type, uint32_t seq, uint32_t reason, uint64_t value, const char *text)
{
	uint8_t buf[sizeof(struct kvpipe_ack) + 1024];
	struct kvpipe_ack ack = { .reason = reason, .value = value, .text_len = text == NULL ? 0 : (uint32_t)strlen(text) };

	memcpy(buf, &ack, sizeof(ack));
	if (text != NULL)
		memcpy(buf + sizeof(ack), text, ack.text_len);
	fake_send(f, type, seq, buf, (uint32_t)sizeof(ack) + ack.text_len);
}

void fake_ack(struct fake *f, uint32_t seq, uint32_t reason, uint64_t value, const char *text)
{
	send_ack(f, KVPIPE_CTL_ACK, seq, reason, value, text);
}

void fake_bye(struct fake *f, uint32_t reason, const char *text)
{
	send_ack(f, KVPIPE_CTL_BYE, 0, reason, 0, text);
}

/* ---- rings ---- */

static int make_memfd(const char *name, uint64_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static void add_ring(struct kvpipe_welcome *w, uint32_t kind, uint32_t memfd, uint32_t entries, uint32_t size)
{
	uint64_t *bytes = memfd == 0 ? &w->ring_c_bytes : &w->ring_d_bytes;

	w->rings[w->nrings++] = (struct kvpipe_ring_desc){
		.kind = kind, .memfd = memfd, .offset = *bytes, .entries = entries, .entry_size = size
	};
	*bytes += ((uint64_t)entries * size + PAGE - 1) / PAGE * PAGE;
}

static uint32_t or(uint32_t value, uint32_t def)
{
	return value != 0 ? value : def;
}

static uint8_t *area(struct fake *f, uint32_t kind, uint32_t *mask)
{
	for (uint32_t i = 0; i < f->welcome.nrings; i++) {
		struct kvpipe_ring_desc *d = &f->welcome.rings[i];
		if (d->kind == kind) {
			*mask = d->entries - 1;
			return (d->memfd == 0 ? f->c : f->d) + d->offset;
		}
	}
	FAIL("no ring of kind %u", kind);
}

static void open_session(struct fake *f, uint32_t seq)
{
	struct kvpipe_welcome *w = &f->welcome;

	*w = (struct kvpipe_welcome){
		.abi = or(f->conf.abi, KVPIPE_ABI),
		.epoch = 7,
		.session = 42,
		.ring_c_bytes = PAGE,
		.ring_d_bytes = PAGE,
		.max_pinned_bytes = 1 << 30,
		.ops = f->conf.ops != 0 ? f->conf.ops : 0x1ff,
		.max_ids = KVPIPE_MAX_IDS,
		.max_views = KVPIPE_MAX_VIEWS,
		.max_regions = KVPIPE_MAX_REGIONS,
		.max_inflight = or(f->conf.max_inflight, KVPIPE_MAX_INFLIGHT),
		.node = "fake",
		.instance = "i1",
		.advertise = "127.0.0.1:7650",
		.daemon = "9.9.9",
	};
	add_ring(w, KVPIPE_RING_SQ, 0, or(f->conf.sq, f->hello.sq_entries), sizeof(struct kvpipe_sqe));
	add_ring(w, KVPIPE_RING_RECORDS, 0, or(f->conf.records, 65536), 1);
	add_ring(w, KVPIPE_RING_CQ, 1, or(f->conf.cq, f->hello.cq_entries), sizeof(struct kvpipe_cqe));
	add_ring(w, KVPIPE_RING_RESULTS, 1, or(f->conf.results, 65536), 1);
	add_ring(w, KVPIPE_RING_LAYERS, 1, or(f->conf.layers, 4), sizeof(struct kvpipe_layer_slot));
	add_ring(w, 99, 1, 1, 64); /* a kind that the library does not know */

	int c = make_memfd("ring_c", w->ring_c_bytes), d = make_memfd("ring_d", w->ring_d_bytes);
	f->c = mmap(NULL, w->ring_c_bytes, PROT_READ, MAP_SHARED, c, 0);
	f->d = mmap(NULL, w->ring_d_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d, 0);
	CHECK(f->c != MAP_FAILED && f->d != MAP_FAILED);
	CHECK(fcntl(c, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	if (!f->conf.unsealed)
		CHECK(fcntl(d, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0);
	f->ring_c = (struct kvpipe_ring_c *)(void *)f->c;
	f->ring_d = (struct kvpipe_ring_d *)(void *)f->d;
	__atomic_store_n(&f->ring_d->heartbeat, f->conf.heartbeat, __ATOMIC_RELAXED);
	f->sq_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->cq_event = eventfd(0, EFD_CLOEXEC);
	CHECK(f->sq_event >= 0 && f->cq_event >= 0);
	struct kvpipe_welcome sent = *w;
	if (f->conf.welcome != NULL)
		f->conf.welcome(&sent);
	const int fds[4] = { c, d, f->sq_event, f->cq_event };
	send_fds(f, KVPIPE_CTL_WELCOME, seq, &sent, sizeof(sent), fds, 4);
	close(c);
	close(d);
}

/* Needs lock. */
static void close_session(struct fake *f)
{
	if (f->conn >= 0)
		close(f->conn);
	if (f->c != NULL) {
		munmap(f->c, f->welcome.ring_c_bytes);
		munmap(f->d, f->welcome.ring_d_bytes);
		close(f->sq_event);
		close(f->cq_event);
	}
	f->conn = f->sq_event = f->cq_event = -1;
	f->c = f->d = NULL;
	f->ring_c = NULL;
	f->ring_d = NULL;
	f->sq_head = f->cq_tail = 0;
	f->results_used = 0;
	f->hang_up = false;
	pthread_cond_broadcast(&f->changed);
}

/* Needs lock. */
static void wake_client(struct fake *f)
{
	kvpipe_full_barrier();
	if (kvpipe_load_acquire(&f->ring_c->cq_waiting) != 0)
		ring(f->cq_event);
}

void fake_post(struct fake *f, struct kvpipe_cqe e, const struct kvpipe_run *runs, uint32_t nruns, const char *text)
{
	uint32_t mask, rmask;

	lock(f);
	if (f->d == NULL) {
		unlock(f);
		return;
	}
	struct kvpipe_cqe *cq = (struct kvpipe_cqe *)(void *)area(f, KVPIPE_RING_CQ, &mask);
	uint8_t *results = area(f, KVPIPE_RING_RESULTS, &rmask);
	if (nruns > 0 || text != NULL) {
		struct kvpipe_result r = { .nfailed = nruns, .text_len = text == NULL ? 0 : (uint32_t)strlen(text) };
		uint32_t len = (uint32_t)sizeof(r) + nruns * (uint32_t)sizeof(*runs) + r.text_len;
		uint64_t off = f->results_used;
		if ((off & rmask) + len > (uint64_t)rmask + 1)
			off = (off + rmask) & ~(uint64_t)rmask;
		uint8_t *to = results + (off & rmask);
		memcpy(to, &r, sizeof(r));
		if (nruns > 0)
			memcpy(to + sizeof(r), runs, nruns * sizeof(*runs));
		if (text != NULL)
			memcpy(to + len - r.text_len, text, r.text_len);
		f->results_used = (off + len + 7) / 8 * 8;
		e.result_off = off;
		e.result_len = len;
	}
	CHECK(f->cq_tail - kvpipe_load_acquire(&f->ring_c->cq_head) <= mask);
	cq[f->cq_tail & mask] = e;
	f->cq_tail++;
	kvpipe_store_release(&f->ring_d->cq_tail, f->cq_tail);
	wake_client(f);
	unlock(f);
}

void fake_end(struct fake *f, uint64_t user_data, uint32_t status, uint32_t reason, uint32_t flags)
{
	struct kvpipe_cqe e = {
		.user_data = user_data,
		.op_id = user_data + 1000,
		.status = (uint16_t)status,
		.reason = (uint16_t)reason,
		.flags = flags,
		.epoch = 7,
	};

	fake_post(f, e, NULL, 0, NULL);
}

void fake_layer(struct fake *f, uint32_t slot, uint64_t user_data, uint32_t ready)
{
	uint32_t mask;

	lock(f);
	struct kvpipe_layer_slot *s = (struct kvpipe_layer_slot *)(void *)area(f, KVPIPE_RING_LAYERS, &mask) + slot;
	if (s->user_data != user_data) {
		__atomic_store_n(&s->ready, 0, __ATOMIC_RELAXED);
		kvpipe_store_release(&s->user_data, user_data);
	}
	kvpipe_store_release(&s->ready, ready);
	wake_client(f);
	unlock(f);
}

void fake_set_cq_tail(struct fake *f, uint32_t tail)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->cq_tail, tail);
	wake_client(f);
	unlock(f);
}

void fake_set_sq_head(struct fake *f, uint32_t head)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->sq_head, head);
	unlock(f);
}

void fake_set_progress_wait(struct fake *f, uint64_t value)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->progress_wait, value);
	unlock(f);
}

void fake_beat(struct fake *f)
{
	lock(f);
	__atomic_add_fetch(&f->ring_d->heartbeat, 1, __ATOMIC_RELEASE);
	unlock(f);
}

/* ---- the thread ---- */

static void default_submission(struct fake *f, const struct kvpipe_sqe *e)
{
	fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

static void serve_submissions(struct fake *f)
{
	static uint8_t record[8u << 20];
	uint32_t mask, rmask;

	for (;;) {
		lock(f);
		if (f->c == NULL || f->paused) {
			unlock(f);
			return;
		}
		struct kvpipe_sqe *sq = (struct kvpipe_sqe *)(void *)area(f, KVPIPE_RING_SQ, &mask);
		uint8_t *records = area(f, KVPIPE_RING_RECORDS, &rmask);
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
		f->submissions++;
		pthread_cond_broadcast(&f->changed);
		unlock(f);
		if (f->conf.submission != NULL)
			f->conf.submission(f, &e, record);
		else
			default_submission(f, &e);
	}
}

static void hello(struct fake *f, const struct kvpipe_ctl *head, const uint8_t *body)
{
	CHECK_INT(head->type, KVPIPE_CTL_HELLO);
	CHECK_INT(head->len, sizeof(f->hello));
	memcpy(&f->hello, body, sizeof(f->hello));
	if (f->conf.refuse != 0)
		fake_ack(f, head->seq, f->conf.refuse, 0, f->conf.refusal);
	else if (f->conf.hang_up)
		f->hang_up = true;
	else if (!f->conf.silent)
		open_session(f, head->seq);
}

static void serve_socket(struct fake *f)
{
	static uint8_t body[KVPIPE_CTL_MAX];
	struct kvpipe_ctl head;
	struct iovec iov[2] = { { &head, sizeof(head) }, { body, sizeof(body) } };
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
			close_session(f);
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
	f->requests[head.type % TYPES]++;
	pthread_cond_broadcast(&f->changed);
	if (f->c == NULL) {
		hello(f, &head, body);
		unlock(f);
		return;
	}
	unlock(f);
	if (f->conf.request == NULL || !f->conf.request(f, &head, body, fd))
		fake_ack(f, head.seq, 0, head.type == KVPIPE_CTL_REGISTER ? ++f->next_region : 0, NULL);
	if (fd >= 0)
		close(fd);
}

static void *serve(void *arg)
{
	struct fake *f = arg;

	for (;;) {
		lock(f);
		if (f->hang_up)
			close_session(f);
		bool stop = f->stop, paused = f->paused;
		/* Before sleeping: ask to be woken, then look once more. */
		bool work = false;
		if (f->c != NULL && !paused) {
			__atomic_store_n(&f->ring_d->need_wakeup, 1, __ATOMIC_RELAXED);
			kvpipe_full_barrier();
			work = kvpipe_load_acquire(&f->ring_c->sq_tail) != f->sq_head;
		}
		struct pollfd p[3] = {
			{ .fd = f->bell, .events = POLLIN },
			{ .fd = paused ? -1 : f->conn >= 0 ? f->conn : f->listener, .events = POLLIN },
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
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	pthread_condattr_t attr;

	CHECK(f != NULL);
	if (conf != NULL)
		f->conf = *conf;
	strcpy(f->dir, "/tmp/kvpipe-fake-XXXXXX");
	CHECK(mkdtemp(f->dir) != NULL);
	snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
	strcpy(addr.sun_path, f->path);
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(f->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(f->listener, 8) == 0);
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
	close_session(f);
	unlock(f);
	close(f->listener);
	close(f->bell);
	unlink(f->path);
	rmdir(f->dir);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

void fake_hang_up(struct fake *f)
{
	lock(f);
	f->hang_up = true;
	ring(f->bell);
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

kvpipe_t *fake_connect(struct fake *f)
{
	kvpipe_t *kv;
	struct kvpipe_connect_opts o =
		KVPIPE_OPTS(kvpipe_connect_opts, .socket = f->path, .engine_id = "e", .role = KVPIPE_ROLE_WORKER);

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	return kv;
}

static void await(struct fake *f, const unsigned int *counter, unsigned int n, const bool *flag)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 20;
	lock(f);
	while (counter != NULL ? *counter < n : !*flag) {
		if (pthread_cond_timedwait(&f->changed, &f->lock, &until) != 0)
			FAIL("the fake daemon waited in vain for its client");
	}
	unlock(f);
}

void fake_await_submissions(struct fake *f, unsigned int n)
{
	await(f, &f->submissions, n, NULL);
}

void fake_await_requests(struct fake *f, uint16_t type, unsigned int n)
{
	await(f, &f->requests[type % TYPES], n, NULL);
}

void fake_await_hangup(struct fake *f)
{
	await(f, NULL, 0, &f->client_gone);
}

struct kvpipe_sqe fake_last(struct fake *f)
{
	lock(f);
	struct kvpipe_sqe e = f->last;
	unlock(f);
	return e;
}

uint32_t fake_cq_head(struct fake *f)
{
	lock(f);
	uint32_t head = kvpipe_load_acquire(&f->ring_c->cq_head);
	unlock(f);
	return head;
}

uint64_t fake_progress(struct fake *f)
{
	lock(f);
	uint64_t value = kvpipe_load_acquire(&f->ring_c->progress);
	unlock(f);
	return value;
}

struct kvpipe_hello fake_hello(struct fake *f)
{
	lock(f);
	struct kvpipe_hello h = f->hello;
	unlock(f);
	return h;
}
