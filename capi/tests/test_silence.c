/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons that say nothing, say goodbye, or die. Nothing waits for ever, and nothing is called free too early. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

#define WAIT (60 * KV_SEC)
#define SILENT "the deadline of 1 ms passed and the daemon does not answer: "

static struct fake_conf by_hand = { .submission = fake_nothing };

static kvpipe_op_t offer_for(kvpipe_t *kv, int64_t lease_ns)
{
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1, .lease_ns = lease_ns);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_offer(kv, &o, &op), 0);
	return op;
}

static void check_end(kvpipe_t *kv, kvpipe_op_t op, uint32_t reason, uint32_t flags, const char *words)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK(c.op == op && c.status == KVPIPE_FAILED);
	CHECK_INT(c.reason, reason);
	CHECK_INT(c.flags, flags);
	CHECK_HAS(c.message, words);
}

/* An end that came in time counts, though nobody had looked for it when the deadline passed. */
static void ended_in_time(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 6, 0);
	struct kvpipe_completion c;

	fake_end(f, op, KVPIPE_DONE, 0, 0);
	pthread_mutex_lock(&kv->lock);
	kv_op_find(kv, op)->deadline = kv_now(); /* now it has passed, however busy the machine is */
	kv_helper_before(kv, kv_now());
	pthread_mutex_unlock(&kv->lock);
	for (bool ended = false; !ended;) { /* the library sees to it */
		poll(NULL, 0, 5);
		pthread_mutex_lock(&kv->lock);
		ended = kv_op_find(kv, op)->state != KV_RUNNING;
		pthread_mutex_unlock(&kv->lock);
	}
	CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
	CHECK(c.op == op && c.status == KVPIPE_DONE && c.flags == 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* The library ends it at its deadline, not as free; what the daemon says later frees it. */
static void deadline(void)
{
	const uint32_t late[] = { KVPIPE_DONE, KVPIPE_FAILED, KVPIPE_CANCELLED };
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;

	for (int i = 0; i < 4; i++) {
		kvpipe_op_t op = fake_take(kv, 6, KV_MS);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
		CHECK(c.status == KVPIPE_FAILED && c.reason == KVPIPE_E_TIMEOUT && c.flags == KVPIPE_C_MORE && c.tag == 6);
		CHECK_HAS(c.message, SILENT);
		CHECK_HAS(c.message, "kvpipectl doctor");
		CHECK_INT(c.nfailed, 2); /* nothing of it may be used */
		CHECK(c.failed[0].group == 2 && c.failed[1].group == 5 && c.failed[1].count == UINT32_MAX);
		CHECK_INT(kvpipe_op_released(kv, op), 0);
		if (i < 3) {
			fake_end(f, op, late[i], late[i] == KVPIPE_DONE ? 0 : KVPIPE_E_CANCELLED, 0);
		} else {
			fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, KVPIPE_C_MORE);
			CHECK_FAILS(kvpipe_wait_released(kv, op, KV_MS), KVPIPE_E_TIMEOUT, "not released yet after 1 ms: ");
			fake_end(f, op, KVPIPE_RELEASED, 0, 0);
		}
		CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
		CHECK(c.op == op && c.status == KVPIPE_RELEASED && c.flags == 0 && c.reason == 0);
		CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
		kvpipe_op_free(kv, op);
	}
	CHECK_INT(kvpipe_connected(kv), 1);
	/* A daemon that is stopped altogether: the same. FOREVER ends at the deadline. */
	fake_pause(f, true);
	kvpipe_op_t op = fake_take(kv, 6, KV_MS);
	CHECK_INT(kvpipe_wait(kv, op, KVPIPE_FOREVER, &c), 0);
	CHECK_INT(c.reason, KVPIPE_E_TIMEOUT);
	CHECK_LATE(kvpipe_cancel(kv, fake_take(kv, 6, 0), KV_MS, NULL), "did not answer within 1 ms: ", SILENT);
	CHECK_LATE(kvpipe_offer_seal(kv, offer_for(kv, 0), KV_MS), "did not answer within 1 ms: ", SILENT);
	fake_pause(f, false);
	kvpipe_close(kv);
	fake_stop(f);
}

static bool no_pong(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)f;
	(void)body;
	(void)fd;
	return head->type == KVPIPE_CTL_PING;
}

static int64_t pongs[2];    /* when PINGs were answered, each so many ms after it came as .arg says */
static unsigned int npongs; /* atomic */

