/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons that are restarted under a session: what comes back, what is sent again, what has ended, and nothing twice. */
#include "restarts.h"

#include <sched.h>

/* Handles survive; offers and takes without bytes run on, a granted one has failed, what only waited for a fence is free. */
static void everything(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_view v = { .group = 2, .part = "kv" };
	struct kvpipe_field field = { "model", "m" };
	struct kvpipe_completion c;
	kvpipe_region_t regions[3];
	void *addr;

	for (int i = 0; i < 3; i++)
		CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &regions[i]), 0);
	CHECK_INT(kvpipe_mem_unregister(kv, regions[1], 0), 0);
	v.region = regions[2];
	CHECK_INT(kvpipe_set_layout(kv, &v, 1, &field, 1), 0);
	kvpipe_op_t offer = offer_key(kv, "o", 0), plain = take_key(kv, "t", 0), moving = take_key(kv, "g", 0);
	await_seen(3);
	grant_last(f);
	kvpipe_op_t fenced = take_key(kv, "f", 0);
	await_seen(4);
	fake_end(f, fenced, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
	CHECK_INT(kvpipe_wait(kv, fenced, WAIT, &c), 0);
	CHECK_INT(kvpipe_op_released(kv, fenced), 0);
	CHECK_INT(kvpipe_progress(kv, 0x50003), 0);
	struct kvpipe_hello first = fake_hello(f);
	CHECK(first.session == 0 && first.instance[0] == 0);

	fake_die(f);
	check_end(kv, moving, KVPIPE_FAILED, KVPIPE_E_RESTARTED, "the daemon went away while bytes were granted");
	CHECK_INT(kvpipe_wait_released(kv, fenced, WAIT), 0); /* the dead touch nothing */
	CHECK_INT(kvpipe_connected(kv), 0);
	CHECK_FAILS(kvpipe_wait(kv, plain, 0, &c), KVPIPE_E_TIMEOUT, "still running");
	CHECK_INT(kvpipe_progress(kv, 0x50004), 0);
	kvpipe_op_t queued = take_key(kv, "q", 0); /* calls queue */

	fake_return(f);
	await_seen(4 + 3);
	CHECK_INT(kvpipe_connected(kv), 1);
	struct kvpipe_hello again = fake_hello(f);
	CHECK(again.session == 42 && again.secret[0] == 0x50 && again.secret[31] == 0x50);
	CHECK(strcmp(again.engine, "e") == 0 && strcmp(again.instance, "i1") == 0);
	CHECK_INT(fake_progress(f), 0x50004);
	/* The same operations under their names, in their order, then what came since. */
	const struct { kvpipe_op_t op; const char *key; } want[] = { { offer, "o" }, { plain, "t" }, { queued, "q" } };
	for (unsigned int i = 0; i < 3; i++) {
		struct seen s = seen(4 + i);
		CHECK_INT(s.e.user_data, want[i].op);
		CHECK(strcmp(s.key, want[i].key) == 0 && s.life == 2);
		if (i == 0) /* a lease that was left to the daemon is left to this one */
			CHECK_INT(s.e.timeout_ns, 0);
		else
			CHECK(s.e.timeout_ns > (uint64_t)(20 * KV_SEC) && s.e.timeout_ns <= (uint64_t)(30 * KV_SEC));
	}
	CHECK(seen(1).e.tag == seen(5).e.tag);
	/* Two regions, and the layout of memory that the daemon calls otherwise now. */
	pthread_mutex_lock(&world.lock);
	CHECK_INT(world.regions, 3 + 2);
	CHECK_INT(world.views, 2);
	CHECK_INT(world.view_region, 205);
	pthread_mutex_unlock(&world.lock);
	fake_end(f, plain, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait(kv, plain, WAIT, &c), 0);
	CHECK_INT(c.status, KVPIPE_DONE);
	CHECK_INT(c.op, plain);
	CHECK_INT(c.epoch, 8);
	fake_end(f, offer, KVPIPE_DONE, 0, 0);
	check_end(kv, offer, KVPIPE_DONE, 0, "");
	CHECK_INT(kvpipe_mem_unregister(kv, regions[2], 0), 0); /* under the name that it has had from the start */
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* An hour is the longest deadline, and begins once, with however many daemons. What a daemon refuses is left to it. */
static void an_hour_at_most(void)
{
	const int64_t day = 24 * KV_HOUR_NS, month = 30 * day;
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_key_opts k = KVPIPE_OPTS(kvpipe_key_opts, .key = "w", .key_len = 1, .token = TOKEN, .token_len = 16, .timeout_ns = month);
	kvpipe_op_t watch;

	take_key(kv, "t", day);
	CHECK_INT(kvpipe_watch(kv, &k, &watch), 0);
	take_key(kv, "long", month + 1);
	await_seen(3);
	for (unsigned int i = 0; i < 2; i++)
		CHECK_INT(seen(i).e.timeout_ns, KV_HOUR_NS);
	CHECK_INT(seen(2).e.timeout_ns, month + 1);
	fake_end(f, seen(2).e.user_data, KVPIPE_FAILED, KVPIPE_E_INVALID, 0);
	check_end(kv, seen(2).e.user_data, KVPIPE_FAILED, KVPIPE_E_INVALID, "");
	fake_die(f);
	fake_return(f);
	await_seen(5);
	for (unsigned int i = 3; i < 5; i++)
		CHECK(seen(i).e.timeout_ns < (uint64_t)KV_HOUR_NS);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Its regions are 1, 2, ... in each life. */
static struct fake_conf alike = { .submission = note };

static kvpipe_region_t alloc(kvpipe_t *kv)
{
	kvpipe_region_t region;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	return region;
}

static void restart(struct fake *f, kvpipe_t *kv)
{
	unsigned int life = fake_sessions(f);

	fake_restart_regions(f, 1);
	fake_hang_up(f);
	fake_await_sessions(f, life + 1);
	while (!kvpipe_connected(kv))
		sched_yield();
}

/* A region of after the restart never takes the name of an older one. */
static void names(void)
{
	struct fake *f = fake_start(&alike);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t a, b, c;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &a), 0);
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &b), 0);
	CHECK(a == 1 && b == 2);
	fake_restart_regions(f, 1); /* the next daemon calls the first one 1, and so on */
	CHECK_INT(kvpipe_mem_unregister(kv, a, 0), 0);
	fake_hang_up(f);
	fake_await_requests(f, KVPIPE_CTL_REGISTER, 3);
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &c), 0);
	CHECK(c != b && c >> 63 == 1);
	CHECK_INT(kvpipe_mem_unregister(kv, b, 0), 0);
	CHECK_INT(kvpipe_mem_unregister(kv, c, 0), 0);
	CHECK_FAILS(kvpipe_mem_unregister(kv, c, 0), KVPIPE_E_NOT_FOUND, "is not of this session");
	kvpipe_close(kv);
	fake_stop(f);
}

