/* SPDX-License-Identifier: Apache-2.0 */
/* needs: daemon */
/* Pipes and lookup buffers against a real kvpiped. */
#include "endpoint.h"
#include "pipes.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static kvpipe_t *connect_as(const char *id)
{
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = id, .role = KVPIPE_ROLE_WORKER);
	kvpipe_t *kv;

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	return kv;
}

static kvpipe_pipe_t *named(kvpipe_t *kv, const char *name, uint32_t end, uint64_t capacity)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = name, .end = end, .capacity = capacity);
	kvpipe_pipe_t *p;

	CHECK_INT(kvpipe_pipe_open(kv, &o, &p), 0);
	return p;
}

/* Tensors of all sizes, None among them, in order. */
static void there(void)
{
	static uint8_t data[1 << 20];
	kvpipe_t *a = connect_as("a"), *b = connect_as("b");
	unsigned int seed = 1;
	kvpipe_msg_t *m;

	for (int receiver_first = 0; receiver_first < 2; receiver_first++) {
		kvpipe_pipe_t *rx = receiver_first ? named(b, "there", KVPIPE_RECV, 0) : NULL;
		kvpipe_pipe_t *tx = named(a, "there", KVPIPE_SEND, 4 << 20);
		if (rx == NULL)
			rx = named(b, "there", KVPIPE_RECV, 0);
		for (int n = 0; n < 300; n++) {
			uint64_t size = n % 10 == 9 ? sizeof(data) : (uint64_t)(rand_r(&seed) % 5000);
			memset(data, n, size);
			struct kvpipe_tensor t = flat(KVPIPE_U8, size, data);
			CHECK_INT(kvpipe_pipe_send(tx, n % 20 == 0 ? NULL : &t, WAIT), 0);
			if (n % 3 != 2)
				continue;
			for (int k = n - 2; k <= n; k++) {
				struct kvpipe_tensor got = KVPIPE_OPTS(kvpipe_tensor, .dtype = 0);
				CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
				CHECK_INT(kvpipe_msg_tensor(m, 0, &got), k % 20 != 0);
				for (uint64_t i = 0; i < got.shape[0]; i++)
					CHECK_INT(((uint8_t *)got.data)[i], (uint8_t)k);
				kvpipe_msg_free(m);
			}
		}
		CHECK_INT(kvpipe_pipe_flush(tx, WAIT), 0);
		kvpipe_pipe_close(tx);
		CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "there");
		kvpipe_pipe_close(rx);
	}
	kvpipe_close(a);
	kvpipe_close(b);
}

/* A pipe's sender may close, and its process end, before the receiver has begun. */
static void lingering(void)
{
	kvpipe_t *a = connect_as("a"), *b = connect_as("b");
	kvpipe_pipe_t *tx = named(a, "lingering", KVPIPE_SEND, 1 << 20);
	kvpipe_msg_t *m;

	for (uint64_t n = 0; n < 40; n++)
		send_number(tx, n);
	kvpipe_pipe_close(tx);
	kvpipe_close(a);
	kvpipe_pipe_t *rx = named(b, "lingering", KVPIPE_RECV, 0);
	for (uint64_t n = 0; n < 40; n++)
		recv_number(rx, n);
	CHECK_FAILS(kvpipe_pipe_recv(rx, WAIT, &m), KVPIPE_E_CLOSED, "lingering");
	kvpipe_pipe_close(rx);
	kvpipe_close(b);
}

/* A receiver goes; the next one goes on where it was, without what had been fetched ahead. */
static void the_next_receiver(void)
{
	kvpipe_t *kv = connect_as("a");
	kvpipe_pipe_t *tx = named(kv, "next", KVPIPE_SEND, 1 << 20), *rx, *second = NULL;
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "next", .end = KVPIPE_RECV, .window = 1);
	kvpipe_msg_t *m;

	for (uint64_t n = 0; n < 4; n++)
		send_number(tx, n);
	for (uint64_t n = 0; n < 4; n++) {
		CHECK_INT(kvpipe_pipe_open(kv, &o, &rx), 0);
		recv_number(rx, n);
		int rc = kvpipe_pipe_open(kv, &o, &second);
		if (rc == 0) { /* what the home alone knows comes with the first recv */
			rc = kvpipe_pipe_recv(second, WAIT, &m);
			kvpipe_pipe_close(second);
		}
		CHECK_INT(rc, -KVPIPE_E_BUSY);
		kvpipe_pipe_close(rx);
	}
	struct kvpipe_pipe_opts again = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "next", .end = KVPIPE_SEND);
	CHECK_FAILS(kvpipe_pipe_open(kv, &again, &second), KVPIPE_E_BUSY, "next");
	kvpipe_pipe_close(tx);
	kvpipe_close(kv);
}

