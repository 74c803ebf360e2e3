/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup buffers: what matches what, who waits for whom, what is refused. The daemons are fake. */
#include "endpoint.h"
#include "fake_exchange.h"
#include "pipes.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static struct exchange *x;
static kvpipe_t *kv;
static kvpipe_lookup_t *own, *sel;

static void start(uint64_t capacity)
{
	x = exchange_start(2);
	kv = exchange_session(x);
	exchange_next(x, kv, 0);
	own = open_lookup(kv, capacity);
	exchange_next(x, kv, 1);
	sel = open_lookup(kv, 0);
}

static void stop(void)
{
	kvpipe_lookup_close(own);
	kvpipe_lookup_close(sel);
	kvpipe_close(kv);
	exchange_stop(x);
}

/* An entry whose value is its number. */
static void insert(uint64_t number, const int64_t *tokens, uint64_t n, const uint8_t *roi)
{
	struct kvpipe_tensor t = flat(KVPIPE_I64, n, tokens), r = flat(KVPIPE_BOOL, n, roi), v = flat(KVPIPE_U64, 1, &number);
	const struct kvpipe_tensor *members[5] = { tokens ? &t : NULL, roi ? &r : NULL, NULL, &v, NULL };

	CHECK_INT(kvpipe_lookup_insert(own, members, WAIT), 0);
}

static kvpipe_query_t *ask(const int64_t *tokens, uint64_t n, const uint8_t *roi, uint32_t match)
{
	struct kvpipe_tensor t = flat(KVPIPE_I64, n, tokens), r = flat(KVPIPE_U8, n, roi);
	kvpipe_query_t *q;

	CHECK_INT(kvpipe_lookup_select(sel, tokens ? &t : NULL, roi ? &r : NULL, match, WAIT, &q), 0);
	return q;
}

static void expect(kvpipe_query_t *q, uint64_t number, uint64_t matched)
{
	struct kvpipe_tensor none = KVPIPE_OPTS(kvpipe_tensor, .dtype = 0);
	kvpipe_msg_t *m;
	uint64_t got;

	CHECK_INT(kvpipe_query_wait(q, WAIT, &m), 0);
	CHECK_INT(kvpipe_query_done(q), 1);
	CHECK_INT(kvpipe_msg_count(m), 5);
	memcpy(&got, member(m, 3).data, sizeof(got));
	CHECK_INT(got, number);
	CHECK_INT(kvpipe_msg_matched(m), matched);
	CHECK_INT(kvpipe_msg_tensor(m, 2, &none), 0);
	kvpipe_msg_free(m);
	CHECK_FAILS(kvpipe_query_wait(q, 0, &m), KVPIPE_E_NOT_FOUND, "collected before");
	kvpipe_query_free(q);
}

/* While a selecting end makes room for its first entry: what was in the buffer is lost, too. */
static void the_daemon_goes(void)
{
	kvpipe_query_t *q;
	kvpipe_msg_t *m;

	start(1 << 16);
	exchange_leave(x);
	insert(1, NULL, 0, NULL);
	q = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	CHECK_FAILS(kvpipe_query_wait(q, WAIT, &m), KVPIPE_E_RESTARTED, "open it again once the daemon is back");
	kvpipe_query_free(q);
	stop();
}

/* That is the end of every query, those included that nobody waited for; and of an end a query tells once. */
static void the_daemon_goes_once(void)
{
	kvpipe_query_t *q[2];
	kvpipe_msg_t *m;

	start(1 << 16);
	exchange_leave(x);
	insert(1, NULL, 0, NULL);
	for (int i = 0; i < 2; i++)
		q[i] = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	for (int i = 0; i < 2; i++) {
		CHECK_FAILS(kvpipe_query_wait(q[i], WAIT, &m), KVPIPE_E_RESTARTED, "open it again once the daemon is back");
		CHECK_FAILS(kvpipe_query_wait(q[i], 0, &m), KVPIPE_E_NOT_FOUND, "collected before");
		kvpipe_query_free(q[i]);
	}
	stop();
}

static void *wait_in_vain(void *arg)
{
	kvpipe_msg_t *m;
	int64_t begun;

	do { /* first until the entry is found */
		begun = kv_now();
		CHECK_INT(kvpipe_query_wait(arg, KV_MS, &m), -KVPIPE_E_TIMEOUT);
	} while (strstr(kvpipe_last_error(), "still running") != NULL || strstr(kvpipe_last_error(), "call again") != NULL);
	CHECK_HAS(kvpipe_last_error(), "the daemon does not answer");
	CHECK(kv_now() - begun < 4 * KV_SEC);
	return NULL;
}

/* While the daemon stands still, those who wait for their first entries do so at the same time, not one after the other. */
static void many_wait_while_it_stands(void)
{
	kvpipe_query_t *q[6];
	pthread_t t[KV_COUNT(q)];

	start(1 << 16);
	exchange_stand_still(x, KVPIPE_CTL_REGISTER);
	for (size_t i = 0; i < KV_COUNT(q); i++) {
		insert(i, NULL, 0, NULL);
		q[i] = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	}
	for (size_t i = 0; i < KV_COUNT(q); i++)
		CHECK_INT(pthread_create(&t[i], NULL, wait_in_vain, q[i]), 0);
	for (size_t i = 0; i < KV_COUNT(q); i++)
		CHECK_INT(pthread_join(t[i], NULL), 0);
	fake_pause(exchange_fake(x, 1), false);
	for (size_t i = 0; i < KV_COUNT(q); i++)
		expect(q[i], i, 0);
	stop();
}

