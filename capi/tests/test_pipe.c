/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes: order, room, deadlines, ends. The daemons are fake; test_pipe_daemon.c has a real one. */
#include "fake_exchange.h"
#include "pipe.h"
#include "pipes.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

static struct exchange *x;
static kvpipe_t *kv;
static kvpipe_pipe_t *tx, *rx;

static void start(uint64_t capacity, uint32_t window)
{
	x = exchange_start(2);
	kv = exchange_session(x);
	exchange_next(x, kv, 0);
	tx = open_pipe(kv, KVPIPE_SEND, capacity, 0);
	exchange_next(x, kv, 1);
	rx = open_pipe(kv, KVPIPE_RECV, 0, window);
}

static void stop(void)
{
	kvpipe_pipe_close(tx);
	kvpipe_pipe_close(rx);
	kvpipe_close(kv);
	exchange_stop(x);
}

static void none_is_a_value(void)
{
	kvpipe_msg_t *m;
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = 1);

	start(0, 0);
	CHECK_INT(kvpipe_pipe_send(tx, NULL, WAIT), 0);
	send_number(tx, 5);
	CHECK_INT(kvpipe_pipe_send(tx, NULL, WAIT), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	CHECK_INT(kvpipe_msg_tensor(m, 0, &t), 0);
	CHECK(t.data == NULL && t.dtype == 0);
	CHECK_FAILS(kvpipe_msg_tensor(m, 1, &t), KVPIPE_E_INVALID, "i is 1: the message has 1 members");
	t.sz = 3;
	CHECK_FAILS(kvpipe_msg_tensor(m, 0, &t), KVPIPE_E_INVALID, "sz is 3");
	kvpipe_msg_free(m);
	recv_number(rx, 5);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	CHECK_INT(kvpipe_msg_count(m), 1);
	kvpipe_msg_free(m);
	kvpipe_msg_free(NULL);
	stop();
}

/* Whatever their sizes, items come in order, and nobody waits for anybody when all of them fit. */
static void in_order(void)
{
	static uint64_t data[20000];
	unsigned int seed = 3;

	for (uint32_t window = 1; window <= 64; window += 63) {
		start(1 << 20, window);
		for (uint64_t n = 0; n < 400; n++) {
			data[0] = n;
			struct kvpipe_tensor t = flat(KVPIPE_U64, 1 + (uint32_t)rand_r(&seed) % (n % 50 == 49 ? 20000 : 200), data);
			CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
			if (n % 3 == 2) {
				for (uint64_t k = n - 2; k <= n; k++)
					recv_number(rx, k);
			}
		}
		recv_number(rx, 399);
		CHECK_INT(kvpipe_pipe_flush(tx, WAIT), 0);
		CHECK(exchange_shorts(x) > 0);
		stop();
	}
}

static void late_items_are_the_next_calls(void)
{
	kvpipe_msg_t *m;

	start(0, 0);
	CHECK_FAILS(kvpipe_pipe_recv(rx, 0, &m), KVPIPE_E_TIMEOUT, "nobody sent anything yet to \"p\"");
	CHECK(m == NULL);
	CHECK_FAILS(kvpipe_pipe_recv(rx, 2 * KV_MS, &m), KVPIPE_E_TIMEOUT, "nothing came within 2 ms: ");
	exchange_hold(x, true);
	for (uint64_t n = 0; n < 5; n++)
		send_number(tx, n);
	exchange_await_puts(x, 5);
	CHECK_FAILS(kvpipe_pipe_recv(rx, KV_MS, &m), KVPIPE_E_TIMEOUT, "nothing came within 1 ms: ");
	exchange_hold(x, false);
	for (uint64_t n = 0; n < 5; n++)
		recv_number(rx, n);
	CHECK_FAILS(kvpipe_pipe_recv(rx, KV_MS, &m), KVPIPE_E_TIMEOUT, "nothing was sent to \"p\"");
	send_number(tx, 5);
	recv_number(rx, 5);
	stop();
}

static void a_sender_waits_for_room_only(void)
{
	static uint8_t data[40000];
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);
	kvpipe_msg_t *m;

	start(100000, 1);
	CHECK_INT(kvpipe_pipe_send(tx, &t, 0), 0);
	CHECK_INT(kvpipe_pipe_send(tx, &t, 0), 0);
	CHECK_FAILS(kvpipe_pipe_send(tx, &t, KV_MS), KVPIPE_E_TIMEOUT,
		    "no room for 40000 bytes within 1 ms: \"p\" holds 80000 of 100000 bytes in 2 items that nobody received yet");
	CHECK_INT(kvpipe_pipe_send(tx, NULL, 0), 0); /* needs none */
	CHECK_FAILS(kvpipe_pipe_flush(tx, KV_MS), KVPIPE_E_TIMEOUT, "3 items of \"p\" were not received within 1 ms: ");
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	kvpipe_msg_free(m);
	CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
		kvpipe_msg_free(m);
	}
	CHECK_INT(kvpipe_pipe_flush(tx, WAIT), 0);
	stop();
}

