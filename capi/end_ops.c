/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of an end: from a free place in the table to the submission queue, and from the completion queue back. */
#include "endpoint.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 256u
#define INDEX_BITS 20 /* of user_data; the bits above them are a generation */
#define RESERVED 4u   /* operations for BIND, CANCEL, SEAL */
#define COMPLETIONS 3u /* of a GET, at most: the daemon takes a GET only when the ring has room for them */

static struct kv_eop *at(const struct kv_end *e, uint32_t index)
{
	return &e->chunks[index / CHUNK][index % CHUNK];
}

uint32_t kv_eop_limit(const struct kv_end *e)
{
	/* Items that nobody received yet are not operations in flight: the daemon keeps their completions until there is room. */
	uint32_t most = e->home ? KV_ITEMS : e->kv->max_inflight, told = e->kv->hello.cq_entries / COMPLETIONS;

	if (!e->home && told < most)
		most = told;
	/* BIND is one of them: even where there are few, one is left for what the end is for. */
	return most > RESERVED + 1 ? most - RESERVED : 2;
}

/* One more chunk; index 0 names no operation, so that an id is never 0. */
static bool grow(struct kv_end *e)
{
	if (e->nchunks * CHUNK >= 1u << INDEX_BITS)
		return false;
	struct kv_eop **chunks = realloc(e->chunks, (e->nchunks + 1) * sizeof(struct kv_eop *));
	if (chunks == NULL)
		return false;
	e->chunks = chunks;
	chunks[e->nchunks] = calloc(CHUNK, sizeof(**chunks));
	if (chunks[e->nchunks] == NULL)
		return false;
	uint32_t first = e->nchunks++ * CHUNK;
	for (uint32_t i = first + CHUNK; i-- > (first == 0 ? 1 : first);) {
		at(e, i)->id = i;
		at(e, i)->next_free = e->free_op;
		e->free_op = i;
	}
	return true;
}

struct kv_eop *kv_eop_new(struct kv_end *e, uint8_t opcode)
{
	if (e->free_op == 0 && !grow(e))
		return NULL;
	struct kv_eop *op = at(e, e->free_op);
	e->free_op = op->next_free;
	e->nops++;
	/* A new generation: completions of the entry's last operation are not taken for this one's. The top bit stays clear. */
	uint64_t id = ((op->id + (1ull << INDEX_BITS)) & ~(1ull << 63));
	*op = (struct kv_eop){ .id = id, .opcode = opcode, .state = KV_EOP_READY };
	return op;
}

void kv_eop_free(struct kv_end *e, struct kv_eop *op)
{
	if (op->span.nruns > 0)
		kv_pool_give(e->pool, &op->span);
	e->ahead -= op->ahead;
	op->ahead = 0;
	op->state = KV_EOP_FREE;
	op->next_free = e->free_op;
	e->free_op = (uint32_t)(op->id & ((1u << INDEX_BITS) - 1));
	e->nops--;
}

void kv_eops_drop(struct kv_end *e)
{
	for (uint32_t i = 0; i < e->nchunks * CHUNK; i++)
		free(at(e, i)->span.many);
	for (uint32_t i = 0; i < e->nchunks; i++)
		free(e->chunks[i]);
	free(e->chunks);
	e->chunks = NULL;
	e->nchunks = e->free_op = e->nops = 0;
}

struct kv_eop *kv_eop_find(const struct kv_end *e, uint64_t id)
{
	uint32_t index = (uint32_t)(id & ((1u << INDEX_BITS) - 1));

	if (index == 0 || index >= e->nchunks * CHUNK || at(e, index)->id != id)
		return NULL;
	return at(e, index);
}