static void tokens(void)
{
	kvpipe_t *kv = connect_as("a");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "secret", .end = KVPIPE_SEND, .token = TOKEN, .token_len = 16);
	kvpipe_pipe_t *tx, *rx;
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_pipe_open(kv, &o, &tx), 0);
	send_number(tx, 5);
	o.end = KVPIPE_RECV;
	for (int wrong = 0; wrong < 2; wrong++) {
		o.token = wrong ? "fedcba9876543210" : NULL;
		o.token_len = wrong ? 16 : 0;
		int rc = kvpipe_pipe_open(kv, &o, &rx);
		if (rc == 0) {
			rc = kvpipe_pipe_recv(rx, WAIT, &m);
			kvpipe_pipe_close(rx);
		}
		CHECK_INT(rc, -KVPIPE_E_DENIED);
	}
	o.token = TOKEN;
	o.token_len = 16;
	CHECK_INT(kvpipe_pipe_open(kv, &o, &rx), 0);
	recv_number(rx, 5);
	kvpipe_pipe_close(rx);
	kvpipe_pipe_close(tx);
	kvpipe_close(kv);
}

static void nobody_comes(void)
{
	kvpipe_t *kv = connect_as("a");
	kvpipe_pipe_t *rx = named(kv, "nobody", KVPIPE_RECV, 0);
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_pipe_recv(rx, 0, &m), -KVPIPE_E_TIMEOUT);
	CHECK_FAILS(kvpipe_pipe_recv(rx, 20 * KV_MS, &m), KVPIPE_E_TIMEOUT, "nothing came within 20 ms: ");
	kvpipe_pipe_close(rx);
	rx = named(kv, "nobody", KVPIPE_RECV, 0);
	/* The daemon says why. One that is kept from running says so a call later. */
	for (int i = 0; i < 10; i++) {
		CHECK_INT(kvpipe_pipe_recv(rx, KV_SEC + 10 * KV_MS, &m), -KVPIPE_E_TIMEOUT);
		if (strstr(kvpipe_last_error(), "no sender opened it") != NULL)
			break;
	}
	CHECK_HAS(kvpipe_last_error(), "no sender opened it");
	kvpipe_pipe_t *tx = named(kv, "nobody", KVPIPE_SEND, 1 << 20);
	send_number(tx, 1);
	recv_number(rx, 1);
	kvpipe_pipe_close(tx);
	kvpipe_pipe_close(rx);
	kvpipe_close(kv);
}

/* More than the daemon takes of an end at a time: each has its own entry, the last of them, which wait here, first. */
static void five_thousand_queries(void)
{
	enum { N = 5000 };
	static kvpipe_query_t *q[N];
	kvpipe_t *kv = connect_as("a");
	kvpipe_lookup_t *own = open_lookup(kv, 2 << 20), *sel = open_lookup(kv, 0);
	kvpipe_msg_t *m;

	for (int64_t i = 0; i < N; i++) {
		struct kvpipe_tensor t = flat(KVPIPE_I64, 1, &i);
		CHECK_INT(kvpipe_lookup_select(sel, &t, NULL, KVPIPE_EXACT, WAIT, &q[i]), 0);
	}
	for (int64_t i = N; i-- > 0;) {
		struct kvpipe_tensor t = flat(KVPIPE_I64, 1, &i);
		const struct kvpipe_tensor *members[5] = { &t };
		CHECK_INT(kvpipe_lookup_insert(own, members, WAIT), 0);
	}
	for (int64_t i = N; i-- > 0;) {
		CHECK_INT(kvpipe_query_wait(q[i], WAIT, &m), 0);
		CHECK_INT(*(int64_t *)member(m, 0).data, i);
		kvpipe_msg_free(m);
		kvpipe_query_free(q[i]);
	}
	kvpipe_lookup_close(own);
	kvpipe_lookup_close(sel);
	kvpipe_close(kv);
}

