/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program has already becomes a region, where it is and while others write it. */
#include "adopting.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_place(void)
{
	const size_t len = 5 * PAGE;
	uint8_t *p = pages(len);
	kvpipe_region_t region, again;

	begin();
	pattern(p, 3 * PAGE, 1); /* the last pages were never touched */
	CHECK_INT(adopt(p, len, 0, &region), 0);
	CHECK_INT(got.reg.bytes, len);
	CHECK_INT(got.reg.kind, 1);
	CHECK_INT(got.reg.flags, 0);
	const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	CHECK_INT(got.seals & want, want);
	check_pattern(p, 3 * PAGE, 1);
	check_pattern(got.map, 3 * PAGE, 1);
	CHECK(p[4 * PAGE] == 0 && got.map[4 * PAGE] == 0);
	/* It is one memory. */
	p[4 * PAGE + 5] = 9;
	got.map[17] = 8;
	CHECK(got.map[4 * PAGE + 5] == 9 && p[17] == 8);
	CHECK_INT(flag_of(p, "dd"), 'y');
	CHECK_FAILS(adopt(p + PAGE, PAGE, 0, &again), KVPIPE_E_BUSY, "is adopted already");
	struct fake *second = fake_start(&adopting);
	kvpipe_t *other = fake_connect(second);
	struct kvpipe_adopt_opts o = KVPIPE_OPTS(kvpipe_adopt_opts, .addr = p, .nbytes = len);
	CHECK_FAILS(kvpipe_mem_adopt(other, &o, &again), KVPIPE_E_BUSY, "is adopted already"); /* in any session */
	CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	/* It stays the program's, as it is; another session may have it next. */
	CHECK(p[17] == 8 && p[4 * PAGE + 5] == 9 && flag_of(p, "dd") == 'n');
	CHECK_INT(kvpipe_mem_adopt(other, &o, &again), 0);
	CHECK(p[17] == 8 && got.map[17] == 8);
	p[18] = 7;
	CHECK_INT(got.map[18], 7);
	kvpipe_close(other);
	fake_stop(second);
	p[19] = 1;
	end();
	p[20] = 1;
	unmap(p, len);
}

static void allocations(void)
{
	static const struct {
		size_t at, out;
	} layouts[] = { { 16, 0 }, { 64, 0 }, { 1024, 0 }, { 16, 16 }, { 1024, 16 } };
	kvpipe_region_t region;

	begin();
	for (size_t i = 0; i < KV_COUNT(layouts); i++) {
		size_t at = layouts[i].at, len = 300000 + i, whole;
		uint8_t *p = chunk(at, len, layouts[i].out, &whole);
		/* More pages, somebody else's, without a border in between. */
		uint8_t *theirs = p - at + whole;
		theirs[0] = 77;
		pattern(p, len, 3);
		CHECK_INT(adopt(p, len, 0, &region), 0);
		CHECK_INT(got.reg.bytes, len);
		CHECK_INT(got.reg.flags, at);
		check_pattern(p, len, 3);
		check_pattern(got.map + at, len, 3);
		CHECK(memcmp(p - 16, got.map + at - 16, 16) == 0); /* for free() */
		CHECK_INT(got.size, whole);
		CHECK_INT(theirs[0], 77);
		CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
		CHECK(munmap(p - at, whole + 2 * PAGE) == 0);
	}
	/* A mapping of just its pages needs no marks. */
	uint8_t *p = pages(4 * PAGE);
	CHECK_INT(adopt(p + 100, 4 * PAGE - 200, 0, &region), 0);
	CHECK_INT(got.reg.flags, 100);
	CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	unmap(p, 4 * PAGE);
	end();
}

/* ---- concurrent writers ---- */
#define WRITERS 3
#define BIG (64 * MIB + 64 * MIB + 12 * PAGE)

struct writer {
	pthread_t thread;
	uint64_t *words; /* every WRITERS-th word of every 64 is this one's */
	size_t n, me;
	uint64_t written;
	uint32_t *stop, *running;
};

static void *write_all_the_time(void *arg)
{
	struct writer *w = arg;
	uint64_t seed = w->me + 1;

	__atomic_add_fetch(w->running, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(w->stop, __ATOMIC_RELAXED) == 0) {
		for (int i = 0; i < 64; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			size_t at = (size_t)(seed >> 33) % (w->n / 64) * 64 + w->me;
			w->words[at]++;
			w->written++;
		}
	}
	return NULL;
}

/* Nothing that is written while the memory moves is lost; windows are 64 MiB, so borders are crossed. */
static void writers(void)
{
	uint32_t stop = 0, running = 0;
	struct writer w[WRITERS];
	uint8_t *p = pages(BIG);
	kvpipe_region_t region;

	begin();
	for (size_t i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .words = (uint64_t *)(void *)p, .n = BIG / 8, .me = i, .stop = &stop, .running = &running };
		CHECK(pthread_create(&w[i].thread, NULL, write_all_the_time, &w[i]) == 0);
	}
	while (__atomic_load_n(&running, __ATOMIC_SEQ_CST) < WRITERS)
		sched_yield();
	CHECK_INT(adopt(p, BIG, 0, &region), 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < WRITERS; i++) {
		uint64_t sum = 0;
		CHECK(pthread_join(w[i].thread, NULL) == 0);
		for (size_t at = i; at < BIG / 8; at += 64)
			sum += ((const uint64_t *)(void *)got.map)[at];
		CHECK_INT(sum, w[i].written);
	}
	end();
	unmap(p, BIG);
}

/* What the program keeps out of core dumps and of its children stays out, when the region has ended, too. */
static void kept_out(void)
{
	uint8_t *p = pages(2 * PAGE);
	kvpipe_region_t region;

	begin();
	CHECK(madvise(p, 2 * PAGE, MADV_DONTDUMP) == 0 && madvise(p, 2 * PAGE, MADV_DONTFORK) == 0);
	for (int i = 0; i < 2; i++) { /* the memory is not a file's at first */
		CHECK_INT(adopt(p, 2 * PAGE, 0, &region), 0);
		CHECK(flag_of(p, "dd") == 'y' && flag_of(p, "dc") == 'y');
		CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
		CHECK_INT(flag_of(p, "dd"), 'y');
		CHECK_INT(flag_of(p, "dc"), 'y');
	}
	end();
	unmap(p, 2 * PAGE);
}

/* Children share what was adopted, and find all of it. */
static void forked(void)
{
	uint8_t *p = pages(2 * PAGE);
	kvpipe_region_t region;
	int status;

	begin();
	p[10] = 5;
	CHECK_INT(adopt(p, 2 * PAGE, 0, &region), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		bool ok = p[10] == 5 && kvpipe_mem_unregister(kv, region, 0) == -KVPIPE_E_CLOSED;
		p[11] = 6;
		_exit(ok ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(p[11] == 6 && got.map[11] == 6);
	end();
	unmap(p, 2 * PAGE);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(in_place), TEST(allocations), TEST(writers), TEST(kept_out), TEST(forked) };
	return RUN(tests);
}
