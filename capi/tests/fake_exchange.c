/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_exchange.h"

#include "check.h"
#include "internal.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define ENDS 4
#define ITEMS 16384
#define GETS 8192

struct end {
	struct exchange *x;
	struct fake *fake;
	uint8_t *memory;
	size_t size;
	uint64_t bind, block;
	uint64_t region;      /* of the layout of that session */
	unsigned int session;
};

struct item {
	struct end *from;
	uint64_t put; /* user_data */
	struct kvpipe_rec_put rec;
	uint8_t meta[KVPIPE_MAX_META];
	uint32_t *tokens;
	uint8_t *data;
	bool gone, reserved;
};

struct get {
	struct end *to;
	uint64_t id;
	struct kvpipe_rec_get rec;
	uint32_t *tokens;
	struct kvpipe_rec_group group;
	uint32_t *runs;
};

struct exchange {
	struct fake *parent;
	struct end ends[ENDS];
	unsigned int nends;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct item items[ITEMS];
	uint32_t nitems;
	uint64_t capacity; /* of the home */
	struct get *gets[GETS];
	uint32_t ngets;
	bool held, sealed;
	unsigned int mute;
	bool leave;
	uint16_t still; /* 0: none */
	unsigned int fail, shorts, seen_gets, seen_puts, declines;
	uint32_t reason, refuse, refuse_layout, refuse_puts, refused_puts, ready_to_release;
	const char *refusal;
	struct get *unreleased[64];
};

static uint8_t *cut(const uint8_t **at, size_t n)
{
	uint8_t *copy = malloc(n + 1);

	CHECK(copy != NULL);
	memcpy(copy, *at, n);
	*at += n;
	return copy;
}

static const uint8_t *align(const uint8_t *at, const uint8_t *record)
{
	return record + ((size_t)(at - record) + 7) / 8 * 8;
}

/* Copies between an end's blocks and flat memory. */
static void move(const struct end *e, const struct kvpipe_rec_group *g, const uint32_t *runs, uint8_t *flat, uint64_t bytes, bool in)
{
	CHECK_INT(g->form, KVPIPE_FORM_RUNS);
	CHECK(bytes <= g->ntokens);
	for (uint32_t i = 0; i < g->count && bytes > 0; i++) {
		uint64_t at = runs[2 * i] * e->block, n = runs[2 * i + 1] * e->block;
		CHECK(at + n <= e->size);
		n = n < bytes ? n : bytes;
		memcpy(in ? e->memory + at : flat, in ? flat : e->memory + at, n);
		flat += n;
		bytes -= n;
	}
	CHECK_INT(bytes, 0);
}

static bool matches(const struct get *g, const struct item *it, uint64_t index)
{
	uint32_t n = g->rec.ntokens < it->rec.ntokens ? g->rec.ntokens : it->rec.ntokens;

	switch (g->rec.match) {
	case KVPIPE_MATCH_NEXT:
		return index == g->rec.seq;
	case KVPIPE_MATCH_ITEM:
		return index == g->rec.seq;
	case KVPIPE_MATCH_ANY:
		return !it->gone && !it->reserved;
	case KVPIPE_MATCH_EXACT:
		return !it->gone && !it->reserved && g->rec.ntokens == it->rec.ntokens && memcmp(g->tokens, it->tokens, n * 4) == 0;
	default:
		return !it->gone && !it->reserved && n > 0 && memcmp(g->tokens, it->tokens, n * 4) == 0;
	}
}

static void drop(struct get *g)
{
	free(g->tokens);
	free(g->runs);
	free(g);
}

/* Ends a GET with an item; true when the GET is over. */
static void serve(struct exchange *x, struct get *g, struct item *it, uint64_t index)
{
	struct kvpipe_cqe c = { .user_data = g->id, .status = KVPIPE_DONE, .bytes = it->rec.bytes };
	struct kvpipe_got got = { .item = index, .bytes = it->rec.bytes, .capacity = x->capacity, .meta_len = it->rec.meta_len };

	got.matched = g->rec.ntokens < it->rec.ntokens ? g->rec.ntokens : it->rec.ntokens;
	if (it->rec.bytes > g->rec.room) {
		c.flags = KVPIPE_C_SHORT;
		c.bytes = 0;
		it->reserved = true;
		x->shorts++;
	} else if (x->fail > 0) {
		x->fail--;
		fake_end(g->to->fake, g->id, KVPIPE_FAILED, x->reason, KVPIPE_C_MORE);
		struct get *copy = malloc(sizeof(*copy));
		CHECK(copy != NULL && x->ready_to_release < 64);
		*copy = *g;
		copy->tokens = NULL;
		copy->runs = NULL;
		x->unreleased[x->ready_to_release++] = copy;
		return;
	} else {
		if (it->rec.bytes > 0)
			move(g->to, &g->group, g->runs, it->data, it->rec.bytes, true);
		it->gone = true;
		fake_end(it->from->fake, it->put, KVPIPE_DONE, 0, 0);
	}
	fake_post_result(g->to->fake, c, &got, sizeof(got), it->meta, got.meta_len);
}