/* Likewise, when the daemon stands still just then: a wait ends in its time, or a second, and a later one goes on where it was. */
static void the_daemon_stands_still(void)
{
	const uint16_t at[] = { KVPIPE_CTL_REGISTER, KVPIPE_CTL_LAYOUT };
	kvpipe_msg_t *m;

	for (size_t i = 0; i < KV_COUNT(at); i++) {
		start(1 << 16);
		insert(1, NULL, 0, NULL);
		kvpipe_query_t *q = ask(NULL, 0, NULL, KVPIPE_PREFIX);
		exchange_stand_still(x, at[i]);
		do { /* first until the entry is found */
			int64_t begun = kv_now();
			CHECK_INT(kvpipe_query_wait(q, KV_MS, &m), -KVPIPE_E_TIMEOUT);
			CHECK(kv_now() - begun < 4 * KV_SEC);
		} while (strstr(kvpipe_last_error(), "still running") != NULL || strstr(kvpipe_last_error(), "call again") != NULL);
		CHECK_HAS(kvpipe_last_error(), "the daemon does not answer");
		CHECK_LATE(kvpipe_query_wait(q, 0, &m), "the daemon does not answer", "its time was over before the daemon was asked: call again");
		fake_pause(exchange_fake(x, 1), false);
		expect(q, 1, 0);
		stop();
	}
}

/* Memory that the daemon has is pinned once, however often it refuses what is said of it. */
static void a_layout_is_refused(void)
{
	kvpipe_msg_t *m;

	start(1 << 16);
	insert(1, NULL, 0, NULL);
	kvpipe_query_t *q = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	for (int i = 0; i < 2; i++) {
		exchange_refuse_layout(x, KVPIPE_E_QUOTA, "too many layouts");
		CHECK_FAILS(kvpipe_query_wait(q, WAIT, &m), KVPIPE_E_QUOTA, "too many layouts");
	}
	expect(q, 1, 0);
	stop();
}

/* What a query found, and had no room for, is not kept for it any more when it asks for that: its time is over, or the node was away. A
 * machine on which it does not ask before the daemon is given up tries again. */
static void not_kept(void)
{
	const struct {
		int64_t timeout;
		enum kvpipe_reason reason;
		const char *text;
	} cases[] = {
		{ 1, KVPIPE_E_TIMEOUT, "no room for it in time" },
		{ WAIT, KVPIPE_E_PEER_GONE, "out of reach" },
	};
	kvpipe_query_t *q;
	kvpipe_msg_t *m;

	for (size_t i = 0, tries = 0; i < KV_COUNT(cases); tries++) {
		start(1 << 16);
		insert(1, NULL, 0, NULL);
		exchange_await_puts(x, 1);
		int64_t begun = kv_now();
		CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, cases[i].timeout, &q), 0);
		exchange_await_gets(x, 1);
		CHECK_INT(exchange_shorts(x), 1);
		exchange_fail(x, 1, KVPIPE_E_NOT_FOUND);
		int err = kvpipe_query_wait(q, WAIT, &m);
		if (tries == 20 || kv_now() < begun + cases[i].timeout + KV_GRACE_NS) {
			CHECK_FAILS(err, cases[i].reason, cases[i].text);
			i++;
		}
		exchange_fail(x, 0, 0);
		kvpipe_query_free(q);
		exchange_release(x);
		stop();
	}
}

/*
 * A query is over half a second after its time also when the daemon does not answer. An entry that the daemon had for it all the same is
 * what a further wait gives; one that was given up is cancelled.
 */
static void over_without_the_daemon(void)
{
	kvpipe_query_t *q, *other;
	kvpipe_msg_t *m;
	int64_t begun;
	uint64_t got;
	int rc;

	start(1 << 16);
	insert(1, NULL, 0, NULL);
	expect(ask(NULL, 0, NULL, KVPIPE_PREFIX), 1, 0);
	fake_pause(exchange_fake(x, 1), true);
	begun = kv_now();
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, 50 * KV_MS, &q), 0);
	CHECK_FAILS(kvpipe_query_wait(q, WAIT, &m), KVPIPE_E_TIMEOUT, "\"l\": nothing came within 50 ms, and the daemon does not answer");
	CHECK(kv_now() - begun >= 50 * KV_MS + KV_GRACE_NS && kv_now() - begun < 10 * KV_SEC);
	CHECK_INT(kvpipe_query_done(q), 1);
	CHECK_FAILS(kvpipe_query_wait(q, 0, &m), KVPIPE_E_NOT_FOUND, "collected before");
	begun = kv_now();
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, 1, &other), 0);
	while (!kvpipe_query_done(other))
		CHECK(kv_now() - begun < 10 * KV_SEC);
	kvpipe_query_free(other);
	insert(2, NULL, 0, NULL);
	exchange_await_puts(x, 2);
	fake_pause(exchange_fake(x, 1), false);
	begun = kv_now();
	while ((rc = kvpipe_query_wait(q, 0, &m)) == -KVPIPE_E_NOT_FOUND)
		CHECK(kv_now() - begun < WAIT);
	CHECK_INT(rc, 0);
	memcpy(&got, member(m, 3).data, sizeof(got));
	CHECK_INT(got, 2);
	kvpipe_msg_free(m);
	CHECK_FAILS(kvpipe_query_wait(q, 0, &m), KVPIPE_E_NOT_FOUND, "collected before");
	kvpipe_query_free(q);
	q = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	exchange_await_gets(x, 5); /* and the CANCEL before it */
	insert(3, NULL, 0, NULL);
	expect(q, 3, 0);
	stop();
}

/* Until the owner was told of that many refusals. */
static void await_lost(uint32_t n)
{
	struct kv_end *e = (struct kv_end *)(void *)own;

	for (bool told = false; !told;) {
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		told = e->lost == n;
		kv_end_unlock(e);
	}
}

/* A put, too, that nobody confirms; tried again it is not in the buffer twice. */
static void put_without_the_daemon(void)
{
	const uint64_t n = 1;
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &n);
	struct kv_end *e;

	start(1 << 16);
	e = (struct kv_end *)(void *)own;
	fake_pause(exchange_fake(x, 0), true);
	for (int i = 0; i < 3; i++) {
		int64_t begun = kv_now();
		CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, KV_MS), KVPIPE_E_TIMEOUT, "put: \"l\": it takes effect once the daemon answers");
		CHECK(kv_now() - begun < 4 * KV_SEC);
		CHECK_INT(e->items, 1);
	}
	fake_pause(exchange_fake(x, 0), false);
	CHECK_INT(kvpipe_lookup_put(own, "k", 1, &t, WAIT), 0);
	CHECK_INT(e->items, 2);
	stop();
}

