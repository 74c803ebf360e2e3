/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine to be killed: it hands KV over as fast as it can, and trusts nobody.
 *
 *   engine SOCKET prefill|decode ENGINE-ID CANCELS [SECONDS]
 *
 * Each word of a block says which request, layer, position and place it belongs to. A prefill engine writes and offers
 * requests, some of them bit by bit, and says "offer ID BLOCKS"; a decode engine is told "take ID BLOCKS PEER" and looks at
 * every word of what it got, but for CANCELS of a hundred that it cancels. Blocks that are released are overwritten at once:
 * what another side still reads of them, or still writes into them, is seen. It says, a line each:
 *   ok ID | failed ID REASON | cancelled ID   how a take ended
 *   wrong ID ... | late ID ... | hung ID ...  a broken promise
 *   idle                                      after "pause": nothing is under way
 *   piped ... | found ...                     items of a pipe and entries of a lookup buffer came; pipe.c and lookup.c say what else
 *   over REASON                               the session is lost for good; the engine ends
 * A take has 1.5 seconds, or SECONDS, and so has the lease of an offer.
 * "pipe WHAT" and "lookup WHAT" open the end of a pipe and of a lookup buffer (engine.h) beside that. "go" begins, "pause" lets all end
 * but these, which stay open when nothing is in them; "close" lets them end, too.
 */
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 2, BLOCKS = 256, BLOCK_TOKENS = 16, TOKEN_BYTES = 1024, BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES };
enum { LAYER_BYTES = BLOCKS * BLOCK_BYTES, WORDS = BLOCK_BYTES / 8, MOST = 48, OPS = 8 };

#define BOUND (1000 * MS) /* how much later than its deadline an end may come */
#define REST (30 * MS)	  /* how long a released block is watched for late bytes */

static const char token[] = "chaos-chaos-chaos";

struct work {
	enum { UNUSED, RUNNING, RELEASING, RESTING } state;
	kvpipe_op_t op;
	uint64_t id;
	int64_t due; /* RUNNING: when it must have ended, in fair time; RESTING: when its blocks are looked at again */
	uint32_t n, ids[MOST];
};

static kvpipe_t *kv;
static uint64_t *memory;
static bool used[BLOCKS], producing, pausing;
static uint32_t nfree = BLOCKS;
static struct work works[OPS];
static uint64_t state, serial, cancels;
static int64_t lease = 1000 * MS, take_time = 1500 * MS;

static uint64_t draw(uint64_t below)
{
	return mix(++state) % below;
}

static uint64_t *block(uint32_t layer, uint32_t id)
{
	return memory + ((size_t)layer * BLOCKS + id) * WORDS;
}

static uint64_t word(uint64_t id, uint32_t layer, uint32_t position, uint32_t place)
{
	return id * 0x9e3779b97f4a7c15u ^ (uint64_t)layer << 60 ^ (uint64_t)position << 32 ^ place;
}

static void fill(const struct work *w)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < w->n; i++)
			for (uint32_t k = 0; k < WORDS; k++)
				block(l, w->ids[i])[k] = word(w->id, l, i, k);
}

/* Finds the first word that is not the request's. */
static void verify(const struct work *w)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < w->n; i++)
			for (uint32_t k = 0; k < WORDS; k++)
				if (block(l, w->ids[i])[k] != word(w->id, l, i, k)) {
					say("wrong %" PRIx64 " layer %u, position %u of %u, word %u: %" PRIx64, w->id, l, i, w->n, k,
					    block(l, w->ids[i])[k]);
					return;
				}
	say("ok %" PRIx64, w->id);
}

static uint64_t scribble(const struct work *w) { return ~(w->id * 0xff51afd7ed558ccdu); }

/* The blocks are ours: whoever still writes to them will be seen, whoever reads them reads nonsense. */
static void rest(struct work *w)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < w->n; i++)
			for (uint32_t k = 0; k < WORDS; k++)
				block(l, w->ids[i])[k] = scribble(w);
	w->state = RESTING;
	w->due = now() + REST;
}

static void end_rest(struct work *w)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t i = 0; i < w->n; i++)
			for (uint32_t k = 0; k < WORDS; k++)
				if (block(l, w->ids[i])[k] != scribble(w)) {
					say("late %" PRIx64 " layer %u, position %u, word %u: %" PRIx64, w->id, l, i, k,
					    block(l, w->ids[i])[k]);
					l = LAYERS - 1, i = w->n - 1;
					break;
				}
	for (uint32_t i = 0; i < w->n; i++)
		used[w->ids[i]] = false;
	nfree += w->n;
	w->state = UNUSED;
}

static struct work *get_work(uint64_t id, uint32_t n)
{
	for (struct work *w = works; w < works + OPS; w++) {
		if (w->state != UNUSED || n > nfree)
			continue;
		w->id = id, w->n = n;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t b = (uint32_t)draw(BLOCKS);
			while (used[b])
				b = (b + 1) % BLOCKS;
			used[b] = true;
			w->ids[i] = b;
		}
		nfree -= n;
		return w;
	}
	return NULL;
}

