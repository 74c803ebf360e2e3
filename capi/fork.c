/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a process from its forked children without a system call, by a page that the kernel wipes in the child. Each process
 * that opens sessions writes a number there that none of its ancestors used. Here, too, is the one lock that all sessions of
 * a process share: in a child that has just begun, nobody holds it.
 */
#include "internal.h"

#include <sys/mman.h>
#include <unistd.h>

static uint64_t *page; /* NULL: the kernel has no MADV_WIPEONFORK (Linux 4.14) */
static uint64_t counter;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

void kv_process_lock(void) { pthread_mutex_lock(&shared); }
void kv_process_unlock(void) { pthread_mutex_unlock(&shared); }

static void make_page(void)
{
	/* fork() waits for the lock. This fails only for want of memory; a child may then inherit a lock that is held. */
	(void)pthread_atfork(kv_process_lock, kv_process_unlock, kv_process_unlock);

	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	if (madvise(p, size, MADV_WIPEONFORK) != 0) {
		munmap(p, size);
		return;
	}
	page = p;
}

uint64_t kv_process_mark(void)
{
	pthread_once(&page_once, make_page);
	if (page == NULL)
		return (uint64_t)getpid();
	uint64_t mark = __atomic_load_n(page, __ATOMIC_RELAXED);
	if (mark == 0) {
		uint64_t mine = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
		/* On failure mark is what another thread of this process wrote meanwhile. */
		if (__atomic_compare_exchange_n(page, &mark, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			mark = mine;
	}
	return mark;
}

bool kv_process_is(uint64_t mark)
{
	if (page == NULL)
		return mark == (uint64_t)getpid();
	return mark == __atomic_load_n(page, __ATOMIC_RELAXED);
}
