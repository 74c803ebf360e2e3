/* SPDX-License-Identifier: Apache-2.0 */
/* Regions whose memory is given up for a while: what the daemon is asked, and what becomes of the pages. */
#include "restarts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 * 4096 };

/* What the daemon was told of regions, last. */
static struct {
	struct kvpipe_register reg;
	struct kvpipe_unregister invalidate;
	struct kvpipe_revalidate revalidate;
	bool with_memory;    /* the last of REGISTER and REVALIDATE, and all of it was there */
	bool read_before;    /* INVALIDATE came after all that was submitted */
	unsigned int wanted; /* submissions */
	uint32_t answer;     /* to REVALIDATE */
	unsigned int keep;   /* requests of this type are not answered */
	bool older;          /* it does not know invalid regions */
	kvpipe_t *naps;      /* would give its region up while it is told of */
	kvpipe_region_t napping;
	bool layout, layout_before; /* came from this session; before its REVALIDATE */
} told;

static void welcome(struct kvpipe_welcome *w)
{
	if (told.older)
		w->says = KVPIPE_SAYS_GRANTED;
}

static bool request(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	kvpipe_t *naps = told.naps;

	if (naps != NULL && head->type == KVPIPE_CTL_REGISTER) {
		told.naps = NULL;
		CHECK_FAILS(kvpipe_mem_invalidate(naps, told.napping, KV_MS), KVPIPE_E_TIMEOUT, "was told of the memory");
	}
	struct stat st;
	bool whole = fd >= 0 && fstat(fd, &st) == 0 && st.st_blocks * 512 >= BYTES;

	pthread_mutex_lock(&world.lock);
	told.layout = head->type == KVPIPE_CTL_LAYOUT || (told.layout && head->type != KVPIPE_CTL_REGISTER);
	if (head->type == KVPIPE_CTL_REVALIDATE)
		told.layout_before = told.layout;
	if (head->type == KVPIPE_CTL_REGISTER)
		memcpy(&told.reg, body, sizeof(told.reg));
	if (head->type == KVPIPE_CTL_INVALIDATE) {
		memcpy(&told.invalidate, body, sizeof(told.invalidate));
		told.read_before = world.n == told.wanted;
	}
	if (head->type == KVPIPE_CTL_REVALIDATE)
		memcpy(&told.revalidate, body, sizeof(told.revalidate));
	if (head->type == KVPIPE_CTL_REGISTER || head->type == KVPIPE_CTL_REVALIDATE)
		told.with_memory = whole;
	bool keep = head->type == told.keep;
	uint32_t answer = head->type == KVPIPE_CTL_REVALIDATE ? told.answer : 0;
	pthread_mutex_unlock(&world.lock);
	if (!keep && answer != 0)
		fake_ack(f, head->seq, answer, 0, "this daemon will not");
	return keep || answer != 0;
}

static void tell(uint32_t answer, unsigned int keep)
{
	pthread_mutex_lock(&world.lock);
	told.answer = answer;
	told.keep = keep;
	pthread_mutex_unlock(&world.lock);
}

/* Until the session has the daemon to which it has come back with n regions so far. */
static void await_attached(struct fake *f, kvpipe_t *kv, unsigned int n)
{
	uint64_t life;

	fake_await_requests(f, KVPIPE_CTL_REGISTER, n);
	CHECK_INT(kv_await_daemon(kv, "test", kv_now() + WAIT, &life), 0);
}

static struct fake_conf conf = { .submission = note, .request = request, .welcome = welcome, .layers = 64 };

struct sleeper {
	struct fake *f;
	kvpipe_t *kv;
	kvpipe_region_t region;
	uint8_t *memory;
};

static struct sleeper start(void)
{
	struct sleeper s;
	void *addr;

	memset(&told, 0, sizeof(told));
	world.n = 0;
	s.f = fake_start(&conf);
	s.kv = fake_connect(s.f);
	CHECK_INT(kvpipe_mem_alloc(s.kv, BYTES, KVPIPE_MEM_NO_HUGE, &addr, &s.region), 0);
	s.memory = addr;
	memset(addr, 0x5a, BYTES);
	return s;
}

static void stop(struct sleeper *s)
{
	kvpipe_close(s->kv);
	fake_stop(s->f);
}

/* Bytes of the region's file that take memory. */
static int64_t allocated(const struct sleeper *s)
{
	struct stat st;

	CHECK_INT(fstat(s->kv->regions->fd, &st), 0);
	return (int64_t)st.st_blocks * 512;
}