static void lookups(void)
{
	enum { N = 200 };
	static uint8_t value[1700 - 32];
	kvpipe_t *a = connect_as("a"), *b = connect_as("b");
	kvpipe_lookup_t *own = open_lookup(a, 170000), *sel = open_lookup(b, 0);
	struct kvpipe_tensor v = flat(KVPIPE_U8, sizeof(value), value);
	kvpipe_query_t *q[N];
	kvpipe_msg_t *m, *got[N] = { NULL };
	int64_t t[4];

	/* All queries are there before any entry, and each gets its own. */
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < 4; k++)
			t[k] = (i * 37 % N) * 10 + k;
		struct kvpipe_tensor tokens = flat(KVPIPE_I64, 1 + (uint64_t)i % 4, t);
		CHECK_INT(kvpipe_lookup_select(sel, &tokens, NULL, KVPIPE_PREFIX, WAIT, &q[i]), 0);
	}
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < 4; k++)
			t[k] = i * 10 + k;
		memset(value, i, sizeof(value));
		struct kvpipe_tensor tokens = flat(KVPIPE_I64, 4, t);
		const struct kvpipe_tensor *members[5] = { &tokens, NULL, &v, NULL, NULL };
		int rc;
		while ((rc = kvpipe_lookup_insert(own, members, KV_MS)) == -KVPIPE_E_TIMEOUT) {
			for (int k = 0; k < N; k++) { /* full: whoever looks makes room, and has what came */
				if (got[k] == NULL)
					(void)kvpipe_query_wait(q[k], 0, &got[k]);
			}
		}
		CHECK_INT(rc, 0);
	}
	for (int i = 0; i < N; i++) {
		if (got[i] == NULL)
			CHECK_INT(kvpipe_query_wait(q[i], WAIT, &got[i]), 0);
		m = got[i];
		CHECK_INT(kvpipe_msg_matched(m), 1 + i % 4);
		CHECK_INT(*(uint8_t *)member(m, 2).data, (uint8_t)(i * 37 % N));
		kvpipe_msg_free(m);
		kvpipe_query_free(q[i]);
	}
	/* By key, which stays. */
	for (int round = 0; round < 2; round++) {
		memset(value, round + 50, sizeof(value));
		CHECK_INT(kvpipe_lookup_put(own, "k", 1, &v, WAIT), 0);
		for (int i = 0; i < 3; i++) {
			kvpipe_query_t *one;
			CHECK_INT(kvpipe_lookup_get(sel, "k", 1, WAIT, &one), 0);
			CHECK_INT(kvpipe_query_wait(one, WAIT, &m), 0);
			CHECK_INT(kvpipe_msg_count(m), 1);
			CHECK_INT(*(uint8_t *)member(m, 0).data, round + 50);
			kvpipe_msg_free(m);
			kvpipe_query_free(one);
		}
	}
	bool told = false; /* by the daemon, again; in its place the library can only say that it does not answer */
	for (int i = 0; i < 10 && !told; i++) {
		CHECK_INT(kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_PREFIX, KV_MS, &q[0]), 0);
		CHECK_INT(kvpipe_query_wait(q[0], WAIT, &m), -KVPIPE_E_TIMEOUT);
		told = strstr(kvpipe_last_error(), "no entry matched") != NULL;
		CHECK(told || strstr(kvpipe_last_error(), "does not answer") != NULL);
		CHECK_INT(kvpipe_query_done(q[0]), 1);
		kvpipe_query_free(q[0]);
	}
	CHECK(told);
	kvpipe_lookup_close(sel);
	kvpipe_lookup_close(own);
	kvpipe_close(a);
	kvpipe_close(b);
}

/* The longest run of free bytes of an end's arena. */
static uint64_t longest(kvpipe_lookup_t *l)
{
	struct kv_pool *p = ((struct kv_end *)(void *)l)->pool;
	uint64_t most = 0, run = 0;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->nblocks; i++) {
		run = (p->used[i / 64] >> i % 64 & 1) != 0 ? 0 : run + 1;
		most = run > most ? run : most;
	}
	pthread_mutex_unlock(&p->lock);
	return most * p->block;
}

