/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: GETs with room for what is likely to come, and what becomes of their ends.
 *
 * The arena of a receiving end has twice the bytes of its home's. Half of it is room that was given ahead and perhaps is never
 * needed, and what is lent to messages in the callers' hands, neither more than three eighths; what goes beyond is asked for
 * without room, and copied out. So the other half, which holds the largest item, always comes free by itself, and callers who
 * keep what they received hold nothing up.
 */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t until(int64_t deadline)
{
	int64_t left = deadline - kv_now();

	return left > KV_MS ? left : KV_MS;
}

/* What the share is, when others have that much of what is for both. */
static uint32_t share_beside(const struct kv_end *e, uint32_t others)
{
	uint32_t left = others < e->both ? e->both - others : 0;

	return left < e->share ? left : e->share;
}

uint32_t kv_get_share(struct kv_end *e)
{
	return share_beside(e, kv_pool_lent(e->pool));
}

/* Room as for recent items; none while there is no arena, or when it is too much. Needs lock. */
static uint64_t give_room(struct kv_end *e, struct kv_eop *op, bool front)
{
	if (e->pool == NULL || e->hint == 0)
		return 0;
	uint32_t blocks = kv_pool_need(e->pool, e->hint);
	if ((!front && e->ahead + blocks > kv_get_share(e)) || !kv_pool_take(e->pool, blocks, &op->span))
		return 0;
	if (!front) {
		op->ahead = blocks;
		e->ahead += blocks;
	}
	uint64_t room = (uint64_t)blocks * e->pool->block;
	return room < KV_ITEM_MAX ? room : e->hint;
}

static int submit(struct kv_end *e, struct kv_eop *op, const struct kv_ask *a, uint64_t room, int64_t deadline)
{
	struct kvpipe_rec_get rec = {
		.match = a->match,
		.room = room,
		.seq = a->seq,
		.key_len = a->key_len,
		.ntokens = a->ntokens,
		.ngroups = op->span.nruns > 0,
	};
	struct kv_record r = {
		.opcode = KVPIPE_OPCODE_GET,
		.target = e->bind,
		.timeout_ns = until(deadline),
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { a->key, a->key_len } },
		.tokens = a->tokens,
		.ntokens = a->ntokens,
		.span = &op->span,
		.bytes = room,
	};

	return kv_end_submit(e, op, &r, kv_now() + KV_SEC, NULL);
}

static void fail(struct kv_end *e, struct kv_get *g, enum kvpipe_reason reason, const char *text)
{
	g->state = KV_GET_FAILED;
	g->reason = reason;
	snprintf(g->text, sizeof(g->text), "%s", text);
	e->ended++;
}

/* Submits a GET for g. Returns with lock, as it was called; on failure g, unless its owner has gone meanwhile, has failed as well. */
static int ask(struct kv_end *e, struct kv_get *g, const struct kv_ask *a, bool front)
{
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_GET);
	int64_t deadline = g->deadline;

	if (op == NULL) {
		fail(e, g, KVPIPE_E_QUOTA, "out of memory");
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	uint64_t room = give_room(e, op, front);
	op->get = g;
	g->state = KV_GET_ASKED;
	g->op = op->id;
	pthread_mutex_unlock(&e->kv->lock);
	int err = submit(e, op, a, room, deadline);
	pthread_mutex_lock(&e->kv->lock);
	if (err != 0) {
		if (op->get != NULL)
			fail(e, op->get, (enum kvpipe_reason)-err, kvpipe_last_error());
		kv_eop_free(e, op);
	}
	return err;
}

