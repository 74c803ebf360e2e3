/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: who sees which, what they carry, and how long that lives. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#define TOKEN "0123456789abcdef"
#define WAIT (60 * KV_SEC)

static struct fake_conf by_hand = { .submission = fake_nothing };

static void failed_runs(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	const struct kvpipe_run runs[] = { { 2, 3, 1 }, { 5, 0, UINT32_MAX } };
	kvpipe_op_t op = fake_take(kv, 9, 0);
	struct kvpipe_cqe e = { .user_data = op, .tag = 9, .op_id = 4, .bytes = 55, .status = KVPIPE_FAILED,
				.reason = KVPIPE_E_CORRUPT, .rank = 3, .epoch = 7 };
	struct kvpipe_completion c, again;

	fake_post(f, e, runs, 2, "group 2 block 3: crc");
	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK(c.op == op && c.op_id == 4 && c.tag == 9 && c.bytes == 55 && c.rank == 3 && c.epoch == 7);
	CHECK(c.status == KVPIPE_FAILED && c.reason == KVPIPE_E_CORRUPT && c.flags == 0);
	CHECK_INT(c.nfailed, 2);
	CHECK(memcmp(c.failed, runs, sizeof(runs)) == 0);
	CHECK_INT(strcmp(c.message, "group 2 block 3: crc"), 0);
	CHECK_INT(kvpipe_wait(kv, op, 0, &again), 0); /* as often as one likes, until it is freed */
	CHECK_INT(again.nfailed, 2);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0); /* wait has seen it */
	kvpipe_op_free(kv, op);
	CHECK_FAILS(kvpipe_wait(kv, op, 0, &c), KVPIPE_E_NOT_FOUND, "was freed");

	/* Without a text there is still one. */
	op = fake_take(kv, 0, 0);
	e = (struct kvpipe_cqe){ .user_data = op, .status = KVPIPE_FAILED, .reason = KVPIPE_E_EXPIRED };
	fake_post(f, e, NULL, 0, NULL);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK(c.message == kvpipe_strerror(KVPIPE_E_EXPIRED));
	kvpipe_op_free(kv, op);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A take that the daemon refuses brought nothing, so none of its blocks may be used, though the daemon names none. */
static void refused_take(void)
{
	static const char *const said[] = { NULL, "the limit is 2" };
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;

	for (int i = 0; i < 2; i++) {
		kvpipe_op_t op = fake_take(kv, 0, 0);
		fake_post(f, (struct kvpipe_cqe){ .user_data = op, .status = KVPIPE_FAILED, .reason = KVPIPE_E_QUOTA }, NULL, 0, said[i]);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
		CHECK_INT(c.nfailed, 2); /* its groups */
		CHECK(c.failed[0].group == 2 && c.failed[1].group == 5);
		CHECK(c.failed[0].first == 0 && c.failed[0].count == UINT32_MAX && c.failed[1].first == 0 && c.failed[1].count == UINT32_MAX);
		CHECK_INT(strcmp(c.message, i == 0 ? kvpipe_strerror(KVPIPE_E_QUOTA) : said[i]), 0);
		kvpipe_op_free(kv, op);
	}
	kvpipe_close(kv);
	fake_stop(f);
}

/* Results reuse their ring; what a caller holds does not change until his next call. */
static void lifetime(void)
{
	struct fake_conf conf = { .submission = fake_nothing, .results = 512 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[3];
	kvpipe_op_t op[3];
	char text[3][64];

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 3; i++) {
			const struct kvpipe_run run = { 2, (uint32_t)(round + i), 1 };
			op[i] = fake_take(kv, 0, 0);
			snprintf(text[i], sizeof(text[i]), "round %d, operation %d", round, i);
			fake_post(f, (struct kvpipe_cqe){ .user_data = op[i], .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY },
				  &run, 1, text[i]);
		}
		CHECK_INT(kvpipe_wait(kv, op[0], WAIT, &c[0]), 0);
		CHECK_INT(strcmp(c[0].message, text[0]), 0);
		CHECK_INT(kvpipe_poll(kv, c + 1, 2), 2);
		for (int i = 1; i < 3; i++) {
			CHECK(c[i].op == op[i] && c[i].nfailed == 1 && c[i].failed[0].first == (uint32_t)(round + i));
			CHECK_INT(strcmp(c[i].message, text[i]), 0);
		}
		for (int i = 0; i < 3; i++)
			kvpipe_op_free(kv, op[i]);
	}
	kvpipe_close(kv);
	fake_stop(f);
}

