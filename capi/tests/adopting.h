/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kvpipe_mem_adopt() share: a session with a daemon that keeps what it is given, and memory to give it. */
#ifndef ADOPTING_H
#define ADOPTING_H

#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#define PAGE 4096ul
#define MIB (1ul << 20)

/* What the daemon was given last. */
struct got {
	struct kvpipe_register reg;
	int seals;
	uint8_t *map; /* the whole file */
	size_t size;
	uint32_t answer; /* the reason that REGISTER is refused with; 0: it is not */
};
extern struct got got;
extern struct fake_conf adopting;
extern kvpipe_t *kv;

void begin(void); /* a worker's session */
void begin_as(uint32_t role);
void end(void);
int adopt(void *addr, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region);

/* A mapping of its own, with pages around it that nothing may merge with. */
uint8_t *pages(size_t len);
void unmap(uint8_t *p, size_t len);
/* Memory as glibc's malloc() lays out a large allocation, the caller's bytes at offset at, and two pages more. The size in the word
 * before them leaves out `out` bytes at the end: 0, or 16 as from glibc 2.43 on. malloc() itself is the sanitizer's here. */
uint8_t *chunk(size_t at, size_t len, size_t out, size_t *whole);

/* Whether the mapping that p lies in has that flag, in the words of /proc/self/smaps: 'y' or 'n'. */
char flag_of(const void *p, const char *flag);

void pattern(uint8_t *p, size_t len, unsigned int salt);
void check_pattern(const uint8_t *p, size_t len, unsigned int salt);

#endif
