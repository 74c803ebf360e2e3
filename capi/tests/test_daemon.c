/* SPDX-License-Identifier: Apache-2.0 */
/* needs: daemon */
/* The library against a real kvpiped. */
#include "check.h"
#include "internal.h"

#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT (60 * KV_SEC)
#define TOKEN "0123456789abcdef"
#define SAVED 0xffff

enum { LAYERS = 3, BLOCKS = 64, BLOCK_TOKENS = 16, TOKEN_BYTES = 256, BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES };
enum { LAYER_BYTES = BLOCKS * BLOCK_BYTES, LIST = 20 };

struct engine {
	kvpipe_t *kv;
	uint8_t *memory;
	kvpipe_region_t region;
	uint32_t ids[LIST];
};

static struct engine start(const char *id, uint32_t rank, uint32_t world, uint32_t first_id)
{
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = id, .role = KVPIPE_ROLE_WORKER,
						   .tp_rank = rank, .tp_world = world);
	const struct kvpipe_field field = { "model", "test" };
	struct kvpipe_view v[LAYERS];
	struct engine e;
	void *memory;

	CHECK_INT(kvpipe_connect(&o, &e.kv), 0);
	CHECK_INT(kvpipe_mem_alloc(e.kv, LAYERS * LAYER_BYTES, 0, &memory, &e.region), 0);
	e.memory = memory;
	for (uint32_t l = 0; l < LAYERS; l++) {
		v[l] = (struct kvpipe_view){
			.region = e.region,
			.base = (uint64_t)l * LAYER_BYTES,
			.num_blocks = BLOCKS,
			.block_stride = BLOCK_BYTES,
			.token_stride = TOKEN_BYTES,
			.head_stride = TOKEN_BYTES,
			.content_bytes = TOKEN_BYTES,
			.layer = l * 10,
			.kind = KVPIPE_VIEW_PAGED,
			.block_size = BLOCK_TOKENS,
			.first_head = rank,
			.heads = 1,
			.total_heads = world,
			.part = "kv",
		};
	}
	CHECK_INT(kvpipe_set_layout(e.kv, v, LAYERS, &field, 1), 0);
	for (uint32_t i = 0; i < LIST; i++)
		e.ids[i] = (first_id + i * 7) % BLOCKS;
	return e;
}

static void fill(const struct engine *e, uint8_t seed)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < LIST; i++)
			memset(e->memory + l * LAYER_BYTES + e->ids[i] * BLOCK_BYTES, (int)(seed + l * 50 + i), BLOCK_BYTES);
}

static void verify(const struct engine *e, uint8_t seed)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < LIST; i++)
			for (uint32_t b = 0; b < BLOCK_BYTES; b++)
				CHECK_INT(e->memory[l * LAYER_BYTES + e->ids[i] * BLOCK_BYTES + b], (uint8_t)(seed + l * 50 + i));
}

static kvpipe_op_t offer(const struct engine *e, const char *key, uint64_t after)
{
	const struct kvpipe_blocks b = { .ntokens = LIST * BLOCK_TOKENS, .count = LIST, .ids = e->ids };
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN,
						 .token_len = 16, .blocks = &b, .nblocks = 1, .flags = KVPIPE_OP_SEALED,
						 .after = after, .tag = 5);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_offer(e->kv, &o, &op), 0);
	return op;
}

static kvpipe_op_t take_with(const struct engine *e, const char *key, const char *token, uint32_t flags, int64_t timeout_ns)
{
	const struct kvpipe_blocks b = { .ntokens = LIST * BLOCK_TOKENS, .count = LIST, .ids = e->ids };
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = token,
						.token_len = 16, .blocks = &b, .nblocks = 1, .flags = flags, .tag = 6,
						.timeout_ns = timeout_ns);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_take(e->kv, &o, &op), 0);
	return op;
}

static kvpipe_op_t take(const struct engine *e, const char *key)
{
	return take_with(e, key, TOKEN, 0, 0);
}

static void ends(kvpipe_t *kv, kvpipe_op_t op, uint32_t status, uint32_t reason, const char *words)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	if (c.status != status || c.reason != reason)
		FAIL("operation ended %u, reason %u (%s), want %u, %u", c.status, c.reason, c.message, status, reason);
	CHECK_HAS(c.message, words);
	if ((c.flags & KVPIPE_C_MORE) != 0)
		CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	CHECK_INT(kvpipe_op_released(kv, op), 1);
	kvpipe_op_free(kv, op);
}