/* The pages go and come back at the same address; asking again asks nobody. */
static void memory(void)
{
	struct sleeper s = start();

	CHECK_INT(allocated(&s), BYTES);
	for (int i = 0; i < 2; i++)
		CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, WAIT), 0);
	CHECK_INT(allocated(&s), 0);
	CHECK_INT(told.invalidate.region, s.region);
	CHECK(told.invalidate.timeout_ns > 0 && told.invalidate.timeout_ns <= (uint64_t)WAIT);
	for (int i = 0; i < 2; i++)
		CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, 0), 0);
	CHECK_INT(allocated(&s), BYTES);
	CHECK_INT(told.revalidate.region, s.region);
	CHECK(told.with_memory);
	CHECK_INT(s.memory[17], 0);
	memset(s.memory, 1, BYTES);
	fake_await_requests(s.f, KVPIPE_CTL_INVALIDATE, 1);

	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, 0), 0);
	CHECK_INT(kvpipe_mem_unregister(s.kv, s.region, 0), 0); /* also while it is invalid */
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, 0), KVPIPE_E_NOT_FOUND, "invalidate: region");
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, 0), KVPIPE_E_NOT_FOUND, "revalidate: region");
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, -1), KVPIPE_E_INVALID, "invalidate: timeout_ns");
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, KVPIPE_FOREVER), KVPIPE_E_INVALID, "revalidate: timeout_ns");
	stop(&s);
}

/* What the program has mapped by itself is its own to give back. */
static void registered(void)
{
	struct sleeper s = start();
	kvpipe_region_t own;
	int fd = kv_memfd("own", 0);

	CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0 && posix_fallocate(fd, 0, BYTES) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p[100] = 7;
	CHECK_INT(kvpipe_mem_register_fd(s.kv, fd, BYTES, 0, &own), 0);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, own, 0), 0);
	CHECK_INT(p[100], 7);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, own, 0), 0);
	CHECK(told.with_memory && p[100] == 7);
	munmap(p, BYTES);
	close(fd);
	stop(&s);
}

/* A daemon of before says nothing of it, and is asked nothing. */
static void older(void)
{
	struct sleeper s = start();

	told.older = true;
	fake_hang_up(s.f);
	await_attached(s.f, s.kv, 2);
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, WAIT), KVPIPE_E_INCOMPATIBLE, "kvpiped 9.9.9 does not know invalid regions");
	CHECK(allocated(&s) == BYTES && s.memory[17] == 0x5a);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, WAIT), 0); /* it is valid */

	/* One that comes after an invalid region waits for its memory, or for a newer one. */
	told.older = false;
	fake_hang_up(s.f);
	await_attached(s.f, s.kv, 3);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, WAIT), 0);
	told.older = true;
	fake_hang_up(s.f);
	fake_await_sessions(s.f, 4);
	kvpipe_region_t other;
	void *addr;
	CHECK_FAILS(kvpipe_mem_alloc(s.kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &other), KVPIPE_E_UNAVAILABLE, "older than invalid regions");
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, WAIT), 0);
	CHECK(told.with_memory && told.reg.flags == 0 && allocated(&s) == BYTES);
	stop(&s);
}

#define NOT_ASKED "its time was over before the daemon was asked: call again" /* to a caller that stood still */

/* Answers that do not come, or say no. */
static void not_in_time(void)
{
	struct sleeper s = start();

	tell(0, KVPIPE_CTL_INVALIDATE);
	CHECK_LATE(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), "invalidate: the daemon does not answer", "invalidate: " NOT_ASKED);
	fake_await_requests(s.f, KVPIPE_CTL_INVALIDATE, 1);
	CHECK(allocated(&s) == BYTES && s.memory[17] == 0x5a);
	tell(0, 0);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, 0), 0); /* whatever the daemon has made of it */
	fake_await_requests(s.f, KVPIPE_CTL_REVALIDATE, 1);
	CHECK(s.memory[17] == 0x5a);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, 0), 0);

	tell(KVPIPE_E_QUOTA, 0);
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, 0), KVPIPE_E_QUOTA, "revalidate: this daemon will not");
	CHECK_INT(allocated(&s), 0);
	tell(KVPIPE_E_QUOTA, KVPIPE_CTL_REVALIDATE);
	CHECK_LATE(kvpipe_mem_revalidate(s.kv, s.region, KV_MS), "revalidate: the daemon does not answer", "revalidate: " NOT_ASKED);
	CHECK_INT(allocated(&s), 0);
	fake_await_requests(s.f, KVPIPE_CTL_REVALIDATE, 3);
	tell(KVPIPE_E_QUOTA, 0);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, 0), 0); /* it may have taken it back since */
	fake_await_requests(s.f, KVPIPE_CTL_INVALIDATE, 3);
	tell(0, 0);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, 0), 0);
	CHECK_INT(allocated(&s), BYTES);
	stop(&s);
}

