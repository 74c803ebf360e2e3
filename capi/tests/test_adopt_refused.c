/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory is not adopted, and what happens where the kernel allows less. */
#include "adopting.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void arguments(void)
{
	struct kvpipe_adopt_opts o = KVPIPE_OPTS(kvpipe_adopt_opts, .nbytes = PAGE);
	kvpipe_region_t region;
	uint8_t *p = pages(PAGE);

	begin();
	CHECK_FAILS(kvpipe_mem_adopt(kv, NULL, &region), KVPIPE_E_INVALID, "mem_adopt: opts is NULL");
	CHECK_FAILS(kvpipe_mem_adopt(kv, &o, &region), KVPIPE_E_INVALID, "addr is NULL");
	o.addr = p;
	CHECK_FAILS(kvpipe_mem_adopt(kv, &o, NULL), KVPIPE_E_INVALID, "region is NULL");
	o.reserved0 = 1;
	CHECK_FAILS(kvpipe_mem_adopt(kv, &o, &region), KVPIPE_E_INVALID, "reserved0 is 0x1");
	o.reserved0 = 0;
	o.reserved[3] = 1;
	CHECK_FAILS(kvpipe_mem_adopt(kv, &o, &region), KVPIPE_E_INVALID, "reserved[3] is 0x1");
	CHECK_FAILS(adopt(p, 0, 0, &region), KVPIPE_E_INVALID, "nbytes is 0: must be 1 to 2^46");
	CHECK_FAILS(adopt(p, 1ull << 47, 0, &region), KVPIPE_E_INVALID, "must be 1 to 2^46");
	CHECK_FAILS(adopt(p, PAGE, 2, &region), KVPIPE_E_INVALID, "flags is 0x2: KVPIPE_ADOPT_QUIESCED or 0");
	CHECK_FAILS(adopt((void *)(UINTPTR_MAX - 100), 200, 0, &region), KVPIPE_E_INVALID, "end behind the address space");
	end();
	unmap(p, PAGE);
}

static void refused(void)
{
	kvpipe_region_t region;
	uint8_t *p = pages(8 * PAGE);

	begin();
#define REFUSED(addr, nbytes, words) CHECK_FAILS(adopt(addr, nbytes, 0, &region), KVPIPE_E_INVALID, words)
	pattern(p, 8 * PAGE, 2);
	/* Others' data may be on an edge page. */
	REFUSED(p + 100, 2 * PAGE, "may hold others' data");
	REFUSED(p, 2 * PAGE + 1, "may hold others' data");
	REFUSED(p + PAGE - 8, 2 * PAGE, "may hold others' data");
	uint8_t *q;
	for (size_t out = 0; out <= 16; out += 16) {
		size_t whole;
		q = chunk(64, 10 * PAGE, out, &whole);
		REFUSED(q + 64, 5 * PAGE, "may hold others' data"); /* not from its beginning */
		REFUSED(q, whole, "may hold others' data");         /* more than it is */
		CHECK(munmap(q - 64, whole + 2 * PAGE) == 0);
	}
	REFUSED(p - PAGE, 2 * PAGE, "cannot be read and written: make it so with mprotect()");
	CHECK(munmap(p + 3 * PAGE, PAGE) == 0);
	REFUSED(p, 8 * PAGE, "adopt what malloc() or mmap() gave, and no more");
	CHECK(mmap(p + 3 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	REFUSED(p, 8 * PAGE, "cannot be read and written");
	/* Sanitizers leave these two out. */
	CHECK(mprotect(p + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0 && syscall(SYS_mlock, p + 3 * PAGE, PAGE) == 0);
	REFUSED(p, 8 * PAGE, "munlock() it first");
	CHECK(syscall(SYS_munlock, p, 8 * PAGE) == 0 && madvise(p, PAGE, MADV_WIPEONFORK) == 0);
	REFUSED(p, 8 * PAGE, "MADV_WIPEONFORK");
	CHECK(madvise(p, PAGE, MADV_KEEPONFORK) == 0);
	if (mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) { /* some systems allow no such memory at all */
		REFUSED(p, 8 * PAGE, "it is executable: take PROT_EXEC away with mprotect()");
		CHECK(mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0);
	}
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REFUSED(q, PAGE, "kvpipe_mem_register_fd()");
	munmap(q, PAGE);
	int fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && unlink("file") == 0 && ftruncate(fd, PAGE) == 0);
	q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	REFUSED(q, PAGE, "mapping of a file");
	munmap(q, PAGE);
	void *alloc;
	kvpipe_region_t other;
	CHECK_INT(kvpipe_mem_alloc(kv, PAGE, KVPIPE_MEM_NO_HUGE, &alloc, &other), 0);
	REFUSED(alloc, PAGE, "kvpipe_mem_register_fd()");
	uint8_t on_stack[3 * PAGE];
	REFUSED((uint8_t *)(((uintptr_t)on_stack + PAGE - 1) & ~(PAGE - 1)), PAGE, "it is a stack");
	uint8_t *heap = sbrk(3 * PAGE);
	REFUSED((uint8_t *)(((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1)), PAGE, "brk heap");
	/* Nothing has happened to it: it can be adopted still; unless the daemon will not, and then again. */
	check_pattern(p, 3 * PAGE, 2);
	got.answer = KVPIPE_E_QUOTA;
	CHECK_FAILS(adopt(p, 8 * PAGE, 0, &region), KVPIPE_E_QUOTA, "this daemon will not");
	got.answer = 0;
	check_pattern(p, 3 * PAGE, 2);
	CHECK_INT(adopt(p, 8 * PAGE, 0, &region), 0);
	check_pattern(got.map, 3 * PAGE, 2);
	end();
	unmap(p, 8 * PAGE);
}

/* A session that owns no memory is told so before anything happens to the caller's. */
static void schedulers(void)
{
	const char *words = "a scheduler owns no memory: its workers register it";
	uint8_t *p = pages(2 * PAGE);
	kvpipe_region_t region;
	void *addr;

	begin_as(KVPIPE_ROLE_SCHEDULER);
	got.answer = KVPIPE_E_INVALID;
	struct held before = held_now();
	CHECK_FAILS(adopt(p, 2 * PAGE, 0, &region), KVPIPE_E_INVALID, words);
	CHECK_FAILS(adopt(p, 2 * PAGE, KVPIPE_ADOPT_QUIESCED, &region), KVPIPE_E_INVALID, words);
	CHECK_INT(held_now().mappings, before.mappings); /* no file was put under it */
	CHECK_FAILS(kvpipe_mem_alloc(kv, PAGE, KVPIPE_MEM_NO_HUGE, &addr, &region), KVPIPE_E_INVALID, words);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, 0, PAGE, 0, &region), KVPIPE_E_INVALID, words);
	CHECK_INT(got.reg.bytes, 0); /* the daemon was not asked */
	end();
	unmap(p, 2 * PAGE);
}

/* ---- where the kernel allows less ---- */

/* Runs f on a thread of its own, whose rights it may give away. */
static void on_a_thread(void *(*f)(void *), void *arg)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, f, arg) == 0 && pthread_join(thread, NULL) == 0);
}