/* Small items take whole blocks, of which there are enough for the capacity only when they are larger. */
static void blocks_run_out(void)
{
	uint64_t n = 0;
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &n);
	int rc;

	start(1 << 16, 1);
	while ((rc = kvpipe_pipe_send(tx, &t, 0)) == 0)
		n++;
	CHECK_INT(rc, -KVPIPE_E_TIMEOUT);
	CHECK_INT(n, kv_home_bytes(1 << 16) / 256);
	CHECK_HAS(kvpipe_last_error(), "no room for 1 blocks within 0 ms: \"p\" holds 576 items that nobody received yet, in 576 of 576 blocks of 256 bytes");
	for (uint64_t k = 0; k < n; k++)
		recv_number(rx, k);
	stop();
}

static void *send_many(void *arg)
{
	for (uint64_t n = 1; n <= *(uint32_t *)arg; n++)
		send_number(tx, n);
	return NULL;
}

/* The daemon takes nothing from who does not collect, so whoever waits for it to take something collects. */
static void a_sender_collects_while_the_queue_is_full(void)
{
	pthread_t sender;

	start(0, 1);
	struct fake *f = exchange_fake(x, 0);
	struct kv_end *e = &tx->end;
	uint32_t many = e->kv->rings.sq_entries + 1;
	send_number(tx, 0);
	exchange_await_puts(x, 1);
	fake_pause(f, true);
	CHECK(pthread_create(&sender, NULL, send_many, &many) == 0);
	for (uint32_t items = 0; items < 1 + many;) { /* the last one waits, or will without another look at completions */
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		items = e->items;
		pthread_mutex_unlock(&e->kv->lock);
	}
	uint32_t head = fake_cq_head(f);
	recv_number(rx, 0);
	for (int64_t deadline = kv_now() + WAIT; fake_cq_head(f) == head && kv_now() < deadline;)
		sched_yield();
	CHECK_INT(fake_cq_head(f), head + 1);
	fake_pause(f, false);
	for (uint64_t n = 1; n <= many; n++)
		recv_number(rx, n);
	CHECK(pthread_join(sender, NULL) == 0);
	stop();
}

static void *seal(void *arg)
{
	struct kv_end *e = &tx->end;

	*(int *)arg = kv_end_ask(e, "close", KVPIPE_OPCODE_SEAL, e->bind, kv_now() + WAIT);
	return NULL;
}

/* An end that is being closed is over for all but its SEAL, which waits for room as long as it may: what was sent is received, and then told to be all. */
static void a_close_waits_for_room_to_seal(void)
{
	kvpipe_msg_t *m;
	pthread_t closer;
	uint64_t n = 0;
	int rc, sealed;

	start(0, 1);
	struct kv_end *e = &tx->end;
	fake_pause(exchange_fake(x, 0), true);
	while ((rc = kvpipe_pipe_send(tx, NULL, 0)) == 0)
		n++;
	CHECK_INT(rc, -KVPIPE_E_TIMEOUT);
	CHECK(n >= e->kv->rings.sq_entries);
	pthread_mutex_lock(&e->kv->lock);
	kv_end_over(e, KVPIPE_E_CLOSED, "it was closed");
	pthread_mutex_unlock(&e->kv->lock);
	CHECK(pthread_create(&closer, NULL, seal, &sealed) == 0);
	for (int64_t until = kv_now() + 3 * KV_ROOM_NS; kv_now() < until;) /* more than one look for room */
		sched_yield();
	fake_pause(exchange_fake(x, 0), false);
	CHECK(pthread_join(closer, NULL) == 0);
	CHECK_INT(sealed, KVPIPE_DONE);
	for (; n > 0; n--) {
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
		kvpipe_msg_free(m);
	}
	CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "\"p\"");
	stop();
}

/* Who keeps what he received holds nothing up; the messages keep their bytes, also when the pipe is gone. */
static void kept_messages(void)
{
	enum { N = 60 };
	static uint8_t data[16384];
	kvpipe_msg_t *m[N];

	start(100000, 0);
	for (int i = 0; i < N; i++) {
		memset(data, i, sizeof(data));
		struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);
		CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m[i]), 0);
	}
	stop();
	for (int i = 0; i < N; i++) {
		memset(data, i, sizeof(data));
		CHECK(memcmp(member(m[i], 0).data, data, sizeof(data)) == 0);
		kvpipe_msg_free(m[i]);
	}
}

static uint32_t ahead(struct kv_end *e)
{
	pthread_mutex_lock(&e->kv->lock);
	uint32_t blocks = e->ahead;
	CHECK(blocks + kv_pool_lent(e->pool) <= e->pool->nblocks / 2);
	pthread_mutex_unlock(&e->kv->lock);
	return blocks;
}

/* Half of the arena is for what was asked for ahead and what is lent: whoever collects late has nothing copied, and there is room for
 * the largest item when all of it is kept. */