/* Nor does it take the name of one that is gone, of the daemon before or of this one's. */
static void names_of_the_dead(void)
{
	struct fake *f = fake_start(&alike);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t had[6];
	unsigned int n = 0;

	for (unsigned int life = 0; life < 3; life++) {
		for (unsigned int i = 0; i < 2; i++, n++) {
			had[n] = alloc(kv);
			for (unsigned int k = 0; k < n; k++)
				CHECK(had[n] != had[k]);
			CHECK_INT(kvpipe_mem_unregister(kv, had[n], 0), 0);
		}
		restart(f, kv);
	}
	for (unsigned int k = 0; k < n; k++)
		CHECK_FAILS(kvpipe_mem_unregister(kv, had[k], 0), KVPIPE_E_NOT_FOUND, "is not of this session");
	kvpipe_close(kv);
	fake_stop(f);
}

static int set_layout(kvpipe_t *kv, kvpipe_region_t region)
{
	const struct kvpipe_view v = { .region = region, .layer = 7, .part = "kv" };

	return kvpipe_set_layout(kv, &v, 1, NULL, 0);
}

static struct {
	unsigned int n;
	uint64_t region; /* of the last one */
} layouts;

static bool count_layouts(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct kvpipe_view v;

	if (head->type != KVPIPE_CTL_LAYOUT)
		return false;
	memcpy(&v, (const uint8_t *)body + sizeof(struct kvpipe_layout_msg), sizeof(v));
	layouts.region = v.region;
	layouts.n++;
	(void)f, (void)fd;
	return false;
}

static struct fake *counting(void)
{
	struct fake_conf conf = alike;

	conf.request = count_layouts;
	memset(&layouts, 0, sizeof(layouts));
	return fake_start(&conf);
}

