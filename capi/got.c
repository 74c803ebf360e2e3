/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of GETs: items that landed are lent to messages or copied out; items that had no room are asked for again
 * (get.c).
 *
 * The arena of a receiving end is twice as large as its home's. Two things together may take half of it: room given ahead,
 * which may never be needed, and blocks lent to messages in callers' hands. Neither takes more than three eighths. Beyond
 * that, items are asked for without room, and copied out. So the other half, which holds the largest item, always becomes
 * free by itself, and callers that keep what they received hold nothing up.
 */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The blocks that one of the two may have, when the other has `others` of those for both. */
static uint32_t share_beside(const struct kv_end *e, uint32_t others)
{
	uint32_t left = others < e->both ? e->both - others : 0;

	return left < e->share ? left : e->share;
}

uint32_t kv_get_share(struct kv_end *e)
{
	return share_beside(e, kv_pool_lent(e->pool));
}

void kv_get_fail(struct kv_end *e, struct kv_get *g, enum kvpipe_reason reason, const char *text)
{
	g->state = KV_GET_FAILED;
	g->lost = false;
	g->reason = reason;
	snprintf(g->text, sizeof(g->text), "%s", text);
	e->ended++;
}

void kv_get_decline(struct kv_end *e, uint64_t item)
{
	uint64_t *more = realloc(e->declines, (e->ndeclines + 1) * sizeof(*more));

	if (more == NULL) /* the item goes back by itself, when its time is over */
		return;
	e->declines = more;
	more[e->ndeclines++] = item;
}

void kv_get_enqueue(struct kv_end *e, struct kv_get *g)
{
	struct kv_get **at = &e->shorts;

	while (*at != NULL && (*at)->order < g->order)
		at = &(*at)->next;
	g->next = *at;
	*at = g;
	e->nshorts++;
	g->state = KV_GET_SHORT;
}

/* Gives m the item's bytes: lent where they lie, or copied. False: out of memory. */
static bool keep(struct kv_end *e, kvpipe_msg_t *m, struct kv_eop *op, uint64_t bytes)
{
	struct kv_span *span = &op->span;
	uint32_t ahead = e->ahead - op->ahead; /* of other GETs */
	void *copy;

	kv_pool_trim(e->pool, span, kv_pool_need(e->pool, bytes));
	bool lent = kv_pool_lend(e->pool, span, share_beside(e, ahead));
	if (!lent && posix_memalign(&copy, KV_ALIGN, bytes) != 0) {
		lent = kv_pool_lend(e->pool, span, e->pool->nblocks); /* better that others wait for room than that it is lost */
		if (!lent)
			return false;
	}
	if (lent) {
		m->pool = e->pool;
		m->span = *span;
		m->data = (uint8_t *)e->pool->memory.addr + (size_t)span->one.first * e->pool->block;
		*span = (struct kv_span){ 0 };
		return true;
	}
	kv_span_read(e->pool, span, copy, bytes);
	m->data = copy;
	return true;
}

/* An item came, and the caller cannot have it. A pipe has no gaps, so its end is over once the caller has come that far (recv.c). */
static void lost(struct kv_end *e, struct kv_get *g, enum kvpipe_reason reason, const char *why)
{
	char text[KV_TEXT];

	snprintf(text, sizeof(text), e->lookup ? "%s" : "%s: open it again for what follows", why);
	kv_get_fail(e, g, reason, text);
	g->lost = true;
}

static void landed(struct kv_end *e, struct kv_get *g, struct kv_eop *op, const struct kv_done *d)
{
	uint64_t bytes = d->got.bytes;
	struct kv_member members[KV_MEMBERS];
	uint32_t n = kv_meta_decode(d->meta, d->got.meta_len, bytes, members, KV_MEMBERS);

	if (n == 0 || (bytes > 0 && (e->pool == NULL || (uint64_t)op->span.blocks * e->pool->block < bytes))) {
		lost(e, g, KVPIPE_E_INCOMPATIBLE, "an item that this version of the library does not understand");
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
		lost(e, g, KVPIPE_E_QUOTA, "an item came, but there is no memory for it");
		return;
	}
	/* The hint rises at once and falls slowly, so that most items find room at the first attempt. */
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
			kv_get_decline(e, d->got.item);
	} else if (is_short) {
		g->item = d->got.item;
		g->bytes = d->got.bytes;
		g->capacity = d->got.capacity;
		g->matched = d->got.matched;
		e->hint = g->bytes > e->hint ? g->bytes : e->hint;
		if (!e->lookup) /* a pipe's next item is wanted, however short the caller's time was */
			g->deadline = kv_now() + KV_AHEAD_NS;
		kv_get_enqueue(e, g);
	} else if (d->status == KVPIPE_DONE) {
		landed(e, g, op, d);
	} else if (e->lookup && g->again && d->reason == KVPIPE_E_NOT_FOUND) {
		/* The home keeps a found entry as long as the query waits, unless it loses sight of this end. */
		bool late = kv_now() >= g->deadline;
		kv_get_fail(e, g, late ? KVPIPE_E_TIMEOUT : KVPIPE_E_PEER_GONE,
		     late ? "an entry was found, and there was no room for it in time" : "the entry that was found went back: its node was out of reach");
	} else {
		kv_get_fail(e, g, (enum kvpipe_reason)d->reason, d->text);
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
		op->unwanted = op->state == KV_EOP_READY; /* a CANCEL would overtake it */
		*cancel = op->unwanted ? 0 : g->op;
	} else if (g->state == KV_GET_QUEUED) {
		kv_get_unqueue(e, g);
	} else if (g->state == KV_GET_SHORT) {
		while (*at != g)
			at = &(*at)->next;
		*at = g->next;
		e->nshorts--;
		kv_get_decline(e, g->item);
	} else if (g->state == KV_GET_LANDED || g->state == KV_GET_FAILED) {
		e->ended--;
		kvpipe_msg_free(g->msg);
	}
	g->state = KV_GET_NONE;
	g->msg = NULL;
}