static bool pong(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	unsigned int n = __atomic_load_n(&npongs, __ATOMIC_RELAXED);
	const int *after = fake_arg(f);

	(void)body;
	(void)fd;
	if (head->type != KVPIPE_CTL_PING)
		return false;
	if (after != NULL)
		poll(NULL, 0, *after);
	fake_ack(f, head->seq, 0, 0, NULL);
	if (n < 2) {
		pongs[n] = kv_now();
		__atomic_store_n(&npongs, n + 1, __ATOMIC_RELEASE);
	}
	return true;
}

/* Whether the n-th answer came within the time that a daemon has which is asked at that time or later. */
static bool in_time(unsigned int n, int64_t asked)
{
	bool came = __atomic_load_n(&npongs, __ATOMIC_ACQUIRE) >= n;

	return (came ? pongs[n - 1] : kv_now()) < asked + KV_GRACE_NS;
}

/* An offer at a daemon that answers. False: the machine was too busy for that. */
static bool renewed(void)
{
	struct fake_conf conf = { .submission = fake_nothing, .request = pong };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;
	int err;

	__atomic_store_n(&npongs, 0, __ATOMIC_RELEASE);
	int64_t begun = kv_now();
	kvpipe_op_t op = offer_for(kv, KV_MS);
	do
		err = kvpipe_wait(kv, op, 5 * KV_MS, &c);
	while (err != 0 && __atomic_load_n(&npongs, __ATOMIC_ACQUIRE) < 2);
	bool fair = in_time(1, begun + KV_GRACE_NS) && in_time(2, pongs[0] + KV_SEC);
	if (fair) {
		CHECK_INT(err, -KVPIPE_E_TIMEOUT); /* asked again later: it lives */
		fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_EXPIRED, 0);
		check_end(kv, op, KVPIPE_E_EXPIRED, 0, "");
	}
	kvpipe_close(kv);
	fake_stop(f);
	return fair;
}

/* An offer's lease may have been renewed: only a daemon that does not answer ends it. */
static void lease(void)
{
	int tries = 0;

	while (!renewed())
		CHECK(tries++ < 20);

	struct fake_conf conf = { .submission = fake_nothing, .request = no_pong };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer_for(kv, KV_MS);
	check_end(kv, op, KVPIPE_E_TIMEOUT, KVPIPE_C_MORE, "the lease of 1 ms passed and the daemon does not answer: ");
	fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_EXPIRED, 0);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* The daemon's time begins when it is asked, however long this process stood still when it was about to. */
static void asked_late_for_an_offer(void)
{
	int after = KV_GRACE_NS / KV_MS / 5; /* not at once, and well within its time */
	struct fake_conf conf = { .submission = fake_nothing, .request = pong, .arg = &after };
	bool fair = false;

	for (int tries = 0; !fair; tries++) {
		struct fake *f = fake_start(&conf);
		kvpipe_t *kv = fake_connect(f);
		kvpipe_op_t op = offer_for(kv, WAIT);

		CHECK(tries < 20);
		__atomic_store_n(&npongs, 0, __ATOMIC_RELEASE);
		pthread_mutex_lock(&kv->lock);
		pthread_mutex_lock(&kv->ctl.lock); /* the helper comes no further than here */
		kv_op_find(kv, op)->deadline = kv_now();
		kv_helper_before(kv, kv_now());
		pthread_mutex_unlock(&kv->lock);
		poll(NULL, 0, KV_GRACE_NS / KV_MS + 100);
		int64_t unlocked = kv_now();
		pthread_mutex_unlock(&kv->ctl.lock);
		fake_await_requests(f, KVPIPE_CTL_PING, 1);
		fair = in_time(1, unlocked);
		for (bool judged = false; !judged;) {
			poll(NULL, 0, 5);
			pthread_mutex_lock(&kv->lock);
			judged = kv->helper.ping == 0;
			if (judged && fair)
				CHECK_INT(kv_op_find(kv, op)->state, KV_RUNNING);
			pthread_mutex_unlock(&kv->lock);
		}
		kvpipe_close(kv);
		fake_stop(f);
	}
}

static uint32_t asked; /* atomic: the PING that waits for its answer */

static bool later(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)f;
	(void)body;
	(void)fd;
	if (head->type != KVPIPE_CTL_PING)
		return false;
	__atomic_store_n(&asked, head->seq, __ATOMIC_RELEASE);
	return true;
}