static void *goes_on_later(void *arg)
{
	int64_t *then = arg;

	poll(NULL, 0, 3000);
	*then = kv_now();
	fake_pause(exchange_fake(x, 0), false);
	return NULL;
}

/* A put that first waits until an earlier one is confirmed has less time to wait for room. */
static void a_put_waits_no_longer_than_it_says(void)
{
	static uint8_t data[600];
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);
	int64_t then;
	pthread_t thread;

	start(1000);
	fake_pause(exchange_fake(x, 0), true);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, KV_MS), KVPIPE_E_TIMEOUT, "put: \"l\": it takes effect once the daemon answers");
	CHECK(pthread_create(&thread, NULL, goes_on_later, &then) == 0);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, 5 * KV_SEC), KVPIPE_E_TIMEOUT, "no room for 600 bytes within 5 s");
	int64_t now = kv_now();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(now < then + 5 * KV_SEC); /* 2 s after that */
	stop();
}

/* The daemon's refusal of a put is that put's own error, whatever became of entries before; no later call says it. */
static void a_put_hears_that_it_was_refused(void)
{
	const uint64_t n = 1;
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &n);

	start(1 << 16);
	CHECK_INT(kvpipe_lookup_put(own, "k", 1, &t, WAIT), 0);
	exchange_refuse_puts(x, KVPIPE_E_QUOTA);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, WAIT), KVPIPE_E_QUOTA, "put: \"l\": refusal 1");
	insert(1, NULL, 0, NULL);
	await_lost(1);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, WAIT), KVPIPE_E_QUOTA, "put: an earlier entry was lost: \"l\": refusal 2");
	exchange_refuse_puts(x, 0);
	CHECK_INT(kvpipe_lookup_put(own, "k", 1, &t, WAIT), 0);
	stop();
}

/* One that was not confirmed in time is nobody's any more: that it was refused is said by the next call. */
static void a_put_that_gave_up_hears_nothing(void)
{
	const uint64_t n = 1;
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &n);

	start(1 << 16);
	exchange_refuse_puts(x, KVPIPE_E_QUOTA);
	fake_pause(exchange_fake(x, 0), true);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, KV_MS), KVPIPE_E_TIMEOUT, "put: \"l\": it takes effect once the daemon answers");
	fake_pause(exchange_fake(x, 0), false);
	await_lost(1);
	CHECK_FAILS(kvpipe_lookup_insert(own, (const struct kvpipe_tensor *[5]){ &t, NULL, NULL, NULL, NULL }, WAIT), KVPIPE_E_QUOTA,
		    "insert: an earlier entry was lost: \"l\": refusal 1");
	stop();
}

/* What a key had stays until the new value is there: a put that has no room says so. */
static void a_put_needs_room_beside_what_the_key_has(void)
{
	static uint8_t data[600];
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);
	const struct kvpipe_tensor *members[5] = { &t };

	start(1000);
	CHECK_INT(kvpipe_lookup_put(own, "k", 1, &t, WAIT), 0);
	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, KV_MS), KVPIPE_E_TIMEOUT,
		    "holds 600 of 1000 bytes in 1 item that nobody received yet; what a key has stays until its new value is there");
	CHECK_FAILS(kvpipe_lookup_insert(own, members, KV_MS), KVPIPE_E_TIMEOUT, "holds 600 of 1000 bytes in 1 item that nobody received yet");
	CHECK(strstr(kvpipe_last_error(), "key") == NULL);
	stop();
}

/* Entries that are refused later are one error of the owner's: it says how many. */
static void of_lost_entries_the_number_is_told(void)
{
	const struct kvpipe_tensor *none[5] = { NULL };

	start(1 << 16);
	exchange_refuse_puts(x, KVPIPE_E_QUOTA);
	fake_pause(exchange_fake(x, 0), true);
	for (uint64_t i = 0; i < 4; i++)
		insert(i, NULL, 0, NULL);
	fake_pause(exchange_fake(x, 0), false);
	await_lost(4);
	CHECK_FAILS(kvpipe_lookup_insert(own, none, 0), KVPIPE_E_QUOTA, "insert: 4 earlier entries were lost, the last: \"l\": refusal 4");
	exchange_refuse_puts(x, 0);
	CHECK_INT(kvpipe_lookup_insert(own, none, 0), 0);
	stop();
}

/* Queries beyond what the daemon takes at a time wait here, in their order, and are with it as others end. */
static void more_than_the_daemon_takes(void)
{
	enum { N = 40, AT_ONCE = 6 }; /* the BIND among these */
	kvpipe_query_t *q[N], *late, *unwanted[2];
	kvpipe_msg_t *m;

	start(1 << 16);
	insert(99, NULL, 0, NULL);
	expect(ask(NULL, 0, NULL, KVPIPE_PREFIX), 99, 0);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	pthread_mutex_lock(&e->kv->lock);
	e->kv->max_inflight = AT_ONCE + 4;
	pthread_mutex_unlock(&e->kv->lock);
	for (int64_t i = 0; i < N; i++)
		q[i] = ask(&i, 1, NULL, KVPIPE_EXACT);
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, 1, &late), 0);
	unwanted[0] = ask((int64_t[]){ 7 }, 1, NULL, KVPIPE_EXACT);
	CHECK_INT(kvpipe_lookup_get(sel, "key", 3, WAIT, &unwanted[1]), 0);
	exchange_await_gets(x, 2 + AT_ONCE - 1);
	CHECK_INT(e->nops, AT_ONCE);
	kvpipe_query_free(unwanted[1]);
	kvpipe_query_free(unwanted[0]);
	for (int64_t i = 0; i < N; i++)
		insert((uint64_t)i, &i, 1, NULL);
	for (int i = N; i-- > 0;) {
		expect(q[i], (uint64_t)i, 1);
		CHECK(e->nops <= AT_ONCE);
	}
	CHECK_FAILS(kvpipe_query_wait(late, WAIT, &m), KVPIPE_E_TIMEOUT, "as many queries as the daemon takes were under way");
	kvpipe_query_free(late);
	late = ask(NULL, 0, NULL, KVPIPE_PREFIX); /* also after those of an end that closes */
	for (int64_t i = 0; i < N; i++)
		q[i] = ask(&i, 1, NULL, KVPIPE_EXACT);
	kvpipe_lookup_close(sel);
	sel = NULL;
	for (int i = 0; i < N; i++)
		kvpipe_query_free(q[i]);
	kvpipe_query_free(late);
	stop();
}

