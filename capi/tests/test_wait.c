/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: no wake-up is lost, however many threads submit, wait and poll at once. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef"
#define WAIT (60 * KV_SEC) /* a lost wake-up shows as a timeout */

static struct fake_conf by_hand = { .submission = fake_nothing };

static kvpipe_op_t take(kvpipe_t *kv, uint32_t flags)
{
	const uint32_t ids[] = { 3, 5 };
	const struct kvpipe_blocks blocks = { .group = 2, .ntokens = 2, .count = 2, .ids = ids };
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
						.blocks = &blocks, .nblocks = 1, .flags = flags);
	kvpipe_op_t op;
	int rc;

	/* A full queue is part of the game. */
	do
		rc = kvpipe_take(kv, &o, &op);
	while (rc == -KVPIPE_E_BUSY || rc == -KVPIPE_E_QUOTA);
	CHECK_INT(rc, 0);
	return op;
}

/* ---- threads ---- */

struct hammer {
	kvpipe_t *kv;
	int rounds;
	bool stop;
	unsigned int polled;
};

static void *submit_and_wait(void *arg)
{
	struct hammer *h = arg;

	for (int i = 0; i < h->rounds; i++) {
		struct kvpipe_completion c;
		kvpipe_op_t op = take(h->kv, 0);
		CHECK_INT(kvpipe_wait(h->kv, op, WAIT, &c), 0);
		CHECK(c.op == op && c.status == KVPIPE_DONE);
		kvpipe_op_free(h->kv, op);
	}
	return NULL;
}

static void *poll_always(void *arg)
{
	struct hammer *h = arg;
	struct kvpipe_completion c[8];

	while (!__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE)) {
		int n = kvpipe_poll(h->kv, c, 8);
		CHECK(n >= 0);
		h->polled += (unsigned int)n;
		sched_yield();
	}
	return NULL;
}

static void *epoll_always(void *arg)
{
	struct hammer *h = arg;
	struct kvpipe_completion c[8];
	struct pollfd p = { .fd = kvpipe_fd(h->kv), .events = POLLIN };

	while (!__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE)) {
		if (poll(&p, 1, 10) > 0)
			CHECK(kvpipe_poll(h->kv, c, 8) >= 0);
	}
	return NULL;
}

static void hammer(int waiters, int rounds, void *(*other)(void *))
{
	struct fake *f = fake_start(NULL);
	struct hammer h = { .kv = fake_connect(f), .rounds = rounds };
	pthread_t t[16], o;

	if (other != NULL)
		CHECK(pthread_create(&o, NULL, other, &h) == 0);
	for (int i = 0; i < waiters; i++)
		CHECK(pthread_create(&t[i], NULL, submit_and_wait, &h) == 0);
	for (int i = 0; i < waiters; i++)
		pthread_join(t[i], NULL);
	__atomic_store_n(&h.stop, true, __ATOMIC_RELEASE);
	if (other != NULL)
		pthread_join(o, NULL);
	kvpipe_close(h.kv);
	fake_stop(f);
}

static void one_thread(void)
{
	hammer(1, 5000, NULL);
}

static void two_threads(void)
{
	hammer(2, 3000, NULL);
}

static void many_threads(void)
{
	hammer(12, 300, NULL);
}

static void with_poller(void)
{
	hammer(4, 500, poll_always);
}

static void with_epoll(void)
{
	hammer(4, 500, epoll_always);
}

/* Waiters of one session, ended in an order of the daemon's; some time out first. */
struct one {
	kvpipe_t *kv;
	kvpipe_op_t op;
	pthread_t thread;
};

static void *wait_one(void *arg)
{
	struct one *o = arg;
	struct kvpipe_completion c;

	int rc = kvpipe_wait(o->kv, o->op, (int64_t)(o->op % 3) * KV_MS, &c);
	CHECK(rc == 0 || rc == -KVPIPE_E_TIMEOUT);
	CHECK_INT(kvpipe_wait(o->kv, o->op, WAIT, &c), 0);
	CHECK(c.op == o->op);
	CHECK_INT(kvpipe_wait_released(o->kv, o->op, WAIT), 0);
	return NULL;
}

