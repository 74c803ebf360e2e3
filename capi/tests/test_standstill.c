/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup buffers whose daemon takes nothing for a while: nothing is forgotten, and a look stays short. The daemons are fake. */
#include "endpoint.h"
#include "fakedaemon.h"
#include "pipes.h"

#include <pthread.h>
#include <sched.h>

#define LONG_NS (600 * KV_SEC)

static struct fake *parent, *f; /* of the session, and of the end that selects */
static kvpipe_t *kv;
static kvpipe_lookup_t *sel;
static kvpipe_query_t *q[4096];
static uint64_t gets[4096];
static _Atomic uint32_t ngets, ndeclines;

static void keep(struct fake *daemon, const struct kvpipe_sqe *e, const uint8_t *record)
{
	struct kvpipe_rec_get rec;

	if (e->op == KVPIPE_OPCODE_CANCEL)
		fake_end(daemon, e->user_data, KVPIPE_DONE, 0, 0);
	if (e->op != KVPIPE_OPCODE_GET)
		return;
	memcpy(&rec, record, sizeof(rec));
	if (rec.match == KVPIPE_MATCH_DECLINE) {
		fake_end(daemon, e->user_data, KVPIPE_DONE, 0, 0);
		ndeclines++;
	} else {
		gets[ngets] = e->user_data;
		ngets++;
	}
}

static void start(uint32_t sq)
{
	struct fake_conf conf = { .records = 1 << 20, .sq = sq, .submission = keep };

	ngets = ndeclines = 0;
	parent = fake_start(NULL);
	f = fake_start(&conf);
	kv = fake_connect(parent);
	snprintf(kv->path, sizeof(kv->path), "%s", fake_path(f));
	sel = open_lookup(kv, 0);
}

static void stop(uint32_t queries)
{
	for (uint32_t i = 0; i < queries; i++)
		kvpipe_query_free(q[i]);
	kvpipe_lookup_close(sel);
	kvpipe_close(kv);
	fake_stop(f);
	fake_stop(parent);
}

/* Asks for any entry, from query `first` on to before `end`. */
static void ask(uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++)
		CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, LONG_NS, &q[i]), 0);
}

static void await(_Atomic uint32_t *count, uint32_t n)
{
	while (*count < n)
		sched_yield();
}

/* An entry of so many bytes was found, and is kept for the query until it has room. */
static void is_short_of(uint32_t query, uint64_t item, uint64_t bytes)
{
	struct kvpipe_got got = { .item = item, .bytes = bytes, .capacity = bytes * 10 };
	struct kvpipe_cqe c = { .user_data = gets[query], .status = KVPIPE_DONE, .flags = KVPIPE_C_SHORT };

	fake_post_result(f, c, &got, sizeof(got), NULL, 0);
}

static void is_short(uint32_t query, uint64_t item) { is_short_of(query, item, 100); }

/* The daemon reads no more, and its queue has room for no more. */
static void stands_still(uint32_t first, uint32_t end)
{
	fake_pause(f, true);
	ask(first, end);
}

/* An entry that nobody wants any more is given back as soon as the daemon takes something. */
static void given_back_later(void)
{
	kvpipe_msg_t *m;

	start(4);
	ask(0, 1);
	await(&ngets, 1);
	is_short(0, 7);
	CHECK_INT(kvpipe_query_done(q[0]), 0);
	stands_still(1, 5);
	kvpipe_query_free(q[0]);
	CHECK_FAILS(kvpipe_query_wait(q[1], 0, &m), KVPIPE_E_TIMEOUT, "does not take submissions");
	fake_pause(f, false);
	await(&ngets, 5);
	while (ndeclines == 0)
		CHECK_FAILS(kvpipe_query_wait(q[1], KV_MS, &m), KVPIPE_E_TIMEOUT, "still running");
	q[0] = NULL;
	stop(5);
}

/* Two queries run. The first one's entry, item 7, has no room: its wait makes the arena, and asks again for that item. For the arena the daemon
 * has a second, and another one in the next wait. */