/* The time of one that waits here may pass while none of the others ends: that is what it says, and not that the daemon is silent. */
static void overdue_before_the_daemon_takes_it(void)
{
	kvpipe_query_t *first, *late;
	kvpipe_msg_t *m;
	int64_t begun;

	start(1 << 16);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	pthread_mutex_lock(&e->kv->lock);
	e->kv->max_inflight = 6; /* the BIND, and one */
	pthread_mutex_unlock(&e->kv->lock);
	first = ask((int64_t[]){ 1 }, 1, NULL, KVPIPE_EXACT);
	begun = kv_now();
	CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, 50 * KV_MS, &late), 0);
	CHECK_FAILS(kvpipe_query_wait(late, WAIT, &m), KVPIPE_E_TIMEOUT, "as many queries as the daemon takes were under way");
	CHECK(kv_now() - begun >= 50 * KV_MS && kv_now() - begun < 10 * KV_SEC);
	CHECK_FAILS(kvpipe_query_wait(late, 0, &m), KVPIPE_E_NOT_FOUND, "collected before");
	kvpipe_query_free(late);
	insert(1, (int64_t[]){ 1 }, 1, NULL);
	expect(first, 1, 1);
	stop();
}

static bool freed;

static void *freer(void *arg)
{
	kvpipe_query_free(arg);
	__atomic_store_n(&freed, true, __ATOMIC_RELEASE);
	return NULL;
}

static void *expect_third(void *arg)
{
	expect(arg, 3, 1);
	return NULL;
}

/* A query that is given up while another thread is about to submit it is not submitted: a CANCEL that is there first finds nothing. */
static void given_up_before_it_is_submitted(void)
{
	kvpipe_query_t *q[3];
	pthread_t waiting, freeing;
	bool asked = false;

	start(1 << 16);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	insert(9, NULL, 0, NULL);
	expect(ask(NULL, 0, NULL, KVPIPE_PREFIX), 9, 0);
	pthread_mutex_lock(&e->kv->lock);
	e->kv->max_inflight = 6; /* the BIND, and one */
	pthread_mutex_unlock(&e->kv->lock);
	for (int64_t i = 0; i < 3; i++)
		q[i] = ask(&i, 1, NULL, KVPIPE_EXACT);
	CHECK(pthread_create(&waiting, NULL, expect_third, q[2]) == 0);
	pthread_mutex_lock(&e->kv->sq.lock); /* nothing is submitted */
	uint32_t before = e->kv->sq.tail;
	insert(1, (int64_t[]){ 0 }, 1, NULL);
	while (!asked) {
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		asked = e->queued != NULL && e->queued == e->queued_last; /* q[2]: q[1] is on its way */
		pthread_mutex_unlock(&e->kv->lock);
	}
	__atomic_store_n(&freed, false, __ATOMIC_RELEASE);
	CHECK(pthread_create(&freeing, NULL, freer, q[1]) == 0);
	for (bool gone = false; !gone;) { /* or a CANCEL waits for the queue */
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		gone = __atomic_load_n(&freed, __ATOMIC_ACQUIRE) || e->nops > 2;
		pthread_mutex_unlock(&e->kv->lock);
	}
	pthread_mutex_unlock(&e->kv->sq.lock);
	CHECK(pthread_join(freeing, NULL) == 0);
	insert(2, (int64_t[]){ 1 }, 1, NULL);
	insert(3, (int64_t[]){ 2 }, 1, NULL);
	CHECK(pthread_join(waiting, NULL) == 0);
	CHECK_INT(e->kv->sq.tail - before, 1); /* q[2] */
	expect(q[0], 1, 1);
	expect(ask((int64_t[]){ 1 }, 1, NULL, KVPIPE_EXACT), 2, 1);
	stop();
}

/* So it is when an entry was found for it, and room has just been made: the entry goes back. */
static void given_up_before_it_is_brought(void)
{
	kvpipe_query_t *q[2];
	pthread_t waiting, freeing;

	start(1 << 16);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	q[0] = ask((int64_t[]){ 1 }, 1, NULL, KVPIPE_EXACT);
	q[1] = ask((int64_t[]){ 2 }, 1, NULL, KVPIPE_EXACT);
	CHECK(pthread_create(&waiting, NULL, expect_third, q[1]) == 0);
	exchange_await_gets(x, 2);
	pthread_mutex_lock(&e->kv->sq.lock);
	insert(1, (int64_t[]){ 1 }, 1, NULL);
	for (bool asked = false; !asked;) {
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		asked = e->pool != NULL && e->shorts == NULL;
		pthread_mutex_unlock(&e->kv->lock);
	}
	pthread_mutex_lock(&e->kv->lock);
	uint32_t before = e->nops;
	pthread_mutex_unlock(&e->kv->lock);
	__atomic_store_n(&freed, false, __ATOMIC_RELEASE);
	CHECK(pthread_create(&freeing, NULL, freer, q[0]) == 0);
	for (bool gone = false; !gone;) {
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		gone = __atomic_load_n(&freed, __ATOMIC_ACQUIRE) || e->nops > before;
		pthread_mutex_unlock(&e->kv->lock);
	}
	pthread_mutex_unlock(&e->kv->sq.lock);
	CHECK(pthread_join(freeing, NULL) == 0);
	exchange_await_declines(x, 1);
	insert(3, (int64_t[]){ 2 }, 1, NULL);
	CHECK(pthread_join(waiting, NULL) == 0);
	expect(ask((int64_t[]){ 1 }, 1, NULL, KVPIPE_EXACT), 1, 1);
	pthread_mutex_lock(&e->kv->lock);
	CHECK_INT(e->nops, 1); /* the BIND: its room is free, too */
	CHECK_INT(e->pool->nfree, e->pool->nblocks);
	pthread_mutex_unlock(&e->kv->lock);
	stop();
}

