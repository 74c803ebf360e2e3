/* SPDX-License-Identifier: Apache-2.0 */
/* needs: daemon */
/* What callers get wrong, within one node and between two: the reason code, and the words that say what to do. */
#include "check.h"
#include "internal.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT (60 * KV_SEC)
#define TOKEN "0123456789abcdef"

enum { BLOCKS = 8, BLOCK_TOKENS = 16, TOKEN_BYTES = 64, BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES };

struct engine {
	kvpipe_t *kv;
	kvpipe_region_t region;
	const char *peer; /* of its takes */
};

static struct engine start(const char *socket, const char *id, const char *model)
{
	struct kvpipe_connect_opts o =
		KVPIPE_OPTS(kvpipe_connect_opts, .socket = socket, .engine_id = id, .role = KVPIPE_ROLE_WORKER);
	const struct kvpipe_field field = {"model", model};
	struct engine e = {.peer = NULL};
	void *memory;

	CHECK_INT(kvpipe_connect(&o, &e.kv), 0);
	CHECK_INT(kvpipe_mem_alloc(e.kv, BLOCKS * BLOCK_BYTES, 0, &memory, &e.region), 0);
	const struct kvpipe_view v = {
		.region = e.region,
		.num_blocks = BLOCKS,
		.block_stride = BLOCK_BYTES,
		.token_stride = TOKEN_BYTES,
		.head_stride = TOKEN_BYTES,
		.content_bytes = TOKEN_BYTES,
		.kind = KVPIPE_VIEW_PAGED,
		.block_size = BLOCK_TOKENS,
		.heads = 1,
		.total_heads = 1,
		.part = "kv",
	};
	CHECK_INT(kvpipe_set_layout(e.kv, &v, 1, &field, 1), 0);
	return e;
}

/* What one operation is about; 0 means the usual. */
struct how {
	const char *token, *peer;
	uint32_t ids[4], n, tokens;
	int64_t ms;
	uint64_t after;
};

static struct kvpipe_blocks list(const struct how *h)
{
	static const uint32_t one[] = {1};

	return (struct kvpipe_blocks){.ntokens = h->tokens ? h->tokens : (h->n ? h->n : 1) * BLOCK_TOKENS,
	                              .count = h->n ? h->n : 1,
	                              .ids = h->n ? h->ids : one};
}

static kvpipe_op_t offer(const struct engine *e, const char *key, struct how h)
{
	const struct kvpipe_blocks b = list(&h);
	struct kvpipe_offer_opts o =
		KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN,
	                    .token_len = 16, .blocks = &b, .nblocks = 1, .after = h.after, .lease_ns = h.ms * KV_MS);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_offer(e->kv, &o, &op), 0);
	(void)kvpipe_offer_seal(e->kv, op, WAIT); /* once it answers, the offer is there */
	return op;
}

static kvpipe_op_t take(const struct engine *e, const char *key, struct how h)
{
	const struct kvpipe_blocks b = list(&h);
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = key, .key_len = (uint32_t)strlen(key),
	                                        .token = h.token ? h.token : TOKEN, .token_len = 16, .blocks = &b,
	                                        .nblocks = 1, .peer = h.peer ? h.peer : e->peer, .after = h.after,
	                                        .timeout_ns = (h.ms ? h.ms : 5000) * KV_MS);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_take(e->kv, &o, &op), 0);
	return op;
}

static void ends(kvpipe_t *kv, kvpipe_op_t op, uint32_t status, uint32_t reason, const char *words)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	if (c.status != status || c.reason != reason)
		FAIL("operation ended %u, reason %u (%s), want %u, %u", c.status, c.reason, c.message, status, reason);
	if (status != KVPIPE_DONE && strstr(c.message, TOKEN) != NULL)
		FAIL("\"%s\" shows a token", c.message);
	/* Words are separated by '|'. */
	char all[256], *save = NULL;
	snprintf(all, sizeof(all), "%s", words);
	for (char *w = strtok_r(all, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save))
		CHECK_HAS(c.message, w);
	CHECK_INT(kvpipe_wait_released(kv, op, WAIT), 0);
	kvpipe_op_free(kv, op);
}

static void refused(kvpipe_t *kv, kvpipe_op_t op, uint32_t reason, const char *words)
{
	ends(kv, op, KVPIPE_FAILED, reason, words);
}

static void withdrawn(const struct engine *e, kvpipe_op_t o)
{
	int reusable = 0;

	CHECK_INT(kvpipe_offer_withdraw(e->kv, o, WAIT, &reusable), 0);
	CHECK_INT(reusable, 1);
	ends(e->kv, o, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "withdrawn");
}

/*
 * Runs an operation until the daemon ends it because its time is over. A daemon that gets no processor for half a second cannot do that: the
 * library ends the operation with "does not answer", and it is tried again.
 */
static kvpipe_op_t runs_out(const struct engine *e, kvpipe_op_t (*ask)(const struct engine *, const char *, struct how), const char *key,
                            struct how h)
{
	struct kvpipe_completion c;