/* A query that waits for an operation; what it asks for is the caller's. */
static int queue(struct kv_end *e, struct kv_get *g, const struct kv_ask *a)
{
	size_t tokens = (size_t)a->ntokens * sizeof(*a->tokens), len = tokens > 0 ? tokens : a->key_len; /* it has one of them at most */
	struct kv_ask *kept = malloc(sizeof(*kept) + len);

	if (kept == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	*kept = *a;
	if (len > 0)
		memcpy(kept + 1, tokens > 0 ? a->tokens : a->key, len);
	kept->key = kept->tokens = (void *)(kept + 1);
	g->kept = kept;
	g->next = NULL;
	g->state = KV_GET_QUEUED;
	*(e->queued == NULL ? &e->queued : &e->queued_last->next) = g;
	e->queued_last = g;
	return 0;
}

static void unqueue(struct kv_end *e, struct kv_get *g)
{
	struct kv_get *last = NULL, **at = &e->queued;

	while (*at != g)
		at = &(last = *at)->next;
	*at = g->next;
	if (e->queued_last == g)
		e->queued_last = last;
	free(g->kept);
	g->kept = NULL;
}

/* The first of those that are queued. Returns with lock, as it was called. */
static void ask_queued(struct kv_end *e)
{
	struct kv_get *g = e->queued;
	struct kv_ask *a = g->kept;

	g->kept = NULL;
	unqueue(e, g);
	if (kv_now() >= g->deadline)
		fail(e, g, KVPIPE_E_TIMEOUT, "its time passed while as many queries as the daemon takes were under way: free some that wait in vain");
	else
		(void)ask(e, g, a, false); /* an error is that query's */
	free(a);
}

/* The daemon takes no more for now: what needs room will need an operation again. */
static bool full(const struct kv_end *e)
{
	return e->nops + e->nshorts >= kv_eop_limit(e);
}

int kv_get_ask(struct kv_end *e, struct kv_get *g, const struct kv_ask *a, bool front, int64_t deadline)
{
	pthread_mutex_lock(&e->kv->lock);
	int err = kv_end_error(e, "get");
	g->deadline = deadline;
	g->again = false;
	g->matched = 0;
	if (err == 0 && e->lookup && (e->queued != NULL || full(e))) {
		err = queue(e, g, a);
	} else if (err == 0 && full(e)) {
		err = kv_err(KVPIPE_E_QUOTA, "\"%s\" has %u operations outstanding: that is the limit", e->name, e->nops);
	} else if (err == 0 && (err = ask(e, g, a, front)) != 0) {
		e->ended--;
		g->state = KV_GET_NONE;
	}
	pthread_mutex_unlock(&e->kv->lock);
	return err;
}

static bool decline(struct kv_end *e, uint64_t item)
{
	uint64_t *more = realloc(e->declines, (e->ndeclines + 1) * sizeof(*more));

	if (more == NULL) /* it goes back by itself, when its time is over */
		return false;
	e->declines = more;
	more[e->ndeclines++] = item;
	return true;
}

/* Gives an item back. Returns with lock, as it was called. */
static int give_back(struct kv_end *e)
{
	struct kv_ask a = { .match = KVPIPE_MATCH_DECLINE, .seq = e->declines[--e->ndeclines] };
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_GET);
	int err = 0;

	if (op != NULL) {
		pthread_mutex_unlock(&e->kv->lock);
		err = submit(e, op, &a, 0, 0);
		pthread_mutex_lock(&e->kv->lock);
		if (err != 0)
			kv_eop_free(e, op);
	}
	return err;
}

/* For the first of those that need some, or it can be made. */
static bool has_room(struct kv_end *e)
{
	const struct kv_get *g = e->shorts;

	return g != NULL && (e->pool == NULL || kv_pool_fits(e->pool, kv_pool_need(e->pool, g->bytes)));
}

bool kv_get_pumpable(struct kv_end *e)
{
	return e->ndeclines > 0 || has_room(e) || (e->queued != NULL && !full(e));
}

