/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: tensors are copied into free blocks of the arena and published as an item; once it is received the blocks are free again. */
#include "endpoint.h"

#include <stdio.h>
#include <string.h>

struct item {
	struct kvpipe_tensor tensors[KV_MEMBERS];
	struct kv_member members[KV_MEMBERS];
	uint64_t counted; /* bytes of the tensors: what counts against the capacity */
	uint64_t bytes;   /* those, and what lies between the tensors */
};

static int describe(const struct kv_end *e, const struct kv_put *p, struct item *it)
{
	it->counted = it->bytes = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		struct kv_member *m = &it->members[i];
		uint64_t n;
		*m = (struct kv_member){ .present = p->members[i] != NULL };
		if (!m->present)
			continue;
		int err = kv_tensor_check(p->what, p->members[i], &it->tensors[i], &n);
		if (err != 0)
			return err;
		m->dtype = it->tensors[i].dtype;
		m->ndim = it->tensors[i].ndim;
		memcpy(m->shape, it->tensors[i].shape, m->ndim * sizeof(*m->shape));
		if (n > 0)
			m->offset = (it->bytes + KV_ALIGN - 1) / KV_ALIGN * KV_ALIGN;
		it->counted += n;
		it->bytes = n > 0 ? m->offset + n : it->bytes;
	}
	if (it->counted > e->capacity)
		return kv_err(KVPIPE_E_INVALID, "%s: %llu bytes, the capacity of \"%s\" is %llu: open it with more", p->what,
			      (unsigned long long)it->counted, e->name, (unsigned long long)e->capacity);
	if (it->bytes > KV_ITEM_MAX)
		return kv_err(KVPIPE_E_INVALID, "%s: %llu bytes: at most %u at a time", p->what, (unsigned long long)it->bytes,
			      KV_ITEM_MAX);
	return 0;
}

struct wish {
	struct kv_end *e;
	uint64_t bytes;
	uint32_t blocks;
	int64_t timeout_ns; /* the caller's */
};

static bool has_room(struct kv_end *e, uint64_t bytes, uint32_t blocks)
{
	return e->used + bytes <= e->capacity && e->nops < kv_eop_limit(e) && kv_pool_fits(e->pool, blocks);
}

static bool may_go_on(void *arg)
{
	const struct wish *w = arg;

	return w->e->over || w->e->lost > 0 || has_room(w->e, w->bytes, w->blocks);
}

bool kv_put_ready(struct kv_end *e)
{
	return e->over || e->lost > 0 || !e->wants || has_room(e, e->wanted_bytes, e->wanted_blocks);
}

static int no_room(struct kv_end *e, const struct kv_put *p, const struct wish *w)
{
	const char *what = p->what;

	/* Of several calls that want room, the smallest item is announced first. Once there was room for it, it had its turn: its
	 * caller may have given up. */
	if (!e->wants || has_room(e, e->wanted_bytes, e->wanted_blocks) || w->bytes < e->wanted_bytes) {
		e->wanted_bytes = w->bytes;
		e->wanted_blocks = w->blocks;
	}
	e->wants = true;
	const char *within = KV_SPAN(w->timeout_ns); /* python/kvpipe/_end.py puts its caller's time in the place of "within TIME:" */
	if (e->used + w->bytes > e->capacity)
		return kv_err(KVPIPE_E_TIMEOUT,
			      "%s: no room for %llu bytes within %s: \"%s\" holds %llu of %llu bytes in %u item%s that nobody received yet%s", what,
			      (unsigned long long)w->bytes, within, e->name, (unsigned long long)e->used,
			      (unsigned long long)e->capacity, e->items, KV_PLURAL(e->items),
			      p->form == KVPIPE_MATCH_KEY ? "; what a key has stays until its new value is there" : "");
	if (e->nops >= kv_eop_limit(e))
		return kv_err(KVPIPE_E_TIMEOUT,
			      "%s: no room for an item within %s: \"%s\" holds %u that nobody received yet, the limit is %u, whatever the capacity",
			      what, within, e->name, e->items, kv_eop_limit(e) - 1); /* the BIND is one, too */
	return kv_err(KVPIPE_E_TIMEOUT,
		      "%s: no room for %u blocks within %s: \"%s\" holds %u item%s that nobody received yet, in %u of %u blocks of %u bytes; "
		      "each takes whole ones: open it with more capacity, or send fewer and larger ones",
		      what, w->blocks, within, e->name, e->items, KV_PLURAL(e->items), e->pool->nblocks - e->pool->nfree,
		      e->pool->nblocks, e->pool->block);
}