static void put_work(struct work *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		used[w->ids[i]] = false;
	nfree += w->n;
	w->state = UNUSED;
}

/* What cannot be submitted now, because the daemon is away or the queue is full, is not begun. */
static bool began(struct work *w, int rc)
{
	if (rc == 0) {
		w->state = RUNNING;
		return true;
	}
	put_work(w);
	if (rc == -KVPIPE_E_CLOSED)
		over(rc);
	return false;
}

/* An offer may grow by a block at a time, and is sealed with the last. */
static int extend(const struct work *w, uint32_t from)
{
	int rc = 0;

	for (uint32_t i = from; i < w->n && rc == 0; i++) {
		const struct kvpipe_blocks more = {
			.first_token = i * BLOCK_TOKENS, .ntokens = BLOCK_TOKENS, .count = 1, .ids = w->ids + i
		};
		const struct kvpipe_extend_opts opts = KVPIPE_OPTS(kvpipe_extend_opts, .blocks = &more, .nblocks = 1,
								   .flags = i + 1 == w->n ? KVPIPE_OP_SEALED : 0);
		rc = kvpipe_offer_extend(kv, w->op, &opts, KVPIPE_NOWAIT);
	}
	return rc;
}

static void offer(void)
{
	uint64_t id = (uint64_t)getpid() << 24 | ++serial;
	struct work *w = get_work(id, 1 + (uint32_t)draw(draw(2) ? 2 : MOST));
	char key[32];

	if (w == NULL)
		return;
	fill(w);
	uint32_t whole = draw(2) ? w->n : (uint32_t)draw(w->n); /* what it begins with */
	const struct kvpipe_blocks blocks = { .ntokens = whole * BLOCK_TOKENS, .count = whole, .ids = w->ids };
	struct kvpipe_offer_opts opts = KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .token = token, .token_len = sizeof(token) - 1,
						    .blocks = &blocks, .nblocks = whole > 0, .lease_ns = lease,
						    .flags = whole == w->n ? KVPIPE_OP_SEALED : 0);
	opts.key_len = (uint32_t)snprintf(key, sizeof(key), "%" PRIx64, id);
	w->due = INT64_MAX; /* its lease is renewed as long as somebody is interested */
	if (!began(w, kvpipe_offer(kv, &opts, &w->op)))
		return;
	say("offer %s %u", key, w->n);
	/* One that cannot be finished is of no use to anybody. */
	if (extend(w, whole) != 0 && kvpipe_offer_withdraw(kv, w->op, take_time, NULL) == -KVPIPE_E_CLOSED)
		over(-KVPIPE_E_CLOSED);
}

static void take(uint64_t id, uint32_t n, const char *peer)
{
	struct work *w = get_work(id, n);
	char key[32];

	if (w == NULL) {
		say("failed %" PRIx64 " no room", id);
		return;
	}
	const struct kvpipe_blocks blocks = { .ntokens = n * BLOCK_TOKENS, .count = n, .ids = w->ids };
	struct kvpipe_take_opts opts = KVPIPE_OPTS(kvpipe_take_opts, .key = key, .token = token, .token_len = sizeof(token) - 1,
						   .peer = peer, .blocks = &blocks, .nblocks = 1, .timeout_ns = take_time);
	opts.key_len = (uint32_t)snprintf(key, sizeof(key), "%" PRIx64, id);
	w->due = fair() + take_time + BOUND;
	if (!began(w, kvpipe_take(kv, &opts, &w->op))) {
		say("failed %s not submitted", key);
		return;
	}
	if (draw(100) >= cancels)
		return;
	for (int64_t until = now() + (int64_t)draw(MS / 4); now() < until;)
		; /* let some bytes flow */
	int reusable = 0;
	int rc = kvpipe_cancel(kv, w->op, take_time, &reusable);
	if (rc == -KVPIPE_E_CLOSED)
		over(rc);
}

static void ended(struct work *w, const struct kvpipe_completion *c)
{
	if (c->status == KVPIPE_QUARANTINED)
		return;
	if (c->status != KVPIPE_RELEASED) {
		if (w->due == INT64_MAX) { /* an offer: how it ended is its taker's to say */
			if (c->reason == KVPIPE_E_RESTARTED)
				say("wrong %" PRIx64 ": offers survive their daemon: %s", w->id, c->message);
		} else if (c->status == KVPIPE_DONE) {
			verify(w);
		} else if (c->status == KVPIPE_CANCELLED) {
			say("cancelled %" PRIx64, w->id);
		} else {
			say("failed %" PRIx64 " %s: %s", w->id, kvpipe_strerror((int)c->reason), c->message);
		}
		if (c->flags & KVPIPE_C_MORE) {
			w->state = RELEASING;
			return;
		}
	}
	kvpipe_op_free(kv, w->op);
	rest(w);
}

static void collect(void)
{
	struct kvpipe_completion c[16];
	int n;

	while ((n = kvpipe_poll(kv, c, 16)) > 0)
		for (int i = 0; i < n; i++)
			for (struct work *w = works; w < works + OPS; w++)
				if ((w->state == RUNNING || w->state == RELEASING) && w->op == c[i].op) {
					ended(w, &c[i]);
					break;
				}
	if (n < 0)
		over(n);
}