static void arena_is_made(void)
{
	kvpipe_msg_t *m;

	ask(0, 2);
	await(&ngets, 2);
	is_short(0, 7);
	while (ngets < 3)
		CHECK_INT(kvpipe_query_wait(q[0], KV_MS, &m), -KVPIPE_E_TIMEOUT);
}

/* A query that has an entry waiting for it asks for that again, and does not fail, as its time is not over. */
static void asked_again_later(void)
{
	kvpipe_msg_t *m;

	start(4);
	arena_is_made();
	stands_still(2, 6);
	is_short(1, 8);
	CHECK_FAILS(kvpipe_query_wait(q[1], 10 * KV_MS, &m), KVPIPE_E_TIMEOUT, "does not take submissions");
	fake_pause(f, false);
	while (ngets < 8) /* four that were in the queue, and the one for item 8 */
		CHECK_FAILS(kvpipe_query_wait(q[1], KV_MS, &m), KVPIPE_E_TIMEOUT, "still running");
	CHECK_INT(ndeclines, 0);
	stop(6);
}

/* Of the queries that wait for their turn none fails meanwhile, and none is waited for in vain after the first. */
static void turns_later(void)
{
	enum { TAKEN = 1360, ENTRIES = 1024, MORE = 5, ALL = TAKEN + ENTRIES + MORE };
	kvpipe_msg_t *m;

	start(ENTRIES);
	ask(0, ALL);
	await(&ngets, TAKEN);
	fake_pause(f, true);
	for (uint32_t i = 0; i < TAKEN; i++)
		fake_end(f, gets[i], KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
	int64_t began = kv_now();
	CHECK_FAILS(kvpipe_query_wait(q[ALL - 1], 0, &m), KVPIPE_E_TIMEOUT, "does not take submissions");
	CHECK(kv_now() - began < MORE * KV_SEC); /* a second each, and it were as much */
	fake_pause(f, false);
	while (ngets < ALL)
		CHECK_FAILS(kvpipe_query_wait(q[ALL - 1], KV_MS, &m), KVPIPE_E_TIMEOUT, "still running");
	stop(ALL);
}

/* The owner came back with more capacity, after a restart of its daemon. An entry that this end never has room for goes back at once. */
static void too_large_for_this_end(void)
{
	kvpipe_msg_t *m;

	start(0);
	arena_is_made();
	is_short_of(1, 8, 1 << 20);
	CHECK_FAILS(kvpipe_query_wait(q[1], WAIT, &m), KVPIPE_E_QUOTA,
		    "an item of 1048576 bytes, more than the capacity that this end was opened on: open it again");
	await(&ndeclines, 1);
	stop(2);
}

static void *waits(void *arg)
{
	kvpipe_msg_t *m;

	return (void *)(intptr_t)kvpipe_query_wait(arg, WAIT, &m);
}

static int waited(pthread_t thread)
{
	void *err;

	CHECK(pthread_join(thread, &err) == 0);
	return (int)(intptr_t)err;
}

static bool waiting(uint32_t n)
{
	kvpipe_t *own = ((struct kv_end *)(void *)sel)->kv;

	pthread_mutex_lock(&own->lock);
	for (const struct kv_waiter *w = own->waiters; w != NULL; w = w->next)
		n--;
	bool all = n == 0 && own->sleeper != NULL;
	pthread_mutex_unlock(&own->lock);
	return all;
}

/* A thread that begins to wait beside another finds what the event loop waits for: the loop hears of it, though the one that sleeps does not. */
static void found_by_another(void)
{
	pthread_t threads[2];
	kvpipe_msg_t *m;

	start(0);
	ask(0, 3);
	await(&ngets, 3);
	struct pollfd p = { .fd = kvpipe_lookup_fd(sel), .events = POLLIN };
	CHECK(pthread_create(&threads[0], NULL, waits, q[0]) == 0);
	while (!waiting(1))
		sched_yield();
	CHECK_FAILS(kvpipe_query_wait(q[2], 0, &m), KVPIPE_E_TIMEOUT, "still running");
	fake_hush(f, true); /* its bell comes when the other thread has looked */
	fake_end(f, gets[2], KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
	CHECK(pthread_create(&threads[1], NULL, waits, q[1]) == 0);
	while (!waiting(2))
		sched_yield();
	CHECK_INT(poll(&p, 1, (int)(WAIT / KV_MS)), 1);
	CHECK_INT(kvpipe_query_wait(q[2], 0, &m), -KVPIPE_E_NOT_FOUND);
	fake_hush(f, false);
	for (int i = 0; i < 2; i++)
		fake_end(f, gets[i], KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
	for (int i = 0; i < 2; i++)
		CHECK_INT(waited(threads[i]), -KVPIPE_E_NOT_FOUND);
	stop(3);
}

/* It was this process that stood still until the query's time was over, and its thread goes on first: what came lies in the ring. A machine
 * that is too busy to end it in that time tries again. */
static void ended_meanwhile(void)
{
	bool fair = false;

	for (int tries = 0; !fair; tries++) {
		pthread_t threads[2];
		start(0);
		int64_t begun = kv_now();
		CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, LONG_NS, &q[0]), 0);
		CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, KV_SEC, &q[1]), 0);
		await(&ngets, 2);
		CHECK(pthread_create(&threads[0], NULL, waits, q[0]) == 0);
		while (!waiting(1))
			sched_yield();
		CHECK(pthread_create(&threads[1], NULL, waits, q[1]) == 0);
		while (!waiting(2) && kv_now() < begun + KV_SEC)
			sched_yield();
		fake_hush(f, true); /* the other one, which sleeps on the ring, has not gone on yet */
		fake_end(f, gets[1], KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
		fair = kv_now() < begun + KV_SEC + KV_GRACE_NS || tries == 20;
		int err = waited(threads[1]);
		if (fair)
			CHECK_INT(err, -KVPIPE_E_NOT_FOUND);
		fake_hush(f, false);
		fake_end(f, gets[0], KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
		CHECK_INT(waited(threads[0]), -KVPIPE_E_NOT_FOUND);
		stop(2);
	}
}

/* A query's time is over, and the daemon's half a second to say so is not: the query still runs. */
static void about_to_end(void)
{
	kvpipe_msg_t *m;

	start(0);
	int64_t begun = kv_now();
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, KV_MS, &q[0]), 0);
	CHECK_INT(kvpipe_query_wait(q[0], 20 * KV_MS, &m), -KVPIPE_E_TIMEOUT);
	if (strstr(kvpipe_last_error(), "still running") != NULL)
		CHECK_INT(kvpipe_query_wait(q[0], LONG_NS, &m), -KVPIPE_E_TIMEOUT);
	else
		CHECK(kv_now() - begun >= KV_GRACE_NS); /* this thread stood still so long */
	CHECK_HAS(kvpipe_last_error(), "nothing came within 1 ms, and the daemon does not answer");
	stop(1);
}

/* The daemon has found an entry, and nobody has waited until the query's time was over. */
static void waited_for_late(void)
{
	kvpipe_msg_t *m;

	start(0);
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, KV_MS, &q[0]), 0);
	await(&ngets, 1);
	is_short(0, 7);
	while (kvpipe_query_done(q[0]) == 0)
		sched_yield();
	CHECK_FAILS(kvpipe_query_wait(q[0], 0, &m), KVPIPE_E_TIMEOUT, "\"l\": an entry was found, and not received in time: wait for queries");
	kvpipe_query_free(q[0]);
	ask(1, 2);
	await(&ndeclines, 1); /* it goes back */
	kvpipe_query_free(q[1]);
	stop(0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(given_back_later), TEST(asked_again_later), TEST(turns_later),
					     TEST(too_large_for_this_end), TEST(found_by_another), TEST(ended_meanwhile), TEST(about_to_end), TEST(waited_for_late) };
	return RUN(tests);
}