static void any_order(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct one o[16];

	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 16; i++) {
			o[i] = (struct one){ .kv = kv, .op = take(kv, 0) };
			CHECK(pthread_create(&o[i].thread, NULL, wait_one, &o[i]) == 0);
		}
		for (int i = 0; i < 16; i++)
			fake_end(f, o[(i * 7 + round) % 16].op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
		for (int i = 0; i < 16; i++)
			fake_end(f, o[(i * 5 + round) % 16].op, KVPIPE_RELEASED, 0, 0);
		for (int i = 0; i < 16; i++) {
			pthread_join(o[i].thread, NULL);
			kvpipe_op_free(kv, o[i].op);
		}
	}
	struct kvpipe_completion c;
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void *free_it(void *arg)
{
	struct one *o = arg;

	kvpipe_op_free(o->kv, o->op);
	return NULL;
}

/* Freed under a waiter: the waiter returns, and the completion still comes. */
static void freed_under(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct one o = { .kv = kv, .op = take(kv, 0) };
	struct kvpipe_completion c;

	CHECK(pthread_create(&o.thread, NULL, free_it, &o) == 0);
	CHECK_FAILS(kvpipe_wait(kv, o.op, WAIT, &c), KVPIPE_E_NOT_FOUND, "freed");
	pthread_join(o.thread, NULL);
	fake_end(f, o.op, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
	CHECK_INT(c.flags, KVPIPE_C_FOREIGN);
	kvpipe_close(kv);
	fake_stop(f);
}

static void *wait_in_vain(void *arg)
{
	struct one *o = arg;
	struct kvpipe_completion c;

	CHECK_FAILS(kvpipe_wait(o->kv, o->op, WAIT, &c), KVPIPE_E_NOT_FOUND, "freed");
	return NULL;
}

static void await_waiters(kvpipe_t *kv, int n)
{
	for (int there = 0; there < n;) {
		sched_yield();
		there = 0;
		pthread_mutex_lock(&kv->lock);
		for (const struct kv_waiter *w = kv->waiters; w != NULL; w = w->next)
			there++;
		pthread_mutex_unlock(&kv->lock);
	}
}

/* Nor is an end lost that came just before, and that the waiter was to see. */
static void freed_under_as_it_ends(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct one o = { .kv = kv, .op = take(kv, 0) };
	struct kvpipe_completion c[2];

	pthread_mutex_lock(&kv->lock);
	kv->swapping = true; /* the daemon's bell wakes nobody: who frees it is the first to look */
	pthread_mutex_unlock(&kv->lock);
	CHECK(pthread_create(&o.thread, NULL, wait_in_vain, &o) == 0);
	await_waiters(kv, 1);
	fake_end(f, o.op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
	kvpipe_op_free(kv, o.op);
	pthread_join(o.thread, NULL);
	pthread_mutex_lock(&kv->lock);
	kv->swapping = false;
	pthread_mutex_unlock(&kv->lock);
	fake_end(f, o.op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_poll(kv, c, 2), 2);
	CHECK(c[0].status == KVPIPE_FAILED && c[0].flags == (KVPIPE_C_MORE | KVPIPE_C_FOREIGN) && c[0].op == 0);
	CHECK(c[1].status == KVPIPE_RELEASED && c[1].flags == KVPIPE_C_FOREIGN);
	kvpipe_close(kv);
	fake_stop(f);
}

static void *wait_for_both(void *arg)
{
	struct one *o = arg;
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(o->kv, o->op, WAIT, &c), 0);
	CHECK(c.op == o->op && c.status == KVPIPE_FAILED);
	CHECK_INT(kvpipe_wait_released(o->kv, o->op, WAIT), 0);
	return NULL;
}

/* What somebody waits for is told to nobody else, whoever is the first to look. */
static void told_once(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct one o = { .kv = kv, .op = take(kv, 0) };
	struct kvpipe_completion c;

	pthread_mutex_lock(&kv->lock);
	kv->swapping = true; /* the daemon's bell wakes nobody */
	pthread_mutex_unlock(&kv->lock);
	CHECK(pthread_create(&o.thread, NULL, wait_for_both, &o) == 0);
	for (int i = 0; i < 2; i++) {
		const uint32_t kind = i == 0 ? KV_WAIT_END : KV_WAIT_RELEASED;
		for (bool there = false; !there;) {
			sched_yield();
			pthread_mutex_lock(&kv->lock);
			there = kv->waiters != NULL && kv->waiters->kind == kind;
			pthread_mutex_unlock(&kv->lock);
		}
		fake_end(f, o.op, i == 0 ? KVPIPE_FAILED : KVPIPE_RELEASED, i == 0 ? KVPIPE_E_BUSY : 0, i == 0 ? KVPIPE_C_MORE : 0);
		CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	}
	pthread_join(o.thread, NULL);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	pthread_mutex_lock(&kv->lock);
	kv->swapping = false;
	pthread_mutex_unlock(&kv->lock);
	kvpipe_close(kv);
	fake_stop(f);
}

static _Thread_local bool no_memory;

/* Stands before libc's. A thread that has no memory gets no room for what its completions point to. A sanitizer calls it for threads
 * that it does not know yet. */
__attribute__((no_sanitize("address", "thread", "undefined"))) int pthread_setspecific(pthread_key_t key, const void *value)
{
	union {
		void *symbol;
		int (*call)(pthread_key_t, const void *);
	} libc = { .symbol = dlsym(RTLD_NEXT, "pthread_setspecific") };

	return no_memory ? ENOMEM : libc.call(key, value);
}

static void *wait_without_memory(void *arg)
{
	struct one *o = arg;
	struct kvpipe_completion c;

	no_memory = true;
	CHECK_FAILS(kvpipe_wait(o->kv, o->op, WAIT, &c), KVPIPE_E_QUOTA, "out of memory");
	no_memory = false;
	return NULL;
}

/* An end that its waiter had no memory for is still to be told: by poll, or by another wait. */
static void told_after_all(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;

	for (int i = 0; i < 2; i++) {
		struct one o = { .kv = kv, .op = take(kv, 0) };
		CHECK(pthread_create(&o.thread, NULL, wait_without_memory, &o) == 0);
		await_waiters(kv, 1);
		fake_end(f, o.op, KVPIPE_FAILED, KVPIPE_E_BUSY, 0);
		pthread_join(o.thread, NULL);
		CHECK_INT(i == 0 ? kvpipe_poll(kv, &c, 1) : kvpipe_wait(kv, o.op, 0, &c), i == 0);
		CHECK(c.op == o.op && c.status == KVPIPE_FAILED);
		CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	}
	kvpipe_close(kv);
	fake_stop(f);
}

static void *wait_and_go_on(void *arg)
{
	struct one *o = arg;
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(o->kv, o->op, WAIT, &c), 0);
	pthread_testcancel();
	return NULL;
}

