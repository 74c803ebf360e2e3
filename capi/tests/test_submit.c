/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions as the daemon sees them, and what is refused before it does. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#include <sys/mman.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef"

/* What the fake saw last, on its thread; read after the operation's end. */
static struct {
	struct kvpipe_sqe e;
	uint8_t record[1 << 20];
} seen;

static void remember(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	seen.e = *e;
	CHECK(e->rec_len <= sizeof(seen.record));
	memcpy(seen.record, record, e->rec_len);
	fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

static void finish(kvpipe_t *kv, kvpipe_op_t op)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, 60 * KV_SEC, &c), 0);
	CHECK_INT(c.status, KVPIPE_DONE);
	CHECK_INT(c.op, op);
	kvpipe_op_free(kv, op);
}

static void offer_record(void)
{
	struct fake_conf conf = { .submission = remember };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	const uint32_t ids[] = { 5, 6, 7, 8, KVPIPE_NO_BLOCK, KVPIPE_NO_BLOCK, 1, 9 };
	const uint32_t odd[] = { 4, 2, 3 };
	const struct kvpipe_blocks blocks[] = {
		{ .group = 1, .first_token = 16, .ntokens = 128, .count = 8, .ids = ids },
		{ .group = 0, .first_token = 0, .ntokens = 48, .count = 3, .ids = odd },
	};
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "request-7", .key_len = 9, .blocks = blocks,
						 .nblocks = 2, .flags = KVPIPE_OP_SEALED, .content = "dig", .content_len = 3,
						 .trace = "tr", .after = 77, .tag = 99, .lease_ns = 5 * KV_SEC);
	kvpipe_op_t op;
	uint8_t token[32];
	uint32_t len = sizeof(token);

	CHECK_INT(kvpipe_offer(kv, &o, &op), 0);
	CHECK_INT(kvpipe_offer_token(kv, op, token, &len), 0);
	CHECK_INT(len, 16);
	finish(kv, op);
	CHECK_INT(seen.e.op, KVPIPE_OPCODE_OFFER);
	CHECK_INT(seen.e.user_data, op);
	CHECK_INT(seen.e.tag, 99);
	CHECK_INT(seen.e.timeout_ns, 5 * KV_SEC);
	CHECK_INT(seen.e.layer_slot, 0xffffffff);
	struct kvpipe_rec_offer r;
	memcpy(&r, seen.record, sizeof(r));
	CHECK_INT(r.flags, KVPIPE_OP_SEALED);
	CHECK_INT(r.consumers, 1);
	CHECK_INT(r.after, 77);
	CHECK_INT(r.ngroups, 2);
	CHECK(r.key_len == 9 && r.token_len == 16 && r.content_len == 3 && r.trace_len == 2);
	const uint8_t *p = seen.record + sizeof(r);
	CHECK(memcmp(p, "request-7", 9) == 0 && memcmp(p + 9, token, 16) == 0 && memcmp(p + 25, "digtr\0\0", 7) == 0);
	p += 32;
	struct kvpipe_rec_group g;
	memcpy(&g, p, sizeof(g));
	CHECK(g.group == 1 && g.first_token == 16 && g.ntokens == 128 && g.form == KVPIPE_FORM_IDS && g.count == 8);
	CHECK(memcmp(p + sizeof(g), ids, sizeof(ids)) == 0); /* 4 runs of 8 bytes are not smaller than 8 ids of 4 */
	p += sizeof(g) + sizeof(ids);
	memcpy(&g, p, sizeof(g));
	CHECK(g.group == 0 && g.form == KVPIPE_FORM_IDS && g.count == 3);
	CHECK(memcmp(p + sizeof(g), odd, sizeof(odd)) == 0);
	const uint32_t zero = 0;
	CHECK(memcmp(p + sizeof(g) + sizeof(odd), &zero, 4) == 0);
	CHECK_INT(seen.e.rec_len, p + sizeof(g) + sizeof(odd) + 4 - seen.record);
	o.lease_ns = 0; /* the daemon's default_lease, which it alone knows */
	CHECK_INT(kvpipe_offer(kv, &o, &op), 0);
	finish(kv, op);
	CHECK_INT(seen.e.op, KVPIPE_OPCODE_OFFER);
	CHECK_INT(seen.e.timeout_ns, 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void take_record(void)
{
	struct fake_conf conf = { .submission = remember };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	uint32_t ids[100];
	for (uint32_t i = 0; i < 100; i++)
		ids[i] = i < 50 ? 1000 + i : KVPIPE_NO_BLOCK;
	const struct kvpipe_blocks blocks = { .ntokens = 1600, .count = 100, .ids = ids };
	struct kvpipe_take_opts o = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16,
						.peer = "node-b", .blocks = &blocks, .nblocks = 1, .part = 1, .parts = 2,
						.take_id = 31, .flags = KVPIPE_OP_LAYERED, .timeout_ns = KV_SEC);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_take(kv, &o, &op), 0);
	finish(kv, op);
	struct kvpipe_rec_take r;
	memcpy(&r, seen.record, sizeof(r));
	CHECK(r.part == 1 && r.parts == 2 && r.take_id == 31 && r.flags == KVPIPE_OP_LAYERED && r.peer_len == 6);
	CHECK(seen.e.layer_slot < 4);
	const uint8_t *p = seen.record + sizeof(r);
	CHECK(memcmp(p, "k" TOKEN "node-b\0", 24) == 0);
	struct kvpipe_rec_group g;
	memcpy(&g, p + 24, sizeof(g));
	CHECK(g.form == KVPIPE_FORM_RUNS && g.count == 2);
	const uint32_t runs[] = { 1000, 50, KVPIPE_NO_BLOCK, 50 };
	CHECK(memcmp(p + 24 + sizeof(g), runs, sizeof(runs)) == 0);

	o.take_id = 0;
	CHECK_INT(kvpipe_take(kv, &o, &op), 0);
	finish(kv, op);
	memcpy(&r, seen.record, sizeof(r));
	CHECK(r.take_id != 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static void key_record(void)
{
	struct fake_conf conf = { .submission = remember };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_key_opts o = KVPIPE_OPTS(kvpipe_key_opts, .key = "key", .key_len = 3, .token = TOKEN, .token_len = 16,
					       .peer = "p", .trace = "t", .tag = 3);
	kvpipe_op_t op;

	CHECK_INT(kvpipe_watch(kv, &o, &op), 0);
	finish(kv, op);
	CHECK_INT(seen.e.op, KVPIPE_OPCODE_WATCH);
	CHECK_INT(seen.e.timeout_ns, 30 * KV_SEC);
	CHECK_INT(seen.e.rec_len, 56);
	CHECK(memcmp(seen.record + sizeof(struct kvpipe_rec_key), "key" TOKEN "tp\0\0\0", 24) == 0);
	CHECK_INT(kvpipe_drop(kv, &o, &op), 0);
	finish(kv, op);
	CHECK_INT(seen.e.op, KVPIPE_OPCODE_DROP);
	CHECK_INT(seen.e.timeout_ns, 5 * KV_SEC);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Encoding against a naive reading of what was encoded. */
static void block_lists(void)
{
	static uint32_t ids[3000], back[3000];
	static uint64_t to[3000];
	unsigned int seed = 1;

	for (int round = 0; round < 3000; round++) {
		uint32_t n = (uint32_t)rand_r(&seed) % (round % 10 == 0 ? 3000 : 200), breaks = 1u + (uint32_t)round % 20;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t pick = (uint32_t)rand_r(&seed) % (breaks * 4);
			ids[i] = i > 0 && pick > 2 ? ids[i - 1] + (ids[i - 1] != KVPIPE_NO_BLOCK) /* may reach NO_BLOCK */
				 : pick == 0	   ? KVPIPE_NO_BLOCK
				 : pick == 1	   ? UINT32_MAX - (uint32_t)rand_r(&seed) % 3
						   : (uint32_t)rand_r(&seed) % 4;
		}
		struct kvpipe_blocks b = { .group = 3, .first_token = 4, .ntokens = 5, .count = n, .ids = ids };
		memset(to, 0xaa, sizeof(to));
		size_t len = kv_blocks_encode((uint8_t *)to, &b);
		CHECK(len <= kv_blocks_bound(&b) && len % 8 == 0);
		struct kvpipe_rec_group g;
		memcpy(&g, to, sizeof(g));
		CHECK(g.group == 3 && g.first_token == 4 && g.ntokens == 5 && g.reserved == 0);
		const uint32_t *p = (const uint32_t *)(to + 3);
		uint32_t got = 0, words = g.form == KVPIPE_FORM_RUNS ? 2 * g.count : g.count;
		CHECK_INT(len, sizeof(g) + (words + 1) / 2 * 8);
		for (uint32_t i = 0; i < g.count; i++) {
			uint32_t run = g.form == KVPIPE_FORM_RUNS ? p[2 * i + 1] : 1;
			uint32_t first = g.form == KVPIPE_FORM_RUNS ? p[2 * i] : p[i];
			/* No run may grow into the number that stands for a hole. */
			CHECK(run >= 1 && (first == KVPIPE_NO_BLOCK || run <= KVPIPE_NO_BLOCK - first));
			CHECK(got + run <= n);
			for (uint32_t k = 0; k < run; k++)
				back[got++] = first == KVPIPE_NO_BLOCK ? first : first + k;
		}
		CHECK_INT(got, n);
		CHECK(n == 0 || memcmp(back, ids, n * sizeof(*ids)) == 0);
		if (g.form == KVPIPE_FORM_RUNS)
			CHECK(g.count * 2 < n);
		CHECK(words % 2 == 0 || p[words] == 0);
	}
}

/* Ids that another thread writes to meanwhile: through a mapping of its own, for it is no race that anybody else has to mend. */
static struct {
	uint32_t *ids; /* the writer's */
	bool over;
} writer;
enum { FLIPPED = 1 << 14 };

/* In turn a list of runs of three, which are found late, and one without runs. */
static void *flip(void *unused)
{
	(void)unused;
	for (uint32_t step = 1; !__atomic_load_n(&writer.over, __ATOMIC_RELAXED); step = 8 - step) {
		for (uint32_t i = 0; i < FLIPPED; i++)
			writer.ids[i] = i * step + i / 3 * 2;
	}
	return NULL;
}

/* The caller's mistake, and no more than a list that is neither: it fits where there is room for its ids. */
static void ids_that_change(void)
{
	int fd = kv_memfd("ids", 0);
	size_t size = FLIPPED * sizeof(uint32_t);
	pthread_t t;

	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	const uint32_t *ids = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	writer.ids = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(ids != MAP_FAILED && writer.ids != MAP_FAILED);
	const struct kvpipe_blocks b = { .ntokens = FLIPPED, .count = FLIPPED, .ids = ids };
	size_t room = kv_blocks_bound(&b);
	uint8_t *to = malloc(room * 3);
	CHECK(to != NULL);
	memset(to + room, 0x5a, 2 * room);
	writer.over = false;
	CHECK(pthread_create(&t, NULL, flip, NULL) == 0);
	for (int i = 0; i < 1000; i++) {
		CHECK(kv_blocks_encode(to, &b) <= room);
		for (size_t k = 0; k < 2 * room; k += room / 64)
			CHECK_INT(to[room + k], 0x5a);
	}
	__atomic_store_n(&writer.over, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	free(to);
	munmap((void *)(uintptr_t)ids, size);
	munmap(writer.ids, size);
	close(fd);
}

/* The arena alone: records never overlap while in use, never wrap, and a record of the arena's size fits in the end. */
static void arena(void)
{
	enum { ENTRIES = 8, BYTES = 4096 };
	static struct kvpipe_ring_d d;
	uint64_t ends[ENTRIES] = { 0 }, offs[ENTRIES], lens[ENTRIES];
	struct kv_rings r = { .d = &d, .sq_entries = ENTRIES, .record_bytes = BYTES };
	struct kv_sq sq = { .ends = ends };
	unsigned int seed = 2;
	int full = 0, wraps = 0;

	for (int i = 0; i < 100000; i++) {
		CHECK(kv_sq_refresh(&sq, &r));
		if (i % 5 == 0 && kv_arena_reserve(&sq, &r, 64, &(uint64_t){ 0 })) /* and then thought better of it */
			CHECK(sq.used >= sq.freed);
		uint64_t len = ((uint64_t)rand_r(&seed) % (i % 7 == 0 ? BYTES : 600) + 8) & ~7ull, off;
		if (sq.tail - sq.head < ENTRIES && kv_arena_reserve(&sq, &r, len, &off)) {
			CHECK(off % 8 == 0 && off % BYTES + len <= BYTES && off >= sq.used);
			wraps += off != sq.used;
			for (uint32_t k = d.sq_head; k != sq.tail; k++) {
				uint64_t at = offs[k % ENTRIES] % BYTES;
				CHECK(off % BYTES + len <= at || at + lens[k % ENTRIES] <= off % BYTES);
			}
			offs[sq.tail % ENTRIES] = off;
			lens[sq.tail % ENTRIES] = len;
			kv_arena_commit(&sq, off, len);
			ends[sq.tail % ENTRIES] = sq.used;
			sq.tail++;
		} else {
			full++;
			CHECK(d.sq_head != sq.tail); /* an empty one has room for anything */
			d.sq_head += 1 + (uint32_t)rand_r(&seed) % (sq.tail - d.sq_head);
		}
		if (rand_r(&seed) % 3 == 0 && d.sq_head != sq.tail)
			d.sq_head++;
	}
	CHECK(full > 1000 && wraps > 1000);
	d.sq_head = sq.tail + 1;
	CHECK(!kv_sq_refresh(&sq, &r));
	d.sq_head = sq.head - 1;
	CHECK(!kv_sq_refresh(&sq, &r));
}

/* A small arena and a small queue, many times around; the fake checks that no record wraps. */
static void wrap_around(void)
{
	struct fake_conf conf = { .submission = remember, .records = 4096, .sq = 4 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	uint32_t ids[700];
	unsigned int seed = 3;

	for (int i = 0; i < 3000; i++) {
		uint32_t n = (uint32_t)rand_r(&seed) % 700;
		for (uint32_t k = 0; k < n; k++)
			ids[k] = 2 * k + (uint32_t)i;
		const struct kvpipe_blocks blocks = { .ntokens = n, .count = n, .ids = ids };
		struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = &i, .key_len = sizeof(i), .token = TOKEN,
							 .token_len = 16, .blocks = &blocks, .nblocks = 1);
		kvpipe_op_t op;
		CHECK_INT(kvpipe_offer(kv, &o, &op), 0);
		finish(kv, op);
		const uint8_t *p = seen.record + sizeof(struct kvpipe_rec_offer);
		CHECK(memcmp(p, &i, sizeof(i)) == 0);
		CHECK(n < 2 || memcmp(p + 24 + sizeof(struct kvpipe_rec_group), ids, n * 4) == 0);
	}
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	const struct kvpipe_blocks big = { .ntokens = 1100, .count = 1100, .ids = (uint32_t[1100]){ 0 } };
	o.blocks = &big;
	o.nblocks = 1;
	kvpipe_op_t op;
	CHECK_FAILS(kvpipe_offer(kv, &o, &op), KVPIPE_E_QUOTA, "the limit is 4096");
	kvpipe_close(kv);
	fake_stop(f);
}

static void full_queue(void)
{
	struct fake_conf conf = { .sq = 4 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	kvpipe_op_t op[4], more;
	int err = -KVPIPE_E_BUSY;

	for (int tries = 0; err != 0; tries++) {
		fake_pause(f, true);
		for (int i = 0; i < 4; i++)
			CHECK_INT(kvpipe_offer(kv, &o, &op[i]), 0);
		int64_t begun = kv_now();
		CHECK_FAILS(kvpipe_offer(kv, &o, &more), KVPIPE_E_BUSY, "the submission queue is full: 4 of 4 entries");
		CHECK(kv_now() - begun >= KV_ROOM_NS);
		fake_pause(f, false);
		err = kvpipe_offer(kv, &o, &more); /* room comes while it waits, unless the fake's thread gets no processor so long */
		CHECK_INT(err, tries < 20 && err != 0 ? -KVPIPE_E_BUSY : 0);
		for (int i = 0; i < 4; i++)
			finish(kv, op[i]);
	}
	finish(kv, more);
	kvpipe_close(kv);
	fake_stop(f);
}

static kvpipe_op_t offered;

static void *offers(void *kv)
{
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);

	CHECK_INT(kvpipe_offer(kv, &o, &offered), 0);
	return NULL;
}

/* A call that found the queue full and then stood still looks once more when its time is over: the daemon has gone on meanwhile. */
static void room_meanwhile(void)
{
	struct fake_conf conf = { .sq = 4 };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	kvpipe_op_t op[4];
	pthread_t thread;

	fake_pause(f, true);
	for (int i = 0; i < 4; i++)
		CHECK_INT(kvpipe_offer(kv, &o, &op[i]), 0);
	pthread_mutex_lock(&kv->lock); /* where the call stands */
	CHECK(pthread_create(&thread, NULL, offers, kv) == 0);
	poll(NULL, 0, 3 * (int)(KV_ROOM_NS / KV_MS));
	fake_pause(f, false);
	fake_await_submissions(f, 4);
	pthread_mutex_unlock(&kv->lock);
	CHECK(pthread_join(thread, NULL) == 0);
	for (int i = 0; i < 4; i++)
		finish(kv, op[i]);
	finish(kv, offered);
	kvpipe_close(kv);
	fake_stop(f);
}

static void old_daemon(void)
{
	struct fake_conf conf = { .ops = 0xfff & ~(1u << KVPIPE_OPCODE_WATCH) };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_key_opts o = KVPIPE_OPTS(kvpipe_key_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	struct kvpipe_probe p = { .sz = sizeof(p) };
	kvpipe_op_t op;

	CHECK_FAILS(kvpipe_watch(kv, &o, &op), KVPIPE_E_INCOMPATIBLE, "kvpiped 9.9.9 does not know operation 7");
	CHECK_INT(kvpipe_drop(kv, &o, &op), 0);
	finish(kv, op);
	CHECK_INT(kvpipe_probe(kv, &p), 0);
	CHECK_INT(p.ops >> KVPIPE_OPCODE_WATCH & 1, 0);
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(offer_record), TEST(take_record), TEST(key_record), TEST(block_lists), TEST(ids_that_change),
		TEST(arena),	    TEST(wrap_around), TEST(full_queue), TEST(room_meanwhile), TEST(old_daemon),
	};
	return RUN(tests);
}
