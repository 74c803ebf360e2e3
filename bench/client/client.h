/* bench-client: one engine with one session, driven line by line (serve.h).
 *
 * It registers one region of blocks. It offers and takes whole lists, many
 * small blocks one at a time, or very many ids at once. The harness runs one
 * client on each side of a hand-over. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <kvpipe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SMALL 4000 /* offers at once; a daemon allows 4096 a session */

struct client {
	const char *socket, *engine;
	size_t block, blocks, tokens; /* block: bytes; tokens: per block */
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
	uint32_t *live; /* the numbers of the entries that are in the buffer */
	long nlive;
	uint32_t entries; /* inserted so far */
	uint64_t pick; /* state of the generator that picks the next entry */
};

/* memory.c: connects, registers memory and describes it; exits if that fails. */
void client_open(struct client *c);

/* Answers a command whose library call failed, with the call's name and
 * kvpipe_last_error(). Returns false, so that callers can "return failed(...)". */
bool failed(const char *call, int code);

/* ops.c. All return false if they have answered with an error. */
bool offer_list(struct client *c, const char *key, size_t first, size_t n);
bool wait_offers(struct client *c);
/* Returns once the daemon has an offer under key. */
bool watch_offer(struct client *c, const char *key);
/* Takes n listed blocks and waits for the end, asleep or spinning. *ns is the
 * time from the call that submits to the moment the end is seen. */
bool take_list(struct client *c, const char *key, const char *peer,
	       size_t first, size_t n, bool spin, uint64_t *ns);

/* pipes.c: as above. A client has at most one end of a pipe, and one buffer. */
bool pipe_open(struct client *c, const char *name, const char *peer, bool send);
bool pipe_send(struct client *c, long n, size_t size);
bool pipe_recv(struct client *c, long n, uint64_t *ns); /* without the first */
/* Receives n tensors of that size, and copies each to where its sender has it. */
bool pipe_keep(struct client *c, long n, size_t size);
bool lookup_fill(struct client *c, const char *name, long n);
bool lookup_select(struct client *c, long n); /* one by one; times in took */
void pipes_close(struct client *c);

/* commands.c: answers one "run do=... key=value ..." line. */
void client_run(void *client, const char *args);

#endif