static void more(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 0, 0);
	struct kvpipe_completion c[4];

	CHECK_INT(kvpipe_op_released(kv, op), 0);
	fake_end(f, op, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, KVPIPE_C_MORE);
	fake_end(f, op, KVPIPE_QUARANTINED, KVPIPE_E_PEER_GONE, 0);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c[0]), 0);
	CHECK(c[0].status == KVPIPE_CANCELLED && c[0].flags == KVPIPE_C_MORE);
	CHECK_INT(kvpipe_op_released(kv, op), 0);
	CHECK_FAILS(kvpipe_wait_released(kv, op, KV_MS), KVPIPE_E_TIMEOUT, "not released yet");
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_INT(kvpipe_op_released(kv, op), 1);
	CHECK_INT(kvpipe_poll(kv, c, 4), 1); /* what nobody waited for */
	CHECK(c[0].status == KVPIPE_QUARANTINED && c[0].reason == KVPIPE_E_PEER_GONE);
	CHECK(c[0].message[0] != '\0');
	kvpipe_op_free(kv, op);

	/* All by poll, in order, each once. */
	op = fake_take(kv, 0, 0);
	fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, KVPIPE_C_MORE);
	fake_end(f, op, KVPIPE_QUARANTINED, KVPIPE_E_TIMEOUT, 0);
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_poll(kv, c, 2), 2);
	CHECK_INT(kvpipe_poll(kv, c + 2, 2), 1);
	CHECK(c[0].status == KVPIPE_FAILED && c[1].status == KVPIPE_QUARANTINED && c[2].status == KVPIPE_RELEASED);
	CHECK_INT(kvpipe_poll(kv, c, 4), 0);
	CHECK_INT(kvpipe_wait(kv, op, 0, &c[0]), 0); /* poll does not take it away from wait */
	kvpipe_op_free(kv, op);
	kvpipe_close(kv);
	fake_stop(f);
}

static void foreign_one(struct fake *f, uint64_t tag, const char *text)
{
	fake_post(f, (struct kvpipe_cqe){ .tag = tag, .status = text ? KVPIPE_FAILED : KVPIPE_DONE }, NULL, 0, text);
}

/* Others' completions wait in the ring for poll; ours pass them by. */
static void foreign(void)
{
	struct fake_conf conf = { .submission = fake_nothing, .cq = 16 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[20];

	for (uint64_t i = 0; i < 10; i++)
		foreign_one(f, i, i == 3 ? "not yours" : NULL);
	for (int i = 0; i < 6; i++) { /* our own, more than the ring has room for, one after the other */
		kvpipe_op_t op = fake_take(kv, 100, 0);
		fake_end(f, op, KVPIPE_DONE, 0, 0);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c[0]), 0);
		CHECK_INT(c[0].flags, 0);
		kvpipe_op_free(kv, op);
	}
	CHECK_INT(fake_cq_head(f), 0); /* the daemon sees that nobody collects */
	CHECK_INT(kvpipe_poll(kv, c, 4), 4);
	for (uint64_t i = 0; i < 4; i++)
		CHECK(c[i].tag == i && c[i].op == 0 && c[i].flags == KVPIPE_C_FOREIGN);
	CHECK_INT(strcmp(c[3].message, "not yours"), 0);
	CHECK_INT(fake_cq_head(f), 4);
	kvpipe_op_t op = fake_take(kv, 50, 0); /* between others' */
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	foreign_one(f, 11, NULL);
	CHECK_INT(kvpipe_poll(kv, c, 20), 8);
	for (uint64_t i = 0; i < 6; i++)
		CHECK(c[i].tag == 4 + i);
	CHECK(c[6].op == op && c[6].tag == 0 && c[6].flags == 0);
	CHECK(c[7].tag == 11 && c[7].flags == KVPIPE_C_FOREIGN);
	CHECK_INT(fake_cq_head(f), 18);
	CHECK_INT(kvpipe_poll(kv, c, 20), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void freed(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c[4];

	/* A running operation goes on, and comes by poll as foreign. */
	kvpipe_op_t op = fake_take(kv, 8, 0);
	kvpipe_op_free(kv, op);
	CHECK_FAILS(kvpipe_wait(kv, op, 0, c), KVPIPE_E_NOT_FOUND, "was freed");
	fake_post(f, (struct kvpipe_cqe){ .user_data = op, .tag = 8, .status = KVPIPE_FAILED, .flags = KVPIPE_C_MORE }, NULL, 0,
		  NULL);
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	CHECK(c[0].op == 0 && c[0].tag == 8 && c[0].flags == (KVPIPE_C_MORE | KVPIPE_C_FOREIGN));
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_poll(kv, c, 4), 1);
	CHECK(c[0].op == 0 && c[0].status == KVPIPE_RELEASED && c[0].flags == KVPIPE_C_FOREIGN);
	/* One that ended and was not collected is forgotten with its completion. */
	op = fake_take(kv, 0, 0);
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_op_released(kv, op), 1);
	kvpipe_op_free(kv, op);
	kvpipe_op_free(kv, op);
	CHECK_INT(kvpipe_poll(kv, c, 4), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void limits(void)
{
	struct fake_conf conf = { .max_inflight = 2, .cq = 8, .submission = fake_nothing };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	struct kvpipe_completion c[8];
	kvpipe_op_t op, a = fake_take(kv, 0, 0), b = fake_take(kv, 0, 0);

	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_QUOTA, 
		    "2 operations are not released yet, the limit is 2 (the daemon's limits.inflight, at most a third of cq_entries = 4096)");
	fake_end(f, a, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, KVPIPE_C_MORE);
	CHECK_INT(kvpipe_wait(kv, a, WAIT, c), 0);
	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_QUOTA, "not released yet");
	fake_end(f, a, KVPIPE_RELEASED, 0, 0);
	fake_end(f, b, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait_released(kv, a, WAIT), 0);
	for (int i = 0; i < 7; i++) { /* nobody collects */
		op = fake_take(kv, 0, 0);
		fake_end(f, op, KVPIPE_DONE, 0, 0);
		CHECK_INT(kvpipe_op_released(kv, op), 1);
	}
	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_QUOTA, "8 completions were not collected");
	CHECK_INT(kvpipe_poll(kv, c, 8), 8);
	CHECK_INT(kvpipe_take(kv, &o, &op), 0);

	fake_end(f, op, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, c), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Operations whose ends nobody has looked at are over all the same: it is told that they were not collected, and not to wait. */