/* One whose CANCEL found no room in a full queue is cancelled by a later call: it would take an entry that comes then. */
static void given_up_while_the_queue_is_full(void)
{
	start(1 << 16);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	insert(9, NULL, 0, NULL);
	expect(ask(NULL, 0, NULL, KVPIPE_PREFIX), 9, 0);
	uint32_t n = e->kv->rings.sq_entries;
	kvpipe_query_t **q = calloc(n, sizeof(*q));
	CHECK(q != NULL);
	fake_pause(exchange_fake(x, 1), true);
	for (int64_t i = 0; i < n; i++)
		q[i] = ask(&i, 1, NULL, KVPIPE_EXACT);
	for (uint32_t i = 0; i < 3; i++)
		kvpipe_query_free(q[i]);
	fake_pause(exchange_fake(x, 1), false);
	exchange_await_gets(x, 2 + n); /* the first was SHORT */
	kvpipe_query_t *other = ask((int64_t[]){ n }, 1, NULL, KVPIPE_EXACT);
	exchange_await_gets(x, 3 + n); /* and each CANCEL before it */
	for (int64_t i = 0; i < 3; i++) {
		insert((uint64_t)i, &i, 1, NULL);
		expect(ask(&i, 1, NULL, KVPIPE_EXACT), (uint64_t)i, 1);
	}
	kvpipe_query_free(other);
	for (uint32_t i = 3; i < n; i++)
		kvpipe_query_free(q[i]);
	free(q);
	stop();
}

/* An end whose daemon takes few operations at a time asks all the same, one query after another. */
static void few_at_a_time(void)
{
	for (uint32_t most = 2; most <= 6; most++) {
		kvpipe_query_t *q[3];
		start(1 << 16);
		struct kv_end *e = (struct kv_end *)(void *)sel;
		pthread_mutex_lock(&e->kv->lock);
		e->kv->max_inflight = most;
		pthread_mutex_unlock(&e->kv->lock);
		for (int64_t i = 0; i < 3; i++)
			q[i] = ask(&i, 1, NULL, KVPIPE_EXACT);
		for (int64_t i = 3; i-- > 0;)
			insert((uint64_t)i, &i, 1, NULL);
		for (uint64_t i = 0; i < 3; i++)
			expect(q[i], i, 1);
		CHECK(e->nops <= 2);
		stop();
	}
}

/* Entries of 1,700 bytes in five tensors fill any capacity. */
static void capacities(void)
{
	static uint8_t data[1700];
	const int64_t token = 1;
	const struct kvpipe_tensor t[5] = {
		flat(KVPIPE_I64, 1, &token), flat(KVPIPE_BOOL, 1, "\1"), flat(KVPIPE_U8, 563, data), flat(KVPIPE_U8, 564, data),
		flat(KVPIPE_U8, 564, data),
	};
	const struct kvpipe_tensor *members[5] = { &t[0], &t[1], &t[2], &t[3], &t[4] };

	for (uint64_t capacity = 1700; capacity <= 1ull << 40; capacity += capacity / 7 + 1) {
		uint64_t n = capacity / 1700 < KV_ITEMS ? capacity / 1700 : KV_ITEMS, block = kv_block_bytes(capacity);
		CHECK(n * ((1700 + 4 * 63 + block - 1) / block * block) <= kv_home_bytes(capacity));
		CHECK((kv_home_bytes(capacity) * 2 + 4095) / 4096 * 4096 / block <= KV_BLOCKS_MAX); /* a layout's */
	}
	start(17000000);
	for (int i = 0; i < 10000; i++)
		CHECK_INT(kvpipe_lookup_insert(own, members, WAIT), 0); /* for the daemon, which may get no processor, to take it */
	CHECK_FAILS(kvpipe_lookup_insert(own, members, 0), KVPIPE_E_TIMEOUT, "holds 17000000 of 17000000 bytes in 10000 items");
	stop();
}

static void reserved(void)
{
	struct kvpipe_lookup_opts o = KVPIPE_OPTS(kvpipe_lookup_opts, .name = "l", .reserved = { 1 });
	kvpipe_lookup_t *l;

	start(0);
	CHECK_FAILS(kvpipe_lookup_open(kv, &o, &l), KVPIPE_E_INVALID, "reserved[0] is 0x1");
	stop();
}

static void prefixes(void)
{
	const int64_t a[] = { 1, 2, 3, 4 }, b[] = { 1, 2, 9 }, c[] = { 7 };
	const uint8_t roi[] = { 1, 1, 0, 1 };

	start(1 << 16);
	insert(1, a, 4, NULL);
	insert(2, b, 3, NULL);
	insert(3, a, 4, roi); /* 1 2 4 */
	insert(4, NULL, 0, NULL);
	insert(5, a, 2, NULL);
	expect(ask(b, 3, NULL, KVPIPE_PREFIX), 2, 3);
	expect(ask(a, 2, NULL, KVPIPE_EXACT), 5, 2);
	expect(ask(a, 4, roi, KVPIPE_EXACT), 3, 3);
	expect(ask(NULL, 0, NULL, KVPIPE_PREFIX), 1, 0);
	expect(ask(NULL, 0, NULL, KVPIPE_EXACT), 4, 0);
	kvpipe_query_t *q = ask(c, 1, NULL, KVPIPE_PREFIX); /* waits; nobody behind it does */
	kvpipe_msg_t *m;
	insert(6, b, 3, NULL);
	expect(ask(b, 1, NULL, KVPIPE_PREFIX), 6, 1);
	CHECK_INT(kvpipe_query_done(q), 0);
	CHECK_FAILS(kvpipe_query_wait(q, KV_MS, &m), KVPIPE_E_TIMEOUT, "still running");
	insert(7, c, 1, NULL);
	expect(q, 7, 1);
	stop();
}