static void late_collectors(void)
{
	enum { SIZE = 16384, MOST = 100 };
	static uint8_t data[1 << 20];
	struct kvpipe_tensor t = flat(KVPIPE_U8, SIZE, data), large = flat(KVPIPE_U8, sizeof(data), data);
	kvpipe_msg_t *m[MOST];

	start(sizeof(data), 0);
	struct kv_end *e = &rx->end;
	CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m[0]), 0);
	kvpipe_msg_free(m[0]);
	uint32_t n = ahead(e) / kv_pool_need(e->pool, SIZE);
	CHECK(n > e->pool->nblocks / 4 / kv_pool_need(e->pool, SIZE) && n < MOST);
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
	CHECK_INT(kvpipe_pipe_flush(tx, WAIT), 0);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m[i]), 0);
		CHECK(m[i]->pool != NULL);
		ahead(e);
	}
	for (uint32_t i = n; i < MOST; i++) {
		CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m[i]), 0);
		ahead(e);
	}
	CHECK(m[MOST - 1]->pool == NULL && ahead(e) > 0);
	kvpipe_msg_t *last;
	CHECK_INT(kvpipe_pipe_send(tx, &large, WAIT), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &last), 0);
	CHECK_INT(member(last, 0).shape[0], sizeof(data));
	kvpipe_msg_free(last);
	for (uint32_t i = 0; i < MOST; i++)
		kvpipe_msg_free(m[i]);
	stop();
}

/* Items that have come go with the end that nobody receives them from. */
static void closed_over_items(void)
{
	bool landed = false;

	start(0, 4);
	for (uint64_t n = 0; n < 4; n++)
		send_number(tx, n);
	recv_number(rx, 0);
	while (!landed) {
		pthread_mutex_lock(&rx->end.kv->lock);
		kv_end_look(&rx->end);
		landed = rx->end.ended > 0;
		kv_end_unlock(&rx->end);
		sched_yield();
	}
	stop();
}

static void the_sender_closes(void)
{
	kvpipe_msg_t *m;

	start(0, 4);
	for (uint64_t n = 0; n < 10; n++)
		send_number(tx, n);
	kvpipe_pipe_close(tx);
	tx = NULL;
	for (uint64_t n = 0; n < 10; n++)
		recv_number(rx, n);
	for (int i = 0; i < 3; i++)
		CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "\"p\"");
	stop();
}

/* An item whose transfer failed is told of once, and is still the next one. Its blocks are not used before RELEASED. */
static void failures(void)
{
	kvpipe_msg_t *m;

	start(0, 4);
	send_number(tx, 0);
	recv_number(rx, 0);
	exchange_fail(x, 3, KVPIPE_E_CORRUPT);
	for (uint64_t n = 1; n < 9; n++)
		send_number(tx, n);
	int failed = 0;
	for (uint64_t n = 1; n < 9;) {
		int rc = kvpipe_pipe_recv(rx, WAIT, &m);
		if (rc == 0) {
			uint64_t got;
			memcpy(&got, member(m, 0).data, sizeof(got));
			CHECK_INT(got, n);
			kvpipe_msg_free(m);
			n++;
		} else {
			CHECK_INT(rc, -KVPIPE_E_CORRUPT);
			failed++;
		}
	}
	CHECK_INT(failed, 3);
	exchange_release(x);
	send_number(tx, 9);
	recv_number(rx, 9);
	stop();
}

/* A reason that is final is the receiving end's for good, whatever has come. */
static void failures_for_good(void)
{
	static const uint32_t reasons[] = { KVPIPE_E_CLOSED, KVPIPE_E_PEER_GONE, KVPIPE_E_DENIED, KVPIPE_E_BUSY, KVPIPE_E_RESTARTED };
	kvpipe_msg_t *m;

	for (size_t i = 0; i < KV_COUNT(reasons); i++) {
		start(0, 1);
		exchange_fail(x, 1, reasons[i]);
		send_number(tx, 0);
		for (int again = 0; again < 3; again++)
			CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), reasons[i], "\"p\"");
		exchange_release(x);
		stop();
	}
}

/* Of a result that does not lie in the daemon's area nothing is read, and one that is missing is no item. */
static void hostile_results(void)
{
	static const struct kvpipe_cqe lies[] = {
		{ .status = KVPIPE_DONE, .result_len = 8 },
		{ .status = KVPIPE_DONE, .result_len = 1024, .result_off = 4 },
		{ .status = KVPIPE_DONE, .result_len = 1024, .result_off = 65536 - 512 },
		{ .status = KVPIPE_FAILED, .reason = KVPIPE_E_CORRUPT, .result_len = 1024, .result_off = 65536 - 512 },
		{ .status = KVPIPE_DONE },
	};
	kvpipe_msg_t *m;

	for (size_t i = 0; i < KV_COUNT(lies); i++) {
		struct kvpipe_cqe c = lies[i];
		start(0, 1);
		CHECK_FAILS(kvpipe_pipe_recv(rx, 0, &m), KVPIPE_E_TIMEOUT, ""); /* what it asked for stays asked for */
		exchange_await_gets(x, 1);
		c.user_data = fake_last(exchange_fake(x, 1)).user_data;
		fake_post(exchange_fake(x, 1), c, NULL, 0, NULL);
		if (c.result_len == 0)
			CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_INCOMPATIBLE, "does not understand");
		else
			CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "the daemon broke the ring protocol: completion of operation");
		stop();
	}
}