static void match_all(struct exchange *x)
{
	for (uint32_t i = 0; i < x->ngets && !x->held; i++) {
		struct get *g = x->gets[i];
		bool over = false, nextless = g->rec.match == KVPIPE_MATCH_NEXT && g->rec.seq >= x->nitems;
		for (uint32_t k = 0; k < x->nitems && !over; k++) {
			over = matches(g, &x->items[k], k);
			if (over)
				serve(x, g, &x->items[k], k);
		}
		if (!over && x->sealed && nextless) {
			over = true;
			fake_end(g->to->fake, g->id, KVPIPE_FAILED, KVPIPE_E_CLOSED, 0);
		}
		if (over) {
			drop(g);
			memmove(&x->gets[i], &x->gets[i + 1], (--x->ngets - i) * sizeof(x->gets[0])); /* the oldest is first */
			i--;
		}
	}
}

static void refuse_put(struct exchange *x, struct end *e, const struct kvpipe_sqe *s)
{
	struct kvpipe_cqe c = { .user_data = s->user_data, .status = KVPIPE_FAILED, .reason = (uint16_t)x->refuse_puts };
	char text[32];

	snprintf(text, sizeof(text), "refusal %u", ++x->refused_puts);
	fake_post(e->fake, c, NULL, 0, text);
}

static void put(struct exchange *x, struct end *e, const struct kvpipe_sqe *s, const uint8_t *record)
{
	struct item *it = &x->items[x->nitems++];
	const uint8_t *at = record + sizeof(it->rec);
	struct kvpipe_rec_group g;

	CHECK(x->nitems <= ITEMS && s->target == e->bind && !x->sealed);
	*it = (struct item){ .from = e, .put = s->user_data };
	memcpy(&it->rec, record, sizeof(it->rec));
	memcpy(it->meta, at, it->rec.meta_len);
	at = align(at + it->rec.meta_len + it->rec.key_len, record);
	it->tokens = (uint32_t *)(void *)cut(&at, it->rec.ntokens * 4);
	at = align(at, record);
	it->data = malloc(it->rec.bytes + 1);
	if (it->rec.ngroups == 1) {
		memcpy(&g, at, sizeof(g));
		at += sizeof(g);
		CHECK_INT(g.ntokens, it->rec.bytes);
		uint32_t *runs = (uint32_t *)(void *)cut(&at, g.count * 8);
		move(e, &g, runs, it->data, it->rec.bytes, false);
		free(runs);
	}
	CHECK_INT(at - record, s->rec_len);
	x->seen_puts++;
}

static void get(struct exchange *x, struct end *e, const struct kvpipe_sqe *s, const uint8_t *record)
{
	struct get *g = calloc(1, sizeof(*g));
	const uint8_t *at = record + sizeof(g->rec);

	CHECK(g != NULL && x->ngets < GETS && s->target == e->bind);
	g->to = e;
	g->id = s->user_data;
	memcpy(&g->rec, record, sizeof(g->rec));
	at = align(at + g->rec.key_len, record);
	g->tokens = (uint32_t *)(void *)cut(&at, g->rec.ntokens * 4);
	at = align(at, record);
	if (g->rec.ngroups == 1) {
		memcpy(&g->group, at, sizeof(g->group));
		at += sizeof(g->group);
		CHECK_INT(g->group.ntokens, g->rec.room);
		g->runs = (uint32_t *)(void *)cut(&at, g->group.count * 8);
	}
	CHECK_INT(at - record, s->rec_len);
	x->seen_gets++;
	if (g->rec.match == KVPIPE_MATCH_DECLINE) {
		x->items[g->rec.seq].reserved = false;
		x->declines++;
		drop(g);
		fake_end(e->fake, s->user_data, KVPIPE_DONE, 0, 0);
	} else {
		x->gets[x->ngets++] = g;
	}
}