/* The text of a completion, or "". -1: malformed. */
static int read_text(const struct kv_end *e, const struct kvpipe_cqe *c, char text[KV_TEXT])
{
	struct kvpipe_result head;
	size_t size;

	text[0] = '\0';
	if (kv_result_check(&e->kv->rings, c, &head, &size) != 0)
		return -1;
	if (head.text_len > 0) {
		const struct kv_rings *r = &e->kv->rings;
		const uint8_t *from = r->results + (c->result_off & (r->result_bytes - 1)) + sizeof(head) +
				      head.nfailed * sizeof(struct kvpipe_run);
		size_t n = head.text_len < KV_TEXT - 1 ? head.text_len : KV_TEXT - 1;
		memcpy(text, from, n);
		text[n] = '\0';
	}
	return 0;
}

static int read_got(const struct kv_end *e, const struct kvpipe_cqe *c, struct kv_done *d)
{
	const struct kv_rings *r = &e->kv->rings;
	uint64_t off = c->result_off & (r->result_bytes - 1);

	if (c->result_off % 8 != 0 || c->result_len < sizeof(d->got) || c->result_len > r->result_bytes - off)
		return -1;
	memcpy(&d->got, r->results + off, sizeof(d->got));
	if (d->got.meta_len > sizeof(d->meta) || d->got.meta_len > c->result_len - sizeof(d->got))
		return -1;
	memcpy(d->meta, r->results + off + sizeof(d->got), d->got.meta_len);
	return 0;
}

static void terminal(struct kv_end *e, struct kv_eop *op, const struct kv_done *d)
{
	switch (op->opcode) {
	case KVPIPE_OPCODE_PUT:
		kv_put_done(e, op, d);
		break;
	case KVPIPE_OPCODE_GET:
		kv_get_done(e, op, d);
		break;
	case KVPIPE_OPCODE_BIND:
		if (d->status == KVPIPE_FAILED)
			kv_end_over(e, (enum kvpipe_reason)d->reason, d->text);
		break;
	default:
		if (op->answer != NULL)
			*op->answer = (struct kv_answer){ .done = true, .status = d->status };
		break;
	}
	if ((d->flags & KVPIPE_C_MORE) != 0 && op->span.nruns > 0)
		op->state = KV_EOP_ENDED; /* its blocks are not free before RELEASED */
	else
		kv_eop_free(e, op);
}

void kv_end_completion(struct kv_end *e, const struct kvpipe_cqe *c)
{
	struct kv_eop *op = kv_eop_find(e, c->user_data);
	struct kv_done d;

	if (op == NULL || op->state == KV_EOP_FREE || op->state == KV_EOP_READY)
		return;
	e->kv->fresh = true;
	if (c->status == KVPIPE_RELEASED && op->state == KV_EOP_ENDED)
		kv_eop_free(e, op);
	if (op->state != KV_EOP_RUNNING || c->status < KVPIPE_DONE || c->status > KVPIPE_CANCELLED)
		return;
	d.status = c->status;
	d.reason = c->status == KVPIPE_DONE ? KVPIPE_OK : c->reason == 0 || c->reason > KVPIPE_E_CLOSED ? KVPIPE_E_INVALID : c->reason;
	d.flags = c->flags;
	d.text[0] = '\0';
	bool got = op->opcode == KVPIPE_OPCODE_GET && c->status == KVPIPE_DONE && c->result_len > 0;
	if (got ? read_got(e, c, &d) != 0 : read_text(e, c, d.text) != 0) {
		kv_broken(e->kv, "completion of operation %#llx: result of %u bytes at %llu", (unsigned long long)c->user_data,
			  c->result_len, (unsigned long long)c->result_off);
		return;
	}
	if (!got)
		d.got = (struct kvpipe_got){ 0 };
	if (d.text[0] == '\0' && d.reason != KVPIPE_OK)
		strncpy(d.text, kvpipe_strerror((int)d.reason), sizeof(d.text) - 1)[sizeof(d.text) - 1] = '\0';
	terminal(e, op, &d);
}

static size_t pad(size_t n)
{
	return (n + 7) / 8 * 8;
}