/* An item that is not where it was is asked for again, and nobody hears of it. */
static void withdrawn(void)
{
	start(0, 4);
	exchange_fail(x, 2, KVPIPE_E_EXPIRED);
	for (uint64_t n = 0; n < 8; n++)
		send_number(tx, n);
	for (uint64_t n = 0; n < 8; n++)
		recv_number(rx, n);
	exchange_release(x);
	stop();
}

static void the_daemon_goes(void)
{
	kvpipe_msg_t *m;

	start(0, 0);
	send_number(tx, 1);
	exchange_await_puts(x, 1);
	CHECK_INT(exchange_shorts(x), 0);
	fake_hang_up(exchange_fake(x, 0));
	CHECK_FAILS(kvpipe_pipe_flush(tx, WAIT), KVPIPE_E_RESTARTED, "open it again once the daemon is back");
	CHECK_FAILS(kvpipe_pipe_send(tx, NULL, 0), KVPIPE_E_RESTARTED, "send: \"p\": the daemon went away");
	fake_bye(exchange_fake(x, 1), KVPIPE_E_QUOTA, "too much");
	do
		CHECK(kvpipe_pipe_recv(rx, WAIT, &m) != -KVPIPE_E_TIMEOUT);
	while (m != NULL && (kvpipe_msg_free(m), true));
	CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "too much");
	stop();
}

static void refused(void)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_SEND);
	kvpipe_pipe_t *p = NULL;

	x = exchange_start(1);
	kv = exchange_session(x);
	exchange_next(x, kv, 0);
	exchange_refuse(x, KVPIPE_E_BUSY, "a sender of \"p\" lives");
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_BUSY, "a sender of \"p\" lives");
	CHECK(p == NULL);
	o.end = 3;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "end is 3");
	o.end = KVPIPE_RECV, o.capacity = 5;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "capacity is 5");
	o.capacity = 0, o.window = 1025;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "window is 1025: at most 1024");
	o.window = 0, o.linger_ns = 5;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "linger_ns is 5");
	o.linger_ns = 0, o.token_len = 15, o.token = TOKEN;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "token: 15 bytes: must be 16 to 32");
	o.token_len = 0, o.name = "";
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "name is required");
	o.name = "p", o.end = KVPIPE_SEND, o.peer = "n";
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "peer is \"n\"");
	o.peer = NULL, o.capacity = 1ull << 41;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "at most 2^40");
	o.capacity = 0, o.flags = 1;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "flags is 0x1");
	o.flags = 0, o.reserved[0] = 1;
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &p), KVPIPE_E_INVALID, "reserved[0] is 0x1");
	kvpipe_close(kv);
	exchange_stop(x);
}

static void *open_sender(void *arg)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_SEND);

	__atomic_store_n((int *)arg, kvpipe_pipe_open(kv, &o, &tx), __ATOMIC_RELEASE);
	return NULL;
}

#define OPENING 1 /* instead of how it ended */

/* A daemon that ends before it answered is followed by one that is asked again. One that only hangs up, again, is not. A machine that is too
 * busy for that in the time that an end has to open tries again. */
static void opened_again(void)
{
	pthread_t opener;

	for (unsigned int rounds = 1, tries = 0; rounds <= 2; rounds++) {
		int err = OPENING, want = rounds == 1 ? 0 : -KVPIPE_E_RESTARTED;
		x = exchange_start(2);
		kv = exchange_session(x);
		exchange_next(x, kv, 0);
		exchange_mute(x, rounds);
		int64_t begun = kv_now();
		CHECK(pthread_create(&opener, NULL, open_sender, &err) == 0);
		for (unsigned int i = 1; i <= rounds && __atomic_load_n(&err, __ATOMIC_ACQUIRE) == OPENING; i++) {
			/* BIND, and what asks whether it was seen */
			while (fake_submissions(exchange_fake(x, 0)) < 2 * i && __atomic_load_n(&err, __ATOMIC_ACQUIRE) == OPENING)
				poll(NULL, 0, 1);
			fake_hang_up(exchange_fake(x, 0));
		}
		CHECK(pthread_join(opener, NULL) == 0);
		if (err != want && kv_now() - begun >= KV_CALL_NS && ++tries < 20) {
			kvpipe_close(kv);
			exchange_stop(x);
			rounds--;
			continue;
		}
		CHECK_INT(err, want);
		CHECK_INT(fake_sessions(exchange_fake(x, 0)), 2);
		if (rounds == 1) {
			exchange_mute(x, 0);
			exchange_next(x, kv, 1);
			rx = open_pipe(kv, KVPIPE_RECV, 0, 0);
			send_number(tx, 5);
			recv_number(rx, 5);
			stop();
		} else {
			kvpipe_close(kv);
			exchange_stop(x);
		}
	}
}

