/* SPDX-License-Identifier: Apache-2.0 */
/* Extend, seal, withdraw and cancel; progress. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#define TOKEN "0123456789abcdef"
#define WAIT (60 * KV_SEC)
#define SILENT "the deadline of 1 ms passed and the daemon does not answer: "

/* What the fake does with small operations; takes and offers it leaves alone. */
struct script {
	uint32_t status, reason, flags; /* of the small operation */
	uint32_t end, end_flags;	/* 0: the target does not end; else its status and flags, said first */
	bool late;			/* said after the small operation's */
	bool silent;
	struct kvpipe_sqe small;
};

static void play(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	struct script *s = fake_arg(f);

	(void)record;
	if (e->target == 0)
		return;
	s->small = *e;
	if (s->end != 0 && !s->late)
		fake_end(f, e->target, s->end, KVPIPE_E_CANCELLED, s->end_flags);
	if (!s->silent)
		fake_post(f, (struct kvpipe_cqe){ .user_data = e->user_data, .status = (uint16_t)s->status,
						  .reason = (uint16_t)s->reason, .flags = s->flags },
			  NULL, 0, s->status == KVPIPE_FAILED ? "because" : NULL);
	if (s->end != 0 && s->late)
		fake_end(f, e->target, s->end, KVPIPE_E_CANCELLED, s->end_flags);
}

static kvpipe_op_t offer(kvpipe_t *kv)
{
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_offer(kv, &o, &op), 0);
	return op;
}

static kvpipe_op_t take(kvpipe_t *kv)
{
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_take(kv, &o, &op), 0);
	return op;
}

static void extend_and_seal(void)
{
	struct script s = { .status = KVPIPE_DONE };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer(kv);
	const uint32_t ids[] = { 1, 2 };
	const struct kvpipe_blocks blocks = { .first_token = 16, .ntokens = 32, .count = 2, .ids = ids };
	struct kvpipe_extend_opts o =
		KVPIPE_OPTS(kvpipe_extend_opts, .blocks = &blocks, .nblocks = 1, .after = 5, .flags = KVPIPE_OP_LAYERED);
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_offer_extend(kv, op, &o, 0), 0);
	CHECK(s.small.op == KVPIPE_OPCODE_EXTEND && s.small.target == op && s.small.rec_len == 32 + 24 + 8);
	CHECK_INT(kvpipe_offer_seal(kv, op, WAIT), 0);
	CHECK(s.small.op == KVPIPE_OPCODE_SEAL && s.small.target == op && s.small.timeout_ns == WAIT);
	s = (struct script){ .status = KVPIPE_FAILED, .reason = KVPIPE_E_EXPIRED };
	CHECK_FAILS(kvpipe_offer_extend(kv, op, &o, 0), KVPIPE_E_EXPIRED, "extend: because");
	CHECK_FAILS(kvpipe_offer_seal(kv, op, 0), KVPIPE_E_EXPIRED, "seal: because");
	s = (struct script){ .silent = true };
	CHECK_LATE(kvpipe_offer_seal(kv, op, KV_MS), "seal: the daemon did not answer within 1 ms: ", "seal: " SILENT);
	o.flags = 8;
	CHECK_FAILS(kvpipe_offer_extend(kv, op, &o, 0), KVPIPE_E_INVALID, "extend: flags is 0x8");
	CHECK_FAILS(kvpipe_offer_seal(kv, op, KVPIPE_FOREVER), KVPIPE_E_INVALID, "KVPIPE_FOREVER");
	CHECK_FAILS(kvpipe_offer_seal(kv, take(kv), 0), KVPIPE_E_NOT_FOUND, "not an offer of this session");
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0); /* small operations are between their caller and the daemon */
	kvpipe_close(kv);
	fake_stop(f);
}