/* It was the engine that stood still until the daemon's time was over: the answer lies in the socket, and counts. */
static void unread(void)
{
	struct fake_conf conf = { .submission = fake_nothing, .request = later };
	bool fair = false;

	for (int tries = 0; !fair; tries++) {
		struct fake *f = fake_start(&conf);
		kvpipe_t *kv = fake_connect(f);
		uint32_t seq;

		CHECK(tries < 20);
		__atomic_store_n(&asked, 0, __ATOMIC_RELEASE);
		offer_for(kv, KV_MS);
		while ((seq = __atomic_load_n(&asked, __ATOMIC_ACQUIRE)) == 0)
			sched_yield();
		pthread_mutex_lock(&kv->lock); /* the helper comes no further than here, once it is awake */
		fair = kv->helper.ping == seq; /* or this thread stood still until the daemon's time was over */
		kv->helper.ping_end = 0;
		kv_event_signal(kv->helper.wake);
		struct pollfd p = { .fd = kv->helper.wake, .events = POLLIN };
		for (int64_t end = kv_now() + KV_SEC; poll(&p, 1, 0) > 0 && kv_now() < end;) /* if it was awake already, it does not see this */
			sched_yield();
		fake_ack(f, seq, 0, 0, NULL);
		pthread_mutex_unlock(&kv->lock);
		if (fair)
			fake_await_requests(f, KVPIPE_CTL_PING, 2); /* asked again later, as for an offer that lives */
		kvpipe_close(kv);
		fake_stop(f);
	}
}

struct asker {
	kvpipe_t *kv;
	int64_t deadline;
	int err;
};

static void *ask(void *arg)
{
	struct asker *a = arg;

	a->err = kv_request(a->kv, "ask", 1, KVPIPE_CTL_PING, NULL, 0, -1, a->deadline, NULL);
	return NULL;
}

/* The same of requests: the answer counts though nobody had read it, or handed it to the caller, when the time of the call was over. A
 * machine that is too busy to answer in that time, or to go on soon after it, tries again. */
static void unread_answer(void)
{
	struct fake_conf conf = { .request = later };

	for (int read = 0, tries = 0; read < 2; tries++) {
		struct fake *f = fake_start(&conf);
		struct asker a = { .kv = fake_connect(f) };
		kvpipe_t *kv = a.kv;
		pthread_mutex_t *lock = read ? &kv->ctl.lock : &kv->lock; /* where the helper comes no further */
		pthread_t caller;
		uint32_t seq;

		__atomic_store_n(&asked, 0, __ATOMIC_RELEASE);
		a.deadline = kv_now() + 500 * KV_MS;
		CHECK_INT(pthread_create(&caller, NULL, ask, &a), 0);
		while ((seq = __atomic_load_n(&asked, __ATOMIC_ACQUIRE)) == 0)
			sched_yield();
		pthread_mutex_lock(lock);
		fake_ack(f, seq, 0, 0, NULL);
		bool fair = kv_now() < a.deadline;
		while (kv_now() < a.deadline + 100 * KV_MS)
			poll(NULL, 0, 10);
		pthread_mutex_unlock(lock);
		CHECK_INT(pthread_join(caller, NULL), 0);
		fair = fair && kv_now() < a.deadline + 250 * KV_MS;
		if (fair || tries == 20) {
			CHECK_INT(a.err, 0);
			read++;
		}
		kvpipe_close(kv);
		fake_stop(f);
	}
}

/* A process that stood still before it asked does not say that the daemon is silent. */
static void asked_late(void)
{
	struct fake_conf conf = { .request = later };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);

	CHECK_FAILS(kv_request(kv, "ask", 1, KVPIPE_CTL_PING, NULL, 0, -1, kv_now(), NULL), KVPIPE_E_TIMEOUT,
		    "ask: its time was over before the daemon was asked: call again");
	kvpipe_close(kv);
	fake_stop(f);
}

static int64_t used_by(pthread_t thread)
{
	struct timespec ts;
	clockid_t clock;

	CHECK(pthread_getcpuclockid(thread, &clock) == 0 && clock_gettime(clock, &ts) == 0);
	return (int64_t)ts.tv_sec * KV_SEC + ts.tv_nsec;
}

/* The session is over while the daemon is asked: the helper waits for no answer, and takes no CPU, until the session is closed. */
static void over_while_asked(void)
{
	struct fake_conf conf = { .submission = fake_nothing, .request = later };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer_for(kv, KV_MS);

	fake_await_requests(f, KVPIPE_CTL_PING, 1);
	pthread_mutex_lock(&kv->lock);
	kv->helper.ping_end = kv_after(kv_now(), WAIT); /* the daemon is in time, however busy the machine is */
	pthread_mutex_unlock(&kv->lock);
	fake_bye(f, KVPIPE_E_BUSY, "a newer instance of engine e");
	fake_hang_up(f);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	pthread_mutex_lock(&kv->lock);
	kv->helper.ping_end = kv_now();
	kv_helper_before(kv, kv_now());
	pthread_mutex_unlock(&kv->lock);
	poll(NULL, 0, 20);
	int64_t before = used_by(kv->helper.thread);
	poll(NULL, 0, 300);
	CHECK(used_by(kv->helper.thread) - before < 20 * KV_MS);
	kvpipe_close(kv);
	fake_stop(f);
}