static void forbid(struct sock_filter *code, size_t n)
{
	struct sock_fprog prog = { .len = (unsigned short)n, .filter = code };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
}

/* Has that system call fail for this thread. */
static void fail_userfaultfd(uint32_t err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	forbid(code, KV_COUNT(code));
}

static void *without_userfaultfd(void *arg)
{
	uint8_t *p = arg;
	kvpipe_region_t region;

	fail_userfaultfd(EPERM); /* as containers do it */
	CHECK_FAILS(adopt(p, 2 * PAGE, 0, &region), KVPIPE_E_UNAVAILABLE,
		    "userfaultfd, which keeps writes from being lost, is not to be had: Operation not permitted: let nobody write "
		    "meanwhile and say so with KVPIPE_ADOPT_QUIESCED");
	check_pattern(p, 2 * PAGE, 4);
	CHECK_INT(adopt(p, 2 * PAGE, KVPIPE_ADOPT_QUIESCED, &region), 0);
	return NULL;
}

static void no_userfaultfd(void)
{
	uint8_t *p = pages(2 * PAGE);

	begin();
	pattern(p, 2 * PAGE, 4);
	on_a_thread(without_userfaultfd, p);
	check_pattern(p, 2 * PAGE, 4);
	check_pattern(got.map, 2 * PAGE, 4);
	end();
	unmap(p, 2 * PAGE);
}

/* Nor is there any advice to populate memory before Linux 5.14, for this thread. */
static void forbid_populating(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 22, 1, 0), /* MADV_POPULATE_READ */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 0, 1), /* MADV_POPULATE_WRITE */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	forbid(code, KV_COUNT(code));
	CHECK(madvise(NULL, 0, 22) != 0 && errno == EINVAL);
}

static void *without_populating(void *arg)
{
	uint8_t *p = arg;
	kvpipe_region_t region;

	forbid_populating();
	CHECK_INT(adopt(p, 4 * PAGE, 0, &region), 0);
	CHECK_INT(adopt(p + 4 * PAGE, 4 * PAGE, KVPIPE_ADOPT_QUIESCED, &region), 0);
	return NULL;
}

/* Not a byte of the memory changes, whichever way its pages come to be there. */
static void before_linux_5_14(void)
{
	uint8_t *p = pages(8 * PAGE);

	begin();
	pattern(p, 8 * PAGE, 6);
	on_a_thread(without_populating, p);
	check_pattern(p, 8 * PAGE, 6);
	check_pattern(got.map, 4 * PAGE, 6 + 4); /* the second half */
	end();
	unmap(p, 8 * PAGE);
}

