/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One hand-over, start to end: a "prefill" engine offers the KV blocks of a prompt, a "decode" engine takes them into
 * blocks of its own. Both are sessions of this one process here; in life they are two programs, on one node or two.
 *
 *   kvpiped --dev &
 *   build/bin/examples/handover
 */
#include <kvpipe.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small model: 4 layers, 2 kv heads, 64 bytes per token and head (head size 32, bf16), blocks of 16 tokens. */
enum { LAYERS = 4, HEADS = 2, HEAD_BYTES = 64, BLOCK_TOKENS = 16, BLOCKS = 256, PROMPT = 1000 };
enum { TOKEN_BYTES = HEADS * HEAD_BYTES, BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES };
enum { LAYER_BYTES = BLOCKS * BLOCK_BYTES, PROMPT_BLOCKS = (PROMPT + BLOCK_TOKENS - 1) / BLOCK_TOKENS };

struct engine {
	const char *name;
	kvpipe_t *kv;
	uint8_t *memory; /* layer after layer; each BLOCKS blocks */
	kvpipe_region_t region;
	uint32_t ids[PROMPT_BLOCKS]; /* which blocks hold the prompt */
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvpipe_strerror(rc), kvpipe_last_error());
	exit(1);
}

static void start(struct engine *e, const char *name)
{
	struct kvpipe_connect_opts opts =
		KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = name, .role = KVPIPE_ROLE_WORKER);
	/* Both sides name the same model, or the daemon refuses the take. */
	const struct kvpipe_field fingerprint[] = { { "model", "example" }, { "dtype", "bf16" } };
	struct kvpipe_view views[LAYERS];
	void *memory;

	e->name = name;
	check(kvpipe_connect(&opts, &e->kv), "connect");
	check(kvpipe_mem_alloc(e->kv, (uint64_t)LAYERS * LAYER_BYTES, 0, &memory, &e->region), "allocate");
	e->memory = memory;
	for (uint32_t l = 0; l < LAYERS; l++) {
		views[l] = (struct kvpipe_view){
			.region = e->region,
			.base = (uint64_t)l * LAYER_BYTES,
			.num_blocks = BLOCKS,
			.block_stride = BLOCK_BYTES,
			.token_stride = TOKEN_BYTES,
			.head_stride = HEAD_BYTES,
			.content_bytes = HEAD_BYTES,
			.layer = l,
			.kind = KVPIPE_VIEW_PAGED,
			.block_size = BLOCK_TOKENS,
			.heads = HEADS,
			.total_heads = HEADS,
			.part = "kv",
		};
	}
	check(kvpipe_set_layout(e->kv, views, LAYERS, fingerprint, 2), "set layout");
	printf("%s: session on node %s, instance %s, %d KiB registered\n", name, kvpipe_node(e->kv), kvpipe_instance(e->kv),
	       LAYERS * LAYER_BYTES / 1024);
}

/* Blocks as an allocator in use hands them out: no two neighbours. */
static void pick_blocks(struct engine *e, uint32_t step)
{
	for (uint32_t i = 0; i < PROMPT_BLOCKS; i++)
		e->ids[i] = (i * step + 3) % BLOCKS;
}

static uint8_t *token_at(const struct engine *e, uint32_t layer, uint32_t token)
{
	size_t block = e->ids[token / BLOCK_TOKENS];

	return e->memory + (size_t)layer * LAYER_BYTES + block * BLOCK_BYTES + token % BLOCK_TOKENS * (size_t)TOKEN_BYTES;
}

static uint8_t content(uint32_t layer, uint32_t token, uint32_t byte)
{
	return (uint8_t)(layer * 31 + token * 7 + byte * 3 + 1);
}

static void prefill(struct engine *e)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t t = 0; t < PROMPT; t++)
			for (uint32_t b = 0; b < TOKEN_BYTES; b++)
				token_at(e, l, t)[b] = content(l, t, b);
}

static uint64_t wrong_bytes(const struct engine *e)
{
	uint64_t wrong = 0;

	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t t = 0; t < PROMPT; t++)
			for (uint32_t b = 0; b < TOKEN_BYTES; b++)
				wrong += token_at(e, l, t)[b] != content(l, t, b);
	return wrong;
}

static void expect_done(kvpipe_t *kv, kvpipe_op_t op, const char *what, struct kvpipe_completion *c)
{
	check(kvpipe_wait(kv, op, KVPIPE_FOREVER, c), what); /* the operation has a deadline of its own */
	if (c->status != KVPIPE_DONE) {
		fprintf(stderr, "%s: %s: %s\n", what, kvpipe_strerror((int)c->reason), c->message);
		exit(1);
	}
}

int main(void)
{
	static const char key[] = "request-42";
	struct engine producer, consumer;
	struct kvpipe_completion c;
	kvpipe_op_t offer, take;
	uint8_t token[KVPIPE_MAX_TOKEN];
	uint32_t token_len = sizeof(token);

	start(&producer, "prefill-0");
	start(&consumer, "decode-0");
	pick_blocks(&producer, 37);
	pick_blocks(&consumer, 101);
	prefill(&producer);

	const struct kvpipe_blocks from = { .ntokens = PROMPT, .count = PROMPT_BLOCKS, .ids = producer.ids };
	struct kvpipe_offer_opts offer_opts = KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = sizeof(key) - 1,
							  .blocks = &from, .nblocks = 1, .flags = KVPIPE_OP_SEALED);
	check(kvpipe_offer(producer.kv, &offer_opts, &offer), "offer");
	check(kvpipe_offer_token(producer.kv, offer, token, &token_len), "token");
	printf("%s: offers %d tokens in %d blocks as \"%s\"\n", producer.name, PROMPT, PROMPT_BLOCKS, key);

	/* Key, token and, from another node, the peer's name travel with the request, through the proxy. */
	const struct kvpipe_blocks to = { .ntokens = PROMPT, .count = PROMPT_BLOCKS, .ids = consumer.ids };
	struct kvpipe_take_opts take_opts = KVPIPE_OPTS(kvpipe_take_opts, .key = key, .key_len = sizeof(key) - 1, .token = token,
							.token_len = token_len, .blocks = &to, .nblocks = 1);
	check(kvpipe_take(consumer.kv, &take_opts, &take), "take");
	expect_done(consumer.kv, take, "take", &c);
	printf("%s: took %" PRIu64 " bytes\n", consumer.name, c.bytes);
	expect_done(producer.kv, offer, "offer", &c);
	printf("%s: the offer is consumed, its blocks are free again\n", producer.name);

	uint64_t wrong = wrong_bytes(&consumer);
	printf("%s: %" PRIu64 " bytes differ\n", consumer.name, wrong);
	kvpipe_op_free(consumer.kv, take);
	kvpipe_op_free(producer.kv, offer);
	kvpipe_close(consumer.kv);
	kvpipe_close(producer.kv);
	if (wrong != 0)
		return 1;
	printf("handover: ok\n");
	return 0;
}