/* Asks again for the first of those that had no room. Returns with lock, as it was called. */
static int ask_again(struct kv_end *e)
{
	struct kv_get *g = e->shorts;
	struct kv_ask a = { .match = KVPIPE_MATCH_ITEM, .seq = g->item };
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_GET);
	uint64_t room = g->bytes;

	if (op == NULL || !kv_pool_take(e->pool, kv_pool_need(e->pool, room), &op->span)) {
		if (op != NULL)
			kv_eop_free(e, op);
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	e->shorts = g->next;
	e->nshorts--;
	op->get = g;
	g->again = true;
	g->state = KV_GET_ASKED;
	g->op = op->id;
	int64_t deadline = g->deadline;
	pthread_mutex_unlock(&e->kv->lock);
	int err = submit(e, op, &a, room, deadline);
	pthread_mutex_lock(&e->kv->lock);
	if (err != 0) {
		if (op->get != NULL) /* its owner may have gone meanwhile */
			fail(e, op->get, (enum kvpipe_reason)-err, kvpipe_last_error());
		kv_eop_free(e, op);
	}
	return err;
}

/* The first of those that had no room can never have it: the home is another one than the arena was made for. */
static void too_large(struct kv_end *e)
{
	struct kv_get *g = e->shorts;
	char text[KV_TEXT];

	snprintf(text, sizeof(text), "an item of %llu bytes, more than the capacity that this end was opened on: open it again",
		 (unsigned long long)g->bytes);
	e->shorts = g->next;
	e->nshorts--;
	decline(e, g->item);
	fail(e, g, KVPIPE_E_QUOTA, text);
}

int64_t kv_get_patience(int64_t deadline)
{
	int64_t now = kv_now();

	return deadline < now + KV_SEC ? now + KV_SEC : deadline < now + KV_CALL_NS ? deadline : now + KV_CALL_NS;
}

int kv_get_pump(struct kv_end *e, int64_t patience)
{
	int err = 0;

	pthread_mutex_lock(&e->kv->lock);
	while (err == 0 && !e->over && kv_get_pumpable(e)) {
		struct kv_get *g = e->shorts;
		if (e->ndeclines > 0) {
			err = give_back(e);
		} else if (!has_room(e)) {
			ask_queued(e);
		} else if (e->pool == NULL) {
			uint64_t capacity = g->capacity > g->bytes ? g->capacity : g->bytes;
			pthread_mutex_unlock(&e->kv->lock);
			if (kv_now() < patience)
				err = kv_end_furnish(e, kv_home_bytes(capacity) * 2, capacity, patience);
			else /* while another thread tried */
				err = kv_err(KVPIPE_E_TIMEOUT, "register: the daemon does not answer: " KV_LOOK);
			pthread_mutex_lock(&e->kv->lock);
		} else {
			err = ask_again(e);
		}
	}
	if (e->shorts != NULL && e->pool != NULL && kv_pool_need(e->pool, e->shorts->bytes) > e->pool->nblocks - e->both)
		too_large(e);
	if (err != 0 && e->over) /* meanwhile: its session's end says less */
		err = kv_end_error(e, "get");
	kv_end_unlock(e);
	return err;
}

static void enqueue(struct kv_end *e, struct kv_get *g)
{
	struct kv_get **at = &e->shorts;

	while (*at != NULL && (*at)->order < g->order)
		at = &(*at)->next;
	g->next = *at;
	*at = g;
	e->nshorts++;
	g->state = KV_GET_SHORT;
}

/* The item's bytes: lent where they lie, or copied. False: out of memory. */
static bool keep(struct kv_end *e, kvpipe_msg_t *m, struct kv_eop *op, uint64_t bytes)
{
	struct kv_span *span = &op->span;
	uint32_t ahead = e->ahead - op->ahead; /* of others */
	void *copy;

	kv_pool_trim(e->pool, span, kv_pool_need(e->pool, bytes));
	if (kv_pool_lend(e->pool, span, share_beside(e, ahead))) {
		m->pool = e->pool;
		m->span = *span;
		m->data = (uint8_t *)e->pool->memory.addr + (size_t)span->one.first * e->pool->block;
		*span = (struct kv_span){ 0 };
		return true;
	}
	if (posix_memalign(&copy, KV_ALIGN, bytes) != 0)
		return false;
	kv_span_read(e->pool, span, copy, bytes);
	m->data = copy;
	return true;
}