/* An offer that has ended says which one it was, how it ended and what to do, whether or not anybody has collected its end. */
static void ended(void)
{
	static const struct {
		uint32_t status, reason;
		const char *text; /* of its end */
		enum kvpipe_reason code;
		const char *said;
	} cases[] = {
		{ KVPIPE_FAILED, KVPIPE_E_EXPIRED, "key \"k\": its lease of 1 s ran out; offer it again", KVPIPE_E_EXPIRED,
		  ": the offer has ended: key \"k\": its lease of 1 s ran out; offer it again" },
		{ KVPIPE_DONE, 0, NULL, KVPIPE_E_EXPIRED, ": the offer of key \"k\" has ended: it was consumed by all it was for: offer what follows anew" },
		{ KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, NULL, KVPIPE_E_EXPIRED, ": the offer of key \"k\" has ended: it was withdrawn: offer it again" },
		{ KVPIPE_FAILED, KVPIPE_E_BUSY, "block 1 is written", KVPIPE_E_BUSY, ": the offer of key \"k\" has ended: block 1 is written" },
		{ KVPIPE_FAILED, 99, "words of later", KVPIPE_E_INVALID, ": the offer of key \"k\" has ended: words of later" },
	};
	const struct kvpipe_extend_opts o = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	struct script s = { .silent = true };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);

	for (size_t i = 0; i < KV_COUNT(cases); i++) {
		kvpipe_op_t op = offer(kv);
		fake_post(f, (struct kvpipe_cqe){ .user_data = op, .status = (uint16_t)cases[i].status, .reason = (uint16_t)cases[i].reason },
			  NULL, 0, cases[i].text);
		for (int collected = 0; collected < 2; collected++) {
			CHECK_FAILS(kvpipe_offer_extend(kv, op, &o, 0), cases[i].code, cases[i].said);
			CHECK_HAS(kvpipe_last_error(), "extend: ");
			CHECK_FAILS(kvpipe_offer_seal(kv, op, 0), cases[i].code, cases[i].said);
			CHECK_HAS(kvpipe_last_error(), "seal: ");
			CHECK_INT(kvpipe_wait(kv, op, 0, NULL), 0);
		}
		CHECK_INT(kvpipe_offer_seal(kv, op, KVPIPE_NOWAIT), 0); /* is told nothing */
	}
	char key[100];
	memset(key, 'y', sizeof(key));
	struct kvpipe_offer_opts much = KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = sizeof(key));
	kvpipe_op_t op;
	CHECK_INT(kvpipe_offer(kv, &much, &op), 0);
	fake_end(f, op, KVPIPE_DONE, 0, KVPIPE_C_MORE);
	key[61] = '\0';
	CHECK_FAILS(kvpipe_offer_seal(kv, op, 0), KVPIPE_E_EXPIRED, key);
	CHECK_HAS(kvpipe_last_error(), "yyy\"... has ended");
	kvpipe_close(kv);
	fake_stop(f);
}

/* So it does when it ends while the daemon is asked, which knows nothing of it any more. */
static void ended_meanwhile(void)
{
	static const uint32_t reasons[] = { KVPIPE_E_NOT_FOUND, KVPIPE_E_EXPIRED };
	const struct kvpipe_extend_opts o = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	struct script s;
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);

	for (size_t i = 0; i < KV_COUNT(reasons); i++) {
		s = (struct script){ .status = KVPIPE_FAILED, .reason = reasons[i], .end = KVPIPE_DONE };
		CHECK_FAILS(kvpipe_offer_extend(kv, offer(kv), &o, 0), KVPIPE_E_EXPIRED, "extend: the offer of key \"k\" has ended: it was consumed");
		CHECK_FAILS(kvpipe_offer_seal(kv, offer(kv), 0), KVPIPE_E_EXPIRED, "seal: the offer of key \"k\" has ended: it was consumed");
		/* Accepted, although the offer ends with it: no error. */
		kvpipe_op_t op = offer(kv);
		s = (struct script){ .status = KVPIPE_DONE };
		CHECK_INT(kvpipe_offer_extend(kv, op, &o, 0), 0);
		s.end = KVPIPE_DONE;
		CHECK_INT(kvpipe_offer_extend(kv, op, &o, 0), 0);
		s = (struct script){ .status = KVPIPE_FAILED, .reason = reasons[i] }; /* the daemon's word, where there is nothing else */
		CHECK_FAILS(kvpipe_offer_seal(kv, offer(kv), 0), reasons[i], "seal: because");
	}
	kvpipe_close(kv);
	fake_stop(f);
}