static size_t bound(const struct kv_record *r)
{
	size_t n = r->head_len;

	for (size_t i = 0; i < KV_COUNT(r->strings); i++)
		n += r->strings[i].len;
	n = pad(n) + pad((size_t)r->ntokens * 4);
	if (r->span != NULL && r->span->nruns > 0)
		n += sizeof(struct kvpipe_rec_group) + (size_t)r->span->nruns * 8;
	return n;
}

static size_t put_bytes(uint8_t *to, size_t n, const void *from, size_t len)
{
	if (len > 0)
		memcpy(to + n, from, len);
	return n + len;
}

static size_t put_pad(uint8_t *to, size_t n)
{
	while (n % 8 != 0)
		to[n++] = 0;
	return n;
}

static size_t write_record(uint8_t *to, const struct kv_record *r)
{
	size_t n = put_bytes(to, 0, r->head, r->head_len);

	for (size_t i = 0; i < KV_COUNT(r->strings); i++)
		n = put_bytes(to, n, r->strings[i].p, r->strings[i].len);
	n = put_pad(to, n);
	n = put_pad(to, put_bytes(to, n, r->tokens, (size_t)r->ntokens * 4));
	if (r->span != NULL && r->span->nruns > 0) {
		struct kvpipe_rec_group g = {
			.ntokens = (uint32_t)r->bytes,
			.form = KVPIPE_FORM_RUNS,
			.count = r->span->nruns,
		};
		n = put_bytes(to, n, &g, sizeof(g));
		n = put_bytes(to, n, kv_runs(r->span), (size_t)r->span->nruns * sizeof(struct kv_run));
	}
	return n;
}

/* Called between finding room and publishing: writes the record, unless the end is over (then it unlocks sq.lock). After that the
 * operation may end at any time. */
static int prepare(struct kv_end *e, struct kv_eop *op, const struct kv_record *r, uint64_t off, struct kvpipe_sqe *s)
{
	kvpipe_t *kv = e->kv;

	*s = (struct kvpipe_sqe){
		.op = r->opcode,
		.user_data = op->id,
		.timeout_ns = (uint64_t)r->timeout_ns,
		.target = r->target,
		.layer_slot = KV_NO_SLOT,
	};
	s->rec_len = (uint32_t)write_record(kv->rings.records + (off & (kv->rings.record_bytes - 1)), r);
	pthread_mutex_lock(&kv->lock);
	/* A SEAL is submitted by close, when the end is over. */
	int err = r->opcode == KVPIPE_OPCODE_SEAL ? kv_ended(kv) : kv_end_error(e, "submit");
	if (err == 0 && op->unwanted)
		err = kv_err(KVPIPE_E_CANCELLED, "given up before it was submitted");
	if (err == 0)
		op->state = KV_EOP_RUNNING;
	pthread_mutex_unlock(&kv->lock);
	if (err != 0)
		pthread_mutex_unlock(&kv->sq.lock);
	return err;
}

/* The error of a submission that found no room. When the end is over, its own reason says more than the session's: that what was
 * in it is lost. */
static int no_submission(struct kv_end *e, int err)
{
	pthread_mutex_lock(&e->kv->lock);
	if (e->over)
		err = kv_end_error(e, "submit");
	else if (err == -KVPIPE_E_BUSY) /* python/kvpipe/_end.py looks for these words, and waits differently than for room in a pipe */
		err = kv_err(KVPIPE_E_TIMEOUT, "the daemon does not take submissions");
	pthread_mutex_unlock(&e->kv->lock);
	return err;
}