static void uncollected(void)
{
	static const uint32_t flags[] = { 0, KVPIPE_OP_LAYERED };
	struct fake_conf conf = { .max_inflight = 2, .cq = 8, .layers = 2, .submission = fake_nothing };

	for (size_t n = 0; n < KV_COUNT(flags); n++) {
		struct fake *f = fake_start(&conf);
		kvpipe_t *kv = fake_connect(f);
		struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
							.flags = flags[n]);
		struct kvpipe_completion c[8];
		kvpipe_op_t op;
		for (int i = 0; i < 8; i++) {
			CHECK_INT(kvpipe_take(kv, &o, &op), 0);
			fake_end(f, op, KVPIPE_DONE, 0, 0);
		}
		CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_QUOTA,
			    "8 completions were not collected: call kvpipe_poll() or kvpipe_wait()");
		CHECK_INT(kvpipe_poll(kv, c, 8), 8);
		CHECK_INT(kvpipe_take(kv, &o, &op), 0);
		kvpipe_close(kv);
		fake_stop(f);
	}
}

static void hostile_entry(struct kvpipe_cqe e, const char *words)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 0, 0);
	struct kvpipe_completion c;

	e.user_data = op;
	fake_post(f, e, NULL, 0, NULL);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK(c.status == KVPIPE_FAILED && c.reason == KVPIPE_E_CLOSED);
	CHECK_HAS(c.message, "the daemon broke the ring protocol");
	CHECK_HAS(c.message, words);
	/* We hung up; the fake closes in turn, so the memory is ours. */
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_INT(kvpipe_connected(kv), 0);
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_CLOSED, "broke the ring protocol");
	kvpipe_close(kv);
	fake_stop(f);
}