static void withdraw(void)
{
	struct script s = { .status = KVPIPE_DONE, .end = KVPIPE_CANCELLED };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer(kv);
	struct kvpipe_completion c;
	int reusable = -1;

	CHECK_INT(kvpipe_offer_withdraw(kv, op, 0, &reusable), 0);
	CHECK_INT(reusable, 1);
	CHECK_INT(s.small.op, KVPIPE_OPCODE_WITHDRAW);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
	CHECK(c.op == op && c.status == KVPIPE_CANCELLED);
	reusable = -1;
	CHECK_INT(kvpipe_offer_withdraw(kv, op, 0, &reusable), 0); /* again: the answer is the same */
	CHECK_INT(reusable, 1);

	s = (struct script){ .status = KVPIPE_DONE, .flags = KVPIPE_C_MORE, .end = KVPIPE_CANCELLED, .end_flags = KVPIPE_C_MORE };
	op = offer(kv);
	CHECK_INT(kvpipe_offer_withdraw(kv, op, 0, &reusable), 0);
	CHECK_INT(reusable, 0);
	fake_end(f, op, KVPIPE_RELEASED, 0, 0);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);

	s = (struct script){ .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY };
	op = offer(kv);
	CHECK_FAILS(kvpipe_offer_withdraw(kv, op, 0, &reusable), KVPIPE_E_BUSY, "withdraw: because");
	/* It had ended when the daemon read the request. */
	s = (struct script){ .status = KVPIPE_FAILED, .reason = KVPIPE_E_NOT_FOUND, .end = KVPIPE_FAILED };
	reusable = -1;
	CHECK_INT(kvpipe_offer_withdraw(kv, op, 0, &reusable), 0);
	CHECK_INT(reusable, 1);
	s.end_flags = KVPIPE_C_MORE; /* and its blocks are still read: the refusal says nothing of them */
	op = offer(kv);
	CHECK_INT(kvpipe_offer_withdraw(kv, op, 0, &reusable), 0);
	CHECK_INT(reusable, 0);
	CHECK_INT(kvpipe_op_released(kv, op), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void cancel(void)
{
	static const struct {
		struct script s;
		int reusable;
	} cases[] = {
		{ { .status = KVPIPE_DONE, .end = KVPIPE_CANCELLED }, 1 },
		{ { .status = KVPIPE_DONE, .end = KVPIPE_CANCELLED, .end_flags = KVPIPE_C_MORE }, 0 },
		{ { .status = KVPIPE_DONE, .end = KVPIPE_DONE, .late = true }, 1 },
		{ { .status = KVPIPE_FAILED, .reason = KVPIPE_E_NOT_FOUND, .end = KVPIPE_DONE, .late = true }, 1 },
		{ { .silent = true, .end = KVPIPE_CANCELLED }, 1 },
	};
	struct script s;
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct kvpipe_completion c;

	for (size_t i = 0; i < KV_COUNT(cases); i++) {
		struct fake *f = fake_start(&conf);
		kvpipe_t *kv = fake_connect(f);
		kvpipe_op_t op = take(kv);
		int reusable = -1;
		s = cases[i].s;
		CHECK_INT(kvpipe_cancel(kv, op, 0, &reusable), 0);
		CHECK_INT(reusable, cases[i].reusable);
		CHECK(s.small.op == KVPIPE_OPCODE_CANCEL && s.small.target == op);
		CHECK_INT(kvpipe_wait(kv, op, 0, &c), 0);
		CHECK_INT(c.status, s.end);
		reusable = -1;
		CHECK_INT(kvpipe_cancel(kv, op, 0, &reusable), 0); /* it has ended: nothing is sent */
		CHECK_INT(reusable, cases[i].reusable);
		kvpipe_close(kv);
		fake_stop(f);
	}
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	s = (struct script){ .status = KVPIPE_FAILED, .reason = KVPIPE_E_DENIED };
	CHECK_FAILS(kvpipe_cancel(kv, take(kv), 0, NULL), KVPIPE_E_DENIED, "cancel: because");
	s = (struct script){ .silent = true };
	CHECK_LATE(kvpipe_cancel(kv, take(kv), KV_MS, NULL), "cancel: the daemon did not answer within 1 ms: ", "cancel: " SILENT);
	/* Answered after its caller left: nobody's completion. */
	fake_await_submissions(f, 4);
	fake_end(f, fake_last(f).user_data, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* The caller goes on at once; the refusal is nobody's, the target's end is heard as ever. */
static void not_waited_for(void)
{
	struct script s = { .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY, .end = KVPIPE_CANCELLED, .end_flags = KVPIPE_C_MORE };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t ops[] = { offer(kv), take(kv) };
	struct kvpipe_completion c;
	int reusable = -1;

	CHECK_INT(kvpipe_offer_withdraw(kv, ops[0], KVPIPE_NOWAIT, &reusable), 0);
	CHECK_INT(reusable, 0);
	CHECK_INT(kvpipe_cancel(kv, ops[1], KVPIPE_NOWAIT, &reusable), 0);
	CHECK_INT(reusable, 0);
	for (size_t i = 0; i < KV_COUNT(ops); i++) {
		CHECK_INT(kvpipe_wait(kv, ops[i], WAIT, &c), 0);
		CHECK_INT(c.status, KVPIPE_CANCELLED);
		CHECK_INT(kvpipe_cancel(kv, ops[i], KVPIPE_NOWAIT, &reusable), 0); /* it had ended: nothing is asked */
		CHECK_INT(reusable, 0);
		fake_end(f, ops[i], KVPIPE_RELEASED, 0, 0);
		CHECK_INT(kvpipe_wait_released(kv, ops[i], WAIT), 0);
		CHECK_INT(kvpipe_cancel(kv, ops[i], KVPIPE_NOWAIT, &reusable), 0);
		CHECK_INT(reusable, 1);
	}
	CHECK_FAILS(kvpipe_offer_seal(kv, ops[1], KVPIPE_NOWAIT), KVPIPE_E_NOT_FOUND, "not an offer of this session");
	fake_await_submissions(f, 2 + KV_COUNT(ops)); /* so the refusals, which come after the ends, are there, too */
	while (kvpipe_poll(kv, &c, 1) > 0)
		CHECK(c.op == ops[0] || c.op == ops[1]);
	for (size_t i = 0; i < KV_COUNT(ops); i++)
		kvpipe_op_free(kv, ops[i]);
	pthread_mutex_lock(&kv->lock);
	CHECK_INT(kv->records, 0); /* nor is anything of the small ones remembered */
	pthread_mutex_unlock(&kv->lock);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Times are finite, not short: the daemon, which refuses more, is told 30 days. */
static void patience(void)
{
	const uint64_t month = 30ull * 86400 * KV_SEC;
	struct script s = { .status = KVPIPE_DONE };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t op = offer(kv);

	CHECK_INT(kvpipe_offer_seal(kv, op, (int64_t)month - 1), 0);
	CHECK_INT(s.small.timeout_ns, month - 1);
	CHECK_INT(kvpipe_offer_seal(kv, op, INT64_MAX - 1), 0);
	CHECK_INT(s.small.timeout_ns, month);
	s.end = KVPIPE_CANCELLED;
	CHECK_INT(kvpipe_cancel(kv, op, INT64_MAX - 1, NULL), 0);
	CHECK_INT(s.small.timeout_ns, month);
	kvpipe_close(kv);
	fake_stop(f);
}

/* What a completion points to is the thread's until its next poll or wait, whatever else it calls meanwhile. */
static void words_last(void)
{
	struct script s = { .status = KVPIPE_FAILED, .reason = KVPIPE_E_BUSY };
	struct fake_conf conf = { .submission = play, .arg = &s };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	const struct kvpipe_extend_opts o = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	const struct kvpipe_run runs[] = { { 0, 5, 2 }, { 0, 9, 1 } };
	kvpipe_op_t failed = take(kv), other = offer(kv);
	struct kvpipe_completion c;

	fake_post(f, (struct kvpipe_cqe){ .user_data = failed, .status = KVPIPE_FAILED, .reason = KVPIPE_E_CORRUPT }, runs, 2, "two runs");
	CHECK_INT(kvpipe_wait(kv, failed, WAIT, &c), 0);
	CHECK_FAILS(kvpipe_offer_extend(kv, other, &o, 0), KVPIPE_E_BUSY, "extend: because");
	CHECK_FAILS(kvpipe_offer_seal(kv, other, 0), KVPIPE_E_BUSY, "seal: because");
	CHECK_FAILS(kvpipe_offer_withdraw(kv, other, 0, NULL), KVPIPE_E_BUSY, "withdraw: because");
	CHECK_FAILS(kvpipe_cancel(kv, other, 0, NULL), KVPIPE_E_BUSY, "cancel: because");
	CHECK_INT(kvpipe_wait_released(kv, failed, 0), 0);
	CHECK_HAS(c.message, "two runs");
	CHECK(c.nfailed == 2 && c.failed[0].first == 5 && c.failed[1].first == 9);
	kvpipe_close(kv);
	fake_stop(f);
}

static void progress(void)
{
	struct fake *f = fake_start(NULL);
	kvpipe_t *kv = fake_connect(f);
	const uint64_t step = 3 << 16;

	CHECK_INT(kvpipe_progress(kv, step | 1), 0);
	CHECK_INT(fake_progress(f), step | 1);
	CHECK_INT(kvpipe_progress(kv, step), 0); /* never back */
	CHECK_INT(fake_progress(f), step | 1);
	fake_set_progress_wait(f, step | 2);
	CHECK_INT(kvpipe_progress(kv, step | 0xffff), 0);
	CHECK_INT(fake_progress(f), step | 0xffff);
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(extend_and_seal), TEST(ended), TEST(ended_meanwhile), TEST(withdraw), TEST(cancel),
					     TEST(not_waited_for), TEST(words_last), TEST(patience), TEST(progress) };
	return RUN(tests);
}