static void tokens_of_any_integers(void)
{
	const uint8_t u8[] = { 3, 200 };
	const int8_t i8[] = { 3, -1 };
	const uint64_t large[] = { 3, 1ull << 32 };
	const float f[] = { 1 };
	const uint8_t none[] = { 0, 0 };
	const int64_t same[] = { 3, 200 };
	struct kvpipe_tensor t = flat(KVPIPE_U8, 2, u8), r = flat(KVPIPE_BOOL, 2, none);
	const struct kvpipe_tensor *members[5] = { &t };
	kvpipe_query_t *q;
	kvpipe_msg_t *m;

	start(1 << 16);
	CHECK_INT(kvpipe_lookup_insert(own, members, 0), 0);
	q = ask(same, 2, NULL, KVPIPE_EXACT);
	CHECK_INT(kvpipe_query_wait(q, WAIT, &m), 0);
	CHECK_INT(member(m, 0).dtype, KVPIPE_U8);
	kvpipe_msg_free(m);
	kvpipe_query_free(q);
	t = flat(KVPIPE_I8, 2, i8);
	CHECK_FAILS(kvpipe_lookup_insert(own, members, 0), KVPIPE_E_INVALID, "tokens[1] is -1: must be 0 to 4294967295");
	t = flat(KVPIPE_U64, 2, large);
	CHECK_FAILS(kvpipe_lookup_select(sel, &t, NULL, KVPIPE_PREFIX, 0, &q), KVPIPE_E_INVALID, "tokens[1] is 4294967296");
	t = flat(KVPIPE_F32, 1, f);
	CHECK_FAILS(kvpipe_lookup_insert(own, members, 0), KVPIPE_E_INVALID, "1 dimensions of float32: must have one, of integers");
	t = flat(KVPIPE_U8, 2, u8);
	CHECK_FAILS(kvpipe_lookup_select(sel, &t, &r, KVPIPE_PREFIX, 0, &q), KVPIPE_E_INVALID, "none of 2 tokens counts under roi");
	struct kvpipe_tensor broad = t; /* four billion tokens at one place: nothing is copied before they are counted */
	broad.flags = KVPIPE_TENSOR_STRIDED, broad.shape[0] = 4000000000u;
	CHECK_FAILS(kvpipe_lookup_select(sel, &broad, NULL, KVPIPE_PREFIX, 0, &q), KVPIPE_E_INVALID, "4000000000 tokens count under roi: at most");
	r.shape[0] = 1;
	CHECK_FAILS(kvpipe_lookup_select(sel, &t, &r, KVPIPE_PREFIX, 0, &q), KVPIPE_E_INVALID, "one for each of 2 tokens");
	CHECK_FAILS(kvpipe_lookup_select(sel, NULL, &r, KVPIPE_PREFIX, 0, &q), KVPIPE_E_INVALID, "roi without tokens");
	t.shape[0] = 0;
	CHECK_FAILS(kvpipe_lookup_insert(own, members, 0), KVPIPE_E_INVALID, "none of 0 tokens counts");
	CHECK_FAILS(kvpipe_lookup_select(sel, NULL, NULL, 3, 0, &q), KVPIPE_E_INVALID, "match is 3");
	CHECK_FAILS(kvpipe_lookup_select(own, NULL, NULL, 1, 0, &q), KVPIPE_E_INVALID, "owner's end");
	CHECK_FAILS(kvpipe_lookup_insert(sel, members, 0), KVPIPE_E_INVALID, "selecting end");
	CHECK_FAILS(kvpipe_lookup_select(sel, NULL, NULL, 1, 31ll * 86400 * KV_SEC, &q), KVPIPE_E_INVALID, "at most 30 days");
	stop();
}

/* 200 entries of 1,700 bytes through a capacity of 170,000: never more than 100 at a time, selected in another order. */
static void threshold(void)
{
	enum { N = 200 };
	static uint8_t value[1700 - 8];
	kvpipe_query_t *q[N];
	kvpipe_msg_t *m;
	int64_t token;
	int sent = 0;

	start(170000);
	for (; sent < N; sent++) {
		token = sent;
		memset(value, sent, sizeof(value));
		struct kvpipe_tensor t = flat(KVPIPE_I64, 1, &token), v = flat(KVPIPE_U8, sizeof(value), value);
		const struct kvpipe_tensor *members[5] = { &t, NULL, NULL, &v, NULL };
		int rc = kvpipe_lookup_insert(own, members, 0);
		if (sent == 100) {
			CHECK_INT(rc, -KVPIPE_E_TIMEOUT);
			CHECK_HAS(kvpipe_last_error(), "holds 170000 of 170000 bytes in 100 items");
			for (int i = 0; i < 100; i++) {
				token = i * 37 % 100;
				q[token] = ask(&token, 1, NULL, KVPIPE_EXACT);
			}
			for (int i = 0; i < 100; i++) {
				CHECK_INT(kvpipe_query_wait(q[i], WAIT, &m), 0);
				kvpipe_msg_free(m);
				kvpipe_query_free(q[i]);
			}
			token = sent;
			rc = kvpipe_lookup_insert(own, members, WAIT);
		}
		CHECK_INT(rc, 0);
	}
	for (int i = 199; i >= 100; i--) {
		token = i;
		kvpipe_query_t *one = ask(&token, 1, NULL, KVPIPE_PREFIX);
		CHECK_INT(kvpipe_query_wait(one, WAIT, &m), 0);
		CHECK_INT(*(uint8_t *)member(m, 3).data, (uint8_t)i);
		kvpipe_msg_free(m);
		kvpipe_query_free(one);
	}
	struct kvpipe_tensor big = flat(KVPIPE_U8, 170001, value);
	const struct kvpipe_tensor *members[5] = { NULL, NULL, &big, NULL, NULL };
	CHECK_FAILS(kvpipe_lookup_insert(own, members, WAIT), KVPIPE_E_INVALID, "170001 bytes, the capacity of \"l\" is 170000");
	stop();
}