/* What was submitted before is read before: later it would be taken for an offer of what comes then. */
static void submitted_before(void)
{
	struct sleeper s = start();

	fake_pause(s.f, true);
	kvpipe_op_t op = offer_key(s.kv, "o", 0);
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, 20 * KV_MS), KVPIPE_E_TIMEOUT, "has not read all that was submitted before");
	told.wanted = 1;
	fake_pause(s.f, false);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, WAIT), 0);
	CHECK(told.read_before);
	fake_await_requests(s.f, KVPIPE_CTL_INVALIDATE, 1);
	fake_end(s.f, op, KVPIPE_FAILED, KVPIPE_E_UNAVAILABLE, 0);
	check_end(s.kv, op, KVPIPE_FAILED, KVPIPE_E_UNAVAILABLE, "");
	stop(&s);
}

static _Atomic bool stuck, at_rest; /* the thread that invalidates: is to stand still in its pause; does */
static __thread bool invalidates;

/* In the place of libc's: a pause of the library's. */
int pause_for(const struct timespec *ts, struct timespec *left) __asm__("nanosleep");
int pause_for(const struct timespec *ts, struct timespec *left)
{
	while (stuck && invalidates) {
		at_rest = true;
		sched_yield();
	}
	return clock_nanosleep(CLOCK_MONOTONIC, 0, ts, left) == 0 ? 0 : -1;
}

static void *gives_up(void *arg)
{
	const struct sleeper *s = arg;

	invalidates = true;
	CHECK_INT(kvpipe_mem_invalidate(s->kv, s->region, 20 * KV_SEC), 0);
	return NULL;
}

/* A daemon that is another one's successor has its own count of what it read. */
static void submitted_before_a_restart(void)
{
	struct sleeper s = start();
	pthread_t thread;

	for (unsigned int i = 0; i < 20; i++) {
		kvpipe_op_t op = offer_key(s.kv, "o", 0);
		await_seen(i + 1);
		fake_end(s.f, op, KVPIPE_DONE, 0, 0);
		check_end(s.kv, op, KVPIPE_DONE, 0, "");
	}
	fake_pause(s.f, true);
	offer_key(s.kv, "p", 0);
	stuck = true;
	CHECK(pthread_create(&thread, NULL, gives_up, &s) == 0);
	while (!at_rest)
		sched_yield();
	fake_die(s.f);
	while (__atomic_load_n(&s.kv->state, __ATOMIC_RELAXED) != KV_AWAY)
		sched_yield();
	fake_pause(s.f, false);
	fake_return(s.f);
	await_attached(s.f, s.kv, 2);
	while (__atomic_load_n(&s.kv->state, __ATOMIC_RELAXED) != KV_LIVE)
		sched_yield();
	stuck = false;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_INT(allocated(&s), 0);
	stop(&s);
}

/* The next daemon is told of the region as it is. */
static void restart(void)
{
	struct sleeper s = start();

	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, 0), 0);
	fake_restart_regions(s.f, 77);
	fake_die(s.f);
	fake_return(s.f);
	await_attached(s.f, s.kv, 2);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, WAIT), 0);
	CHECK(told.reg.bytes == BYTES && told.reg.flags == KVPIPE_REGISTER_INVALID);
	CHECK_INT(told.revalidate.region, 77);
	CHECK(told.with_memory && allocated(&s) == BYTES);
	fake_hang_up(s.f);
	await_attached(s.f, s.kv, 3);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, WAIT), 0);
	CHECK(told.reg.flags == 0 && told.with_memory);
	stop(&s);
}