	for (int tries = 1;; tries++) {
		kvpipe_op_t op = ask(e, key, h);
		CHECK_INT(kvpipe_wait(e->kv, op, WAIT, &c), 0);
		if (tries == 10 || strstr(c.message, "does not answer") == NULL)
			return op;
		CHECK_INT(kvpipe_wait_released(e->kv, op, WAIT), 0);
		kvpipe_op_free(e->kv, op);
	}
}

static void offers_that_are_not_there(struct engine *p, struct engine *c)
{
	refused(c->kv, runs_out(c, take, "unheard-of", (struct how){.ms = 1500}), KVPIPE_E_TIMEOUT, "\"unheard-of\"|check key and peer"); /* the nodes meet within this time */
	kvpipe_op_t o = runs_out(p, offer, "short", (struct how){.ms = 30});
	refused(p->kv, o, KVPIPE_E_EXPIRED, "\"short\"|lease of 30ms");
	refused(c->kv, take(c, "short", (struct how){0}), KVPIPE_E_EXPIRED, "\"short\"|expired|new request");
	withdrawn(p, offer(p, "back", (struct how){0}));
	refused(c->kv, take(c, "back", (struct how){0}), KVPIPE_E_EXPIRED, "\"back\"|was withdrawn");
	o = offer(p, "once", (struct how){0});
	ends(c->kv, take(c, "once", (struct how){0}), KVPIPE_DONE, 0, "");
	ends(p->kv, o, KVPIPE_DONE, 0, "");
	refused(c->kv, take(c, "once", (struct how){0}), KVPIPE_E_EXPIRED, "\"once\"|was consumed");
}

static kvpipe_op_t nothing_yet(const struct engine *e, const char *key, struct how h)
{
	const struct kvpipe_offer_opts o =
		KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = (uint32_t)strlen(key), .lease_ns = h.ms * KV_MS);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_offer(e->kv, &o, &op), 0);
	return op;
}

/* What still waits to be added to an offer that has ended. */
static void too_late(struct engine *p, struct engine *c)
{
	const struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	kvpipe_op_t o = runs_out(p, nothing_yet, "grows", (struct how){.ms = 30});

	CHECK_FAILS(kvpipe_offer_extend(p->kv, o, &x, WAIT), KVPIPE_E_EXPIRED, "key \"grows\": its lease of 30ms ran out");
	o = offer(p, "used", (struct how){0});
	ends(c->kv, take(c, "used", (struct how){0}), KVPIPE_DONE, 0, "");
	CHECK_INT(kvpipe_wait(p->kv, o, WAIT, NULL), 0);
	CHECK_FAILS(kvpipe_offer_seal(p->kv, o, WAIT), KVPIPE_E_EXPIRED, "the offer of key \"used\" has ended: it was consumed");
}

static void what_does_not_agree(struct engine *p, struct engine *c, const char *socket)
{
	kvpipe_op_t o = offer(p, "k", (struct how){0});
	struct engine other = start(socket, "other-model", "other");

	other.peer = c->peer;
	refused(c->kv, take(c, "k", (struct how){.token = "fedcba9876543210"}), KVPIPE_E_DENIED, "\"k\"|wrong token");
	refused(other.kv, take(&other, "k", (struct how){0}), KVPIPE_E_INCOMPATIBLE, "\"model\"|\"test\"|\"other\"");
	refused(c->kv, take(c, "k", (struct how){.ids = {1, BLOCKS}, .n = 2}), KVPIPE_E_INVALID,
	        "id 8|position 1|8 blocks");
	refused(c->kv, take(c, "k", (struct how){.ids = {3, 3}, .n = 2}), KVPIPE_E_INVALID, "id 3|positions 0 and 1");
	refused(c->kv, take(c, "k", (struct how){.ids = {3, 4}, .n = 2, .tokens = 16}), KVPIPE_E_INVALID,
	        "2 ids|need 1");
	refused(c->kv, take(c, "k", (struct how){.ids = {3, 4}, .n = 2}), KVPIPE_E_NOT_FOUND,
	        "\"k\"|block 4 of group 0");
	refused(p->kv, offer(p, "k", (struct how){.ids = {2}, .n = 1}), KVPIPE_E_BUSY, "\"k\"|withdraw");
	withdrawn(p, o);
	kvpipe_close(other.kv);
}

static void holds(struct engine *p, struct engine *c)
{
	kvpipe_op_t o = offer(p, "held", (struct how){0}), t = take(c, "never", (struct how){0});
	int reusable = 0;

	refused(p->kv, take(p, "x", (struct how){.peer = ""}), KVPIPE_E_BUSY,
	        "block 1 of group 0|is offered|wait until");
	refused(c->kv, take(c, "held", (struct how){0}), KVPIPE_E_BUSY,
	        "block 1 of group 0|written by a take|wait until");
	refused(c->kv, offer(c, "x", (struct how){0}), KVPIPE_E_BUSY,
	        "block 1 of group 0|written by a take|wait until");
	CHECK_INT(kvpipe_cancel(c->kv, t, WAIT, &reusable), 0);
	CHECK_INT(reusable, 1);
	ends(c->kv, t, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "cancelled");
	withdrawn(p, o);
}

