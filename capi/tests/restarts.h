/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons that are restarted under a session: what all daemons of a test were given, and helpers for what the tests do with them. */
#ifndef RESTARTS_H
#define RESTARTS_H

#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#include <pthread.h>

#define TOKEN "0123456789abcdef"
#define WAIT (60 * KV_SEC)
#define SEEN 4096

/* One submission. */
struct seen {
	struct kvpipe_sqe e;
	char key[8];
	uint32_t flags;   /* of the record */
	unsigned int life; /* of the daemon */
};

/* What the daemons of a test were given, in order, all of them together. */
struct world {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct seen all[SEEN];
	unsigned int n, views, regions;
	uint64_t view_region;
	bool done;   /* answer everything DONE */
	bool accept; /* answer extensions and the like */
};
extern struct world world;
extern struct fake_conf by_hand; /* notes submissions, and answers only what the test says */
void note(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record); /* its .submission, for configurations of tests' own */

struct fake *first_daemon(void);       /* the first daemon of a test, in a new world */
void await_seen(unsigned int n);       /* until n submissions came */
unsigned int count_seen(void);         /* how many came */
struct seen seen(unsigned int i);      /* the i-th */
kvpipe_op_t take_key(kvpipe_t *kv, const char *key, int64_t timeout_ns);
kvpipe_op_t offer_key(kvpipe_t *kv, const char *key, int64_t lease_ns);
/* Waits for the operation's end, checks it, and that its memory is released. */
void check_end(kvpipe_t *kv, kvpipe_op_t op, uint32_t status, uint32_t reason, const char *words);
/* Makes the helper wait when it is about to take the next daemon, until it is let go. */
void hold_helper(kvpipe_t *kv);
void await_held(kvpipe_t *kv);         /* until it waits there: the daemon knows all that comes before */
void let_helper_go(kvpipe_t *kv);
void grant_last(struct fake *f);       /* bytes of the last take may have landed from now on */

#endif