/* The one that sleeps on the ring and one that does not: they still see the ends that they waited for, and leave nothing behind. */
static void cancelled_threads(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;
	struct one o[2];
	void *result;

	for (int i = 0; i < 2; i++) {
		o[i] = (struct one){ .kv = kv, .op = take(kv, 0) };
		CHECK(pthread_create(&o[i].thread, NULL, wait_and_go_on, &o[i]) == 0);
		await_waiters(kv, i + 1);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_cancel(o[i].thread) == 0);
	alarm(WAIT / KV_SEC); /* a lock that is left behind is waited for without end */
	for (int i = 0; i < 2; i++)
		fake_end(f, o[i].op, KVPIPE_DONE, 0, 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(o[i].thread, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	kvpipe_close(kv);
	alarm(0);
	fake_stop(f);
}

/* ---- the fd ---- */

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) > 0;
}

static void fd(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[4];
	kvpipe_op_t a = take(kv, 0), b;

	fake_end(f, a, KVPIPE_DONE, 0, 0);
	int event = kvpipe_fd(kv);
	CHECK(event >= 0 && kvpipe_fd(kv) == event);
	CHECK(readable(event, 0)); /* what came before it was asked for counts */
	CHECK(readable(event, 0)); /* level-triggered */
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	CHECK(!readable(event, 0));

	a = take(kv, 0);
	b = take(kv, 0);
	CHECK(!readable(event, 0));
	fake_end(f, a, KVPIPE_DONE, 0, 0);
	fake_end(f, b, KVPIPE_DONE, 0, 0);
	CHECK(readable(event, 60000));
	CHECK_INT(kvpipe_poll(kv, c, 1), 1);
	CHECK(readable(event, 0)); /* one is left */
	CHECK_INT(kvpipe_wait(kv, b, WAIT, c), 0);
	CHECK(!readable(event, 0)); /* wait took it */

	/* A waiter takes all off the ring; what it was not waiting for makes the fd readable. */
	a = take(kv, 0);
	b = take(kv, 0);
	fake_end(f, a, KVPIPE_DONE, 0, 0);
	fake_end(f, b, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait(kv, b, WAIT, c), 0);
	CHECK(readable(event, 0));
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	CHECK(c[0].op == a);
	CHECK(!readable(event, 0));
	/* Others' completions, too. */
	fake_end(f, 0, KVPIPE_DONE, 0, 0);
	CHECK(readable(event, 60000));
	CHECK_FAILS(kvpipe_wait(kv, take(kv, 0), KV_MS, c), KVPIPE_E_TIMEOUT, "still running after 1 ms: wait again, or cancel it");
	CHECK(readable(event, 0));
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	CHECK(!readable(event, 0));
	/* The daemon's death ends what had bytes granted. */
	fake_await_submissions(f, 6);
	fake_grant(f, fake_last(f).layer_slot, fake_last(f).user_data);
	fake_hang_up(f);
	CHECK(readable(event, 60000));
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	kvpipe_close(kv);
	fake_stop(f);
}

