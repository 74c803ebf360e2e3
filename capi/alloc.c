/* SPDX-License-Identifier: Apache-2.0 */
/* Memory to share: a sealed memfd, of huge pages when there are any, present from the start. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Returns an errno; on failure nothing is left. */
static int make(struct kv_memory *m, uint64_t nbytes, unsigned int mfd_flags)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct statfs fs;
	int err = 0;

	m->addr = MAP_FAILED;
	m->fd = kv_memfd("kvpipe", mfd_flags);
	if (m->fd < 0)
		return errno;
	/* f_bsize is the file's page size; on hugetlbfs, that of its huge pages. st_blksize would reflect transparent huge pages, too. */
	if (fstatfs(m->fd, &fs) != 0)
		err = errno;
	m->page = err == 0 ? (size_t)fs.f_bsize : 1;
	m->mapped = (nbytes + m->page - 1) / m->page * m->page;
	if (err == 0 && (ftruncate(m->fd, (off_t)m->mapped) != 0 || fcntl(m->fd, F_ADD_SEALS, seals) != 0))
		err = errno;
	if (err == 0) {
		m->addr = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
		err = m->addr == MAP_FAILED ? errno : 0;
	}
	if (err == 0 && (mfd_flags & MFD_HUGETLB) == 0)
		madvise(m->addr, m->mapped, MADV_HUGEPAGE); /* where shmem allows it */
	if (err == 0)
		err = kv_populate(m->fd, m->addr, m->mapped, m->page);
	if (err == 0 && (madvise(m->addr, m->mapped, MADV_DONTFORK) != 0 || madvise(m->addr, m->mapped, MADV_DONTDUMP) != 0))
		err = errno;
	if (err != 0) {
		if (m->addr != MAP_FAILED)
			munmap(m->addr, m->mapped);
		close(m->fd);
	}
	return err;
}

/* This machine's memory; 0: not known. */
static uint64_t all_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

/* Whether err says that there are no huge pages, and not that something is missing, or forbidden by a sandbox, which small pages
 * need as well. ENOSYS is what a kernel without huge pages says, but also one without memfd_create(). */
static bool no_huge_pages(int err)
{
	if (kv_no_files(err))
		return false;
	int fd = err == ENOSYS ? kv_memfd("kvpipe", 0) : -1;

	if (fd >= 0)
		close(fd);
	return fd >= 0 || !kv_forbidden(err);
}

int kv_memory_make(const char *what, uint64_t nbytes, uint32_t flags, struct kv_memory *m)
{
	uint64_t all = all_memory();
	int err = ENOMEM;

	/* Filling all memory would end in a killed process, not in an error. What cgroups allow is not known here. */
	if (all > 0 && nbytes >= all)
		return kv_err(KVPIPE_E_QUOTA, "%s: nbytes is %llu: more than this machine's memory, %llu: ask for less", what,
			      (unsigned long long)nbytes, (unsigned long long)all);

	if ((flags & KVPIPE_MEM_NO_HUGE) == 0)
		err = make(m, nbytes, MFD_HUGETLB);
	if (err == 0)
		return 0;
	bool huge = (flags & KVPIPE_MEM_HUGE) != 0;
	if (huge && no_huge_pages(err))
		return kv_err(KVPIPE_E_QUOTA,
			      "%s: no huge pages for %llu bytes: %s: raise /proc/sys/vm/nr_hugepages, or leave KVPIPE_MEM_HUGE out",
			      what, (unsigned long long)nbytes, strerror(err));
	if (!huge)
		err = make(m, nbytes, 0);
	if (kv_forbidden(err))
		return kv_err(KVPIPE_E_UNAVAILABLE, "%s: no shared memory: %s: " KV_ALLOW("memfd_create, fallocate and madvise"), what,
			      strerror(err));
	return err == 0 ? 0 : kv_err(KVPIPE_E_QUOTA, "%s: no memory for %llu bytes: %s", what,
				     (unsigned long long)nbytes, kv_why(err));
}

void kv_memory_drop(struct kv_memory *m)
{
	munmap(m->addr, m->mapped);
	close(m->fd);
}

int kvpipe_mem_alloc(kvpipe_t *kv, uint64_t nbytes, uint32_t flags, void **addr, kvpipe_region_t *region)
{
	KV_UNCANCELLED;
	const uint32_t both = KVPIPE_MEM_HUGE | KVPIPE_MEM_NO_HUGE;
	struct kv_memory m = { .fd = -1 };
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_may_own(kv, "mem_alloc");
	if (err != 0)
		return err;
	if (addr == NULL || region == NULL)
		return kv_err(KVPIPE_E_INVALID, "mem_alloc: addr or region is NULL");
	if (nbytes == 0 || nbytes > (uint64_t)1 << 46)
		return kv_err(KVPIPE_E_INVALID, "mem_alloc: nbytes is %llu: must be 1 to 2^46", (unsigned long long)nbytes);
	if ((flags & ~both) != 0 || flags == both)
		return kv_err(KVPIPE_E_INVALID, "mem_alloc: flags is %#x: KVPIPE_MEM_HUGE or KVPIPE_MEM_NO_HUGE or 0", flags);
	err = kv_memory_make("mem_alloc", nbytes, flags, &m);
	if (err != 0)
		return err;
	err = kv_region_add(kv, m.fd, nbytes, m.addr, m.mapped, region);
	if (err != 0) {
		kv_memory_drop(&m);
		return err;
	}
	*addr = m.addr;
	return 0;
}