static void peers_and_deadlines(struct engine *p, struct engine *c)
{
	refused(c->kv, take(c, "k", (struct how){.peer = "nowhere"}), KVPIPE_E_NOT_FOUND,
	        "\"nowhere\"|peers.nodes|peers.allow");
	refused(c->kv, take(c, "k", (struct how){.peer = "10.1.2.3:7650"}), KVPIPE_E_DENIED,
	        "\"10.1.2.3:7650\"|peers.allow");
	refused(c->kv, runs_out(c, take, "k", (struct how){.peer = "127.0.0.1:1", .ms = 200}), KVPIPE_E_PEER_GONE,
	        "\"127.0.0.1:1\"|200ms");
	kvpipe_op_t o = offer(p, "unready", (struct how){.after = 1 << 16});
	refused(c->kv, runs_out(c, take, "unready", (struct how){.ms = 200}), KVPIPE_E_TIMEOUT, "\"unready\"|200ms|progress");
	withdrawn(p, o);
}

static void regions_gone(struct engine *p, struct engine *c)
{
	kvpipe_op_t t = take(c, "later", (struct how){0});

	CHECK_INT(kvpipe_mem_unregister(c->kv, c->region, WAIT), 0);
	refused(c->kv, t, KVPIPE_E_NOT_FOUND, "region 0x|unregistered");
	refused(c->kv, take(c, "later", (struct how){0}), KVPIPE_E_NOT_FOUND,
	        "region 0x|unregistered|open a new session");
	CHECK_INT(kvpipe_mem_unregister(p->kv, p->region, WAIT), 0);
	refused(p->kv, offer(p, "k", (struct how){0}), KVPIPE_E_NOT_FOUND, "region 0x|unregistered");
	CHECK_FAILS(kvpipe_mem_unregister(p->kv, p->region, WAIT), KVPIPE_E_NOT_FOUND, "region");
}

static void all(const char *socket)
{
	struct engine p = start(NULL, "giver", "test"), c = start(socket, "taker", "test");
	char address[128];

	snprintf(address, sizeof(address), "%s", kvpipe_advertise(p.kv));
	c.peer = socket == NULL ? NULL : address;
	offers_that_are_not_there(&p, &c);
	too_late(&p, &c);
	what_does_not_agree(&p, &c, socket);
	holds(&p, &c);
	peers_and_deadlines(&p, &c);
	regions_gone(&p, &c);
	kvpipe_close(p.kv);
	kvpipe_close(c.kv);
}

static void one_node(void)
{
	all(NULL);
}

/* A second daemon, that trusts the first one and reaches it at the address that the producer's session names. */
static void two_nodes(void)
{
	const char *dir = getenv("KVPIPE_TEST_DIR"), *daemon = getenv("KVPIPED");
	char state[256], socket[256], ca[256];
	int status;

	CHECK(dir != NULL && daemon != NULL);
	snprintf(state, sizeof(state), "%s/far", dir);
	snprintf(socket, sizeof(socket), "%s/far/kvpiped.sock", dir);
	snprintf(ca, sizeof(ca), "%s/ca", dir);
	int out[2];

	CHECK(pipe(out) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDERR_FILENO);
		close(out[0]);
		close(out[1]);
		execl(daemon, daemon, "--dev", "--node", "far", "--state-dir", state, "--ca", ca, "--listen",
		      "127.0.0.1:0", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	char said[4096];
	size_t n = 0;
	do { /* it says so when it is ready */
		ssize_t got = read(out[0], said + n, sizeof(said) - 1 - n);
		CHECK(got > 0);
		n += (size_t)got;
		said[n] = 0;
	} while (strstr(said, "msg=ready") == NULL);
	all(socket);
	CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(out[0]);
}

/* Half of the completions that fit may be on their way. */
static void too_many(void)
{
	struct kvpipe_connect_opts o =
		KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = "many", .role = KVPIPE_ROLE_WORKER, .cq_entries = 8);
	struct kvpipe_probe probe = {.sz = sizeof(probe)};
	struct kvpipe_key_opts k = KVPIPE_OPTS(kvpipe_key_opts, .key = "k", .key_len = 1, .token = TOKEN,
	                                       .token_len = 16, .peer = "127.0.0.1:1");
	kvpipe_t *kv;
	kvpipe_op_t op[64], one_more;

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	CHECK_INT(kvpipe_probe(kv, &probe), 0);
	CHECK(probe.max_inflight > 0 && probe.max_inflight <= 64);
	for (uint32_t i = 0; i < probe.max_inflight; i++)
		CHECK_INT(kvpipe_watch(kv, &k, &op[i]), 0);
	CHECK_FAILS(kvpipe_watch(kv, &k, &one_more), KVPIPE_E_QUOTA, "wait for some");
	for (uint32_t i = 0; i < probe.max_inflight; i++) {
		CHECK_INT(kvpipe_cancel(kv, op[i], WAIT, NULL), 0);
		ends(kv, op[i], KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, "");
	}
	kvpipe_close(kv);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {TEST(one_node), TEST(two_nodes), TEST(too_many)};

	return RUN(tests);
}