static void insert_bytes(kvpipe_lookup_t *own, int64_t id, const uint8_t *bytes, uint64_t n)
{
	struct kvpipe_tensor tokens = flat(KVPIPE_I64, 1, &id), v = flat(KVPIPE_U8, n, bytes);
	const struct kvpipe_tensor *members[5] = { &tokens, NULL, &v, NULL, NULL };

	CHECK_INT(kvpipe_lookup_insert(own, members, WAIT), 0);
}

static kvpipe_query_t *ask_for(kvpipe_lookup_t *sel, int64_t id)
{
	struct kvpipe_tensor tokens = flat(KVPIPE_I64, 1, &id);
	kvpipe_query_t *q;

	CHECK_INT(kvpipe_lookup_select(sel, &tokens, NULL, KVPIPE_EXACT, WAIT, &q), 0);
	return q;
}

static kvpipe_msg_t *got_bytes(kvpipe_query_t *q, const uint8_t *bytes, uint64_t n)
{
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_query_wait(q, WAIT, &m), 0);
	kvpipe_query_free(q);
	CHECK_INT(member(m, 2).shape[0], n);
	CHECK(memcmp(member(m, 2).data, bytes, n) == 0);
	return m;
}

/* Entries leave in any order, and some are kept by who received them: where free blocks lie apart, on both sides, a large one comes whole. */
static void scattered(void)
{
	enum { SMALL = 4096, MIDDLE = 65536, LARGE = 500000, KEPT = 45, N = 240 };
	static uint8_t large[LARGE], small[N][SMALL];
	kvpipe_t *a = connect_as("a"), *b = connect_as("b");
	/* What another test left under its key keeps the name "l" for a while. */
	kvpipe_lookup_t *own = open_lookup_named(a, "scattered", 1 << 20), *sel = open_lookup_named(b, "scattered", 0);
	kvpipe_query_t *q[KEPT];
	kvpipe_msg_t *kept[KEPT];

	for (size_t i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(i * 31 + i / 1000);
	for (int i = 0; i < N; i++)
		memset(small[i], i, SMALL);
	/* Each waiting query gets room for the largest recent entry. What its own entry does not need is given back, which leaves gaps. */
	for (int first = 0; first < KEPT; first += 15) {
		insert_bytes(own, 1000, large, MIDDLE);
		kvpipe_msg_free(got_bytes(ask_for(sel, 1000), large, MIDDLE));
		for (int i = first; i < first + 15; i++)
			q[i] = ask_for(sel, i);
		for (int i = first; i < first + 15; i++)
			insert_bytes(own, i, small[i], SMALL);
		for (int i = first; i < first + 15; i++)
			kept[i] = got_bytes(q[i], small[i], SMALL);
	}
	for (int i = 0; i < N; i++)
		insert_bytes(own, i, small[i], SMALL);
	for (int i = 0; i < N; i += 2)
		kvpipe_msg_free(got_bytes(ask_for(sel, i), small[i], SMALL));
	CHECK(longest(own) < LARGE && longest(sel) < LARGE); /* else the sizes above scatter nothing: change them */
	insert_bytes(own, 2000, large, LARGE);
	kvpipe_msg_free(got_bytes(ask_for(sel, 2000), large, LARGE));
	for (int i = 1; i < N; i += 2)
		kvpipe_msg_free(got_bytes(ask_for(sel, i), small[i], SMALL));
	for (int i = 0; i < KEPT; i++) {
		CHECK(memcmp(member(kept[i], 2).data, small[i], SMALL) == 0);
		kvpipe_msg_free(kept[i]);
	}
	kvpipe_lookup_close(sel);
	kvpipe_lookup_close(own);
	kvpipe_close(a);
	kvpipe_close(b);
}

static bool no_copies; /* atomic */

/* Stands before libc's, and has no memory while a test says so. */
int posix_memalign(void **to, size_t alignment, size_t size)
{
	*to = __atomic_load_n(&no_copies, __ATOMIC_RELAXED) ? NULL : aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
	return *to != NULL ? 0 : ENOMEM;
}

static void send_bytes(kvpipe_pipe_t *p, const uint8_t *bytes, uint64_t n)
{
	struct kvpipe_tensor t = flat(KVPIPE_U8, n, bytes);

	CHECK_INT(kvpipe_pipe_send(p, &t, WAIT), 0);
}

static kvpipe_msg_t *recv_bytes(kvpipe_pipe_t *p, const uint8_t *bytes, uint64_t n)
{
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_pipe_recv(p, WAIT, &m), 0);
	CHECK_INT(member(m, 0).shape[0], n);
	CHECK(memcmp(member(m, 0).data, bytes, n) == 0);
	return m;
}