static void cancel(struct exchange *x, struct end *e, const struct kvpipe_sqe *s)
{
	for (uint32_t i = 0; i < x->ngets; i++) {
		if (x->gets[i]->to == e && x->gets[i]->id == s->target) {
			fake_end(e->fake, s->target, KVPIPE_CANCELLED, KVPIPE_E_CANCELLED, 0);
			fake_end(e->fake, s->user_data, KVPIPE_DONE, 0, 0);
			drop(x->gets[i]);
			x->gets[i] = x->gets[--x->ngets];
			return;
		}
	}
	fake_end(e->fake, s->user_data, KVPIPE_FAILED, KVPIPE_E_NOT_FOUND, 0);
}

static void submission(struct fake *f, const struct kvpipe_sqe *s, const uint8_t *record)
{
	struct end *e = fake_arg(f);
	struct exchange *x = e->x;
	struct kvpipe_rec_bind bind;

	pthread_mutex_lock(&x->lock);
	if (fake_sessions(f) <= x->mute) {
		pthread_mutex_unlock(&x->lock);
		return;
	}
	switch (s->op) {
	case KVPIPE_OPCODE_BIND:
		memcpy(&bind, record, sizeof(bind));
		x->capacity = bind.capacity > 0 ? bind.capacity : x->capacity;
		e->bind = s->user_data;
		if (x->refuse != 0) {
			struct kvpipe_cqe c = { .user_data = e->bind, .status = KVPIPE_FAILED, .reason = (uint16_t)x->refuse };
			fake_post(f, c, NULL, 0, x->refusal);
		}
		break;
	case KVPIPE_OPCODE_SEAL:
		x->sealed = true;
		fake_end(f, s->user_data, KVPIPE_DONE, 0, 0);
		break;
	case KVPIPE_OPCODE_CANCEL:
		cancel(x, e, s);
		break;
	case KVPIPE_OPCODE_PUT:
		if (x->refuse_puts != 0)
			refuse_put(x, e, s);
		else
			put(x, e, s, record);
		break;
	default:
		CHECK_INT(s->op, KVPIPE_OPCODE_GET);
		get(x, e, s, record);
		break;
	}
	match_all(x);
	pthread_cond_broadcast(&x->changed);
	pthread_mutex_unlock(&x->lock);
}

/* A session has one layout: only a client that got no answer sets it again. */
static void set_layout(struct fake *f, struct end *e, const void *body)
{
	struct kvpipe_view v;

	memcpy(&v, (const uint8_t *)body + sizeof(struct kvpipe_layout_msg), sizeof(v));
	e->block = v.block_stride;
	CHECK_INT(v.num_blocks * v.block_stride, e->size);
	if (e->session == fake_sessions(f))
		CHECK_INT(v.region, e->region);
	e->session = fake_sessions(f);
	e->region = v.region;
}

static bool request(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct end *e = fake_arg(f);
	struct kvpipe_register r;

	if (head->type == KVPIPE_CTL_LAYOUT)
		set_layout(f, e, body);
	pthread_mutex_lock(&e->x->lock);
	bool leave = e->x->leave && head->type == KVPIPE_CTL_REGISTER, still = head->type == e->x->still;
	if (still)
		e->x->still = 0;
	uint32_t refused = head->type == KVPIPE_CTL_LAYOUT ? e->x->refuse_layout : 0;
	if (refused != 0)
		e->x->refuse_layout = 0;
	pthread_mutex_unlock(&e->x->lock);
	if (still) {
		fake_pause(f, true);
		return true;
	}
	if (leave) {
		fake_hang_up(f);
		return true;
	}
	if (refused != 0) {
		fake_ack(f, head->seq, refused, 0, e->x->refusal);
		return true;
	}
	if (head->type == KVPIPE_CTL_REGISTER) {
		memcpy(&r, body, sizeof(r));
		if (e->memory != NULL) /* of a session before */
			munmap(e->memory, e->size);
		e->size = r.bytes;
		e->memory = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(e->memory != MAP_FAILED);
	}
	return false;
}

struct exchange *exchange_start(unsigned int ends)
{
	struct exchange *x = calloc(1, sizeof(*x));