static void hostile(void)
{
	hostile_entry((struct kvpipe_cqe){ .status = 0 }, "status 0");
	hostile_entry((struct kvpipe_cqe){ .status = 17 }, "status 17");
	hostile_entry((struct kvpipe_cqe){ .status = 1, .result_len = 8 }, "result of 8 bytes");
	hostile_entry((struct kvpipe_cqe){ .status = 1, .result_len = 16, .result_off = 4 }, "at 4");
	hostile_entry((struct kvpipe_cqe){ .status = 1, .result_len = 4096, .result_off = 65536 - 64 }, "at 65472");
	hostile_entry((struct kvpipe_cqe){ .status = 1, .result_len = UINT32_MAX, .result_off = 0 }, "result of 4294967295");

	/* Entries of operations that never were, twice ended, released without an end: ignored. */
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 0, 0);
	struct kvpipe_completion c[8];
	fake_end(f, 1ull << 63, KVPIPE_DONE, 0, 0);
	fake_end(f, op + 1000, KVPIPE_DONE, 0, 0);
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	fake_end(f, op, KVPIPE_QUARANTINED, 0, 0);
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_poll(kv, c, 8), 1);
	CHECK(c[0].op == op && c[0].status == KVPIPE_DONE);

	/* An impossible index. */
	op = fake_take(kv, 0, 0);
	fake_set_cq_tail(f, 100000);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, c), 0);
	CHECK(c[0].status == KVPIPE_FAILED && (c[0].flags & KVPIPE_C_MORE) != 0);
	CHECK_HAS(c[0].message, "cq_tail is 100000");
	kvpipe_close(kv);
	fake_stop(f);

	/* One that moves back, over completions of others that were read and not collected. */
	f = fake_start(&by_hand);
	kv = fake_connect(f);
	op = fake_take(kv, 0, 0);
	fake_end(f, 0, KVPIPE_DONE, 0, 0);
	fake_end(f, 0, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_op_released(kv, op), 0);
	fake_set_cq_tail(f, 1);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, c), 0);
	CHECK_HAS(c[0].message, "cq_tail is 1, cq_head 0");
	kvpipe_close(kv);
	fake_stop(f);

	/* One that is noticed only when its daemon has gone: the session does not go on with the next. */
	f = fake_start(&by_hand);
	kv = fake_connect(f);
	op = fake_take(kv, 0, 0);
	fake_await_submissions(f, 1);
	fake_set_cq_tail(f, 100000);
	fake_hang_up(f);
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) == KV_LIVE) /* no call looks before */
		poll(NULL, 0, 1);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_INT(kvpipe_wait(kv, op, 0, c), 0);
	CHECK(c[0].status == KVPIPE_FAILED && c[0].reason == KVPIPE_E_CLOSED);
	CHECK_HAS(c[0].message, "cq_tail is 100000");
	CHECK_FAILS(kvpipe_poll(kv, c, 8), KVPIPE_E_CLOSED, "cq_tail is 100000");
	CHECK_INT(fake_sessions(f), 1);
	kvpipe_close(kv);
	fake_stop(f);

	f = fake_start(&by_hand);
	kv = fake_connect(f);
	fake_take(kv, 0, 0);
	fake_await_submissions(f, 1);
	fake_set_sq_head(f, 5);
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_CLOSED, "sq_head is 5, sq_tail 1");
	kvpipe_close(kv);
	fake_stop(f);
}

/* What is said twice, or before its time, is told once, and leaves nothing behind. */
static void said_twice(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = fake_take(kv, 0, 0);
	struct kvpipe_cqe q = { .user_data = op, .status = KVPIPE_QUARANTINED, .reason = KVPIPE_E_BUSY };
	struct kvpipe_cqe r = { .user_data = op, .status = KVPIPE_RELEASED };
	struct kvpipe_completion c[8];

	fake_post(f, q, NULL, 0, "before its time");
	fake_post(f, r, NULL, 0, "before its time");
	fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
	fake_post(f, q, NULL, 0, "once");
	fake_post(f, q, NULL, 0, "twice");
	fake_post(f, r, NULL, 0, "free");
	CHECK_INT(kvpipe_poll(kv, c, 8), 3);
	CHECK(c[0].status == KVPIPE_FAILED && c[1].status == KVPIPE_QUARANTINED && c[2].status == KVPIPE_RELEASED);
	CHECK(strcmp(c[1].message, "once") == 0 && strcmp(c[2].message, "free") == 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void hostile_result(void)
{
	struct fake *f = fake_start(&by_hand);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_run lie = { .group = 0x40000000, .first = 0, .count = 0 }; /* read as a result's head: nfailed */
	kvpipe_op_t op = fake_take(kv, 0, 0);
	struct kvpipe_completion c;

	fake_post(f, (struct kvpipe_cqe){ .status = KVPIPE_DONE }, &lie, 1, NULL);
	fake_post(f, (struct kvpipe_cqe){ .user_data = op, .status = KVPIPE_DONE, .result_off = 16, .result_len = 32 }, NULL, 0,
		  NULL);
	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK_HAS(c.message, "result of 32 bytes at 16");
	CHECK_INT(kvpipe_poll(kv, &c, 1), 1); /* the honest foreign one before it */
	CHECK_INT(c.nfailed, 1);
	kvpipe_close(kv);
	fake_stop(f);

	/* A completion of another session whose result lies outside the area: nothing is read. */
	f = fake_start(&by_hand);
	kv = fake_connect(f);
	fake_post(f, (struct kvpipe_cqe){ .tag = 3, .status = KVPIPE_DONE, .result_off = 65536 - 16, .result_len = 1 << 20 }, NULL, 0, NULL);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
	CHECK(c.tag == 3 && c.nfailed == 0 && c.message[0] == '\0');
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_CLOSED, "completion of another session: result of 1048576 bytes at 65520");
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(failed_runs), TEST(lifetime), TEST(more),	  TEST(foreign),    TEST(refused_take),
		TEST(freed),	   TEST(limits),   TEST(uncollected), TEST(hostile), TEST(said_twice), TEST(hostile_result),
	};
	return RUN(tests);
}
