/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are refused before the daemon sees them. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#define TOKEN "0123456789abcdef"

static void offer_arguments(kvpipe_t *kv)
{
	const uint32_t id = 1;
	struct kvpipe_blocks b[2] = { { .count = 1, .ids = &id, .ntokens = 1 }, { .count = 1, .ids = &id, .ntokens = 1 } };
	struct kvpipe_offer_opts good = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1, .blocks = b, .nblocks = 2), o;
	char trace[70];
	kvpipe_op_t op;

	memset(trace, 't', sizeof(trace));
	trace[69] = '\0';
#define BAD(change, words) \
	do { \
		o = good; \
		change; \
		CHECK_FAILS(kvpipe_offer(kv, &o, &op), KVPIPE_E_INVALID, words); \
	} while (0)
	BAD((void)0, "blocks[1].group is 0: that group is there twice");
	b[1].group = 64;
	BAD((void)0, "blocks[1].group is 64: must be below 64");
	b[1].group = 1;
	b[1].ids = NULL;
	BAD((void)0, "blocks[1].ids is NULL, count is 1");
	b[1].ids = &id;
	b[1].first_token = UINT32_MAX;
	BAD((void)0, "is past 32 bits");
	b[1].first_token = 0;
	BAD(o.blocks = NULL, "blocks is NULL, nblocks is 2");
	BAD(o.nblocks = 65, "nblocks is 65: at most 64 groups");
	BAD(o.key_len = 0, "offer: key: 0 bytes: must be 1 to 256");
	BAD(o.key_len = 257, "offer: key: 257 bytes: must be 1 to 256");
	BAD(o.key = NULL, "offer: key: pointer is NULL");
	BAD(o.token = TOKEN; o.token_len = 15, "offer: token: 15 bytes: must be 16 to 32");
	BAD(o.content = "x"; o.content_len = 65, "offer: content: 65 bytes");
	BAD(o.trace = trace, "offer: trace: longer than 64 bytes");
	BAD(o.flags = 4, "offer: flags is 0x4");
	BAD(o.consumers = 257, "offer: consumers is 257: at most 256");
	BAD(o.lease_ns = -1, "lease_ns: -1 ns is negative");
	BAD(o.lease_ns = KVPIPE_FOREVER, "KVPIPE_FOREVER is only for");
	BAD(o.reserved[3] = 1, "offer: reserved[3] is 0x1");
#undef BAD
	CHECK_FAILS(kvpipe_offer(kv, &good, NULL), KVPIPE_E_INVALID, "op is NULL");
	CHECK_FAILS(kvpipe_offer(NULL, &good, &op), KVPIPE_E_INVALID, "session is NULL");
	static uint32_t many[KVPIPE_MAX_IDS];
	b[0] = (struct kvpipe_blocks){ .count = KVPIPE_MAX_IDS, .ids = many };
	CHECK_FAILS(kvpipe_offer(kv, &good, &op), KVPIPE_E_QUOTA, "1048577 block ids, the limit is 1048576");
}

static void arguments(void)
{
	struct fake *f = fake_start(NULL);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_take_opts good = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16), o;
	char peer[300];
	kvpipe_op_t op;

	offer_arguments(kv);
	memset(peer, 'p', sizeof(peer));
	peer[299] = '\0';
#define BAD(change, words) \
	do { \
		o = good; \
		change; \
		CHECK_FAILS(kvpipe_take(kv, &o, &op), KVPIPE_E_INVALID, words); \
	} while (0)
	BAD(o.token_len = 0, "take: token: 0 bytes: must be 16 to 32");
	BAD(o.peer = peer, "take: peer: longer than 255 bytes");
	BAD(o.part = 1, "take: part 1 of 1");
	BAD(o.parts = 257, "take: part 0 of 257");
	BAD(o.flags = KVPIPE_OP_SEALED, "take: flags is 0x1");
	BAD(o.reserved0 = 1, "take: reserved0 is 0x1");
	BAD(o.reserved[0] = 1, "take: reserved[0] is 0x1");
#undef BAD
	CHECK_FAILS(kvpipe_offer_seal(kv, 12345, 0), KVPIPE_E_NOT_FOUND, "operation 12345 is not an offer");
	CHECK_FAILS(kvpipe_cancel(kv, 0, 0, NULL), KVPIPE_E_NOT_FOUND, "operation 0 is not an operation");
	CHECK_FAILS(kvpipe_wait(kv, 12345, 0, NULL), KVPIPE_E_NOT_FOUND, "operation 12345");
	kvpipe_op_free(kv, 12345);
	CHECK_INT(kvpipe_take(kv, &good, &op), 0);
	CHECK_INT(kvpipe_wait(kv, op, 10 * KV_SEC, NULL), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Times in messages. */
static void spans(void)
{
	const struct {
		int64_t ns;
		const char *want;
	} spans[] = {
		{ -5, "0 ms" },
		{ KV_MS / 2, "1 ms" },
		{ 50 * KV_MS, "50 ms" },
		{ KV_SEC - 1, "1 s" },
		{ 1500 * KV_MS, "1.5 s" },
		{ 30 * KV_SEC, "30 s" },
		{ 86399 * KV_SEC, "86399 s" },
		{ 30 * 86400 * KV_SEC, "30 days" },
		{ INT64_MAX, "106752 days" },
	};

	for (size_t i = 0; i < KV_COUNT(spans); i++) {
		if (strcmp(KV_SPAN(spans[i].ns), spans[i].want) != 0)
			FAIL("%lld ns is \"%s\", want \"%s\"", (long long)spans[i].ns, KV_SPAN(spans[i].ns), spans[i].want);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(arguments), TEST(spans) };
	return RUN(tests);
}