int kv_end_submit(struct kv_end *e, struct kv_eop *op, const struct kv_record *r, int64_t deadline, uint64_t *id)
{
	kvpipe_t *kv = e->kv;
	struct kvpipe_sqe s;
	uint64_t off;
	int err;

	/* In steps, so that a close waits for room for its own SEAL only, and not for that of other calls. */
	do {
		int64_t step = kv_now() + KV_ROOM_NS;
		err = kv_sq_begin(kv, r->opcode, bound(r), step < deadline ? step : deadline, &off);
		if (err == 0)
			break;
		pthread_mutex_lock(&kv->lock);
		bool over = e->over && r->opcode != KVPIPE_OPCODE_SEAL;
		pthread_mutex_unlock(&kv->lock);
		if (over)
			break;
	} while (err == -KVPIPE_E_BUSY && kv_now() < deadline);
	if (err != 0)
		return no_submission(e, err);
	err = prepare(e, op, r, off, &s);
	if (err != 0)
		return err;
	if (id != NULL)
		*id = s.user_data;
	kv_sq_publish(kv, &s, off);
	return 0;
}

struct asked {
	struct kv_answer answer;
	const struct kv_end *e;
	bool last; /* a SEAL, which the closing call asks for when the end is over */
};

/* True also when the answer is of no use any more, or will not come. */
static bool answered(void *arg)
{
	const struct asked *a = arg;

	return a->answer.done || kv_is_over(a->e->kv->state) || (a->e->over && !a->last);
}

int kv_end_ask(struct kv_end *e, const char *what, uint8_t opcode, uint64_t target, int64_t deadline)
{
	kvpipe_t *kv = e->kv;
	struct asked a = { .e = e, .last = opcode == KVPIPE_OPCODE_SEAL };
	struct kv_record r = { .opcode = opcode, .target = target, .timeout_ns = KV_CALL_NS };
	uint64_t id = 0;

	pthread_mutex_lock(&kv->lock);
	struct kv_eop *op = kv_eop_new(e, opcode);
	if (op != NULL)
		op->answer = &a.answer;
	pthread_mutex_unlock(&kv->lock);
	if (op == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	int err = kv_end_submit(e, op, &r, deadline, &id);
	pthread_mutex_lock(&kv->lock);
	if (err != 0) {
		kv_eop_free(e, op);
	} else if (!kv_end_wait(e, answered, &a, deadline) || !a.answer.done) {
		op = kv_eop_find(e, id);
		if (op != NULL)
			op->answer = NULL;
		err = kv_end_error(e, what);
		if (err == 0)
			err = kv_err(KVPIPE_E_TIMEOUT, "the daemon does not answer: " KV_LOOK);
	} else {
		err = (int)a.answer.status;
	}
	kv_end_unlock(e); /* it collected for others, too */
	return err;
}

/* Keeps a CANCEL for later. Without memory for that, the target ends at its own deadline. */
static void cancel_later(struct kv_end *e, uint64_t target)
{
	uint64_t *more = realloc(e->cancels, (e->ncancels + 1) * sizeof(*more));

	if (more == NULL)
		return;
	e->cancels = more;
	more[e->ncancels++] = target;
}

void kv_end_cancel(struct kv_end *e, uint64_t target, int64_t deadline)
{
	struct kv_record r = { .opcode = KVPIPE_OPCODE_CANCEL, .target = target, .timeout_ns = KV_CALL_NS };

	pthread_mutex_lock(&e->kv->lock);
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_CANCEL);
	pthread_mutex_unlock(&e->kv->lock);
	if (op != NULL && kv_end_submit(e, op, &r, deadline, NULL) == 0)
		return;
	pthread_mutex_lock(&e->kv->lock);
	if (op != NULL)
		kv_eop_free(e, op);
	cancel_later(e, target);
	pthread_mutex_unlock(&e->kv->lock);
}

void kv_end_cancel_late(struct kv_end *e)
{
	for (uint32_t before = e->ncancels + 1; e->ncancels > 0 && e->ncancels < before;) {
		before = e->ncancels;
		uint64_t target = e->cancels[--e->ncancels];
		const struct kv_eop *op = kv_eop_find(e, target);
		if (op == NULL || op->state != KV_EOP_RUNNING)
			continue; /* it has ended */
		pthread_mutex_unlock(&e->kv->lock);
		kv_end_cancel(e, target, 0);
		pthread_mutex_lock(&e->kv->lock);
	}
}