/* Without a daemon, and without operations that wait for one, memory is given up at once. */
static void away(void)
{
	struct sleeper s = start();

	kvpipe_op_t op = offer_key(s.kv, "o", WAIT);
	fake_die(s.f);
	while (kvpipe_connected(s.kv) == 1)
		sched_yield();
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), KVPIPE_E_UNAVAILABLE, "the daemon went away");
	CHECK_INT(allocated(&s), BYTES);
	CHECK_INT(kvpipe_offer_withdraw(s.kv, op, 0, NULL), 0);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), 0);
	CHECK_INT(allocated(&s), 0);
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, KV_MS), KVPIPE_E_UNAVAILABLE, "the daemon went away");
	CHECK_INT(allocated(&s), BYTES);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), 0);
	CHECK_INT(allocated(&s), 0);
	fake_return(s.f);
	await_attached(s.f, s.kv, 2);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, s.region, WAIT), 0);
	CHECK(told.reg.flags == KVPIPE_REGISTER_INVALID && told.with_memory);
	stop(&s);
}

/* An extension of an offer that has ended waits for no daemon. */
static void away_extended(void)
{
	struct sleeper s = start();
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);

	kvpipe_op_t op = offer_key(s.kv, "o", WAIT);
	fake_die(s.f);
	while (kvpipe_connected(s.kv) == 1)
		sched_yield();
	CHECK_INT(kvpipe_offer_extend(s.kv, op, &x, KVPIPE_NOWAIT), 0);
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), KVPIPE_E_UNAVAILABLE, "the daemon went away");
	CHECK_INT(kvpipe_offer_withdraw(s.kv, op, 0, NULL), 0);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), 0);
	fake_return(s.f);
	await_attached(s.f, s.kv, 2);
	pthread_mutex_lock(&world.lock);
	for (unsigned int i = 0; i < world.n; i++)
		CHECK(world.all[i].e.op != KVPIPE_OPCODE_EXTEND);
	pthread_mutex_unlock(&world.lock);
	stop(&s);
}

/* What a scheduler brings along may be about what the memory held before. So the next daemon hears that the memory was away, with the
 * layout that names it, although it is back. The one after that does not. */
static void back_in_time(void)
{
	const struct kvpipe_view view = { .num_blocks = 1, .block_stride = 64, .token_stride = 64, .head_stride = 64, .content_bytes = 64,
					  .block_size = 1, .heads = 1, .total_heads = 1, .part = "kv" };

	for (int older = 0; older < 2; older++) {
		struct sleeper s = start();
		struct kvpipe_view v = view;

		v.region = s.region;
		CHECK_INT(kvpipe_set_layout(s.kv, &v, 1, NULL, 0), 0);
		fake_restart_regions(s.f, 77);
		fake_die(s.f);
		while (kvpipe_connected(s.kv) == 1)
			sched_yield();
		CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, KV_MS), 0);
		CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, KV_MS), KVPIPE_E_UNAVAILABLE, "the daemon went away");
		told.older = older;
		fake_return(s.f);
		await_attached(s.f, s.kv, 2);
		CHECK(told.with_memory && allocated(&s) == BYTES);
		CHECK_INT(told.reg.flags, older ? 0U : KVPIPE_REGISTER_INVALID);
		CHECK_INT(told.revalidate.region, older ? 0U : 77U);
		CHECK_INT(told.layout_before, !older);
		memset(&told.revalidate, 0, sizeof(told.revalidate));
		fake_hang_up(s.f);
		await_attached(s.f, s.kv, 3);
		CHECK(told.reg.flags == 0 && told.revalidate.region == 0);
		stop(&s);
	}
}

static void *die_later(void *f)
{
	poll(NULL, 0, 50);
	fake_die(f);
	return NULL;
}

/* A daemon that is stopping still fences. Once it has gone the call needs no daemon either. */
static void leaving(void)
{
	struct sleeper s = start();
	pthread_t end;

	fake_bye(s.f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	while (kvpipe_connected(s.kv) == 1)
		sched_yield();
	CHECK(pthread_create(&end, NULL, die_later, s.f) == 0);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, 2 * KV_SEC), 0);
	CHECK_INT(allocated(&s), 0);
	CHECK(pthread_join(end, NULL) == 0);
	stop(&s);
}

/* Memory of the program's that is not all there is no good to the next daemon either, and nothing is said to it. */
static void away_sparse(void)
{
	struct sleeper s = start();
	kvpipe_region_t own;
	int fd = kv_memfd("own", 0);

	CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0 && posix_fallocate(fd, 0, BYTES) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	CHECK_INT(kvpipe_mem_register_fd(s.kv, fd, BYTES, 0, &own), 0);
	fake_die(s.f);
	while (kvpipe_connected(s.kv) == 1)
		sched_yield();
	CHECK_INT(kvpipe_mem_invalidate(s.kv, own, WAIT), 0);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, own, KV_MS), KVPIPE_E_INVALID, "is sparse: 258048 of 262144 bytes are allocated");
	fake_return(s.f);
	await_attached(s.f, s.kv, 4);
	CHECK(told.reg.flags == KVPIPE_REGISTER_INVALID); /* it stayed so */
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, own, WAIT), KVPIPE_E_INVALID, "is sparse");
	CHECK(fallocate(fd, 0, 4096, 4096) == 0);
	CHECK_INT(kvpipe_mem_revalidate(s.kv, own, WAIT), 0);
	CHECK(told.with_memory);
	close(fd);
	stop(&s);
}