/* One that stands still does not answer in time, and is not taken for one that is away. */
static void opened_in_vain(void)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_SEND);

	x = exchange_start(1);
	kv = exchange_session(x);
	exchange_next(x, kv, 0);
	exchange_mute(x, 1);
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &tx), KVPIPE_E_TIMEOUT, "pipe: \"p\": the daemon does not answer");
	/* Nor is one that stands still asked to take its leave. */
	exchange_stand_still(x, KVPIPE_CTL_REGISTER);
	int64_t begun = kv_now();
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &tx), KVPIPE_E_TIMEOUT, "the daemon does not answer");
	CHECK(kv_now() - begun < 9 * KV_SEC);
	/* It does not welcome anybody, either. */
	CHECK_FAILS(kvpipe_pipe_open(kv, &o, &tx), KVPIPE_E_TIMEOUT, "pipe: the daemon does not answer");
	fake_pause(exchange_fake(x, 0), false);
	kvpipe_close(kv);
	exchange_stop(x);
}

/* A receiving end that is opened at a daemon which leaves the BIND, and what asks whether it was seen, to the test. */
struct opening {
	struct fake *parent, *fake;
	kvpipe_t *kv;
	uint64_t bind; /* atomic */
	pthread_t thread;
	int64_t took;
	int err;
};

static void note_bind(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	struct opening *o = fake_arg(f);

	(void)record;
	if (e->op == KVPIPE_OPCODE_BIND)
		__atomic_store_n(&o->bind, e->user_data, __ATOMIC_RELEASE);
}

static void *open_receiver(void *arg)
{
	struct kvpipe_pipe_opts opts = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_RECV);
	struct opening *o = arg;
	kvpipe_pipe_t *p;

	int64_t begun = kv_now();
	o->err = kvpipe_pipe_open(o->kv, &opts, &p);
	o->took = kv_now() - begun;
	return NULL;
}

/* However late a daemon refuses an end, or says goodbye: that it does nothing more then, its fence included, costs no further time. */
static void opened_late(void)
{
	struct opening o[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		struct fake_conf conf = { .records = 1 << 20, .submission = note_bind, .arg = &o[i] };
		o[i].parent = fake_start(NULL);
		o[i].fake = fake_start(&conf);
		o[i].kv = fake_connect(o[i].parent);
		snprintf(o[i].kv->path, sizeof(o[i].kv->path), "%s", fake_path(o[i].fake));
		CHECK(pthread_create(&o[i].thread, NULL, open_receiver, &o[i]) == 0);
	}
	poll(NULL, 0, 3000);
	for (int i = 0; i < 2; i++) {
		fake_await_submissions(o[i].fake, 2);
		fake_pause(o[i].fake, true);
	}
	fake_end(o[0].fake, __atomic_load_n(&o[0].bind, __ATOMIC_ACQUIRE), KVPIPE_FAILED, KVPIPE_E_BUSY, 0);
	fake_bye(o[1].fake, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	for (int i = 0; i < 2; i++) {
		CHECK(pthread_join(o[i].thread, NULL) == 0);
		CHECK(o[i].took < 7 * KV_SEC);
		fake_pause(o[i].fake, false);
		kvpipe_close(o[i].kv);
		fake_stop(o[i].fake);
		fake_stop(o[i].parent);
	}
	CHECK_INT(o[0].err, -KVPIPE_E_BUSY);
	CHECK_INT(o[1].err, -KVPIPE_E_TIMEOUT); /* nor does it welcome anybody again */
}

static void *wait_for_an_item(void *arg)
{
	kvpipe_msg_t *m;

	CHECK_FAILS(kvpipe_pipe_recv(arg, 60 * KV_SEC, &m), KVPIPE_E_CLOSED, "\"p\"");
	return NULL;
}

static void *wait_for_room(void *arg)
{
	static uint8_t data[900];
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);

	CHECK_FAILS(kvpipe_pipe_send(arg, &t, 60 * KV_SEC), KVPIPE_E_CLOSED, "\"p\"");
	return NULL;
}

/* Until a thread is in a call. */
static void await_user(struct kv_end *e)
{
	bool inside = false;

	while (!inside) {
		sched_yield();
		pthread_mutex_lock(&e->gate);
		inside = e->users > 0;
		pthread_mutex_unlock(&e->gate);
	}
}

/* Until that many threads wait at an end. */
static void await_waiters(struct kv_end *e, unsigned int want)
{
	for (unsigned int n = 0; n < want;) {
		n = 0;
		sched_yield();
		pthread_mutex_lock(&e->kv->lock);
		for (const struct kv_waiter *w = e->kv->waiters; w != NULL; w = w->next)
			n++;
		pthread_mutex_unlock(&e->kv->lock);
	}
}