/*
 * An item came, and there is no memory to copy it to. Where it lies in one piece, it is lent, however much is lent already. Else it is
 * lost, and what follows is for the next receiver: a pipe has no gaps.
 */
static void no_memory_to_copy_to(void)
{
	enum { SMALL = 200000, LARGE = 900000, N = 10 };
	static uint8_t bytes[LARGE];
	kvpipe_t *kv = connect_as("a");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "full", .end = KVPIPE_RECV, .window = 1);
	kvpipe_pipe_t *from = named(kv, "full", KVPIPE_SEND, 1 << 20), *to;
	kvpipe_msg_t *kept[N], *m;

	for (int i = 0; i < LARGE; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 1000);
	CHECK_INT(kvpipe_pipe_open(kv, &o, &to), 0);
	__atomic_store_n(&no_copies, true, __ATOMIC_RELAXED);
	for (int i = 0; i < N; i++) {
		send_bytes(from, bytes + i, SMALL);
		kept[i] = recv_bytes(to, bytes + i, SMALL);
	}
	for (int i = 0; i < N; i += 2) /* gaps, none of which holds the next item */
		kvpipe_msg_free(kept[i]);
	send_bytes(from, bytes, LARGE);
	CHECK_FAILS(kvpipe_pipe_recv(to, WAIT, &m), KVPIPE_E_QUOTA, "no memory for it");
	send_bytes(from, bytes, 1);
	for (int i = 0; i < 2; i++)
		CHECK_FAILS(kvpipe_pipe_recv(to, WAIT, &m), KVPIPE_E_QUOTA, "no memory for it");
	__atomic_store_n(&no_copies, false, __ATOMIC_RELAXED);
	kvpipe_pipe_close(to);
	CHECK_INT(kvpipe_pipe_open(kv, &o, &to), 0);
	kvpipe_msg_free(recv_bytes(to, bytes, 1));
	for (int i = 1; i < N; i += 2) {
		CHECK(memcmp(member(kept[i], 0).data, bytes + i, SMALL) == 0);
		kvpipe_msg_free(kept[i]);
	}
	kvpipe_pipe_close(to);
	kvpipe_pipe_close(from);
	kvpipe_close(kv);
}

/* As a library of another version might. */
static void send_as_nobody_does(kvpipe_pipe_t *p)
{
	struct kv_end *e = (struct kv_end *)(void *)p;
	static const uint8_t meta[8] = { 99, 1 };
	struct kvpipe_rec_put rec = { .form = KVPIPE_MATCH_NEXT, .meta_len = sizeof(meta) };
	struct kv_record r = { .opcode = KVPIPE_OPCODE_PUT, .target = e->bind, .head = &rec, .head_len = sizeof(rec), .strings = { { meta, sizeof(meta) } } };

	pthread_mutex_lock(&e->kv->lock);
	struct kv_eop *op = kv_eop_new(e, KVPIPE_OPCODE_PUT);
	CHECK(op != NULL);
	op->number = ++e->sent;
	e->items++;
	pthread_mutex_unlock(&e->kv->lock);
	CHECK_INT(kv_end_submit(e, op, &r, kv_now() + WAIT, NULL), 0);
}

/* What this version does not understand is lost, as often as the end is asked, and what follows is for the next receiver. */
static void not_understood(void)
{
	kvpipe_t *kv = connect_as("a");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "odd", .end = KVPIPE_RECV, .window = 1);
	kvpipe_pipe_t *from = named(kv, "odd", KVPIPE_SEND, 65536), *to;
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_pipe_open(kv, &o, &to), 0);
	send_number(from, 1);
	recv_number(to, 1);
	send_as_nobody_does(from);
	send_number(from, 3);
	for (int i = 0; i < 3; i++)
		CHECK_FAILS(kvpipe_pipe_recv(to, WAIT, &m), KVPIPE_E_INCOMPATIBLE, "an item that this version of the library does not understand");
	kvpipe_pipe_close(to);
	CHECK_INT(kvpipe_pipe_open(kv, &o, &to), 0);
	recv_number(to, 3);
	kvpipe_pipe_close(to);
	kvpipe_pipe_close(from);
	kvpipe_close(kv);
}