/* The error that tells, once, of all entries lost so far. */
static int say_lost(struct kv_end *e, const char *what)
{
	char lead[64];

	if (e->lost == 1)
		snprintf(lead, sizeof(lead), "%s: an earlier entry was lost", what);
	else
		snprintf(lead, sizeof(lead), "%s: %u earlier entries were lost, the last", what, e->lost);
	e->lost = 0;
	return kv_end_says(e, e->reason, lead, e->text);
}

/* Whether so many items are under way that the daemon may read no more submissions until their ends are collected. Needs lock. */
static bool many(const struct kv_end *e)
{
	return e->items >= e->kv->rings.cq_entries / 4;
}

/*
 * The daemon reads nothing of a client that leaves too much uncollected. Whoever submitted last may have gone to do something else, and
 * what he submitted would lie in the queue until he is back. So while there is something in it the helper looks at completions, too.
 */
static void mind(struct kv_end *e)
{
	pthread_mutex_lock(&e->kv->lock);
	if (e->look == 0) {
		e->look = kv_now() + KV_ROOM_NS;
		kv_helper_kick(e->kv);
	}
	pthread_mutex_unlock(&e->kv->lock);
}

static bool all_read(const kvpipe_t *kv)
{
	return kvpipe_load_acquire(&kv->rings.c->sq_tail) == kvpipe_load_acquire(&kv->rings.d->sq_head);
}

int64_t kv_put_mind(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	struct kv_end *e = kv->end;
	int64_t now = kv_now();
	if (e == NULL || e->look == 0 || now < e->look) {
		int64_t next = e == NULL || e->look == 0 ? INT64_MAX : e->look;
		pthread_mutex_unlock(&kv->lock);
		return next;
	}
	kv_end_look(e);
	bool more = !e->over && many(e) && !all_read(kv);
	e->look = more ? now + KV_ROOM_NS : 0;
	kv_end_unlock(e);
	return more ? now + KV_ROOM_NS : INT64_MAX;
}