/* ---- layers ---- */

static void set_layout(kvpipe_t *kv)
{
	/* Layers 10, 20, 30 of group 2; 15 of group 3 alone. */
	struct kvpipe_view v[5] = { { .layer = 20, .group = 2, .part = "k" }, { .layer = 20, .group = 2, .part = "v" },
				    { .layer = 30, .group = 2 }, { .layer = 10, .group = 2 }, { .layer = 15, .group = 3 } };
	kvpipe_region_t region;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	for (unsigned int i = 0; i < 5; i++)
		v[i].region = region;
	CHECK_INT(kvpipe_set_layout(kv, v, 5, NULL, 0), 0);
}

static void *report_layers(void *arg)
{
	struct one *o = arg;
	struct fake *f = (struct fake *)(void *)o->kv;

	for (uint32_t ready = 1; ready <= 3; ready++)
		fake_layer(f, fake_last(f).layer_slot, o->op, ready);
	return NULL;
}

static void layers(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;

	set_layout(kv);
	for (int round = 0; round < 100; round++) {
		kvpipe_op_t op = take(kv, KVPIPE_OP_LAYERED);
		fake_await_submissions(f, (unsigned int)round + 1);
		if (round == 0) {
			fake_layer(f, fake_last(f).layer_slot, 12345, 3); /* an older take's */
			CHECK_FAILS(kvpipe_wait_layer(kv, op, 10, KV_MS), KVPIPE_E_TIMEOUT, "layer not in place yet after 1 ms: ");
			CHECK_FAILS(kvpipe_wait_layer(kv, op, 15, 0), KVPIPE_E_INVALID, "layer 15 is not among those");
		}
		struct one o = { .kv = (kvpipe_t *)(void *)f, .op = op };
		CHECK(pthread_create(&o.thread, NULL, report_layers, &o) == 0);
		CHECK_INT(kvpipe_wait_layer(kv, op, 10, WAIT), 0);
		CHECK_INT(kvpipe_wait_layer(kv, op, 30, WAIT), 0);
		CHECK_INT(kvpipe_wait_layer(kv, op, 20, 0), 0);
		pthread_join(o.thread, NULL);
		fake_end(f, op, KVPIPE_DONE, 0, 0);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
		CHECK_INT(kvpipe_wait_layer(kv, op, 30, 0), 0);
		kvpipe_op_free(kv, op);
	}
	/* Slots are taken until their take is released. */
	kvpipe_op_t op[4], more;
	for (int i = 0; i < 4; i++)
		op[i] = take(kv, KVPIPE_OP_LAYERED);
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
						.flags = KVPIPE_OP_LAYERED);
	CHECK_FAILS(kvpipe_take(kv, &o, &more), KVPIPE_E_QUOTA, "4 takes are not released yet");
	fake_post(f, (struct kvpipe_cqe){ .user_data = op[0], .status = KVPIPE_FAILED, .reason = KVPIPE_E_PEER_GONE, .flags = KVPIPE_C_MORE },
		  NULL, 0, "key \"k\": node \"b\" is gone");
	CHECK_FAILS(kvpipe_wait_layer(kv, op[0], 10, WAIT), KVPIPE_E_PEER_GONE, "failed: key \"k\": node \"b\" is gone");
	CHECK_INT(kvpipe_wait(kv, op[0], 0, &c), 0); /* it stays for whoever collects it */
	CHECK(c.op == op[0] && c.reason == KVPIPE_E_PEER_GONE);
	CHECK_FAILS(kvpipe_take(kv, &o, &more), KVPIPE_E_QUOTA, "not released yet");
	fake_end(f, op[0], KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_wait_released(kv, op[0], WAIT), 0);
	CHECK_INT(kvpipe_take(kv, &o, &more), 0);
	more = take(kv, 0);
	CHECK_FAILS(kvpipe_wait_layer(kv, more, 10, 0), KVPIPE_E_INVALID, "not a take with KVPIPE_OP_LAYERED");
	kvpipe_close(kv);
	fake_stop(f);
}

