/* bench-client: one engine with one session, driven line by line (serve.h).
 *
 * It registers one region of pool blocks, and offers and takes whole lists,
 * many small blocks one at a time, or very many ids at once. The harness runs
 * one on each side of a hand-over. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <kvpipe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SMALL 4000 /* offers at once; a daemon allows 4096 a session */

struct client {
	const char *socket, *engine;
	size_t block, blocks, tokens; /* bytes a block, blocks, tokens a block */
	uint64_t seed;
	uint32_t completions; /* in the ring; 0: the library's default */
	bool sequential; /* blocks 0, 1, 2, ... instead of a random list */
	kvpipe_t *kv;
	uint8_t *base;
	uint32_t *from, *to; /* source and destination list */
	kvpipe_op_t offers[MAX_SMALL];
	size_t noffers;
	uint64_t *took;
	kvpipe_pipe_t *pipe;
	kvpipe_lookup_t *own, *sel; /* both ends of one buffer */
	uint32_t *live; /* the numbers of the entries that are there */
	long nlive;
	uint32_t entries; /* inserted so far */
	uint64_t pick; /* which is selected next */
};

/* memory.c: connects, registers, describes; exits when that fails. */
void client_open(struct client *c);

/* What a command answers with when a library call failed: its name and
 * kvpipe_last_error(). Returns false, for "return failed(...)". */
bool failed(const char *call, int code);

/* ops.c. All return false when they have answered with an error. */
bool offer_list(struct client *c, const char *key, size_t first, size_t n);
bool wait_offers(struct client *c);
/* Returns when the daemon has an offer under key. */
bool watch_offer(struct client *c, const char *key);
/* Takes n listed blocks and waits for the end: asleep, or spinning. *ns is from
 * the call that submits to the moment the end is seen. */
bool take_list(struct client *c, const char *key, const char *peer,
	       size_t first, size_t n, bool spin, uint64_t *ns);

/* pipes.c: as above. A client has at most one end of a pipe, and one buffer. */
bool pipe_open(struct client *c, const char *name, const char *peer, bool send);
bool pipe_send(struct client *c, long n, size_t size);
bool pipe_recv(struct client *c, long n, uint64_t *ns); /* without the first */
/* Receives n tensors of that size into the memory, each where its sender has
 * it. */
bool pipe_keep(struct client *c, long n, size_t size);
bool lookup_fill(struct client *c, const char *name, long n);
bool lookup_select(struct client *c, long n); /* one by one; times in took */
void pipes_close(struct client *c);

/* commands.c: answers one "run do=... key=value ..." line. */
void client_run(void *client, const char *args);

#endif