/* Waits for room and takes it. NULL: *error says why not. *crowd: many() are under way then. */
static struct kv_eop *reserve(struct kv_end *e, const struct kv_put *p, const struct item *it, int64_t timeout_ns, int64_t deadline,
			      bool *crowd, int *error)
{
	struct wish w = { .e = e, .bytes = it->counted, .blocks = kv_pool_need(e->pool, it->bytes), .timeout_ns = timeout_ns };
	struct kv_eop *op = NULL;

	pthread_mutex_lock(&e->kv->lock);
	kv_end_look(e);
	/* A pipe full of small items soon has room for several: to nap until then is better than to be woken for each. */
	if (w.bytes <= e->capacity / 64 && e->items >= 64 && deadline - kv_now() >= KV_MS && !may_go_on(&w))
		kv_end_nap(e);
	bool go = kv_end_wait(e, may_go_on, &w, deadline);
	int err = kv_end_error(e, p->what);
	if (err == 0 && e->lost > 0) {
		err = say_lost(e, p->what);
	} else if (err == 0 && !go) {
		err = no_room(e, p, &w);
	} else if (err == 0) {
		op = kv_eop_new(e, KVPIPE_OPCODE_PUT);
		if (op == NULL || !kv_pool_take(e->pool, w.blocks, &op->span))
			err = kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	if (err == 0 && op != NULL) {
		e->wants = false;
		op->bytes = it->counted;
		op->number = ++e->sent;
		op->past = e->used > KV_CACHED;
		op->answer = p->answer;
		if (p->answer != NULL)
			p->answer->op = op->id;
		e->used += it->counted;
		e->items++;
		*crowd = many(e);
	} else if (op != NULL) {
		kv_eop_free(e, op);
		op = NULL;
	}
	kv_end_unlock(e);
	*error = err;
	return op;
}

/* Takes the item of op out of the accounts: it was received, or not even submitted. Items need not be received in order. */
static void leave(struct kv_end *e, const struct kv_eop *op)
{
	e->used -= op->bytes;
	e->items--;
	for (struct kv_flush *f = e->flushes; f != NULL; f = f->next)
		f->left -= op->number <= f->last;
}

static void fill(struct kv_end *e, const struct kv_put *p, const struct item *it, const struct kv_span *span, bool past)
{
	struct kv_sink sink;
	uint64_t at = 0;

	kv_sink_open(&sink, e->pool, span);
	sink.past = past;
	for (uint32_t i = 0; i < p->count; i++) {
		const struct kv_member *m = &it->members[i];
		uint64_t n = kvpipe_dtype_size(m->dtype);
		for (uint32_t d = 0; d < m->ndim; d++)
			n *= m->shape[d];
		if (!m->present || n == 0)
			continue;
		kv_sink_skip(&sink, m->offset - at);
		kv_tensor_write(&sink, &it->tensors[i]);
		at = m->offset + n;
	}
}

int kv_end_put(struct kv_end *e, const struct kv_put *p, int64_t timeout_ns)
{
	uint8_t meta[KVPIPE_MAX_META];
	struct item it;
	int64_t deadline;

	int err = kv_end_timeout(p->what, timeout_ns, &deadline);
	if (err == 0)
		err = describe(e, p, &it);
	if (err != 0)
		return err;
	bool crowd = false;
	deadline = p->deadline != 0 ? p->deadline : deadline;
	struct kv_eop *op = reserve(e, p, &it, timeout_ns, deadline, &crowd, &err);
	if (op == NULL)
		return err;
	fill(e, p, &it, &op->span, op->past);
	struct kvpipe_rec_put rec = {
		.form = p->form,
		.bytes = it.bytes,
		.meta_len = (uint32_t)kv_meta_encode(meta, it.members, p->count),
		.key_len = p->key_len,
		.ntokens = p->ntokens,
		.ngroups = op->span.nruns > 0,
	};
	struct kv_record r = {
		.opcode = KVPIPE_OPCODE_PUT,
		.target = e->bind,
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { meta, rec.meta_len }, { p->key, p->key_len } },
		.tokens = p->tokens,
		.ntokens = p->ntokens,
		.span = &op->span,
		.bytes = it.bytes,
	};
	/* The item has its room, so even a call without time to wait gives the daemon a moment to take it. */
	int64_t least = kv_now() + KV_ROOM_NS;
	err = kv_end_submit(e, op, &r, deadline > least ? deadline : least, NULL);
	if (err != 0) {
		pthread_mutex_lock(&e->kv->lock);
		leave(e, op);
		kv_eop_free(e, op);
		e->kv->fresh = true; /* room in the queue is announced nowhere: the next try may find some */
		kv_end_unlock(e);
	} else if (crowd) {
		mind(e);
	}
	return err;
}

void kv_put_forget(struct kv_end *e, const struct kv_answer *answer)
{
	pthread_mutex_lock(&e->kv->lock);
	struct kv_eop *op = kv_eop_find(e, answer->op);
	if (op != NULL)
		op->answer = NULL;
	pthread_mutex_unlock(&e->kv->lock);
}

void kv_put_done(struct kv_end *e, struct kv_eop *op, const struct kv_done *d)
{
	leave(e, op);
	if (d->status != KVPIPE_FAILED)
		return;
	if (!e->lookup) { /* a pipe has no gaps */
		kv_end_over(e, (enum kvpipe_reason)d->reason, d->text);
	} else if (op->answer != NULL) {
		op->answer->status = d->status;
		op->answer->reason = (enum kvpipe_reason)d->reason;
		snprintf(op->answer->text, sizeof(op->answer->text), "%s", d->text);
	} else if (!e->over) {
		e->lost++;
		e->reason = (enum kvpipe_reason)d->reason;
		snprintf(e->text, sizeof(e->text), "%s", d->text);
	}
}