/* Nor does one that was fetched ahead keep the caller from what was sent before it, also if that comes later. */
static void not_understood_ahead(void)
{
	enum { N = 40000 };
	static uint8_t bytes[N];
	kvpipe_t *kv = connect_as("a");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "ahead", .end = KVPIPE_RECV);
	kvpipe_pipe_t *from = named(kv, "ahead", KVPIPE_SEND, 65536), *to;
	kvpipe_msg_t *m;

	for (int i = 0; i < N; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 1000);
	CHECK_INT(kvpipe_pipe_open(kv, &o, &to), 0);
	send_number(from, 1);
	recv_number(to, 1);
	send_number(from, 2); /* has others asked for ahead */
	recv_number(to, 2);
	send_bytes(from, bytes, N); /* more than there is room for ahead */
	send_as_nobody_does(from);
	struct kv_end *e = (struct kv_end *)(void *)to;
	for (bool both = false; !both;) {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		both = e->nshorts == 1 && e->ended == 1;
		kv_end_unlock(e);
	}
	kvpipe_msg_free(recv_bytes(to, bytes, N));
	for (int i = 0; i < 2; i++)
		CHECK_FAILS(kvpipe_pipe_recv(to, WAIT, &m), KVPIPE_E_INCOMPATIBLE, "does not understand: open it again for what follows");
	kvpipe_pipe_close(to);
	kvpipe_pipe_close(from);
	kvpipe_close(kv);
}

/* What takes no room of the capacity has a limit of its own. */
static void as_many_items_as_there_may_be(void)
{
	enum { MOST = 262139 };
	kvpipe_t *kv = connect_as("a");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "many", .end = KVPIPE_SEND, .linger_ns = 1);
	kvpipe_pipe_t *p;

	CHECK_INT(kvpipe_pipe_open(kv, &o, &p), 0);
	for (int n = 0; n < MOST; n++)
		CHECK_INT(kvpipe_pipe_send(p, NULL, WAIT), 0);
	CHECK_FAILS(kvpipe_pipe_send(p, NULL, 0), KVPIPE_E_TIMEOUT,
		    "\"many\" holds 262139 that nobody received yet, the limit is 262139, whatever the capacity");
	kvpipe_pipe_close(p);
	kvpipe_close(kv);
	/*
	 * On a busy machine the daemon may need longer to put all of it away than an end that is opened meanwhile waits. Until it has, the
	 * name is taken.
	 */
	kv = connect_as("a");
	int rc;
	while ((rc = kvpipe_pipe_open(kv, &o, &p)) == -KVPIPE_E_TIMEOUT || rc == -KVPIPE_E_BUSY)
		poll(NULL, 0, 10);
	CHECK_INT(rc, 0);
	kvpipe_pipe_close(p);
	kvpipe_close(kv);
}

static kvpipe_pipe_t *tx, *rx;

static void *sender(void *arg)
{
	for (uint64_t n = 0; n < 2000; n++)
		send_number(tx, n);
	return arg;
}

static void at_the_same_time(void)
{
	kvpipe_t *kv = connect_as("a");
	pthread_t t;

	tx = named(kv, "both", KVPIPE_SEND, 65536);
	rx = named(kv, "both", KVPIPE_RECV, 0);
	CHECK(pthread_create(&t, NULL, sender, NULL) == 0);
	for (uint64_t n = 0; n < 2000; n++)
		recv_number(rx, n);
	CHECK(pthread_join(t, NULL) == 0);
	kvpipe_close(kv);
	kvpipe_pipe_close(rx);
	kvpipe_pipe_close(tx);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(there),   TEST(lingering), TEST(the_next_receiver), TEST(tokens), TEST(nobody_comes),
		TEST(five_thousand_queries), TEST(as_many_items_as_there_may_be), TEST(lookups), TEST(scattered), TEST(no_memory_to_copy_to), TEST(not_understood), TEST(not_understood_ahead),
		TEST(at_the_same_time),
	};
	return RUN(tests);
}
