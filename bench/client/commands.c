/* What a bench client can be told to do. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "serve.h"
#include "util.h"

struct request {
	char what[16], key[128], peer[256];
	long n;	   /* number of small hand-overs, tensors or entries */
	long settle; /* how many of them come first and are not timed */
	size_t size; /* of a tensor */
	bool spin; /* wait without sleeping */
	bool sent; /* check the blocks of the source list */
};

static void fine(void)
{
	puts("{\"ok\":true}");
}

/* Takes the whole list, which is under one key. */
static void do_take(struct client *c, const struct request *q)
{
	uint64_t ns;
	if (!take_list(c, q->key, q->peer, 0, c->blocks, q->spin, &ns))
		return;
	double bytes = (double)c->blocks * (double)c->block;
	double s = (double)ns / 1e9;
	printf("{\"blocks\":%zu,\"bytes\":%.0f,\"seconds\":%.9f,"
	       "\"gb_per_s\":%.3f}\n",
	       c->blocks, bytes, s, bytes / s / 1e9);
}

/* Offers the whole list. The answer is how long it took until the daemon had
 * it. */
static void do_offer(struct client *c, const struct request *q)
{
	uint64_t start = now_ns();
	if (offer_list(c, q->key, 0, c->blocks))
		printf("{\"seconds\":%.9f}\n", (double)(now_ns() - start) / 1e9);
}

/* Makes n offers of one block each, under KEY-0, KEY-1, ... */
static void do_offers(struct client *c, const struct request *q)
{
	char key[160];
	for (long i = 0; i < q->n; i++) {
		snprintf(key, sizeof key, "%s-%ld", q->key, i);
		if (!offer_list(c, key, 0, 1))
			return;
	}
	fine();
}

static int by_value(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
	return (a > b) - (a < b);
}

static void tell_times(uint64_t *took, long n)
{
	qsort(took, (size_t)n, sizeof *took, by_value);
	printf("{\"n\":%ld,\"p50_us\":%.3f,\"p99_us\":%.3f}\n", n,
	       (double)took[n / 2] / 1e3, (double)took[n * 99 / 100] / 1e3);
}

/* Takes these offers, one at a time. */
static void do_takes(struct client *c, const struct request *q)
{
	char key[160];
	for (long i = 0; i < q->n; i++) {
		snprintf(key, sizeof key, "%s-%ld", q->key, i);
		if (!take_list(c, key, q->peer, 0, 1, q->spin, &c->took[i]))
			return;
	}
	tell_times(c->took + q->settle, q->n - q->settle);
}

/* Receives n tensors through the open pipe. */
static void do_recv(struct client *c, const struct request *q)
{
	uint64_t ns;
	if (!pipe_recv(c, q->n, &ns))
		return;
	double s = (double)ns / 1e9, each = (double)(q->n - 1) / s;
	printf("{\"seconds\":%.9f,\"per_s\":%.1f,\"gb_per_s\":%.3f}\n", s, each,
	       each * (double)q->size / 1e9);
}

/* Checks a list that was handed over, or tensors, which were copied to where
 * the sender has them. */
static void do_check(struct client *c, const struct request *q, uint64_t salt)
{
	size_t bad = mem_check(c->base, q->sent ? c->from : c->to, c->blocks,
			       c->block, salt);
	if (bad)
		serve_error("%zu of %zu blocks are wrong", bad, c->blocks);
	else
		fine();
}

/* Registers n further regions of one block each. */
static void do_regions(struct client *c, const struct request *q)
{
	kvpipe_region_t region;
	void *addr;
	for (long i = 0; i < q->n; i++) {
		int err = kvpipe_mem_alloc(c->kv, c->block, 0, &addr, &region);
		if (err < 0) {
			failed("kvpipe_mem_alloc", err);
			return;
		}
	}
	fine();
}

/* Waits until the daemon is lost and another one has everything back. To know
 * that, it watches the last of n offers: the watch is sent behind everything
 * that is sent again. */
static void do_back(struct client *c, const struct request *q)
{
	char key[160];
	snprintf(key, sizeof key, "%s-%ld", q->key, q->n - 1);
	while (kvpipe_connected(c->kv))
		poll(NULL, 0, 1);
	if (watch_offer(c, key))
		fine();
}

static bool understood(struct request *q, const char *args)
{
	*q = (struct request){.n = 1};
	arg_text(args, "do", q->what, sizeof q->what);
	arg_text(args, "key", q->key, sizeof q->key);
	arg_text(args, "peer", q->peer, sizeof q->peer);
	q->n = arg_long(args, "n", 1);
	q->settle = arg_long(args, "settle", 0);
	q->spin = arg_long(args, "spin", 0);
	q->sent = arg_long(args, "sent", 0);
	q->size = (size_t)arg_long(args, "size", 1);
	/* n is bounded only where something is kept for each. */
	bool kept = strcmp(q->what, "offers") == 0 ||
		    strcmp(q->what, "takes") == 0 ||
		    strcmp(q->what, "selects") == 0;
	if (q->n < 1 || (kept && q->n > MAX_SMALL)) {
		serve_error("n: %ld is not in 1..%d", q->n, MAX_SMALL);
		return false;
	}
	if (q->settle < 0 || q->settle >= q->n) {
		serve_error("settle: %ld is not in 0..%ld", q->settle, q->n - 1);
		return false;
	}
	return true;
}

/* Returns false if the command is none of these. */
static bool run_pipes(struct client *c, const struct request *q)
{
	bool send = strcmp(q->what, "send") == 0;
	if (strcmp(q->what, "recv") == 0) {
		do_recv(c, q);
	} else if (strcmp(q->what, "keep") == 0) {
		if (pipe_keep(c, q->n, q->size))
			fine();
	} else if (strcmp(q->what, "selects") == 0) {
		if (lookup_select(c, q->n))
			tell_times(c->took, q->n);
	} else if (strcmp(q->what, "source") == 0 || strcmp(q->what, "sink") == 0) {
		if (pipe_open(c, q->key, q->peer, q->what[1] == 'o'))
			fine();
	} else if (send || strcmp(q->what, "insert") == 0) {
		if (send ? pipe_send(c, q->n, q->size)
			 : lookup_fill(c, q->key, q->n))
			fine();
	} else if (strcmp(q->what, "close") == 0) {
		pipes_close(c);
		fine();
	} else {
		return false;
	}
	return true;
}

void client_run(void *client, const char *args)
{
	struct client *c = client;
	struct request q;
	uint64_t salt = (uint64_t)arg_long(args, "salt", 1);
	if (!understood(&q, args))
		return;
	if (strcmp(q.what, "offer") == 0) {
		do_offer(c, &q);
	} else if (strcmp(q.what, "take") == 0) {
		do_take(c, &q);
	} else if (strcmp(q.what, "offers") == 0) {
		do_offers(c, &q);
	} else if (strcmp(q.what, "takes") == 0) {
		do_takes(c, &q);
	} else if (strcmp(q.what, "regions") == 0) {
		do_regions(c, &q);
	} else if (strcmp(q.what, "back") == 0) {
		do_back(c, &q);
	} else if (strcmp(q.what, "wait") == 0) {
		if (wait_offers(c))
			fine();
	} else if (strcmp(q.what, "fill") == 0) {
		mem_fill(c->base, c->from, c->blocks, c->block, salt);
		fine();
	} else if (strcmp(q.what, "check") == 0) {
		do_check(c, &q, salt);
	} else if (!run_pipes(c, &q)) {
		serve_error("do: want offer, take, offers, takes, regions, back, wait, fill, check, "
			    "source, sink, send, recv, keep, insert, selects or close");
	}
}