/* A view of a region that is gone is none of the region that the daemon calls so now. */
static void stale_view(void)
{
	struct fake *f = counting();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t gone = alloc(kv), other = alloc(kv);
	CHECK(gone == 1 && other == 2);
	CHECK_INT(kvpipe_mem_unregister(kv, gone, 0), 0);
	CHECK_FAILS(set_layout(kv, gone), KVPIPE_E_INVALID, "view 0 (layer 7): region 0x1 is not registered in this session");
	restart(f, kv);
	CHECK_FAILS(set_layout(kv, gone), KVPIPE_E_INVALID, "view 0 (layer 7): region 0x1 is not registered in this session");
	CHECK_INT(layouts.n, 0);
	CHECK_INT(set_layout(kv, other), 0);
	CHECK(layouts.n == 1 && layouts.region == 1);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A layout whose memory is gone is not sent to any daemon any more, whatever the session's regions are called; and is still its only one. */
static void layout_of_gone_memory(void)
{
	struct fake *f = counting();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t gone = alloc(kv);
	CHECK_INT(set_layout(kv, gone), 0);
	CHECK_INT(kvpipe_mem_unregister(kv, gone, 0), 0);
	restart(f, kv);
	kvpipe_region_t next = alloc(kv);
	CHECK(next != gone);
	restart(f, kv);
	CHECK_INT(layouts.n, 1);
	CHECK_FAILS(set_layout(kv, next), KVPIPE_E_INVALID, "has another one already: it is set once, and memory of it was unregistered");
	restart(f, kv);
	CHECK_INT(layouts.n, 1);
	CHECK_INT(kvpipe_mem_unregister(kv, next, 0), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* So it is when it was given up because the next daemon's quota is smaller. */
static void layout_of_memory_given_up(void)
{
	struct fake *f = counting();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t gone = alloc(kv), other = alloc(kv);
	CHECK_INT(set_layout(kv, gone), 0);
	fake_refuse(f, KVPIPE_E_QUOTA, "8192 bytes, the limit is 4096");
	fake_restart_regions(f, 1);
	fake_hang_up(f);
	fake_await_requests(f, KVPIPE_CTL_HELLO, 4);
	CHECK_INT(kvpipe_mem_unregister(kv, gone, WAIT), 0);
	fake_refuse(f, 0, NULL);
	kvpipe_region_t next = alloc(kv);
	CHECK(next != gone && next != other);
	restart(f, kv);
	CHECK_INT(layouts.n, 1);
	CHECK_FAILS(set_layout(kv, other), KVPIPE_E_INVALID, "has another one already");
	CHECK_FAILS(set_layout(kv, gone), KVPIPE_E_INVALID, "has another one already");
	kvpipe_close(kv);
	fake_stop(f);
}

/* An offer comes back with all that was added to it, also with what no daemon has accepted yet. */
static void *extend(void *arg)
{
	const uint32_t ids[] = { 9 };
	const struct kvpipe_blocks b = { .group = 2, .first_token = 2, .ntokens = 1, .count = 1, .ids = ids };
	struct kvpipe_extend_opts o = KVPIPE_OPTS(kvpipe_extend_opts, .blocks = &b, .nblocks = 1, .after = 7);
	struct { kvpipe_t *kv; kvpipe_op_t op; } *a = arg;

	CHECK_INT(kvpipe_offer_extend(a->kv, a->op, &o, WAIT), 0);
	CHECK_INT(kvpipe_offer_seal(a->kv, a->op, WAIT), 0);
	return NULL;
}

static void extensions(void)
{
	struct fake *f = first_daemon();
	struct { kvpipe_t *kv; kvpipe_op_t op; } a = { .kv = fake_connect(f) };
	pthread_t thread;
	const uint8_t want[] = { KVPIPE_OPCODE_OFFER, KVPIPE_OPCODE_EXTEND, KVPIPE_OPCODE_OFFER, KVPIPE_OPCODE_EXTEND,
				 KVPIPE_OPCODE_SEAL, KVPIPE_OPCODE_OFFER, KVPIPE_OPCODE_EXTEND, KVPIPE_OPCODE_SEAL };

	a.op = offer_key(a.kv, "o", 0);
	await_seen(1);
	CHECK(pthread_create(&thread, NULL, extend, &a) == 0);
	await_seen(2); /* not accepted */
	pthread_mutex_lock(&world.lock);
	world.accept = true;
	pthread_mutex_unlock(&world.lock);
	fake_die(f);
	fake_return(f);
	pthread_join(thread, NULL);
	fake_hang_up(f); /* accepted, both */
	await_seen(KV_COUNT(want));
	for (unsigned int i = 0; i < KV_COUNT(want); i++) {
		struct seen s = seen(i);
		CHECK_INT(s.e.op, want[i]);
		CHECK(s.e.op == KVPIPE_OPCODE_OFFER ? s.e.user_data == a.op : s.e.target == a.op);
		CHECK_INT(s.e.flags, s.e.op == KVPIPE_OPCODE_OFFER && i > 0 ? KVPIPE_SQE_AGAIN : 0);
	}
	fake_end(f, a.op, KVPIPE_DONE, 0, 0);
	check_end(a.kv, a.op, KVPIPE_DONE, 0, "");
	kvpipe_close(a.kv);
	fake_stop(f);
}

/*
 * More extensions than a queue holds, and daemons that go before they have answered one, or some: each daemon is told of each extension
 * once, in order.
 */
static void many_extensions(void)
{
	enum { N = 20 };
	static const struct fake_conf small = { .sq = 4 };
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer_key(kv, "o", 0);
	struct kvpipe_extend_opts o = KVPIPE_OPTS(kvpipe_extend_opts, .nblocks = 1);

	pthread_mutex_lock(&world.lock);
	world.accept = true;
	pthread_mutex_unlock(&world.lock);
	for (int i = 0; i < N; i++) {
		const uint32_t id = 9 + (uint32_t)i;
		const struct kvpipe_blocks b = { .group = 2, .first_token = 2 + id, .ntokens = 1, .count = 1, .ids = &id };
		o.blocks = &b;
		o.flags = i % 2 != 0 ? KVPIPE_OP_LAYERED : 0; /* the record's, by which the test tells them */
		CHECK_INT(kvpipe_offer_extend(kv, op, &o, WAIT), 0);
	}
	unsigned int n = 1 + N;
	fake_resize(f, &small);
	for (int life = 2; life <= 4; life++) {
		pthread_mutex_lock(&world.lock);
		world.accept = life != 2;
		pthread_mutex_unlock(&world.lock);
		restart(f, kv);
		await_seen(n + 1 + N);
		for (unsigned int i = 0; i <= N; i++) {
			struct seen s = seen(n + i);
			CHECK_INT(s.e.op, i == 0 ? KVPIPE_OPCODE_OFFER : KVPIPE_OPCODE_EXTEND);
			CHECK(i == 0 ? s.e.user_data == op : s.e.target == op);
			CHECK(i == 0 || s.flags == (i % 2 == 0 ? KVPIPE_OP_LAYERED : 0));
		}
		n += 1 + N;
	}
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	check_end(kv, op, KVPIPE_DONE, 0, "");
	pthread_mutex_lock(&world.lock);
	CHECK_INT(world.n, n);
	pthread_mutex_unlock(&world.lock);
	kvpipe_op_free(kv, op);
	pthread_mutex_lock(&kv->lock);
	CHECK(kv->records <= 1); /* nothing is remembered of those that went with a daemon; the last answer may be on its way */
	pthread_mutex_unlock(&kv->lock);
	kvpipe_close(kv);
	fake_stop(f);
}

static bool stands_still; /* once it has refused an extension */

/* A daemon that does not take an offer whole gives it back: half of it is no use. */
static void refuse_extension(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	note(f, e, record);
	if (e->op == KVPIPE_OPCODE_EXTEND && fake_sessions(f) == 2) {
		fake_pause(f, stands_still);
		fake_end(f, e->user_data, KVPIPE_FAILED, KVPIPE_E_QUOTA, 0);
	} else if (e->op == KVPIPE_OPCODE_WITHDRAW)
		fake_end(f, e->target, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, 0), fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

static void await_state(kvpipe_t *kv, int state)
{
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != state)
		sched_yield();
}

/* With that many takes behind the offer, of which a queue of four holds three when the extension is refused. */
static void spoil(unsigned int takes)
{
	struct fake_conf conf = by_hand;
	struct kvpipe_completion c;

	conf.submission = refuse_extension;
	conf.sq = 4;
	fake_stop(first_daemon());
	world.accept = true;
	stands_still = takes > 0;
	struct fake *f = fake_start(&conf);
	struct { kvpipe_t *kv; kvpipe_op_t op; } a = { .kv = fake_connect(f) };
	a.op = offer_key(a.kv, "o", 0);
	extend(&a);
	pthread_mutex_lock(&world.lock);
	world.accept = false;
	pthread_mutex_unlock(&world.lock);
	fake_die(f);
	while (kvpipe_connected(a.kv))
		sched_yield();
	kvpipe_op_t take = 0;
	for (unsigned int i = 0; i < takes; i++)
		take = take_key(a.kv, "t", 0);
	fake_return(f);
	CHECK_INT(kvpipe_wait(a.kv, a.op, WAIT, &c), 0);
	CHECK(c.status == KVPIPE_FAILED && c.reason == KVPIPE_E_RESTARTED && c.flags == KVPIPE_C_MORE);
	await_state(a.kv, takes <= 3 ? KV_LIVE : KV_REPLAY);
	/* Each waits for room as long as the withdrawal does, which goes first. */
	for (int i = 0; i < 2 && takes == 3; i++)
		CHECK_FAILS(kvpipe_cancel(a.kv, take, WAIT, NULL), KVPIPE_E_BUSY, "the submission queue is full");
	fake_pause(f, false);
	await_seen(3 + 3 + takes + 1);
	struct seen last = seen(3 + 3 + takes);
	CHECK(last.e.op == KVPIPE_OPCODE_WITHDRAW && last.e.target == a.op);
	CHECK_INT(kvpipe_wait_released(a.kv, a.op, WAIT), 0);
	kvpipe_close(a.kv);
	fake_stop(f);
}

/* Reads one submission after its restart, and then stands still. */
static void read_one(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	note(f, e, record);
	fake_pause(f, fake_sessions(f) == 2);
}

/* What a daemon that is back has no room for in time did not fail because there was none. */
static void late_in_the_queue(void)
{
	struct fake_conf conf = by_hand;
	kvpipe_op_t take = 0;

	conf.submission = read_one;
	conf.sq = 4;
	fake_stop(first_daemon());
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	fake_die(f);
	while (kvpipe_connected(kv))
		sched_yield();
	for (unsigned int i = 0; i < 12; i++)
		take = take_key(kv, "t", 0);
	fake_return(f);
	await_seen(1);
	await_state(kv, KV_REPLAY);
	pthread_mutex_lock(&kv->lock);
	struct kv_op *op = kv_op_find(kv, take);
	CHECK(!op->begun);
	op->deadline = kv_now();
	kv_helper_before(kv, op->deadline);
	pthread_mutex_unlock(&kv->lock);
	check_end(kv, take, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "the deadline of 30 s passed before the daemon, which is back");
	fake_pause(f, false);
	kvpipe_close(kv);
	fake_stop(f);
}

static void spoiled(void)
{
	spoil(0);
}

/* Its withdrawal waits until all that is to be sent again has been. */
static void spoiled_while_sending(void)
{
	spoil(12);
}

/* Or until there is room for it. */
static void spoiled_in_a_full_queue(void)
{
	spoil(3);
}

/* Cancelled while no daemon knows of it: it is over at once. */
static void cancelled(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t offer = offer_key(kv, "o", 0), take = take_key(kv, "t", 0);
	int reusable = 0;

	await_seen(2);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	CHECK_INT(kvpipe_cancel(kv, take, WAIT, &reusable), 0);
	CHECK_INT(reusable, 1);
	reusable = 0;
	CHECK_INT(kvpipe_offer_withdraw(kv, offer, WAIT, &reusable), 0);
	CHECK_INT(reusable, 1);
	check_end(kv, take, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	check_end(kv, offer, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	take_key(kv, "n", 0);
	fake_return(f);
	await_seen(3);
	CHECK(strcmp(seen(2).key, "n") == 0); /* and nothing else */
	kvpipe_close(kv);
	fake_stop(f);
}

/* A cancel that was under way has what it wanted. */
static void *cancel(void *arg)
{
	struct { kvpipe_t *kv; kvpipe_op_t op; } *a = arg;
	int reusable = 0;

	CHECK_INT(kvpipe_cancel(a->kv, a->op, WAIT, &reusable), 0);
	CHECK_INT(reusable, 1);
	return NULL;
}

static void cancelling(void)
{
	struct fake *f = first_daemon();
	struct { kvpipe_t *kv; kvpipe_op_t op; } a = { .kv = fake_connect(f) };
	pthread_t thread;

	a.op = take_key(a.kv, "t", 0);
	CHECK(pthread_create(&thread, NULL, cancel, &a) == 0);
	await_seen(2);
	fake_die(f);
	pthread_join(thread, NULL);
	check_end(a.kv, a.op, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	kvpipe_close(a.kv);
	fake_stop(f);
}

/* More than a queue holds, and completions of others that nobody has collected. */
static void many(void)
{
	struct fake_conf conf = by_hand;
	struct kvpipe_completion c[8];
	kvpipe_op_t ops[300];

	conf.sq = 16;
	conf.cq = 64;
	conf.records = 4096;
	conf.layers = 512;
	fake_stop(first_daemon());
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	for (int i = 0; i < 300; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		ops[i] = i % 3 ? offer_key(kv, key, 0) : take_key(kv, key, 0);
	}
	await_seen(300);
	fake_post(f, (struct kvpipe_cqe){ .tag = 1, .status = KVPIPE_DONE }, NULL, 0, NULL);
	fake_end(f, ops[0], KVPIPE_DONE, 0, 0);
	fake_post(f, (struct kvpipe_cqe){ .tag = 2, .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY },
		  &(struct kvpipe_run){ 1, 2, 3 }, 1, "because");
	fake_die(f);
	fake_return(f);
	await_seen(300 + 299);
	for (unsigned int i = 1; i < 300; i++)
		CHECK_INT(seen(299 + i).e.user_data, ops[i]);
	fake_post(f, (struct kvpipe_cqe){ .tag = 3, .status = KVPIPE_DONE }, NULL, 0, NULL);
	for (int n = 0; n < 4;)
		n += kvpipe_poll(kv, c + n, 8);
	CHECK(c[0].tag == 1 && c[0].op == 0 && c[1].op == ops[0] && c[3].tag == 3 && c[3].op == 0);
	CHECK(c[2].tag == 2 && c[2].reason == KVPIPE_E_BUSY && c[2].nfailed == 1 && c[2].failed[0].count == 3);
	CHECK_HAS(c[2].message, "because");
	kvpipe_close(kv);
	fake_stop(f);
}

/*
 * The next daemon's rings are of other sizes, and lie elsewhere: laps of each come through whole. What was submitted before and is too
 * much for them ends.
 */
static void other_rings(void)
{
	static const struct fake_conf sizes[] = {
		{ .sq = 8, .cq = 32, .records = 4096, .results = 1024, .layers = 2 },
		{ .sq = 64, .cq = 256, .records = 8192, .results = 4096, .layers = 64 },
		{ .sq = 16, .cq = 64, .records = 2048, .results = 512, .layers = 4 },
	};
	static uint32_t ids[600];
	const struct kvpipe_blocks b = { .group = 2, .ntokens = KV_COUNT(ids), .count = KV_COUNT(ids), .ids = ids };
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;
	char key[8], text[16];

	for (uint32_t i = 0; i < KV_COUNT(ids); i++)
		ids[i] = 2 * i; /* not a run */
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "large", .key_len = 5, .token = TOKEN, .token_len = 16,
						.blocks = &b, .nblocks = 1);
	kvpipe_op_t small = take_key(kv, "small", 600 * KV_SEC), large = 0; /* it outlives a thousand others on a busy machine */
	unsigned int n = 1;
	for (unsigned int life = 0; life < KV_COUNT(sizes); life++) {
		if (life == KV_COUNT(sizes) - 1) {
			CHECK_INT(kvpipe_take(kv, &o, &large), 0);
			n++;
		}
		await_seen(n);
		fake_resize(f, &sizes[life]);
		restart(f, kv);
		await_seen(n + 1);
		CHECK(seen(n).e.user_data == small && strcmp(seen(n).key, "small") == 0);
		n++;
		if (large != 0)
			check_end(kv, large, KVPIPE_FAILED, KVPIPE_E_QUOTA, "the daemon of after the restart has no room for it");
		for (unsigned int i = 0; i < 3 * sizes[life].cq; i++) {
			snprintf(key, sizeof(key), "%u", n);
			snprintf(text, sizeof(text), "end of %u", n);
			kvpipe_op_t op = take_key(kv, key, 0);
			await_seen(n + 1);
			struct seen s = seen(n++);
			CHECK(s.e.user_data == op && strcmp(s.key, key) == 0);
			CHECK(s.e.layer_slot < sizes[life].layers);
			fake_post(f, (struct kvpipe_cqe){ .user_data = op, .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY },
				  &(struct kvpipe_run){ 2, 3, n }, 1, text);
			CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
			CHECK_HAS(c.message, text);
			CHECK(c.nfailed == 1 && c.failed[0].group == 2 && c.failed[0].first == 3 && c.failed[0].count == n);
			kvpipe_op_free(kv, op);
		}
		CHECK_FAILS(kvpipe_wait(kv, small, 0, &c), KVPIPE_E_TIMEOUT, "still running");
	}
	kvpipe_op_t moving = take_key(kv, "moving", 0);
	await_seen(n + 1);
	grant_last(f);
	fake_die(f);
	check_end(kv, moving, KVPIPE_FAILED, KVPIPE_E_RESTARTED, "the daemon went away while bytes were granted");
	CHECK_FAILS(kvpipe_wait(kv, small, 0, &c), KVPIPE_E_TIMEOUT, "still running");
	kvpipe_close(kv);
	fake_stop(f);
}

/* Nobody knows of a layer while the daemon is away: who waits for one hears of it from the next daemon. */
static void *wait_layer(void *arg)
{
	CHECK_INT(kvpipe_wait_layer(arg, 1, 7, WAIT), 0);
	return NULL;
}

static void layered(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	const uint32_t id = 3;
	const struct kvpipe_blocks b = { .group = 2, .ntokens = 1, .count = 1, .ids = &id };
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
						.blocks = &b, .nblocks = 1, .flags = KVPIPE_OP_LAYERED);
	struct kvpipe_view v = { .layer = 7, .group = 2, .part = "kv", .region = alloc(kv) };
	kvpipe_op_t op;
	pthread_t t;

	CHECK_INT(kvpipe_set_layout(kv, &v, 1, NULL, 0), 0);
	CHECK_INT(kvpipe_take(kv, &o, &op), 0);
	CHECK_INT(op, 1);
	await_seen(1);
	fake_die(f);
	await_state(kv, KV_AWAY);
	CHECK_FAILS(kvpipe_wait_layer(kv, op, 7, KV_MS), KVPIPE_E_TIMEOUT, "layer not in place yet");
	CHECK(pthread_create(&t, NULL, wait_layer, kv) == 0);
	fake_return(f);
	await_seen(2);
	CHECK_INT(seen(1).e.user_data, op);
	fake_layer(f, seen(1).e.layer_slot, op, 1);
	pthread_join(t, NULL);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Ranks hear of a scheduler's take that failed with the daemon: the next one is asked to tell them. */
static void ranks(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect_as(f, KVPIPE_ROLE_SCHEDULER);

	kvpipe_op_t op = take_key(kv, "t", 0);
	await_seen(1);
	grant_last(f);
	fake_hang_up(f);
	check_end(kv, op, KVPIPE_FAILED, KVPIPE_E_RESTARTED, "");
	await_seen(2);
	struct seen s = seen(1);
	CHECK(s.e.op == KVPIPE_OPCODE_TAKE && s.flags == KVPIPE_OP_RESTARTED && s.e.tag == 6 && s.e.user_data != op);
	fake_end(f, s.e.user_data, KVPIPE_FAILED, KVPIPE_E_RESTARTED, 0);
	struct kvpipe_completion c;
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0); /* the caller knows */
	kvpipe_close(kv);
	fake_stop(f);
}

/* However long it takes to come. */
static void ranks_late(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect_as(f, KVPIPE_ROLE_SCHEDULER);
	bool ask = false;

	kvpipe_op_t op = take_key(kv, "t", 0);
	await_seen(1);
	grant_last(f);
	fake_die(f);
	check_end(kv, op, KVPIPE_FAILED, KVPIPE_E_RESTARTED, "");
	pthread_mutex_lock(&kv->lock);
	kv_deadlines(kv, kv_now() + 3600 * KV_SEC, &ask); /* as the helper does then */
	pthread_mutex_unlock(&kv->lock);
	fake_return(f);
	await_seen(2);
	struct seen s = seen(1);
	CHECK(s.e.op == KVPIPE_OPCODE_TAKE && s.flags == KVPIPE_OP_RESTARTED && s.e.timeout_ns <= (uint64_t)(30 * KV_SEC));
	kvpipe_close(kv);
	fake_stop(f);
}

/* Of other sessions' takes, which promise RELEASED. */
static const struct kvpipe_cqe more = { .op_id = 5, .tag = 1, .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY, .flags = KVPIPE_C_MORE };
static const struct kvpipe_cqe late = { .op_id = 6, .tag = 2, .status = KVPIPE_CANCELLED, .flags = KVPIPE_C_MORE };

/* What another session's take promised a rank is kept, though nobody is left to say it. */
static void foreign_release(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[8];
	const struct kvpipe_cqe both = { .op_id = 7, .tag = 3, .status = KVPIPE_CANCELLED, .flags = KVPIPE_C_MORE };
	const struct kvpipe_cqe free = { .op_id = 7, .tag = 3, .status = KVPIPE_RELEASED };

	fake_post(f, both, NULL, 0, NULL);
	fake_post(f, more, NULL, 0, NULL);
	fake_post(f, free, NULL, 0, NULL);
	for (int n = 0; n < 3;)
		n += kvpipe_poll(kv, c + n, 8);
	fake_post(f, late, NULL, 0, NULL); /* not collected */
	fake_die(f);
	for (int n = 0; n < 3;)
		n += kvpipe_poll(kv, c + n, 8);
	CHECK(c[0].op_id == 6 && c[0].status == KVPIPE_CANCELLED && c[0].flags == (KVPIPE_C_MORE | KVPIPE_C_FOREIGN));
	for (int i = 1; i < 3; i++)
		CHECK(c[i].status == KVPIPE_RELEASED && c[i].flags == KVPIPE_C_FOREIGN && c[i].op == 0);
	CHECK(c[1].op_id + c[2].op_id == 5 + 6 && c[1].tag + c[2].tag == 1 + 2);
	CHECK_INT(kvpipe_poll(kv, c, 8), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* So it is when the session is over for good, and the daemon has said so. */
static void foreign_release_at_the_end(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[8];
	int n = 0;

	fake_post(f, more, NULL, 0, NULL);
	while (n == 0)
		n = kvpipe_poll(kv, c, 8);
	fake_post(f, late, NULL, 0, NULL); /* not collected */
	fake_bye(f, KVPIPE_E_CLOSED, "replaced");
	fake_hang_up(f);
	for (n = 0; n < 3;) {
		int got = kvpipe_poll(kv, c + n, 8 - (uint32_t)n);
		CHECK(got >= 0);
		n += got;
	}
	CHECK(c[0].op_id == 6 && c[0].status == KVPIPE_CANCELLED);
	for (int i = 1; i < 3; i++)
		CHECK(c[i].status == KVPIPE_RELEASED && c[i].flags == KVPIPE_C_FOREIGN);
	CHECK(c[1].op_id + c[2].op_id == 5 + 6);
	CHECK_FAILS(kvpipe_poll(kv, c, 8), KVPIPE_E_CLOSED, "replaced");
	kvpipe_close(kv);
	fake_stop(f);
}

/* A daemon that stands still once it has an offer again. */
static void note_offer(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	note(f, e, record);
	if (e->op == KVPIPE_OPCODE_OFFER && fake_sessions(f) == 2)
		fake_pause(f, true);
}

struct withdrawal {
	kvpipe_t *kv;
	kvpipe_op_t op;
	int reusable;
};

static void *withdraws(void *arg)
{
	struct withdrawal *w = arg;

	CHECK_INT(kvpipe_offer_withdraw(w->kv, w->op, WAIT, &w->reusable), 0);
	return NULL;
}

static void await_last(kvpipe_t *kv, uint8_t opcode)
{
	pthread_mutex_lock(&kv->lock);
	while (kv->live_last->opcode != opcode) {
		pthread_mutex_unlock(&kv->lock);
		sched_yield();
		pthread_mutex_lock(&kv->lock);
	}
	pthread_mutex_unlock(&kv->lock);
}

/* An offer that the next daemon has ended when its withdrawal has its turn: its blocks are free when that daemon says so, not before. */
static void withdrawn_as_it_ends(void)
{
	struct fake_conf conf = by_hand;
	pthread_t thread;

	conf.submission = note_offer;
	conf.sq = 4;
	fake_stop(first_daemon());
	struct fake *f = fake_start(&conf);
	struct withdrawal w = { .kv = fake_connect(f), .reusable = -1 };
	w.op = offer_key(w.kv, "o", 0);
	await_seen(1);
	fake_die(f);
	while (kvpipe_connected(w.kv))
		sched_yield();
	for (int i = 0; i < 6; i++)
		take_key(w.kv, "t", 0);
	fake_return(f);
	await_seen(2);
	CHECK(pthread_create(&thread, NULL, withdraws, &w) == 0);
	await_last(w.kv, KVPIPE_OPCODE_WITHDRAW); /* behind takes for which the queue has no room */
	fake_end(f, w.op, KVPIPE_FAILED, KVPIPE_E_EXPIRED, KVPIPE_C_MORE);
	fake_pause(f, false);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_INT(w.reusable, 0);
	CHECK_INT(kvpipe_op_released(w.kv, w.op), 0);
	fake_end(f, w.op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_wait_released(w.kv, w.op, WAIT), 0);
	kvpipe_close(w.kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(everything), TEST(an_hour_at_most), TEST(names), TEST(names_of_the_dead), TEST(stale_view), TEST(layout_of_gone_memory), TEST(layout_of_memory_given_up),
		TEST(extensions), TEST(many_extensions), TEST(spoiled), TEST(spoiled_while_sending),
		TEST(spoiled_in_a_full_queue), TEST(late_in_the_queue), TEST(cancelled), TEST(cancelling), TEST(many), TEST(other_rings), TEST(layered), TEST(ranks), TEST(ranks_late), TEST(foreign_release), TEST(foreign_release_at_the_end), TEST(withdrawn_as_it_ends),
	};
	return RUN(tests);
}
