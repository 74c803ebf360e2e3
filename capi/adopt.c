/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own memory as a region, where it is: judged, moved onto a file, registered. */
#include "adopt.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What is adopted in this process now, in all its sessions: the kernel's maps do not say which session has a file. Under the
 * process lock. */
struct adopted {
	struct adopted *next;
	uintptr_t first, last;
	uint64_t process; /* a forked child inherits the list, but not the regions */
	bool nodump;      /* the program keeps it out of core dumps, whatever becomes of the region */
};

static struct adopted *adopted;

/* Claims the pages for one region, or says no. */
static int claim(const struct kv_adopt *a)
{
	struct adopted *mine = malloc(sizeof(*mine));
	bool taken = false;

	if (mine == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	*mine = (struct adopted){ .first = a->first, .last = a->last, .process = kv_process_mark() };
	kv_process_lock();
	for (const struct adopted *x = adopted; x != NULL && !taken; x = x->next)
		taken = x->process == mine->process && x->first < a->last && a->first < x->last;
	if (!taken) {
		mine->next = adopted;
		adopted = mine;
	}
	kv_process_unlock();
	if (!taken)
		return 0;
	free(mine);
	return kv_err(KVPIPE_E_BUSY,
		      "mem_adopt: addr %#zx to %#zx: part of its pages is adopted already: unregister that region first, "
		      "or use it",
		      (size_t)a->addr, (size_t)a->end);
}

/* Where the claim of the pages from first on is listed. Needs the process lock. */
static struct adopted **claimed(uintptr_t first)
{
	uint64_t process = kv_process_mark();
	struct adopted **at = &adopted;

	while ((*at)->first != first || (*at)->process != process)
		at = &(*at)->next;
	return at;
}

static void unclaim(uintptr_t first)
{
	kv_process_lock();
	struct adopted **at = claimed(first), *mine = *at;
	*at = mine->next;
	kv_process_unlock();
	free(mine);
}

void kv_adopt_end(void *addr, size_t len)
{
	kv_process_lock();
	bool nodump = (*claimed((uintptr_t)addr))->nodump;
	kv_process_unlock();
	if (!nodump)
		madvise(addr, len, MADV_DODUMP); /* fails only where the program has unmapped it, against the rules */
	unclaim((uintptr_t)addr);
}

static int check(const struct kvpipe_adopt_opts *o, struct kv_adopt *a)
{
	const uint64_t max = (uint64_t)1 << 46;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int err = kv_check_zero("mem_adopt", o->reserved, KV_COUNT(o->reserved));

	if (err != 0)
		return err;
	if (o->reserved0 != 0)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: reserved0 is %#x: it must be 0", o->reserved0);
	if ((o->flags & ~(uint32_t)KVPIPE_ADOPT_QUIESCED) != 0)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: flags is %#x: KVPIPE_ADOPT_QUIESCED or 0", o->flags);
	if (o->nbytes == 0 || o->nbytes > max)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: nbytes is %llu: must be 1 to 2^46", (unsigned long long)o->nbytes);
	if (o->addr == NULL)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: addr is NULL");
	*a = (struct kv_adopt){ .addr = (uintptr_t)o->addr, .page = page, .quiesced = (o->flags & KVPIPE_ADOPT_QUIESCED) != 0 };
	a->end = a->addr + o->nbytes;
	a->first = a->addr / page * page;
	a->last = (a->end + page - 1) / page * page;
	if (a->end < a->addr || a->last < a->end)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: addr %p and nbytes %llu: end behind the address space", o->addr,
			      (unsigned long long)o->nbytes);
	return 0;
}

int kvpipe_mem_adopt(kvpipe_t *kv, const struct kvpipe_adopt_opts *opts, kvpipe_region_t *region)
{
	KV_UNCANCELLED;
	struct kvpipe_adopt_opts o;
	struct kv_adopt a;
	int fd = -1, err = kv_enter(kv);

	if (err == 0)
		err = kv_may_own(kv, "mem_adopt"); /* checked first: once moved, the memory stays on its file, also after a refusal */
	if (err == 0)
		err = kv_copy_opts("mem_adopt", opts, &o, sizeof(o));
	if (err == 0 && region == NULL)
		err = kv_err(KVPIPE_E_INVALID, "mem_adopt: region is NULL");
	if (err == 0)
		err = check(&o, &a);
	if (err == 0)
		err = claim(&a);
	if (err != 0)
		return err;
	err = kv_adopt_judge(&a);
	if (err == 0)
		err = kv_adopt_move(&a, &fd);
	if (err != 0) {
		unclaim(a.first);
		return err;
	}
	kv_process_lock();
	(*claimed(a.first))->nodump = a.nodump;
	kv_process_unlock();
	void *pages = (void *)a.first;
	size_t len = a.last - a.first;
	madvise(pages, len, MADV_DONTDUMP);
	err = kv_region_add_adopted(kv, fd, (uint32_t)(a.addr - a.first), o.nbytes, pages, len, region);
	if (err != 0) {
		close(fd);
		kv_adopt_end(pages, len);
	}
	return err;
}
