/* Offers and takes of a bench client. */
#include <string.h>

#include "client.h"
#include "serve.h"
#include "util.h"

#define SECOND 1000000000ll
#define LEASE (120 * SECOND)
#define DEADLINE (60 * SECOND)

static const char token[] = "token-of-a-bench"; /* 16 bytes */

bool failed(const char *call, int code)
{
	serve_error("%s: %s (%s)", call, kvpipe_last_error(),
		    kvpipe_strerror(code));
	return false;
}

static bool ended_badly(const char *what, const struct kvpipe_completion *e)
{
	serve_error("%s ended with status %u: %s, %s", what, e->status,
		    kvpipe_strerror((int)e->reason), e->message);
	return false;
}

static struct kvpipe_blocks blocks_of(const struct client *c,
				      const uint32_t *ids, size_t n)
{
	return (struct kvpipe_blocks){.ntokens = (uint32_t)(n * c->tokens),
				      .count = (uint32_t)n,
				      .ids = ids};
}

static int submit_offer(struct client *c, const char *key, size_t first,
			size_t n, kvpipe_op_t *op)
{
	struct kvpipe_blocks b = blocks_of(c, c->from + first, n);
	return kvpipe_offer(c->kv,
			    &KVPIPE_OPTS(kvpipe_offer_opts, .key = key,
					 .key_len = (uint32_t)strlen(key),
					 .token = token, .token_len = 16,
					 .blocks = &b, .nblocks = 1,
					 .lease_ns = LEASE),
			    op);
}

bool offer_list(struct client *c, const char *key, size_t first, size_t n)
{
	if (c->noffers == MAX_SMALL) {
		serve_error("%d offers are not waited for yet", MAX_SMALL);
		return false;
	}
	kvpipe_op_t *op = &c->offers[c->noffers];
	int r = submit_offer(c, key, first, n, op);
	if (r < 0)
		return failed("kvpipe_offer", r);
	c->noffers++;
	/* Sealed in a call of its own, because that one is answered: afterwards
	 * a take finds the offer. */
	r = kvpipe_offer_seal(c->kv, *op, 5 * SECOND);
	return r < 0 ? failed("kvpipe_offer_seal", r) : true;
}

bool wait_offers(struct client *c)
{
	bool good = true;
	for (size_t i = 0; i < c->noffers; i++) {
		struct kvpipe_completion end = {0};
		int r = kvpipe_wait(c->kv, c->offers[i], DEADLINE, &end);
		if (good && r < 0)
			good = failed("kvpipe_wait for an offer", r);
		else if (good && end.status != KVPIPE_DONE)
			good = ended_badly("an offer", &end);
		kvpipe_op_free(c->kv, c->offers[i]);
	}
	c->noffers = 0;
	return good;
}

/* Polls without sleeping until op ends. */
static int spin_for(kvpipe_t *kv, kvpipe_op_t op, struct kvpipe_completion *end)
{
	uint64_t limit = now_ns() + (uint64_t)DEADLINE;
	for (unsigned turn = 1;; turn++) {
		int n = kvpipe_poll(kv, end, 1);
		if (n < 0)
			return n;
		if (n == 1 && end->op == op)
			return 0;
		if (turn % 4096 == 0 && now_ns() > limit)
			return -KVPIPE_E_TIMEOUT;
	}
}

bool take_list(struct client *c, const char *key, const char *peer,
	       size_t first, size_t n, bool spin, uint64_t *ns)
{
	struct kvpipe_blocks b = blocks_of(c, c->to + first, n);
	struct kvpipe_take_opts opts = KVPIPE_OPTS(
		kvpipe_take_opts, .key = key, .key_len = (uint32_t)strlen(key),
		.token = token, .token_len = 16, .peer = peer, .blocks = &b,
		.nblocks = 1, .timeout_ns = DEADLINE);
	struct kvpipe_completion end = {0};
	kvpipe_op_t op;
	uint64_t start = now_ns();
	int r = kvpipe_take(c->kv, &opts, &op);
	if (r < 0)
		return failed("kvpipe_take", r);
	r = spin ? spin_for(c->kv, op, &end)
		 : kvpipe_wait(c->kv, op, KVPIPE_FOREVER, &end);
	*ns = now_ns() - start;
	bool good = true;
	if (r < 0)
		good = failed("kvpipe_wait for a take", r);
	else if (end.status != KVPIPE_DONE)
		good = ended_badly("a take", &end);
	else if (end.flags & KVPIPE_C_MORE)
		kvpipe_wait_released(c->kv, op, DEADLINE);
	kvpipe_op_free(c->kv, op);
	return good;
}

bool watch_offer(struct client *c, const char *key)
{
	struct kvpipe_completion end = {0};
	kvpipe_op_t op;
	int r = kvpipe_watch(c->kv,
			     &KVPIPE_OPTS(kvpipe_key_opts, .key = key,
					  .key_len = (uint32_t)strlen(key),
					  .token = token, .token_len = 16,
					  .timeout_ns = 20 * SECOND),
			     &op);
	if (r < 0)
		return failed("kvpipe_watch", r);
	r = kvpipe_wait(c->kv, op, KVPIPE_FOREVER, &end);
	bool good = true;
	if (r < 0)
		good = failed("kvpipe_wait for a watch", r);
	else if (end.status != KVPIPE_DONE)
		good = ended_badly("a watch", &end);
	kvpipe_op_free(c->kv, op);
	return good;
}
