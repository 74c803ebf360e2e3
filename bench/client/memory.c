/* Session, memory and layout of a bench client. */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "list.h"
#include "util.h"

static void must(const char *call, int code)
{
	if (code < 0)
		die("%s: %s (%s)", call, kvpipe_last_error(),
		    kvpipe_strerror(code));
}

/* One layer, one part, one head: a block is a run of tokens, without gaps in it
 * or between neighbouring blocks. */
static void describe(struct client *c, kvpipe_region_t region)
{
	uint64_t token = c->block / c->tokens;
	struct kvpipe_view view = {
		.region = region,
		.num_blocks = c->blocks,
		.block_stride = c->block,
		.token_stride = token,
		.head_stride = token,
		.content_bytes = token,
		.kind = KVPIPE_VIEW_PAGED,
		.block_size = (uint32_t)c->tokens,
		.heads = 1,
		.total_heads = 1,
		.part = "kv",
	};
	struct kvpipe_field model = {.key = "model", .value = "bench"};
	must("kvpipe_set_layout",
	     kvpipe_set_layout(c->kv, &view, 1, &model, 1));
}

static uint32_t *list(const struct client *c, uint64_t seed)
{
	if (!c->sequential)
		return list_draw(seed, c->blocks, c->blocks);
	uint32_t *ids = malloc(c->blocks * sizeof *ids);
	if (!ids)
		die("no memory for a list of %zu blocks", c->blocks);
	for (size_t i = 0; i < c->blocks; i++)
		ids[i] = (uint32_t)i;
	return ids;
}

void client_open(struct client *c)
{
	kvpipe_region_t region;
	void *base;
	must("kvpipe_connect",
	     kvpipe_connect(&KVPIPE_OPTS(kvpipe_connect_opts,
					 .socket = c->socket,
					 .engine_id = c->engine,
					 .cq_entries = c->completions,
					 .role = KVPIPE_ROLE_WORKER),
			    &c->kv));
	/* Ordinary pages, like those of the references. */
	must("kvpipe_mem_alloc",
	     kvpipe_mem_alloc(c->kv, c->blocks * c->block, KVPIPE_MEM_NO_HUGE,
			      &base, &region));
	memset(base, 1, c->blocks * c->block);
	c->base = base;
	c->from = list(c, c->seed);
	c->to = list(c, c->seed + LIST_DST);
	describe(c, region);
}