/* Looks at the clock once all that was there has been collected. */
static bool look(void)
{
	bool busy = false;
	int64_t t = now();

	collect();
	for (struct work *w = works; w < works + OPS; w++) {
		if (w->state == RESTING && t >= w->due)
			end_rest(w);
		if (w->state == RUNNING && fair() > w->due) {
			say("hung %" PRIx64 ": no end %lld ms after its deadline", w->id, (long long)((fair() - w->due + BOUND) / MS));
			w->due = INT64_MAX - 1;
		}
		busy |= w->state != UNUSED;
	}
	return busy;
}

/* Offers that nobody takes any more need not wait for the end of their lease. */
static void pause_all(void)
{
	producing = false, pausing = true;
	for (struct work *w = works; w < works + OPS; w++)
		if (w->state == RUNNING && w->due == INT64_MAX && kvpipe_offer_withdraw(kv, w->op, take_time, NULL) == -KVPIPE_E_CLOSED)
			over(-KVPIPE_E_CLOSED);
}

static void command(char *line)
{
	uint64_t id;
	uint32_t n;
	char peer[64] = "";

	if (sscanf(line, "take %" SCNx64 " %u %63s", &id, &n, peer) >= 2)
		take(id, n, peer);
	else if (strcmp(line, "go") == 0)
		producing = true, pausing = false, ends_go();
	else if (strcmp(line, "pause") == 0)
		pause_all(), ends_pause(false);
	else if (strcmp(line, "close") == 0)
		pause_all(), ends_pause(true);
	else
		ends_begin(kv, line);
}

/* Reads what there is; false at the end. */
static bool commands(void)
{
	static char buf[65536];
	static size_t have;
	ssize_t n = read(0, buf + have, sizeof(buf) - have);

	if (n == 0)
		return false;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	have += (size_t)n;
	char *line = buf, *end;
	while ((end = memchr(line, '\n', have - (size_t)(line - buf))) != NULL) {
		*end = '\0';
		command(line);
		line = end + 1;
	}
	have -= (size_t)(line - buf);
	memmove(buf, line, have);
	return true;
}

static void start(const char *socket, const char *name)
{
	struct kvpipe_connect_opts opts = KVPIPE_OPTS(kvpipe_connect_opts, .socket = socket, .engine_id = name, .role = KVPIPE_ROLE_WORKER,
						      .timeout_ns = 30000 * MS);
	const struct kvpipe_field fingerprint[] = { { "model", "chaos" } };
	struct kvpipe_view views[LAYERS];
	kvpipe_region_t region;
	void *addr;
	int rc;

	/* While the daemon is being restarted there is none. */
	for (int64_t until = now() + 30000 * MS; (rc = kvpipe_connect(&opts, &kv)) == -KVPIPE_E_UNAVAILABLE && now() < until;)
		poll(NULL, 0, 5);
	if (rc < 0 || (rc = kvpipe_mem_alloc(kv, (uint64_t)LAYERS * LAYER_BYTES, 0, &addr, &region)) < 0)
		over(rc);
	memory = addr;
	for (uint32_t l = 0; l < LAYERS; l++)
		views[l] = (struct kvpipe_view){ .region = region, .base = (uint64_t)l * LAYER_BYTES, .num_blocks = BLOCKS,
						 .block_stride = BLOCK_BYTES, .token_stride = TOKEN_BYTES, .head_stride = TOKEN_BYTES,
						 .content_bytes = TOKEN_BYTES, .layer = l, .kind = KVPIPE_VIEW_PAGED,
						 .block_size = BLOCK_TOKENS, .heads = 1, .total_heads = 1, .part = "kv" };
	if ((rc = kvpipe_set_layout(kv, views, LAYERS, fingerprint, 1)) < 0)
		over(rc);
}

int main(int argc, char **argv)
{
	if (argc != 5 && argc != 6) {
		fprintf(stderr, "usage: engine SOCKET prefill|decode ENGINE-ID CANCELS\n");
		return 2;
	}
	bool prefill = strcmp(argv[2], "prefill") == 0;
	cancels = strtoul(argv[4], NULL, 10);
	if (argc == 6)
		lease = take_time = strtoll(argv[5], NULL, 10) * 1000 * MS;
	state = (uint64_t)getpid() * 2654435761u;
	start(argv[1], argv[3]);
	fcntl(0, F_SETFL, O_NONBLOCK);
	say("ready");
	for (;;) {
		struct pollfd fds[] = { { .fd = 0, .events = POLLIN }, { .fd = kvpipe_fd(kv), .events = POLLIN } };

		nap(fds, 2);
		if (fds[0].revents != 0 && !commands())
			break;
		if (prefill && producing)
			offer();
		calls_look();
		if (!look() && pausing && ends_idle()) {
			pausing = false;
			say("idle");
		}
	}
	ends_stop();
	kvpipe_close(kv);
	return 0;
}