static void *receive_one(void *arg)
{
	kvpipe_msg_t *m;

	*(int *)arg = kvpipe_pipe_recv(rx, 20 * KV_SEC, &m);
	kvpipe_msg_free(m);
	return NULL;
}

/* Whoever waits beside another one asks for what comes next when that one leaves: with an item, or with the error of one. */
static void two_receivers(void)
{
	for (uint32_t window = 1; window <= 64; window += 63) {
		for (unsigned int failing = 0; failing < 2; failing++) {
			pthread_t t[2];
			int err[2];
			start(0, window);
			send_number(tx, 0);
			recv_number(rx, 0);
			exchange_fail(x, failing, KVPIPE_E_CORRUPT); /* which is told once */
			for (int i = 0; i < 2; i++)
				CHECK(pthread_create(&t[i], NULL, receive_one, &err[i]) == 0);
			await_waiters(&rx->end, 2);
			for (uint64_t n = 1; n < 3 - failing; n++)
				send_number(tx, n);
			for (int i = 0; i < 2; i++)
				CHECK(pthread_join(t[i], NULL) == 0);
			CHECK_INT(err[0] + err[1], failing == 1 ? -KVPIPE_E_CORRUPT : 0);
			exchange_release(x);
			stop();
		}
	}
}

static void *flush(void *arg)
{
	*(int *)arg = kvpipe_pipe_flush(tx, 20 * KV_SEC);
	return NULL;
}

/* A flush waits for what was sent before it, and not for what another thread sends meanwhile. */
static void a_flush_among_senders(void)
{
	pthread_t t;
	int err;

	start(0, 1);
	send_number(tx, 0);
	CHECK(pthread_create(&t, NULL, flush, &err) == 0);
	await_waiters(&tx->end, 1);
	send_number(tx, 1);
	CHECK_FAILS(kvpipe_pipe_flush(tx, 0), KVPIPE_E_TIMEOUT, "2 items of \"p\" were not received");
	recv_number(rx, 0);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK_INT(err, 0);
	CHECK_FAILS(kvpipe_pipe_flush(tx, 0), KVPIPE_E_TIMEOUT, "1 item of \"p\" was not received");
	recv_number(rx, 1);
	CHECK_INT(kvpipe_pipe_flush(tx, WAIT), 0);
	stop();
}

static void *receive_patiently(void *arg)
{
	kvpipe_msg_t *m;

	*(int *)arg = kvpipe_pipe_recv(rx, INT64_MAX - 1, &m);
	kvpipe_msg_free(m);
	return NULL;
}

/* A wait may be as long as its caller likes; of what it asks for the daemon is told no more than it takes. */
static void patience(void)
{
	pthread_t t;
	int err;

	start(0, 0);
	CHECK(pthread_create(&t, NULL, receive_patiently, &err) == 0);
	exchange_await_gets(x, 1);
	CHECK_INT(fake_last(exchange_fake(x, 1)).timeout_ns, 30ull * 86400 * KV_SEC);
	send_number(tx, 1);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK_INT(err, 0);
	stop();
}

/* The session's close ends the calls of other threads, and every later one; the ends are still closed one by one. */
static void the_session_closes(void)
{
	pthread_t a, b;
	kvpipe_msg_t *m;

	for (int round = 0; round < 3; round++) {
		start(1000, 0);
		CHECK_INT(kvpipe_pipe_send(tx, &(struct kvpipe_tensor){ .sz = sizeof(struct kvpipe_tensor), .dtype = KVPIPE_U8,
			.ndim = 1, .shape = { 900 }, .data = (uint8_t[900]){ 0 } }, WAIT), 0);
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
		kvpipe_msg_free(m);
		exchange_hold(x, true);
		CHECK_INT(kvpipe_pipe_send(tx, &(struct kvpipe_tensor){ .sz = sizeof(struct kvpipe_tensor), .dtype = KVPIPE_U8,
			.ndim = 1, .shape = { 900 }, .data = (uint8_t[900]){ 0 } }, WAIT), 0);
		CHECK(pthread_create(&a, NULL, wait_for_an_item, rx) == 0);
		CHECK(pthread_create(&b, NULL, wait_for_room, tx) == 0);
		await_user(&rx->end);
		await_user(&tx->end);
		if (round == 0) { /* closing an end does the same */
			kvpipe_pipe_close(rx);
			kvpipe_pipe_close(tx);
		} else {
			kvpipe_close(kv);
		}
		CHECK(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
		if (round > 0) {
			CHECK_FAILS(kvpipe_pipe_recv(rx, 0, &m), KVPIPE_E_CLOSED, "\"p\" was closed");
			CHECK_FAILS(kvpipe_pipe_fd(tx), KVPIPE_E_CLOSED, "\"p\" was closed");
			kvpipe_pipe_close(rx);
			kvpipe_pipe_close(tx);
		} else {
			kvpipe_close(kv);
		}
		kvpipe_pipe_close(NULL);
		exchange_stop(x);
	}
}

/* A daemon that stands still is waited for once, however many ends there are. */
static void closed_in_vain(void)
{
	kvpipe_pipe_t *p[3];

	struct fake *daemon = fake_start(NULL);
	x = exchange_start(KV_COUNT(p));
	kv = fake_connect(daemon);
	for (unsigned int i = 0; i < KV_COUNT(p); i++) {
		exchange_next(x, kv, i);
		p[i] = open_pipe(kv, KVPIPE_SEND, 1000, 0);
	}
	fake_pause(daemon, true);
	for (unsigned int i = 0; i < KV_COUNT(p); i++)
		fake_pause(exchange_fake(x, i), true);
	int64_t begun = kv_now();
	kvpipe_close(kv);
	CHECK(kv_now() - begun < 15 * KV_SEC); /* 5 s, and 6 s more for each end */
	for (unsigned int i = 0; i < KV_COUNT(p); i++)
		kvpipe_pipe_close(p[i]);
	exchange_stop(x);
	fake_stop(daemon);
}

static int readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms);
}