/* What the daemon said before it died still counts. */
static void last_words(void)
{
	for (int i = 0; i < 50; i++) {
		struct fake *f = fake_start(&by_hand);
		kvpipe_t *kv = fake_connect(f);
		kvpipe_op_t op = fake_take(kv, 6, 0);
		struct kvpipe_completion c;

		fake_end(f, op, KVPIPE_DONE, 0, 0);
		fake_hang_up(f);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
		CHECK_INT(c.status, KVPIPE_DONE);
		kvpipe_close(kv);
		fake_stop(f);
	}
}

static void bye(void)
{
	const struct kvpipe_view view = { .part = "kv" };
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 6, 0), other = fake_take(kv, 6, 0);
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	struct kvpipe_pipe_opts p = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_RECV);
	kvpipe_region_t region, asleep;
	kvpipe_pipe_t *pipe;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &asleep), 0);
	CHECK_INT(kvpipe_mem_invalidate(kv, asleep, WAIT), 0);
	fake_bye(f, KVPIPE_E_BUSY, "a newer instance of engine e");
	check_end(kv, op, KVPIPE_E_CLOSED, KVPIPE_C_MORE, "the daemon ended the session: a newer instance of engine e");
	CHECK_INT(kvpipe_op_released(kv, op), 0); /* it may still be fencing */
	CHECK_INT(kvpipe_connected(kv), 0);
	/* What needs a session is refused at once, and not sent to a daemon that reads nothing any more. */
	CHECK_FAILS(kvpipe_offer(kv, &o, &other), KVPIPE_E_CLOSED, "a newer instance of engine e");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), KVPIPE_E_CLOSED, "a newer instance of engine e");
	CHECK_FAILS(kvpipe_set_layout(kv, &view, 1, NULL, 0), KVPIPE_E_CLOSED, "a newer instance of engine e");
	CHECK_FAILS(kvpipe_mem_revalidate(kv, asleep, WAIT), KVPIPE_E_CLOSED, "a newer instance of engine e");
	CHECK_FAILS(kvpipe_pipe_open(kv, &p, &pipe), KVPIPE_E_CLOSED, "a newer instance of engine e");
	fake_hang_up(f);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_FAILS(kvpipe_offer(kv, &o, &other), KVPIPE_E_CLOSED, "close the session and connect again");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), KVPIPE_E_CLOSED, "a newer instance of engine e");
	kvpipe_close(kv);
	kv = fake_connect(f); /* a new session */
	kvpipe_close(kv);
	fake_stop(f);
}

static void malformed(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 6, 0);
	uint32_t junk[4] = { 1, 2, 3, 4 };

	fake_send(f, 999, 0, junk, sizeof(junk)); /* of a later protocol: skipped */
	fake_send(f, KVPIPE_CTL_ACK, 5, junk, sizeof(junk));
	check_end(kv, op, KVPIPE_E_CLOSED, KVPIPE_C_MORE, "malformed ack of 16 bytes");
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A stopped daemon keeps its socket: its heart does not beat. */
static void heartbeat(void)
{
	struct fake_conf conf = { .heartbeat = 1 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);

	CHECK_INT(kvpipe_connected(kv), 1);
	CHECK_INT(kvpipe_connected(kv), 1);
	kv->beat_seen -= 6 * KV_SEC; /* as if that were long ago */
	CHECK_INT(kvpipe_connected(kv), 0);
	fake_beat(f);
	CHECK_INT(kvpipe_connected(kv), 1);
	kv->beat_seen -= 6 * KV_SEC; /* now it was this process that did not run, and the daemon did */
	fake_beat(f);
	CHECK_INT(kvpipe_connected(kv), 1);
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(deadline), TEST(ended_in_time), TEST(lease), TEST(unread), TEST(unread_answer), TEST(asked_late), TEST(asked_late_for_an_offer), TEST(over_while_asked), TEST(last_words),
		TEST(bye), TEST(malformed), TEST(heartbeat),
	};
	return RUN(tests);
}