static void landed(struct kv_end *e, struct kv_get *g, struct kv_eop *op, const struct kv_done *d)
{
	uint64_t bytes = d->got.bytes;
	struct kv_member members[KV_MEMBERS];
	uint32_t n = kv_meta_decode(d->meta, d->got.meta_len, bytes, members, KV_MEMBERS);

	if (n == 0 || (bytes > 0 && (e->pool == NULL || (uint64_t)op->span.blocks * e->pool->block < bytes))) {
		fail(e, g, KVPIPE_E_INCOMPATIBLE, "an item that this version of the library does not understand");
		return;
	}
	kvpipe_msg_t *m = calloc(1, sizeof(*m) + n * sizeof(*m->members));
	if (m != NULL) {
		m->process = e->process;
		m->matched = d->got.matched > 0 ? d->got.matched : g->matched;
		m->count = n;
		memcpy(m->members, members, n * sizeof(*members));
	}
	if (m == NULL || (bytes > 0 && !keep(e, m, op, bytes))) {
		free(m);
		fail(e, g, KVPIPE_E_QUOTA, "an item came, but there is no memory for it");
		return;
	}
	/* Rises at once and falls slowly: most items then find room at the first attempt. */
	e->hint = bytes > e->hint ? bytes : e->hint - (e->hint - bytes) / 16;
	g->state = KV_GET_LANDED;
	g->msg = m;
	e->ended++;
}

void kv_get_done(struct kv_end *e, struct kv_eop *op, const struct kv_done *d)
{
	struct kv_get *g = op->get;
	bool is_short = d->status == KVPIPE_DONE && (d->flags & KVPIPE_C_SHORT) != 0;

	if (g == NULL) { /* nobody's: it was too late to cancel it */
		if (is_short)
			decline(e, d->got.item);
	} else if (is_short) {
		g->item = d->got.item;
		g->bytes = d->got.bytes;
		g->capacity = d->got.capacity;
		g->matched = d->got.matched;
		e->hint = g->bytes > e->hint ? g->bytes : e->hint;
		if (!e->lookup) /* a pipe's next item is wanted, however short the caller's time was */
			g->deadline = kv_now() + KV_AHEAD_NS;
		enqueue(e, g);
	} else if (d->status == KVPIPE_DONE) {
		landed(e, g, op, d);
	} else if (e->lookup && g->again && d->reason == KVPIPE_E_NOT_FOUND) {
		/* It is kept for as long as the query waits, unless its home loses sight of this end. */
		bool late = kv_now() >= g->deadline;
		fail(e, g, late ? KVPIPE_E_TIMEOUT : KVPIPE_E_PEER_GONE,
		     late ? "an entry was found, and there was no room for it in time" : "the entry that was found went back: its node was out of reach");
	} else {
		fail(e, g, (enum kvpipe_reason)d->reason, d->text);
	}
}

int kv_get_end(struct kv_end *e, struct kv_get *g, const char *what, kvpipe_msg_t **out)
{
	bool landed = g->state == KV_GET_LANDED;

	e->ended--;
	g->state = KV_GET_NONE;
	*out = g->msg;
	g->msg = NULL;
	return landed ? 0 : kv_end_says(e, g->reason, what, g->text);
}

void kv_get_forget(struct kv_end *e, struct kv_get *g, uint64_t *cancel)
{
	struct kv_eop *op = g->state == KV_GET_ASKED ? kv_eop_find(e, g->op) : NULL;
	struct kv_get **at = &e->shorts;

	if (op != NULL) {
		op->get = NULL;
		*cancel = g->op;
	} else if (g->state == KV_GET_QUEUED) {
		unqueue(e, g);
	} else if (g->state == KV_GET_SHORT) {
		while (*at != g)
			at = &(*at)->next;
		*at = g->next;
		e->nshorts--;
		decline(e, g->item);
	} else if (g->state == KV_GET_LANDED || g->state == KV_GET_FAILED) {
		e->ended--;
		kvpipe_msg_free(g->msg);
	}
	g->state = KV_GET_NONE;
	g->msg = NULL;
}
