/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for items: GETs with room for what is likely to come, second GETs for items that had no room, and GETs that wait until the
 * daemon takes more. */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The timeout that the daemon is told, in ns; a caller that waits longer asks again. */
static int64_t until(int64_t deadline)
{
	int64_t left = deadline - kv_now();

	return left < KV_MS ? KV_MS : left < KV_MONTH_NS ? left : KV_MONTH_NS;
}

/* Gives op room for an item like the recent ones and returns its bytes; 0: there is no arena yet, or not enough room. Needs lock. */
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

/* KV_LATER: the daemon takes nothing. */
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

	int err = kv_end_submit(e, op, &r, kv_now() + KV_SEC, NULL);
	return err == -KVPIPE_E_TIMEOUT ? KV_LATER : err;
}

/* Submits a GET for *get. Called and returns with lock. On failure *get has no operation; NULL: its owner has gone meanwhile. */
static int ask(struct kv_end *e, struct kv_get **get, const struct kv_ask *a, bool front)
{
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_GET);
	struct kv_get *g = *get;
	int64_t deadline = g->deadline;

	if (op == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	uint64_t room = give_room(e, op, front);
	op->get = g;
	g->state = KV_GET_ASKED;
	g->op = op->id;
	pthread_mutex_unlock(&e->kv->lock);
	int err = submit(e, op, a, room, deadline);
	pthread_mutex_lock(&e->kv->lock);
	if (err != 0) {
		*get = op->get;
		kv_eop_free(e, op);
	}
	return err;
}

/* Queues a query until there is an operation for it. Copies what it asks for, as that is the caller's memory. */
static int queue(struct kv_end *e, struct kv_get *g, const struct kv_ask *a)
{
	size_t tokens = (size_t)a->ntokens * sizeof(*a->tokens), len = tokens > 0 ? tokens : a->key_len; /* it has tokens or a key, not both */
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

void kv_get_unqueue(struct kv_end *e, struct kv_get *g)
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

/* Submits the first query that is queued. Called and returns with lock. */
static int ask_queued(struct kv_end *e)
{
	struct kv_get *g = e->queued;
	struct kv_ask *a = g->kept;

	g->kept = NULL;
	kv_get_unqueue(e, g);
	if (kv_now() >= g->deadline) {
		kv_get_fail(e, g, KVPIPE_E_TIMEOUT, KV_CROWD);
		free(a);
		return 0;
	}
	int err = ask(e, &g, a, false);
	if (err == KV_LATER && g != NULL) { /* it stays the first */
		g->kept = a;
		g->state = KV_GET_QUEUED;
		g->next = e->queued;
		e->queued = g;
		if (g->next == NULL)
			e->queued_last = g;
		return err;
	}
	if (err != 0 && g != NULL) /* that query's alone */
		kv_get_fail(e, g, (enum kvpipe_reason)-err, kvpipe_last_error());
	free(a);
	return err == KV_LATER ? err : 0;
}

/* Whether the daemon takes no more for now. GETs that need room count, as each will need an operation again. */
static bool full(const struct kv_end *e)
{
	return e->nops + e->nshorts >= kv_eop_limit(e);
}

int kv_get_ask(struct kv_end *e, struct kv_get *g, const struct kv_ask *a, bool front, int64_t deadline)
{
	pthread_mutex_lock(&e->kv->lock);
	kv_end_cancel_late(e);
	int err = kv_end_error(e, "get");
	g->deadline = deadline;
	g->again = false;
	g->matched = 0;
	if (err == 0 && e->lookup && (e->queued != NULL || full(e))) {
		err = queue(e, g, a);
	} else if (err == 0 && full(e)) {
		err = kv_err(KVPIPE_E_QUOTA, "\"%s\" has %u operations outstanding: that is the limit", e->name, e->nops);
	} else if (err == 0 && (err = ask(e, &g, a, front)) != 0) {
		if (g != NULL)
			g->state = KV_GET_NONE;
		err = err == KV_LATER ? -KVPIPE_E_TIMEOUT : err;
	}
	pthread_mutex_unlock(&e->kv->lock);
	return err;
}

/* Gives an item back. Called and returns with lock. */
static int give_back(struct kv_end *e)
{
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_GET);

	if (op == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	struct kv_ask a = { .match = KVPIPE_MATCH_DECLINE, .seq = e->declines[--e->ndeclines] };
	pthread_mutex_unlock(&e->kv->lock);
	int err = submit(e, op, &a, 0, 0);
	pthread_mutex_lock(&e->kv->lock);
	if (err != 0) {
		kv_eop_free(e, op);
		kv_get_decline(e, a.seq);
	}
	return err;
}

/* Whether there is room for the first GET that needs some, or the arena can still be made. */
static bool has_room(struct kv_end *e)
{
	const struct kv_get *g = e->shorts;

	return g != NULL && (e->pool == NULL || kv_pool_fits(e->pool, kv_pool_need(e->pool, g->bytes)));
}

/* Whether the first GET that needs room can never have it, as the arena was made for another home. */
static bool needs_too_much(const struct kv_end *e)
{
	return e->shorts != NULL && e->pool != NULL && kv_pool_need(e->pool, e->shorts->bytes) > e->pool->nblocks - e->both;
}

bool kv_get_pumpable(struct kv_end *e)
{
	return e->ndeclines > 0 || has_room(e) || needs_too_much(e) || (e->queued != NULL && !full(e));
}

/* Asks again for the first GET that had no room. Called and returns with lock. */
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
		if (op->get == NULL) { /* its owner has gone meanwhile */
			kv_get_decline(e, a.seq);
		} else if (err == KV_LATER) {
			g->again = false;
			kv_get_enqueue(e, g);
		} else {
			kv_get_fail(e, g, (enum kvpipe_reason)-err, kvpipe_last_error());
		}
		if (op->unwanted && err == -KVPIPE_E_CANCELLED)
			err = 0; /* nobody's error */
		kv_eop_free(e, op);
	}
	return err;
}

/* Fails that GET. */
static void too_large(struct kv_end *e)
{
	struct kv_get *g = e->shorts;
	char text[KV_TEXT];

	snprintf(text, sizeof(text), "an item of %llu bytes, more than the capacity that this end was opened on: open it again",
		 (unsigned long long)g->bytes);
	e->shorts = g->next;
	e->nshorts--;
	kv_get_decline(e, g->item);
	kv_get_fail(e, g, KVPIPE_E_QUOTA, text);
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
		} else if (!has_room(e) && needs_too_much(e)) {
			too_large(e);
		} else if (!has_room(e)) {
			err = ask_queued(e);
		} else if (e->pool == NULL) {
			uint64_t capacity = g->capacity > g->bytes ? g->capacity : g->bytes;
			pthread_mutex_unlock(&e->kv->lock);
			if (kv_now() < patience)
				err = kv_end_furnish(e, kv_home_bytes(capacity) * 2, capacity, patience);
			else /* the time passed while another thread tried */
				err = kv_err(KVPIPE_E_TIMEOUT, "register: the daemon does not answer: " KV_LOOK);
			pthread_mutex_lock(&e->kv->lock);
		} else {
			err = ask_again(e);
		}
	}
	if (err != 0 && e->over) /* it ended meanwhile: the caller finds out why when it looks next */
		err = 0;
	kv_end_unlock(e);
	return err;
}
