/* SPDX-License-Identifier: Apache-2.0 */
/* needs: daemon */
/* Many threads on two sessions, each doing whatever comes to its mind, while others collect what is left. */
#include "check.h"
#include "internal.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define WAIT (60 * KV_SEC)
#define TOKEN "0123456789abcdef"

enum { THREADS = 4, ROUNDS = 150, BLOCKS = 64, MINE = BLOCKS / THREADS, BLOCK_BYTES = 4096, TOKENS = 16 };

static kvpipe_t *producer, *consumer;
static uint8_t *source, *target;
static int stop; /* atomic */

static kvpipe_t *start(const char *id, uint8_t **memory)
{
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = id, .role = KVPIPE_ROLE_WORKER);
	const struct kvpipe_field field = {"model", "test"};
	struct kvpipe_view v = {
		.num_blocks = BLOCKS,
		.block_stride = BLOCK_BYTES,
		.token_stride = BLOCK_BYTES / TOKENS,
		.head_stride = BLOCK_BYTES / TOKENS,
		.content_bytes = BLOCK_BYTES / TOKENS,
		.kind = KVPIPE_VIEW_PAGED,
		.block_size = TOKENS,
		.heads = 1,
		.total_heads = 1,
		.part = "kv",
	};
	kvpipe_t *kv;
	void *addr;

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	CHECK_INT(kvpipe_mem_alloc(kv, BLOCKS * BLOCK_BYTES, 0, &addr, &v.region), 0);
	CHECK_INT(kvpipe_set_layout(kv, &v, 1, &field, 1), 0);
	*memory = addr;
	return kv;
}

struct thread {
	pthread_t id;
	unsigned int seed;
	uint32_t first; /* of its own blocks */
	int done, ended;
};

/* Its end and its release, whoever collects its completion. */
static int over(struct thread *t, kvpipe_t *kv, kvpipe_op_t op)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_INT(kvpipe_op_released(kv, op), 1);
	kvpipe_op_free(kv, op);
	CHECK_FAILS(kvpipe_op_released(kv, op), KVPIPE_E_NOT_FOUND, "not known");
	t->ended++;
	return (int)c.status;
}

static void round_of(struct thread *t, int n)
{
	uint32_t ids[MINE];
	char key[32];
	kvpipe_op_t o, k;
	int cancel = rand_r(&t->seed) % 4, withdraw = rand_r(&t->seed) % 4;

	for (uint32_t i = 0; i < MINE; i++)
		ids[i] = t->first + i;
	const struct kvpipe_blocks b = {.ntokens = MINE * TOKENS, .count = MINE, .ids = ids};
	snprintf(key, sizeof(key), "%u-%d", t->first, n);
	struct kvpipe_offer_opts oo =
		KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN,
	                    .token_len = 16, .blocks = &b, .nblocks = 1, .flags = KVPIPE_OP_SEALED);
	struct kvpipe_take_opts to =
		KVPIPE_OPTS(kvpipe_take_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN,
	                    .token_len = 16, .blocks = &b, .nblocks = 1, .timeout_ns = 10 * KV_SEC);
	memset(source + t->first * BLOCK_BYTES, n, (size_t)MINE * BLOCK_BYTES);
	CHECK_INT(kvpipe_offer(producer, &oo, &o), 0);
	CHECK_INT(kvpipe_take(consumer, &to, &k), 0);
	if (withdraw == 0)
		CHECK_INT(kvpipe_offer_withdraw(producer, o, WAIT, NULL), 0);
	if (cancel == 0)
		CHECK_INT(kvpipe_cancel(consumer, k, WAIT, NULL), 0);
	if (over(t, consumer, k) == KVPIPE_DONE) {
		for (uint32_t i = 0; i < MINE * BLOCK_BYTES; i++)
			CHECK_INT(target[t->first * BLOCK_BYTES + i], (uint8_t)n);
		t->done++;
	}
	CHECK_INT(kvpipe_offer_withdraw(producer, o, WAIT, NULL), 0);
	over(t, producer, o);
}

static void *work(void *arg)
{
	struct thread *t = arg;

	for (int n = 0; n < ROUNDS; n++)
		round_of(t, n);
	return NULL;
}

static void *collect(void *arg)
{
	struct kvpipe_completion c[8];
	kvpipe_t *kv = arg;
	struct pollfd fd = {.fd = kvpipe_fd(kv), .events = POLLIN};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		(void)poll(&fd, 1, 10);
		CHECK(kvpipe_poll(kv, c, 8) >= 0);
	}
	return NULL;
}

/* Regions come and go beside it, and progress. */
static void *others(void *arg)
{
	(void)arg;
	for (uint64_t n = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		kvpipe_region_t region;
		void *addr;

		CHECK_INT(kvpipe_mem_alloc(consumer, 65536, 0, &addr, &region), 0);
		memset(addr, 1, 65536);
		CHECK_INT(kvpipe_progress(producer, n), 0);
		CHECK_INT(kvpipe_mem_unregister(consumer, region, WAIT), 0);
	}
	return NULL;
}

static void storm(void)
{
	struct thread t[THREADS] = {0};
	pthread_t beside[3];
	int done = 0;

	producer = start("p-storm", &source);
	consumer = start("c-storm", &target);
	CHECK(pthread_create(&beside[0], NULL, collect, producer) == 0);
	CHECK(pthread_create(&beside[1], NULL, collect, consumer) == 0);
	CHECK(pthread_create(&beside[2], NULL, others, NULL) == 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		t[i].first = i * MINE;
		t[i].seed = i + 1;
		CHECK(pthread_create(&t[i].id, NULL, work, &t[i]) == 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(t[i].id, NULL);
		CHECK_INT(t[i].ended, 2 * ROUNDS);
		done += t[i].done;
	}
	CHECK(done > 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(beside[i], NULL);
	kvpipe_close(producer);
	kvpipe_close(consumer);
	kvpipe_close(NULL);
}

/* A session that is closed while its operations run takes them with it, at once; the other side is told. */
static void closed_in_the_middle(void)
{
	const uint32_t id = 3;
	const struct kvpipe_blocks b = {.ntokens = TOKENS, .count = 1, .ids = &id};
	struct kvpipe_completion c;
	kvpipe_op_t o, k;

	for (int i = 0; i < 10; i++) {
		struct kvpipe_offer_opts oo =
			KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
		                    .blocks = &b, .nblocks = 1, .after = 1 << 16);
		struct kvpipe_take_opts to = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN,
		                                         .token_len = 16, .blocks = &b, .nblocks = 1);
		producer = start("p-storm", &source);
		consumer = start("c-storm", &target);
		CHECK_INT(kvpipe_offer(producer, &oo, &o), 0);
		CHECK_INT(kvpipe_offer_seal(producer, o, WAIT), 0);
		CHECK_INT(kvpipe_take(consumer, &to, &k), 0);
		if (i % 2) {
			kvpipe_close(consumer);
			CHECK_INT(kvpipe_offer_withdraw(producer, o, WAIT, NULL), 0);
		} else {
			kvpipe_close(producer);
			CHECK_INT(kvpipe_wait(consumer, k, WAIT, &c), 0);
			CHECK(c.status == KVPIPE_FAILED &&
			      (c.reason == KVPIPE_E_PEER_GONE || c.reason == KVPIPE_E_EXPIRED));
			CHECK_INT(kvpipe_wait_released(consumer, k, WAIT), 0);
		}
		kvpipe_close(i % 2 ? producer : consumer);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {TEST(storm), TEST(closed_in_the_middle)};

	return RUN(tests);
}
