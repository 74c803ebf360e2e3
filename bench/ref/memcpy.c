/* ref-memcpy: the rate of plain memcpy, or of plain C with non-temporal stores,
 * for a list of blocks at random places, between two shared memory mappings,
 * with one or more threads. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"
#include "serve.h"
#include "stream.h"
#include "util.h"

#define MAX_THREADS 64

struct bench {
	size_t block, blocks, pool, rounds;
	uint64_t seed;
	const char *list;
	long threads;
	uint8_t *src, *dst;
	uint32_t *from, *to;
};

struct part {
	const struct bench *b;
	size_t first, last;
	bool stream;
};

static void *copy_part(void *arg)
{
	const struct part *p = arg;
	const struct bench *b = p->b;
	if (p->stream) {
		stream_copy(b->dst, b->to + p->first, b->src, b->from + p->first,
			    p->last - p->first, b->block);
		return NULL;
	}
	for (size_t i = p->first; i < p->last; i++)
		memcpy(b->dst + (size_t)b->to[i] * b->block,
		       b->src + (size_t)b->from[i] * b->block, b->block);
	return NULL;
}

/* Thread t copies the t-th contiguous share of the list. The caller copies
 * share 0 itself, so with one thread none is created. */
static double copy_all(const struct bench *b, long threads, bool stream)
{
	struct part part[MAX_THREADS];
	pthread_t id[MAX_THREADS];
	uint64_t start = now_ns();
	for (long t = 0; t < threads; t++) {
		part[t] = (struct part){
			b, b->blocks * (size_t)t / (size_t)threads,
			b->blocks * (size_t)(t + 1) / (size_t)threads, stream};
		if (t && pthread_create(&id[t], NULL, copy_part, &part[t]))
			die("pthread_create failed");
	}
	copy_part(&part[0]);
	for (long t = 1; t < threads; t++)
		pthread_join(id[t], NULL);
	return (double)(now_ns() - start) / 1e9;
}

static void run(void *ctx, const char *args)
{
	struct bench *b = ctx;
	long threads = arg_long(args, "threads", b->threads);
	if (threads < 1 || threads > MAX_THREADS) {
		serve_error("threads: %ld is not in 1..%d", threads, MAX_THREADS);
		return;
	}
	bool stream = arg_long(args, "stream", 0);
	if (stream && (!stream_can() || b->block % 64)) {
		serve_error("stream: needs AVX2 or AVX-512, and blocks of whole lines");
		return;
	}
	if (arg_long(args, "verify", 0)) {
		mem_fill(b->src, b->from, b->blocks, b->block, now_ns());
		memset(b->dst, 0, b->pool * b->block);
	}
	double s = copy_all(b, threads, stream);
	double bytes = (double)b->blocks * (double)b->block;
	if (arg_long(args, "verify", 0)) {
		for (size_t i = 0; i < b->blocks; i++)
			if (memcmp(b->dst + (size_t)b->to[i] * b->block,
				   b->src + (size_t)b->from[i] * b->block,
				   b->block))
				die("block %zu differs after the copy", i);
	}
	printf("{\"ref\":\"memcpy\",\"block\":%zu,\"blocks\":%zu,"
	       "\"threads\":%ld,\"bytes\":%.0f,\"seconds\":%.6f,"
	       "\"gb_per_s\":%.3f}\n",
	       b->block, b->blocks, threads, bytes, s, bytes / s / 1e9);
	fflush(stdout);
}

static const char usage[] =
	"usage: ref-memcpy [flags]\n"
	"  --block BYTES     bytes a block (default 64K)\n"
	"  --blocks N        blocks in the list (default 16384)\n"
	"  --pool N          blocks in each mapping (default: --blocks)\n"
	"  --seed N          of the lists, see list.h (default 1)\n"
	"  --list FILE       lists from a file instead, see list.h\n"
	"  --threads N       copying threads (default 1)\n"
	"  --rounds N        measured rounds, each one JSON line (default 5)\n"
	"  --serve           take commands from stdin: run [threads=N] [stream=1]\n"
	"                    [verify=1]\n"
	"  --digest          print digests of both lists and end\n"
	"  --help\n";

static void parse(struct bench *b, int argc, char **argv, bool *serve,
		  bool *digest)
{
	static const struct option options[] = {
		{"block", 1, 0, 'b'},	{"blocks", 1, 0, 'n'},
		{"pool", 1, 0, 'p'},	{"seed", 1, 0, 's'},
		{"threads", 1, 0, 't'}, {"rounds", 1, 0, 'r'},
		{"list", 1, 0, 'L'},
		{"serve", 0, 0, 'S'},	{"digest", 0, 0, 'd'},
		{"help", 0, 0, 'h'},	{0, 0, 0, 0}};
	int c;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'b': b->block = parse_size("--block", optarg); break;
		case 'n': b->blocks = parse_size("--blocks", optarg); break;
		case 'p': b->pool = parse_size("--pool", optarg); break;
		case 's': b->seed = parse_size("--seed", optarg); break;
		case 'L': b->list = optarg; break;
		case 't': b->threads = (long)parse_size("--threads", optarg); break;
		case 'r': b->rounds = parse_size("--rounds", optarg); break;
		case 'S': *serve = true; break;
		case 'd': *digest = true; break;
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (b->block < 8 || b->block % 8)
		die("--block: %zu is not a multiple of 8", b->block);
	if (!b->pool)
		b->pool = b->blocks;
}

int main(int argc, char **argv)
{
	struct bench b = {.block = 65536, .blocks = 16384, .seed = 1,
			  .threads = 1, .rounds = 5};
	bool serve = false, digest = false;
	parse(&b, argc, argv, &serve, &digest);
	b.from = b.list ? list_load(b.list, false, b.pool, b.blocks) :
			  list_draw(b.seed, b.pool, b.blocks);
	b.to = b.list ? list_load(b.list, true, b.pool, b.blocks) :
			list_draw(b.seed + LIST_DST, b.pool, b.blocks);
	if (digest) {
		printf("{\"src\":\"%016llx\",\"dst\":\"%016llx\"}\n",
		       (unsigned long long)list_digest(b.from, b.blocks),
		       (unsigned long long)list_digest(b.to, b.blocks));
		return 0;
	}
	b.src = mem_map("ref-memcpy-src", b.pool * b.block);
	b.dst = mem_map("ref-memcpy-dst", b.pool * b.block);
	if (serve) {
		serve_loop("memcpy", run, &b);
		return 0;
	}
	copy_all(&b, 1, false);
	for (size_t r = 0; r < b.rounds; r++)
		run(&b, "");
	return 0;
}
