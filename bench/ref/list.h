/* The block lists that every benchmark program uses, and how they are drawn.
 *
 * A list is the first n entries of a random permutation of 0..pool-1. The
 * permutation is a Fisher-Yates shuffle driven by splitmix64:
 *
 *   p[i] = i for all i; x = seed
 *   for i = pool-1 down to 1: j = splitmix64(&x) mod (i+1); swap p[i], p[j]
 *
 * The source side uses the seed itself, the destination side
 * seed + LIST_DST. bench/lists holds the same generator in Go; both are checked
 * against the same golden numbers, so any two programs given the same
 * (seed, pool, n) move exactly the same blocks in exactly the same order.
 */
#ifndef BENCH_LIST_H
#define BENCH_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIST_DST 0x9e3779b9u

/* Steps *x and returns the next number of the splitmix64 sequence. */
uint64_t splitmix64(uint64_t *x);

/* Returns n block numbers below pool, all different, in a malloc'd array. Exits
 * with a message if n > pool or memory runs out. */
uint32_t *list_draw(uint64_t seed, size_t pool, size_t n);

/* Loads a list of the caller's own, from a file of n source numbers and then n
 * destination numbers, each a little-endian u32. Returns the first list (dst
 * false) or the second, checked like a drawn one; exits with a message if there
 * is a problem. */
uint32_t *list_load(const char *path, bool dst, size_t pool, size_t n);

/* Folds a list into one number, to compare lists across programs. */
uint64_t list_digest(const uint32_t *ids, size_t n);

#endif
