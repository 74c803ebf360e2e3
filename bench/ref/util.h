/* Small things that all reference programs share: clock, memory, pinning,
 * errors. */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stddef.h>
#include <stdint.h>

/* Prints "name: message" and exits with 1. */
void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The same, with the text of errno. */
void die_errno(const char *what) __attribute__((noreturn));

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* Returns a shared mapping of a fresh memfd, with every page touched; never
 * NULL. */
uint8_t *mem_map(const char *name, size_t bytes);

/* Writes a pattern that depends on (salt, position in the list, offset) into
 * the n listed blocks. The other end checks it with mem_check. */
void mem_fill(uint8_t *base, const uint32_t *ids, size_t n, size_t block,
	      uint64_t salt);
/* Returns how many of the n listed blocks don't hold mem_fill's pattern. */
size_t mem_check(const uint8_t *base, const uint32_t *ids, size_t n,
		 size_t block, uint64_t salt);

/* Pins the calling thread to one CPU; a negative number does nothing. */
void pin_cpu(int cpu);

/* Forks; the child dies with its parent. Returns as fork does. */
int fork_child(void);

/* Parses a size such as 4096, 64K or 1M; exits, naming the option, if it is
 * none. */
size_t parse_size(const char *option, const char *text);

#endif
