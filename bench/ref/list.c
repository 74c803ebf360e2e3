#include "list.h"

#include <stdio.h>
#include <stdlib.h>

#include "util.h"

uint64_t splitmix64(uint64_t *x)
{
	uint64_t z = (*x += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t *list_draw(uint64_t seed, size_t pool, size_t n)
{
	if (n == 0 || n > pool)
		die("blocks: %zu is not in 1..%zu (the pool)", n, pool);
	uint32_t *p = malloc(pool * sizeof *p);
	if (!p)
		die("no memory for a list of %zu blocks", pool);
	for (size_t i = 0; i < pool; i++)
		p[i] = (uint32_t)i;
	for (size_t i = pool - 1; i > 0; i--) {
		size_t j = splitmix64(&seed) % (i + 1);
		uint32_t t = p[i];
		p[i] = p[j];
		p[j] = t;
	}
	return p;
}

/* Checks that all ids are below pool and none occurs twice. */
static void check(const char *path, const uint32_t *ids, size_t n, size_t pool)
{
	uint8_t *seen = calloc(pool, 1);
	if (!seen)
		die("no memory for a list of %zu blocks", pool);
	for (size_t i = 0; i < n; i++) {
		if (ids[i] >= pool)
			die("%s: block %u is not below %zu (the pool)", path, ids[i], pool);
		if (seen[ids[i]]++)
			die("%s: block %u is there twice", path, ids[i]);
	}
	free(seen);
}

uint32_t *list_load(const char *path, bool dst, size_t pool, size_t n)
{
	uint32_t *ids = malloc(n * sizeof *ids);
	FILE *f = fopen(path, "rb");
	if (!f)
		die_errno(path);
	if (!ids)
		die("no memory for a list of %zu blocks", n);
	if (fseek(f, dst ? (long)(n * sizeof *ids) : 0, SEEK_SET) || fread(ids, sizeof *ids, n, f) != n)
		die("%s: must hold two lists of %zu numbers of 4 bytes", path, n);
	fclose(f);
	check(path, ids, n, pool);
	return ids;
}

uint64_t list_digest(const uint32_t *ids, size_t n)
{
	uint64_t d = n;
	for (size_t i = 0; i < n; i++) {
		uint64_t x = d ^ ids[i];
		d = splitmix64(&x);
	}
	return d;
}