/* What a daemon is being told of is not given up meanwhile: it would find no pages, or bring bytes there. */
static void nap(void)
{
	struct sleeper s = start();

	told.napping = s.region;
	told.naps = s.kv;
	fake_hang_up(s.f);
	await_attached(s.f, s.kv, 2);
	CHECK_INT(kvpipe_mem_invalidate(s.kv, s.region, WAIT), 0);
	stop(&s);
}

static void *unregister(void *arg)
{
	struct sleeper *s = arg;

	CHECK_INT(kvpipe_mem_unregister(s->kv, s->region, WAIT), 0);
	return NULL;
}

/* What is being unregistered is about to be freed: nobody else begins anything with it. */
static void while_unregistering(void)
{
	struct sleeper s = start();
	pthread_t t;

	tell(0, KVPIPE_CTL_UNREGISTER);
	CHECK(pthread_create(&t, NULL, unregister, &s) == 0);
	fake_await_requests(s.f, KVPIPE_CTL_UNREGISTER, 1);
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, WAIT), KVPIPE_E_BUSY, "another thread");
	CHECK_FAILS(kvpipe_mem_revalidate(s.kv, s.region, WAIT), KVPIPE_E_BUSY, "another thread");
	CHECK_FAILS(kvpipe_mem_unregister(s.kv, s.region, WAIT), KVPIPE_E_BUSY, "another thread");
	tell(0, 0);
	fake_hang_up(s.f); /* the next daemon answers */
	pthread_join(t, NULL);
	CHECK_FAILS(kvpipe_mem_invalidate(s.kv, s.region, WAIT), KVPIPE_E_NOT_FOUND, "invalidate: region");
	stop(&s);
}

/* Threads that do all of it at once while daemons come and go: each call succeeds or says that another is at it. */
static struct sleeper storm;
static bool storm_over;

static void *turn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
		int err = rand_r(&seed) % 2 ? kvpipe_mem_invalidate(storm.kv, storm.region, WAIT) :
					      kvpipe_mem_revalidate(storm.kv, storm.region, WAIT);
		CHECK(err == 0 || err == -KVPIPE_E_BUSY);
	}
	return NULL;
}

static void *others(void *arg)
{
	kvpipe_region_t region;
	void *addr;

	(void)arg;
	while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
		CHECK_INT(kvpipe_mem_alloc(storm.kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
		CHECK_INT(kvpipe_mem_invalidate(storm.kv, region, WAIT), 0);
		CHECK_INT(kvpipe_mem_revalidate(storm.kv, region, WAIT), 0);
		*(volatile char *)addr = 1;
		CHECK_INT(kvpipe_mem_unregister(storm.kv, region, WAIT), 0);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[3];

	storm = start();
	storm_over = false;
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, turn, (void *)(i + 1)) == 0);
	CHECK(pthread_create(&t[2], NULL, others, NULL) == 0);
	for (unsigned int i = 1; i < 30; i++) {
		fake_await_sessions(storm.f, i);
		fake_await_requests(storm.f, KVPIPE_CTL_REVALIDATE, i * 5);
		if (i % 2)
			fake_die(storm.f);
		else
			fake_hang_up(storm.f);
		if (i % 2)
			fake_return(storm.f);
		fake_await_sessions(storm.f, i + 1);
	}
	__atomic_store_n(&storm_over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	CHECK_INT(kvpipe_mem_revalidate(storm.kv, storm.region, WAIT), 0);
	CHECK_INT(allocated(&storm), BYTES);
	stop(&storm);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(memory), TEST(registered), TEST(older), TEST(not_in_time), TEST(submitted_before), TEST(submitted_before_a_restart), TEST(restart), TEST(away), TEST(away_extended), TEST(back_in_time),
		TEST(leaving), TEST(away_sparse), TEST(nap), TEST(while_unregistering), TEST(threads),
	};
	return RUN(tests);
}
