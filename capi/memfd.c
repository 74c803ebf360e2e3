/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory: made, and filled at once, so that shortage shows as an error now and not as a signal later. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int kv_memfd(const char *name, unsigned int flags)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | flags);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	return fd;
}

const char *kv_why(int err)
{
	if (err == EMFILE)
		return "this process may open no more files: raise its limit (ulimit -n)";
	if (err == ENFILE)
		return "this node has no more files: raise fs.file-max";
	if (err == ETOOMANYREFS)
		return "this user's processes have too many descriptors under way to others: raise the limit of open files (ulimit -n)";
	return strerror(err);
}

bool kv_no_files(int err) { return err == EMFILE || err == ENFILE; }

bool kv_forbidden(int err) { return err == EPERM || err == EACCES || err == ENOSYS; }

/* When a signal interrupts a call, the kernel takes back what it had allocated. So pieces are halved until they get through. */
static int allocate(int fd, size_t len, size_t page)
{
	size_t piece = 64ul << 20;

	for (size_t at = 0; at < len;) {
		size_t n = len - at < piece ? len - at : piece;
		if (fallocate(fd, 0, (off_t)at, (off_t)n) == 0)
			at += n;
		else if (errno != EINTR)
			return errno;
		else if (piece > page)
			piece /= 2;
	}
	return 0;
}

int kv_populate(int fd, void *addr, size_t len, size_t page)
{
	if (madvise(addr, len, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno;
	/* Before Linux 5.14. Allocating first turns a full file system into an error; touching then only maps. */
	int err = allocate(fd, len, page);
	if (err != 0 && err != EOPNOTSUPP)
		return err;
	for (size_t at = 0; at < len; at += page)
		((volatile char *)addr)[at] = 0;
	return 0;
}