/* A large allocation is interrupted by some signal, each time, for this thread. */
static void interrupt_allocations(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, MIB, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINTR),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	forbid(code, KV_COUNT(code));
}

static void *allocating_between_signals(void *arg)
{
	kvpipe_region_t region;
	uint8_t *p;

	forbid_populating();
	interrupt_allocations();
	CHECK_INT(kvpipe_mem_alloc(kv, 5 * MIB + PAGE, KVPIPE_MEM_NO_HUGE, (void **)&p, &region), 0);
	CHECK_INT(p[5 * MIB], 0);
	return arg;
}

/* A kernel without that advice takes back what an interrupted call had allocated: smaller ones get through. */
static void signals_before_linux_5_14(void)
{
	begin();
	on_a_thread(allocating_between_signals, NULL);
	end();
}

/* The first 64 MiB are moved; there is no room for what follows, for this thread. */
static void *without_room(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 64 * MIB, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	kvpipe_region_t region;

	forbid(code, KV_COUNT(code));
	CHECK_FAILS(adopt(arg, 65 * MIB, 0, &region), KVPIPE_E_QUOTA, "byte 67108864 of 68157440 could not be moved: ");
	return NULL;
}

/* What was moved is kept out of core dumps and of children as before. */
static void moved_in_part(void)
{
	uint8_t *p = pages(65 * MIB);

	begin();
	pattern(p, PAGE, 7);
	CHECK(madvise(p, 65 * MIB, MADV_DONTDUMP) == 0 && madvise(p, 65 * MIB, MADV_DONTFORK) == 0);
	on_a_thread(without_room, p);
	check_pattern(p, PAGE, 7);
	CHECK(flag_of(p, "sh") == 'y' && flag_of(p + 64 * MIB, "sh") == 'n');
	CHECK_INT(flag_of(p, "dd"), 'y');
	CHECK_INT(flag_of(p, "dc"), 'y');
	end();
	unmap(p, 65 * MIB);
}

static void *as_nobody(void *arg)
{
	uint8_t *p = arg;
	kvpipe_region_t region;

	if (geteuid() == 0) /* this thread alone; with the user go the capabilities */
		CHECK(syscall(SYS_setresuid, 65534, 65534, 65534) == 0);
	CHECK_INT(adopt(p, 2 * PAGE, 0, &region), 0);
	return NULL;
}

static void unprivileged(void)
{
	uint8_t *p = pages(2 * PAGE);

	begin();
	pattern(p, 2 * PAGE, 5);
	on_a_thread(as_nobody, p);
	check_pattern(p, 2 * PAGE, 5);
	check_pattern(got.map, 2 * PAGE, 5);
	end();
	unmap(p, 2 * PAGE);
}

/* Where this process may open no more files, neither /proc nor a sandbox is to blame. left: how many it may still open. */
static void few_files(int left)
{
	uint8_t *p = pages(2 * PAGE);
	kvpipe_region_t region;
	struct rlimit files, few;

	begin();
	pattern(p, 2 * PAGE, 7);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
	few = files;
	int lowest = dup(0);
	CHECK(lowest >= 0 && close(lowest) == 0);
	few.rlim_cur = (rlim_t)(lowest + left);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
	CHECK_FAILS(adopt(p, 2 * PAGE, 0, &region), KVPIPE_E_QUOTA, "ulimit -n");
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
	check_pattern(p, 2 * PAGE, 7);
	CHECK_INT(adopt(p, 2 * PAGE, 0, &region), 0);
	end();
	unmap(p, 2 * PAGE);
}

static void no_files(void)
{
	few_files(0); /* for /proc/self/smaps */
	few_files(1); /* for the memfd, beside the userfaultfd */
}

static void *without_files(void *arg)
{
	uint8_t *p = arg;
	kvpipe_region_t region;

	fail_userfaultfd(ENFILE);
	CHECK_FAILS(adopt(p, 2 * PAGE, 0, &region), KVPIPE_E_QUOTA, "fs.file-max");
	check_pattern(p, 2 * PAGE, 8);
	return NULL;
}

/* The same where the node has no more. */
static void nodes_files(void)
{
	uint8_t *p = pages(2 * PAGE);

	begin();
	pattern(p, 2 * PAGE, 8);
	on_a_thread(without_files, p);
	end();
	unmap(p, 2 * PAGE);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(arguments), TEST(refused), TEST(schedulers), TEST(no_userfaultfd),
					     TEST(before_linux_5_14), TEST(signals_before_linux_5_14), TEST(moved_in_part), TEST(unprivileged),
					     TEST(no_files), TEST(nodes_files) };
	return RUN(tests);
}