/* Who waits for the descriptors alone, and tries when one is readable, gets everything. */
static void descriptors(void)
{
	static uint8_t data[600];
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);
	kvpipe_msg_t *m;
	int sent = 0, got = 0;

	start(1000, 0);
	struct pollfd p[2] = {
		{ .fd = kvpipe_pipe_fd(rx), .events = POLLIN },
		{ .fd = kvpipe_pipe_fd(tx), .events = POLLIN },
	};
	CHECK(p[0].fd >= 0 && p[1].fd >= 0);
	CHECK_INT(kvpipe_pipe_recv(rx, 0, &m), -KVPIPE_E_TIMEOUT);
	CHECK_INT(readable(p[0].fd, 0), 0);
	while (got < 50) {
		CHECK(poll(p, sent < 50 ? 2 : 1, 60000) > 0);
		if (sent < 50 && p[1].revents != 0) {
			data[0] = (uint8_t)sent;
			int rc = kvpipe_pipe_send(tx, &t, 0);
			CHECK(rc == 0 || rc == -KVPIPE_E_TIMEOUT);
			sent += rc == 0;
		}
		if (p[0].revents != 0) {
			int rc = kvpipe_pipe_recv(rx, 0, &m);
			CHECK(rc == 0 || rc == -KVPIPE_E_TIMEOUT);
			if (rc == 0)
				CHECK_INT(*(uint8_t *)member(m, 0).data, got++);
			kvpipe_msg_free(m);
		}
	}
	CHECK_INT(kvpipe_pipe_recv(rx, 0, &m), -KVPIPE_E_TIMEOUT);
	CHECK_INT(readable(p[0].fd, 0), 0);
	stop();
}

/* A small item for which there is room is told of though a larger one was tried for after it, and one that nobody sends any more wakes no one for ever. */
static void the_smallest_is_told_first(void)
{
	static uint8_t data[1000];
	struct kvpipe_tensor half = flat(KVPIPE_U8, 500, data), rest = flat(KVPIPE_U8, 450, data);
	struct kvpipe_tensor little = flat(KVPIPE_U8, 200, data), all = flat(KVPIPE_U8, 900, data);
	kvpipe_msg_t *m;

	start(1000, 1);
	int fd = kvpipe_pipe_fd(tx);
	CHECK_INT(kvpipe_pipe_send(tx, &half, 0), 0);
	CHECK_INT(kvpipe_pipe_send(tx, &rest, 0), 0);
	CHECK_INT(kvpipe_pipe_send(tx, &little, 0), -KVPIPE_E_TIMEOUT);
	CHECK_INT(kvpipe_pipe_send(tx, &all, 0), -KVPIPE_E_TIMEOUT);
	CHECK_INT(readable(fd, 0), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	kvpipe_msg_free(m);
	CHECK_INT(kvpipe_pipe_flush(tx, 0), -KVPIPE_E_TIMEOUT); /* somebody else looks at what came */
	CHECK_INT(readable(fd, 0), 1);
	CHECK_INT(kvpipe_pipe_send(tx, &all, 0), -KVPIPE_E_TIMEOUT);
	CHECK_INT(readable(fd, 0), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	kvpipe_msg_free(m);
	CHECK_INT(kvpipe_pipe_flush(tx, 0), 0);
	CHECK_INT(readable(fd, 0), 1);
	CHECK_INT(kvpipe_pipe_send(tx, &all, 0), 0);
	stop();
}

/* Nor does anybody who listens for edges miss one: a try that the daemon had no room for, and which may succeed at once, is followed by one. */
static void edges(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int rc;

	start(1000, 1);
	int fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, kvpipe_pipe_fd(tx), &ev) == 0);
	fake_pause(exchange_fake(x, 0), true);
	while ((rc = kvpipe_pipe_send(tx, NULL, 0)) == 0)
		;
	for (int i = 0; i < 3; i++) {
		CHECK_INT(rc, -KVPIPE_E_TIMEOUT);
		CHECK_HAS(kvpipe_last_error(), "the daemon does not take submissions");
		CHECK_INT(epoll_wait(fd, &ev, 1, 0), 1);
		CHECK_INT(epoll_wait(fd, &ev, 1, 0), 0);
		rc = kvpipe_pipe_send(tx, NULL, 0);
	}
	fake_pause(exchange_fake(x, 0), false);
	while (kvpipe_pipe_send(tx, NULL, 0) != 0)
		CHECK_INT(epoll_wait(fd, &ev, 1, 60000), 1);
	close(fd);
	stop();
}

