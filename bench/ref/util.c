#include "util.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "list.h"

void die(const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void die_errno(const char *what)
{
	die("%s: %s", what, strerror(errno));
}

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint8_t *mem_map(const char *name, size_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		die_errno("memfd_create");
	if (ftruncate(fd, (off_t)bytes) < 0)
		die_errno("ftruncate");
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die_errno("mmap");
	close(fd);
	/* Every page is written once: one that was only read could still be the
	 * zero page. */
	memset(p, 1, bytes);
	return p;
}

static uint64_t pattern_seed(uint64_t salt, size_t i)
{
	uint64_t x = salt ^ ((uint64_t)i << 20);
	return splitmix64(&x);
}

void mem_fill(uint8_t *base, const uint32_t *ids, size_t n, size_t block,
	      uint64_t salt)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = pattern_seed(salt, i);
		uint64_t *w = (uint64_t *)(base + (size_t)ids[i] * block);
		for (size_t k = 0; k < block / 8; k++)
			w[k] = v + k;
	}
}

size_t mem_check(const uint8_t *base, const uint32_t *ids, size_t n,
		 size_t block, uint64_t salt)
{
	size_t bad = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t v = pattern_seed(salt, i);
		const uint64_t *w =
			(const uint64_t *)(base + (size_t)ids[i] * block);
		uint64_t diff = 0;
		for (size_t k = 0; k < block / 8; k++)
			diff |= w[k] ^ (v + k);
		bad += diff != 0;
	}
	return bad;
}

void pin_cpu(int cpu)
{
	if (cpu < 0)
		return;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) < 0)
		die("cannot pin to CPU %d: %s", cpu, strerror(errno));
}

int fork_child(void)
{
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid < 0)
		die_errno("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* The parent may have gone before the line above. */
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

size_t parse_size(const char *option, const char *text)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	unsigned shift = 0;
	if (*end == 'K' || *end == 'k')
		shift = 10;
	else if (*end == 'M' || *end == 'm')
		shift = 20;
	else if (*end == 'G' || *end == 'g')
		shift = 30;
	if (shift)
		end++;
	if (errno || end == text || *end || v > (SIZE_MAX >> shift))
		die("%s: %s is not a number (12, 64K, 1M, 1G)", option, text);
	return (size_t)v << shift;
}