static void hand_over(void)
{
	struct engine p = start("p-hand", 0, 1, 0), c = start("c-hand", 0, 1, 5);

	for (uint8_t i = 0; i < 20; i++) {
		fill(&p, i);
		memset(c.memory, 0, LAYERS * LAYER_BYTES);
		/* In either order. */
		const char key[] = { 'k', (char)('a' + i), '\0' };
		kvpipe_op_t t = i % 2 ? take(&c, key) : 0, o = offer(&p, key, 0);
		if (t == 0)
			t = take(&c, key);
		ends(c.kv, t, KVPIPE_DONE, 0, "");
		verify(&c, i);
		ends(p.kv, o, KVPIPE_DONE, 0, "");
	}
	CHECK_INT(kvpipe_mem_unregister(c.kv, c.region, 0), 0);
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

static void refusals(void)
{
	struct engine p = start("p-ref", 0, 1, 0), c = start("c-ref", 0, 1, 5);
	int reusable = -1;

	kvpipe_op_t o = offer(&p, "ref", 0);
	ends(c.kv, take_with(&c, "ref", "fedcba9876543210", 0, 0), KVPIPE_FAILED, KVPIPE_E_DENIED, "token");
	kvpipe_op_t layered = take_with(&c, "ref", "fedcba9876543210", KVPIPE_OP_LAYERED, 0);
	CHECK_FAILS(kvpipe_wait_layer(c.kv, layered, 0, WAIT), KVPIPE_E_DENIED, "failed: key \"ref\": wrong token");
	ends(c.kv, layered, KVPIPE_FAILED, KVPIPE_E_DENIED, "wrong token");
	struct engine bad = c;
	bad.ids[3] = BLOCKS;
	ends(c.kv, take(&bad, "ref"), KVPIPE_FAILED, KVPIPE_E_INVALID, "64");
	bad.ids[3] = bad.ids[2];
	ends(c.kv, take(&bad, "ref"), KVPIPE_FAILED, KVPIPE_E_INVALID, "");
	CHECK_INT(kvpipe_offer_withdraw(p.kv, o, 0, &reusable), 0);
	CHECK_INT(reusable, 1);
	ends(p.kv, o, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	CHECK_FAILS(kvpipe_offer_seal(p.kv, o, 0), KVPIPE_E_NOT_FOUND, "not an offer");

	/* Nobody offers: cancelled, and the blocks are free at once. */
	kvpipe_op_t t = take(&c, "nobody-offers-this");
	CHECK_INT(kvpipe_cancel(c.kv, t, 0, &reusable), 0);
	CHECK_INT(reusable, 1);
	ends(c.kv, t, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	ends(c.kv, take_with(&c, "nobody", TOKEN, 0, 50 * KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "");

	/* A closed producer's offers do not linger when it says goodbye. */
	struct engine later = start("p-later", 0, 1, 0);
	kvpipe_close(later.kv);
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

static void extend_in_layers(void)
{
	struct engine p = start("p-lay", 0, 1, 0), c = start("c-lay", 0, 1, 5);
	struct kvpipe_offer_opts oo =
		KVPIPE_OPTS(kvpipe_offer_opts, .key = "lay", .key_len = 3, .token = TOKEN, .token_len = 16, .tag = 9);
	const struct kvpipe_blocks b = { .ntokens = LIST * BLOCK_TOKENS, .count = LIST, .ids = p.ids };
	const uint64_t step = 7 << 16;
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .blocks = &b, .nblocks = 1, .after = step,
						  .flags = KVPIPE_OP_LAYERED | KVPIPE_OP_SEALED);
	kvpipe_op_t o;

	fill(&p, 1);
	CHECK_INT(kvpipe_offer(p.kv, &oo, &o), 0);
	CHECK_INT(kvpipe_offer_extend(p.kv, o, &x, 0), 0);
	kvpipe_op_t t = take_with(&c, "lay", TOKEN, KVPIPE_OP_LAYERED, 0);
	for (uint32_t l = 0; l < LAYERS; l++) {
		CHECK_FAILS(kvpipe_wait_layer(c.kv, t, l * 10, KV_MS), KVPIPE_E_TIMEOUT, "not in place yet");
		CHECK_INT(kvpipe_progress(p.kv, step | (l + 1)), 0);
		CHECK_INT(kvpipe_wait_layer(c.kv, t, l * 10, WAIT), 0);
	}
	ends(c.kv, t, KVPIPE_DONE, 0, "");
	verify(&c, 1);
	ends(p.kv, o, KVPIPE_DONE, 0, "");
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

/* A scheduler takes for two ranks; each of them gets its completion. */
static void scheduler(void)
{
	struct engine p[2] = { start("p-sch", 0, 2, 0), start("p-sch", 1, 2, 0) };
	struct engine c[2] = { start("c-sch", 0, 2, 5), start("c-sch", 1, 2, 5) };
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = "p-sch", .role = KVPIPE_ROLE_SCHEDULER, .tp_world = 2);
	struct engine ps = p[0], cs = c[0];

	CHECK_INT(kvpipe_connect(&o, &ps.kv), 0);
	o.engine_id = "c-sch";
	CHECK_INT(kvpipe_connect(&o, &cs.kv), 0);
	CHECK_INT(strcmp(kvpipe_instance(cs.kv), kvpipe_instance(c[0].kv)), 0);
	fill(&p[0], 1);
	fill(&p[1], 2);
	kvpipe_op_t offered = offer(&ps, "sch", 0), taken = take(&cs, "sch");
	ends(cs.kv, taken, KVPIPE_DONE, 0, "");
	ends(ps.kv, offered, KVPIPE_DONE, 0, "");
	for (int i = 0; i < 2; i++) {
		struct kvpipe_completion got;
		struct pollfd fd = { .fd = kvpipe_fd(c[i].kv), .events = POLLIN };
		CHECK(poll(&fd, 1, 60000) == 1);
		CHECK_INT(kvpipe_poll(c[i].kv, &got, 1), 1);
		CHECK(got.op == 0 && got.tag == 6 && got.flags == KVPIPE_C_FOREIGN && got.status == KVPIPE_DONE);
		CHECK_INT(got.rank, i);
		verify(&c[i], (uint8_t)(i + 1));
	}
	kvpipe_close(ps.kv);
	kvpipe_close(cs.kv);
	for (int i = 0; i < 2; i++) {
		kvpipe_close(p[i].kv);
		kvpipe_close(c[i].kv);
	}
}

static void keys(void)
{
	struct engine p = start("p-key", 0, 1, 0), c = start("c-key", 0, 1, 5);
	struct kvpipe_key_opts k = KVPIPE_OPTS(kvpipe_key_opts, .key = "key", .key_len = 3, .token = TOKEN, .token_len = 16);
	kvpipe_op_t o = offer(&p, "key", 0), w, d;

	k.timeout_ns = WAIT;
	CHECK_INT(kvpipe_watch(c.kv, &k, &w), 0);
	ends(c.kv, w, KVPIPE_DONE, 0, "");
	k.timeout_ns = 0;
	CHECK_INT(kvpipe_drop(c.kv, &k, &d), 0);
	ends(c.kv, d, KVPIPE_DONE, 0, "");
	struct kvpipe_completion e;
	CHECK_INT(kvpipe_wait(p.kv, o, WAIT, &e), 0); /* nobody else needs it */
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

struct worker {
	struct engine *p, *c;
	int number;
};

static void *many(void *arg)
{
	struct worker *w = arg;
	struct engine p = *w->p, c = *w->c;
	char key[16];

	/* Blocks of one's own: 20 of 64 for three threads. */
	for (uint32_t i = 0; i < LIST; i++)
		p.ids[i] = c.ids[i] = (uint32_t)w->number * LIST + i;
	for (int i = 0; i < 50; i++) {
		snprintf(key, sizeof(key), "%d-%d", w->number, i);
		fill(&p, (uint8_t)i);
		kvpipe_op_t o = offer(&p, key, 0);
		ends(c.kv, take(&c, key), KVPIPE_DONE, 0, "");
		verify(&c, (uint8_t)i);
		ends(p.kv, o, KVPIPE_DONE, 0, "");
	}
	return NULL;
}

static void threads(void)
{
	struct engine p = start("p-thr", 0, 1, 0), c = start("c-thr", 0, 1, 5);
	struct worker w[3];
	pthread_t t[3];

	for (int i = 0; i < 3; i++) {
		w[i] = (struct worker){ &p, &c, i };
		CHECK(pthread_create(&t[i], NULL, many, &w[i]) == 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

/* A process that dies in the middle leaves nothing behind that its successor could notice. */
static void killed(void)
{
	int pipes[2], status;
	char ready;

	CHECK(pipe(pipes) == 0);
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			struct engine e = start("p-kill", 0, 1, 0);
			take(&e, "nobody");
			CHECK(write(pipes[1], "x", 1) == 1);
			for (;;)
				pause();
		}
		CHECK(read(pipes[0], &ready, 1) == 1);
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	}
	close(pipes[0]);
	close(pipes[1]);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(killed), TEST(hand_over), TEST(refusals), TEST(extend_in_layers), TEST(scheduler), TEST(keys), TEST(threads),
	};
	return RUN(tests);
}