/* Queries that nobody wants any more: cancelled while they wait, given back when their entry is reserved. */
static void forgotten(void)
{
	const int64_t a[] = { 1 }, b[] = { 2 };
	kvpipe_query_t *q;

	start(1 << 16);
	q = ask(a, 1, NULL, KVPIPE_PREFIX);
	kvpipe_query_free(q);
	q = ask(b, 1, NULL, KVPIPE_PREFIX);
	exchange_hold(x, true);
	insert(1, a, 1, NULL);
	exchange_await_puts(x, 1);
	kvpipe_query_t *first = ask(a, 1, NULL, KVPIPE_PREFIX); /* no room yet: it is told the size, and reserves it */
	exchange_await_gets(x, 3);
	exchange_hold(x, false);
	fake_await_submissions(exchange_fake(x, 1), 6); /* BIND, CANCEL, GET, CANCEL, GET, GET */
	struct kv_end *e = (struct kv_end *)(void *)sel;
	while (!kvpipe_query_done(first) && exchange_shorts(x) == 0)
		;
	pthread_mutex_lock(&e->kv->lock);
	kv_end_look(e);
	CHECK(e->shorts != NULL);
	kv_end_unlock(e);
	kvpipe_query_free(first);
	expect(ask(a, 1, NULL, KVPIPE_PREFIX), 1, 1);
	exchange_await_declines(x, 1);
	insert(2, b, 1, NULL);
	expect(q, 2, 1);
	q = ask(b, 1, NULL, KVPIPE_PREFIX);
	kvpipe_lookup_close(sel);
	sel = NULL;
	CHECK_INT(kvpipe_query_done(q), 1);
	CHECK_FAILS(kvpipe_query_wait(q, 0, &(kvpipe_msg_t *){ NULL }), KVPIPE_E_CLOSED, "\"l\" was closed");
	kvpipe_query_free(q);
	kvpipe_query_free(NULL);
	kvpipe_lookup_close(NULL);
	stop();
}

#define THREADS 4
#define EACH 100

static void *inserter(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;

	for (uint64_t n = 0; n < EACH; n++)
		insert(me * EACH + n, (int64_t[]){ (int64_t)me, (int64_t)n }, 2, NULL);
	return NULL;
}

static void *selector(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	kvpipe_query_t *q[10];

	for (uint64_t n = 0; n < EACH; n += 10) {
		for (uint64_t i = 0; i < 10; i++)
			q[i] = ask((int64_t[]){ (int64_t)me, (int64_t)(n + i) }, 2, NULL, KVPIPE_EXACT);
		for (uint64_t i = 10; i-- > 0;)
			expect(q[i], me * EACH + n + i, 2);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[2 * THREADS];

	start(4000);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[THREADS + i], NULL, selector, (void *)i) == 0);
	/* Each has an inserter of its own: waiting for room they cannot wait for each other's queries. */
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, inserter, (void *)i) == 0);
	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	stop();
}

static void descriptors(void)
{
	const int64_t a[] = { 1, 2 };
	kvpipe_msg_t *m;

	start(1 << 16);
	struct pollfd p = { .fd = kvpipe_lookup_fd(sel), .events = POLLIN };
	CHECK(p.fd >= 0 && kvpipe_lookup_fd(own) >= 0);
	kvpipe_query_t *q = ask(a, 2, NULL, KVPIPE_PREFIX);
	CHECK_INT(kvpipe_query_wait(q, 0, &m), -KVPIPE_E_TIMEOUT);
	CHECK_INT(poll(&p, 1, 0), 0);
	insert(1, a, 2, NULL);
	while (!kvpipe_query_done(q)) {
		CHECK_INT(poll(&p, 1, 60000), 1);
		int rc = kvpipe_query_wait(q, 0, &m);
		if (rc == 0)
			kvpipe_msg_free(m);
		CHECK(rc == 0 || rc == -KVPIPE_E_TIMEOUT);
	}
	kvpipe_query_free(q);
	stop();
}

static void *closer(void *arg)
{
	kvpipe_lookup_close(arg);
	return NULL;
}

static void *put_in_vain(void *arg)
{
	uint64_t number = 1;
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &number);
	int64_t begun = kv_now();

	CHECK_FAILS(kvpipe_lookup_put(own, "k", 1, &t, 20 * KV_SEC), KVPIPE_E_CLOSED, "put: \"l\": it was closed");
	CHECK(kv_now() - begun < 20 * KV_SEC);
	fake_pause(arg, false); /* the close itself waits for the daemon */
	return NULL;
}

/* A put that waits for a daemon that stands still ends when its end is closed, and not when its time is over. */
static void closed_while_a_put_waits(void)
{
	pthread_t t;
	
	start(1 << 16);
	kvpipe_t *end = ((struct kv_end *)(void *)own)->kv;
	pthread_mutex_lock(&end->sq.lock);
	uint32_t before = end->sq.tail, asked = before;
	pthread_mutex_unlock(&end->sq.lock);
	fake_pause(exchange_fake(x, 0), true);
	CHECK(pthread_create(&t, NULL, put_in_vain, exchange_fake(x, 0)) == 0);
	while (asked - before < 2) { /* the PUT, and what asks whether it was seen */
		sched_yield();
		pthread_mutex_lock(&end->sq.lock);
		asked = end->sq.tail;
		pthread_mutex_unlock(&end->sq.lock);
	}
	kvpipe_lookup_close(own);
	own = NULL;
	CHECK(pthread_join(t, NULL) == 0);
	stop();
}

