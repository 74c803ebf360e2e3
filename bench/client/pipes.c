/* Pipes and lookup buffers of a bench client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "list.h"
#include "serve.h"
#include "util.h"

#define SECOND 1000000000ll
#define WAIT (60 * SECOND)

bool pipe_open(struct client *c, const char *name, const char *peer, bool send)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(
		kvpipe_pipe_opts, .name = name, .peer = peer,
		.end = send ? KVPIPE_SEND : KVPIPE_RECV);
	int r = kvpipe_pipe_open(c->kv, &o, &c->pipe);
	return r < 0 ? failed("kvpipe_pipe_open", r) : true;
}

bool pipe_send(struct client *c, long n, size_t size)
{
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = KVPIPE_U8,
					     .ndim = 1, .shape = {size});
	/* A different part of the memory each time, as in an engine. */
	size_t parts = c->blocks * c->block / size;
	int r = 0;
	for (long i = 0; i < n && r == 0; i++) {
		t.data = c->base + (size_t)i % parts * size;
		r = kvpipe_pipe_send(c->pipe, &t, WAIT);
	}
	if (r == 0)
		r = kvpipe_pipe_flush(c->pipe, WAIT);
	return r < 0 ? failed("kvpipe_pipe_send", r) : true;
}

bool pipe_recv(struct client *c, long n, uint64_t *ns)
{
	kvpipe_msg_t *m;
	int r = kvpipe_pipe_recv(c->pipe, WAIT, &m);
	uint64_t start = now_ns();
	/* The clock starts after the first tensor, whose sender may be late. */
	for (long i = 1; i < n && r == 0; i++) {
		kvpipe_msg_free(m);
		r = kvpipe_pipe_recv(c->pipe, WAIT, &m);
	}
	*ns = now_ns() - start;
	if (r < 0)
		return failed("kvpipe_pipe_recv", r);
	kvpipe_msg_free(m);
	return true;
}

bool pipe_keep(struct client *c, long n, size_t size)
{
	size_t parts = c->blocks * c->block / size;
	for (long i = 0; i < n; i++) {
		kvpipe_msg_t *m;
		struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor);
		int r = kvpipe_pipe_recv(c->pipe, WAIT, &m);
		if (r < 0)
			return failed("kvpipe_pipe_recv", r);
		r = kvpipe_msg_tensor(m, 0, &t);
		bool good = r == 1 && t.ndim == 1 && t.shape[0] == size;
		if (good)
			memcpy(c->base + (size_t)i % parts * size, t.data, size);
		kvpipe_msg_free(m);
		if (!good) {
			serve_error("tensor %ld is not one of %zu bytes", i, size);
			return false;
		}
	}
	return true;
}

#define TOKENS 64 /* per entry */

/* The tokens of an entry. */
static void tokens_of(uint32_t number, uint32_t tokens[TOKENS])
{
	for (int i = 0; i < TOKENS; i++)
		tokens[i] = i == 0 ? 1 : number + (uint32_t)i;
}

static bool holds(const kvpipe_msg_t *m, uint32_t number)
{
	uint32_t tokens[TOKENS];
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor);
	tokens_of(number, tokens);
	return kvpipe_msg_tensor(m, 0, &t) == 1 && t.ndim == 1 &&
	       t.shape[0] == TOKENS &&
	       memcmp(t.data, tokens, sizeof tokens) == 0;
}

static bool insert(struct client *c, uint32_t number)
{
	uint32_t tokens[TOKENS];
	tokens_of(number, tokens);
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = KVPIPE_U32,
					     .ndim = 1, .shape = {TOKENS},
					     .data = tokens);
	const struct kvpipe_tensor *members[5] = {&t};
	int r = kvpipe_lookup_insert(c->own, members, WAIT);
	return r < 0 ? failed("kvpipe_lookup_insert", r) : true;
}

bool lookup_fill(struct client *c, const char *name, long n)
{
	struct kvpipe_lookup_opts o = KVPIPE_OPTS(
		kvpipe_lookup_opts, .name = name, .capacity = 64 << 20);
	int r = kvpipe_lookup_open(c->kv, &o, &c->own);
	o.capacity = 0;
	if (r == 0)
		r = kvpipe_lookup_open(c->kv, &o, &c->sel);
	if (r < 0)
		return failed("kvpipe_lookup_open", r);
	free(c->live);
	c->live = malloc((size_t)n * sizeof *c->live);
	if (!c->live)
		die("no memory for the numbers of %ld entries", n);
	for (c->nlive = 0; c->nlive < n; c->nlive++) {
		c->live[c->nlive] = c->entries;
		if (!insert(c, c->entries++))
			return false;
	}
	return true;
}

static bool select_one(struct client *c, uint32_t number, uint64_t *ns)
{
	uint32_t tokens[2] = {1, number + 1};
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = KVPIPE_U32,
					     .ndim = 1, .shape = {2},
					     .data = tokens);
	kvpipe_query_t *q;
	kvpipe_msg_t *m = NULL;
	uint64_t start = now_ns();
	int r = kvpipe_lookup_select(c->sel, &t, NULL, KVPIPE_PREFIX, WAIT, &q);
	if (r < 0)
		return failed("kvpipe_lookup_select", r);
	r = kvpipe_query_wait(q, WAIT, &m);
	*ns = now_ns() - start;
	kvpipe_query_free(q);
	bool right = r == 0 && holds(m, number);
	kvpipe_msg_free(m);
	if (r < 0)
		return failed("kvpipe_query_wait", r);
	if (!right)
		serve_error("another entry than %u was found", number);
	return right;
}

bool lookup_select(struct client *c, long n)
{
	if (c->nlive == 0) {
		serve_error("there is no entry to select: insert some first");
		return false;
	}
	for (long i = 0; i < n; i++) {
		/* Any entry: a search from the oldest on would have to look at
		 * half of them on average. The next entry takes its place. */
		uint32_t *one = &c->live[splitmix64(&c->pick) % (uint64_t)c->nlive];
		if (!select_one(c, *one, &c->took[i]))
			return false;
		*one = c->entries;
		if (!insert(c, c->entries++))
			return false;
	}
	return true;
}

void pipes_close(struct client *c)
{
	kvpipe_pipe_close(c->pipe);
	kvpipe_lookup_close(c->sel);
	kvpipe_lookup_close(c->own);
	c->pipe = NULL;
	c->own = c->sel = NULL;
	free(c->live);
	c->live = NULL;
	c->nlive = 0;
	c->entries = 0;
}