	CHECK(x != NULL && ends <= ENDS);
	x->nends = ends;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->changed, NULL);
	x->parent = fake_start(NULL);
	for (unsigned int i = 0; i < ends; i++) {
		struct fake_conf conf = { .records = 1 << 20, .submission = submission, .request = request, .arg = &x->ends[i] };
		x->ends[i].x = x;
		x->ends[i].fake = fake_start(&conf);
	}
	return x;
}

void exchange_stop(struct exchange *x)
{
	fake_stop(x->parent);
	for (unsigned int i = 0; i < x->nends; i++) {
		fake_stop(x->ends[i].fake);
		if (x->ends[i].memory != NULL)
			munmap(x->ends[i].memory, x->ends[i].size);
	}
	for (uint32_t i = 0; i < x->nitems; i++) {
		free(x->items[i].tokens);
		free(x->items[i].data);
	}
	while (x->ngets > 0)
		drop(x->gets[--x->ngets]);
	exchange_release(x);
	pthread_cond_destroy(&x->changed);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

kvpipe_t *exchange_session(struct exchange *x)
{
	return fake_connect(x->parent);
}

struct fake *exchange_fake(struct exchange *x, unsigned int end)
{
	return x->ends[end].fake;
}

void exchange_next(struct exchange *x, kvpipe_t *kv, unsigned int end)
{
	snprintf(kv->path, sizeof(kv->path), "%s", fake_path(x->ends[end].fake));
}

void exchange_hold(struct exchange *x, bool held)
{
	pthread_mutex_lock(&x->lock);
	x->held = held;
	match_all(x);
	pthread_mutex_unlock(&x->lock);
}

void exchange_fail(struct exchange *x, unsigned int n, uint32_t reason)
{
	pthread_mutex_lock(&x->lock);
	x->fail = n;
	x->reason = reason;
	pthread_mutex_unlock(&x->lock);
}

void exchange_release(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	while (x->ready_to_release > 0) {
		struct get *g = x->unreleased[--x->ready_to_release];
		fake_end(g->to->fake, g->id, KVPIPE_RELEASED, 0, 0);
		drop(g);
	}
	pthread_mutex_unlock(&x->lock);
}

void exchange_refuse(struct exchange *x, uint32_t reason, const char *text)
{
	pthread_mutex_lock(&x->lock);
	x->refuse = reason;
	x->refusal = text;
	pthread_mutex_unlock(&x->lock);
}

void exchange_refuse_layout(struct exchange *x, uint32_t reason, const char *text)
{
	pthread_mutex_lock(&x->lock);
	x->refuse_layout = reason;
	x->refusal = text;
	pthread_mutex_unlock(&x->lock);
}

void exchange_refuse_puts(struct exchange *x, uint32_t reason)
{
	pthread_mutex_lock(&x->lock);
	x->refuse_puts = reason;
	pthread_mutex_unlock(&x->lock);
}

void exchange_mute(struct exchange *x, unsigned int sessions)
{
	pthread_mutex_lock(&x->lock);
	x->mute = sessions;
	pthread_mutex_unlock(&x->lock);
}

void exchange_leave(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	x->leave = true;
	pthread_mutex_unlock(&x->lock);
}

void exchange_stand_still(struct exchange *x, uint16_t type)
{
	pthread_mutex_lock(&x->lock);
	x->still = type;
	pthread_mutex_unlock(&x->lock);
}

static void await(struct exchange *x, const unsigned int *counter, unsigned int n)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&x->lock);
	while (*counter < n) {
		if (pthread_cond_timedwait(&x->changed, &x->lock, &until) != 0)
			FAIL("the exchange waited in vain: %u of %u", *counter, n);
	}
	pthread_mutex_unlock(&x->lock);
}

void exchange_await_gets(struct exchange *x, unsigned int n)
{
	await(x, &x->seen_gets, n);
}

void exchange_await_puts(struct exchange *x, unsigned int n)
{
	await(x, &x->seen_puts, n);
}

void exchange_await_declines(struct exchange *x, unsigned int n)
{
	await(x, &x->declines, n);
}

unsigned int exchange_shorts(struct exchange *x)
{
	pthread_mutex_lock(&x->lock);
	unsigned int n = x->shorts;
	pthread_mutex_unlock(&x->lock);
	return n;
}