/* The daemon reads no more of who leaves too many completions uncollected. So that it reads what an owner who calls nothing any more left in
 * the queue, the ends of his entries are collected without him. */
static void an_owner_who_calls_no_more(void)
{
	enum { READ = 3000, LEFT = 100 };
	kvpipe_query_t *q[10];

	start(1 << 20);
	struct fake *f = exchange_fake(x, 0);
	struct kv_end *e = (struct kv_end *)(void *)own;
	CHECK(READ > e->kv->rings.cq_entries / 4);
	for (uint64_t n = 0; n < READ; n++)
		insert(n, NULL, 0, NULL);
	exchange_await_puts(x, READ);
	fake_pause(f, true); /* as a daemon that has read enough */
	for (uint64_t n = READ; n < READ + LEFT; n++)
		insert(n, NULL, 0, NULL);
	uint32_t before = fake_cq_head(f);
	for (size_t i = 0; i < KV_COUNT(q); i++)
		q[i] = ask(NULL, 0, NULL, KVPIPE_PREFIX);
	for (size_t i = 0; i < KV_COUNT(q); i++)
		expect(q[i], i, 0);
	for (int64_t end = kv_now() + WAIT / 3; fake_cq_head(f) - before < KV_COUNT(q) && kv_now() < end;)
		poll(NULL, 0, 5);
	CHECK_INT(fake_cq_head(f) - before, KV_COUNT(q));
	fake_pause(f, false);
	exchange_await_puts(x, READ + LEFT);
	stop();
}

/* A query that is given up while another thread closes its end lives until nothing can be put into it any more. */
static void freed_while_closing(void)
{
	const int64_t a[] = { 1 };
	pthread_t closing, freeing;
	bool begun = false, came = false;

	start(1 << 16);
	struct kv_end *e = (struct kv_end *)(void *)sel;
	kvpipe_query_t *q = ask(a, 1, NULL, KVPIPE_PREFIX);
	CHECK_INT(kv_end_enter(e, "test"), 0); /* a call that the close has to wait for */
	CHECK(pthread_create(&closing, NULL, closer, sel) == 0);
	while (!begun) {
		pthread_mutex_lock(&e->gate);
		begun = e->closing;
		pthread_mutex_unlock(&e->gate);
	}
	__atomic_store_n(&freed, false, __ATOMIC_RELEASE);
	CHECK(pthread_create(&freeing, NULL, freer, q) == 0);
	insert(1, a, 1, NULL);
	while (!came) {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		came = e->shorts != NULL || e->ended > 0; /* SHORT: nobody made room */
		kv_end_unlock(e);
	}
	CHECK(!__atomic_load_n(&freed, __ATOMIC_ACQUIRE));
	kv_end_leave(e);
	CHECK(pthread_join(closing, NULL) == 0);
	CHECK(pthread_join(freeing, NULL) == 0);
	sel = NULL;
	stop();
}

/* A child has neither end nor queries; the parent has them as before. */
static void forked(void)
{
	const int64_t a[] = { 1 };
	struct kvpipe_tensor t = flat(KVPIPE_I64, 1, a);
	const struct kvpipe_tensor *members[5] = { &t, NULL, NULL, &t, NULL };
	kvpipe_query_t *q;
	kvpipe_msg_t *m;
	int status;

	start(1 << 16);
	kvpipe_query_t *runs = ask(a, 1, NULL, KVPIPE_EXACT);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
#define CLOSED(call) CHECK_FAILS(call, KVPIPE_E_CLOSED, "belongs to the parent process")
		CLOSED(kvpipe_lookup_insert(own, members, 0));
		CLOSED(kvpipe_lookup_put(own, "k", 1, &t, 0));
		CLOSED(kvpipe_lookup_select(sel, &t, NULL, KVPIPE_EXACT, 0, &q));
		CLOSED(kvpipe_lookup_get(sel, "k", 1, 0, &q));
		CLOSED(kvpipe_lookup_fd(sel));
		CLOSED(kvpipe_query_wait(runs, 0, &m));
		CHECK_INT(kvpipe_query_done(runs), 1); /* for the child */
		kvpipe_query_free(runs);
		kvpipe_lookup_close(own);
		kvpipe_lookup_close(sel);
		kvpipe_close(kv);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_INT(kvpipe_query_done(runs), 0);
	insert(7, a, 1, NULL);
	expect(runs, 7, 1);
	stop();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(prefixes),  TEST(tokens_of_any_integers), TEST(threshold),   TEST(forgotten),
		TEST(threads),   TEST(descriptors),            TEST(freed_while_closing), TEST(closed_while_a_put_waits),
		TEST(forked),    TEST(the_daemon_goes),    TEST(the_daemon_goes_once),  TEST(the_daemon_stands_still), TEST(many_wait_while_it_stands), TEST(a_layout_is_refused), TEST(not_kept),
		TEST(over_without_the_daemon), TEST(put_without_the_daemon), TEST(a_put_waits_no_longer_than_it_says), TEST(a_put_hears_that_it_was_refused), TEST(a_put_that_gave_up_hears_nothing),
		TEST(a_put_needs_room_beside_what_the_key_has),
		TEST(of_lost_entries_the_number_is_told), TEST(more_than_the_daemon_takes), TEST(overdue_before_the_daemon_takes_it), TEST(few_at_a_time),
		TEST(given_up_before_it_is_submitted), TEST(given_up_before_it_is_brought),
		TEST(given_up_while_the_queue_is_full), TEST(an_owner_who_calls_no_more), TEST(capacities), TEST(reserved),
	};
	return RUN(tests);
}