static void *wait_for_the_last_layer(void *arg)
{
	struct one *o = arg;

	CHECK_FAILS(kvpipe_wait_layer(o->kv, o->op, 30, WAIT), KVPIPE_E_BUSY, "failed");
	return NULL;
}

/* Who waits for a layer collects nothing: the end and RELEASED, which came at once, are told by poll. */
static void a_layers_waiter_leaves_the_ends(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[3];

	set_layout(kv);
	struct one o = { .kv = kv, .op = take(kv, KVPIPE_OP_LAYERED) };
	CHECK(pthread_create(&o.thread, NULL, wait_for_the_last_layer, &o) == 0);
	await_waiters(kv, 1);
	pthread_mutex_lock(&kv->lock); /* it sees both, or none */
	fake_end(f, o.op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
	fake_end(f, o.op, KVPIPE_RELEASED, 0, 0);
	pthread_mutex_unlock(&kv->lock);
	pthread_join(o.thread, NULL);
	CHECK_INT(kvpipe_poll(kv, c, 3), 2);
	CHECK(c[0].op == o.op && c[0].status == KVPIPE_FAILED && c[0].flags == KVPIPE_C_MORE);
	CHECK(c[1].op == o.op && c[1].status == KVPIPE_RELEASED);
	kvpipe_close(kv);
	fake_stop(f);
}

static void arguments(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = take(kv, 0);
	struct kvpipe_completion c;

	CHECK_FAILS(kvpipe_wait(kv, op, -1, &c), KVPIPE_E_INVALID, "-1 ns is negative");
	CHECK_FAILS(kvpipe_wait(kv, op, 0, &c), KVPIPE_E_TIMEOUT, "still running");
	CHECK_FAILS(kvpipe_poll(kv, NULL, 1), KVPIPE_E_INVALID, "out is NULL");
	CHECK_INT(kvpipe_poll(kv, NULL, 0), 0);
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait(kv, op, KVPIPE_FOREVER, NULL), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(one_thread), TEST(two_threads), TEST(many_threads), TEST(with_poller), TEST(with_epoll), TEST(any_order),
		TEST(freed_under), TEST(freed_under_as_it_ends), TEST(told_once), TEST(told_after_all), TEST(cancelled_threads), TEST(fd), TEST(layers),
		TEST(a_layers_waiter_leaves_the_ends), TEST(arguments),
	};
	return RUN(tests);
}
