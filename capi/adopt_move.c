/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a file under memory that other threads may be writing, window by window: write-protect it, copy it into the file, map
 * the file over it. A thread that writes meanwhile sleeps in a page fault until the file is in place, so no write is lost.
 * Without userfaultfd nobody may write meanwhile.
 */
#include "adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define WINDOW ((size_t)64 << 20) /* how much is write-protected at a time */

/* Opens a userfaultfd; -1: errno. It also catches what system calls write, where that is allowed; elsewhere they get EFAULT. */
static int watch(const struct kv_adopt *a)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 && errno == EPERM)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -1;
	if (a->ours)
		api.features |= UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
	if (ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		errno = EOPNOTSUPP; /* before Linux 5.7; for memory that is a file's, 5.19 */
		return -1;
	}
	return fd;
}

/* Makes all pages present, as only such pages can be protected. Returns an errno. */
__attribute__((no_sanitize("address", "thread"))) static int present(uintptr_t at, size_t len, size_t page)
{
	if (madvise((void *)at, len, MADV_POPULATE_READ) == 0)
		return 0;
	if (errno != EINVAL)
		return errno;
	for (size_t i = 0; i < len; i += page) /* before Linux 5.14 */
		(void)*(volatile const char *)(at + i);
	return 0;
}

static int protect(int uffd, uintptr_t at, size_t len)
{
	struct uffdio_register reg = { .range = { at, len }, .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .range = { at, len }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	if (ioctl(uffd, UFFDIO_REGISTER, &reg) != 0)
		return errno;
	return ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) != 0 ? errno : 0;
}

/* Has the kernel copy: it allocates the file's pages, and reports when it cannot. Not by pwrite(), which sanitizers intercept. */
static int copy(int fd, uintptr_t from, size_t len, size_t off)
{
	while (len > 0) {
		long n = syscall(SYS_pwrite64, fd, from, len, off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 ? ENOSPC : errno;
		from += (size_t)n;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* Moves one window. Returns an errno; then the window is as it was. Signals are blocked: a handler that writes there would wait
 * for its own thread. */
static int move(const struct kv_adopt *a, int uffd, int fd, size_t off, size_t len)
{
	uintptr_t at = a->first + off;
	struct uffdio_range range = { at, len };
	sigset_t all, old;
	int err = present(at, len, a->page);

	if (err != 0)
		return err;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (uffd >= 0)
		err = protect(uffd, at, len);
	if (err == 0)
		err = copy(fd, at, len, off);
	/* A raw system call, too: for sanitizers nothing changes, as memory and contents are the same. */
	if (err == 0 && syscall(SYS_mmap, at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, off) == -1)
		err = errno;
	if (err == 0 && a->nofork)
		madvise((void *)at, len, MADV_DONTFORK);
	if (err == 0 && a->nodump)
		madvise((void *)at, len, MADV_DONTDUMP);
	if (uffd >= 0) {
		if (err != 0)
			ioctl(uffd, UFFDIO_UNREGISTER, &range);
		ioctl(uffd, UFFDIO_WAKE, &range);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static int move_all(const struct kv_adopt *a, int uffd, int fd)
{
	const size_t len = a->last - a->first;

	for (size_t done = 0; done < len;) {
		size_t n = len - done < WINDOW ? len - done : WINDOW;
		int err = move(a, uffd, fd, done, n);
		if (err != 0)
			return kv_err(err == EPERM ? KVPIPE_E_INVALID : KVPIPE_E_QUOTA,
				      "mem_adopt: addr %#zx: byte %zu of %zu could not be moved: %s; all of it stays usable, but must not be "
				      "resized, and the bytes before are shared with children that are forked from now on: make room for it in "
				      "memory (its cgroup's, too) and adopt it again, or adopt other memory",
				      (size_t)a->addr, done, len, strerror(err));
		done += n;
	}
	/* Maps the file's pages now, so that nobody waits for that later. By reading, as their contents are the program's. */
	(void)present(a->first, len, a->page);
	return 0;
}

int kv_adopt_move(const struct kv_adopt *a, int *out)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int uffd = watch(a), err = 0;

	if (uffd < 0 && !a->quiesced && kv_no_files(errno))
		return kv_err(KVPIPE_E_QUOTA, "mem_adopt: userfaultfd: %s", kv_why(errno));
	if (uffd < 0 && !a->quiesced)
		return kv_err(KVPIPE_E_UNAVAILABLE,
			      "mem_adopt: userfaultfd, which keeps writes from being lost, is not to be had: %s: let nobody write "
			      "meanwhile and say so with KVPIPE_ADOPT_QUIESCED, or allow that system call (a container's seccomp "
			      "profile; Linux 5.7)",
			      strerror(errno));
	int fd = kv_memfd(KV_ADOPT_NAME, 0);
	if (fd < 0 || ftruncate(fd, (off_t)(a->last - a->first)) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
		err = kv_err(KVPIPE_E_QUOTA, "mem_adopt: no file for %zu bytes: %s: free memory, or files (ulimit -n), and adopt it again",
			     (size_t)(a->last - a->first), strerror(errno));
	if (err == 0)
		err = move_all(a, uffd, fd);
	if (uffd >= 0)
		close(uffd);
	if (err != 0 && fd >= 0)
		close(fd);
	*out = fd;
	return err;
}