static void forked(void)
{
	kvpipe_msg_t *m, *kept;
	uint8_t data[500] = { 7 };
	struct kvpipe_tensor t = flat(KVPIPE_U8, sizeof(data), data);

	start(0, 0);
	CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &kept), 0);
	struct kv_pool *pool = kept->pool;
	CHECK(pool != NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		void *own[] = { pool, pool->used, kept }; /* copies that the fork made */
		CHECK_FAILS(kvpipe_pipe_send(tx, NULL, 0), KVPIPE_E_CLOSED, "belongs to the parent process");
		CHECK_FAILS(kvpipe_pipe_recv(rx, 0, &m), KVPIPE_E_CLOSED, "belongs to the parent process");
		CHECK_FAILS(kvpipe_pipe_flush(tx, 0), KVPIPE_E_CLOSED, "belongs to the parent process");
		CHECK_FAILS(kvpipe_pipe_fd(rx), KVPIPE_E_CLOSED, "belongs to the parent process");
		kvpipe_msg_free(kept);
		kvpipe_pipe_close(tx);
		kvpipe_pipe_close(rx);
		kvpipe_close(kv);
		for (size_t i = 0; i < KV_COUNT(own); i++)
			CHECK_FREED(own[i]);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_INT(*(uint8_t *)member(kept, 0).data, 7);
	kvpipe_msg_free(kept);
	send_number(tx, 1);
	recv_number(rx, 1);
	stop();
}

#define THREADS 3
#define EACH 300

static uint8_t seen[THREADS][EACH];
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

static void *sender(void *arg)
{
	for (uint64_t n = 0; n < EACH; n++)
		send_number(tx, (uint64_t)(uintptr_t)arg << 32 | n);
	return NULL;
}

static void *receiver(void *arg)
{
	kvpipe_msg_t *m;
	uint64_t got;

	for (int n = 0; n < EACH; n++) {
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
		memcpy(&got, member(m, 0).data, sizeof(got));
		kvpipe_msg_free(m);
		pthread_mutex_lock(&seen_lock);
		CHECK(got >> 32 < THREADS && (uint32_t)got < EACH);
		CHECK_INT(seen[got >> 32][(uint32_t)got]++, 0);
		pthread_mutex_unlock(&seen_lock);
	}
	return arg;
}

/* Several threads on each end: every item comes once. */
static void threads(void)
{
	pthread_t t[2 * THREADS];

	start(2000, 0);
	for (uintptr_t i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&t[i], NULL, sender, (void *)i) == 0);
		CHECK(pthread_create(&t[THREADS + i], NULL, receiver, NULL) == 0);
	}
	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	stop();
}

/* A message is one line whatever a name has in it, and names a pipe once. */
static void messages(void)
{
	static struct kv_end e = { .name = "p" };

	CHECK_FAILS(kv_end_says(&e, KVPIPE_E_BUSY, "open", "pipe \"p\" has a sender"), KVPIPE_E_BUSY, "open: pipe \"p\" has a sender");
	CHECK_FAILS(kv_end_says(&e, KVPIPE_E_BUSY, "open", "pipe \"pq\" has one"), KVPIPE_E_BUSY, "open: \"p\": pipe \"pq\" has one");
	CHECK_FAILS(kv_err(KVPIPE_E_INVALID, "name is \"%s\"", "a\nb\x1b[2J\x7f"), KVPIPE_E_INVALID, "name is \"a?b?[2J?\"");
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(none_is_a_value),
		TEST(in_order),
		TEST(late_items_are_the_next_calls),
		TEST(a_sender_waits_for_room_only), TEST(blocks_run_out),
		TEST(a_sender_collects_while_the_queue_is_full), TEST(a_close_waits_for_room_to_seal),
		TEST(kept_messages),
		TEST(late_collectors),
		TEST(closed_over_items), TEST(the_sender_closes),
		TEST(failures), TEST(failures_for_good), TEST(hostile_results),
		TEST(withdrawn),
		TEST(the_daemon_goes),
		TEST(refused),
		TEST(opened_again),
		TEST(opened_in_vain), TEST(opened_late),
		TEST(the_session_closes), TEST(closed_in_vain),
		TEST(descriptors), TEST(edges), TEST(the_smallest_is_told_first),
		TEST(threads), TEST(two_receivers), TEST(a_flush_among_senders), TEST(patience),
		TEST(forked), TEST(messages),
	};
	return RUN(tests);
}
