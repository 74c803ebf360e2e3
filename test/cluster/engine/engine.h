/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - what the parts of the engine share. */
#ifndef ENGINE_H
#define ENGINE_H

#include <kvpipe.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MS 1000000ll

/* ---- time, and what is said (tell.c) ---- */
int64_t now(void);
/* The time that had been there to be used. What a busy machine takes from the engine it takes from the daemons as well, and
 * that is no broken promise. */
int64_t fair(void);
void nap(struct pollfd *fds, nfds_t n);
uint64_t mix(uint64_t z);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
_Noreturn void over(int rc);

/* ---- calls that have a deadline (call.c) ---- */
#define CALL (1000 * MS) /* what a call has */
/* Of the calling thread's call: whoever looks knows when it must have ended. */
void call_begins(const char *what, int64_t timeout);
void call_ends(void);
void calls_look(void); /* is one late? */

/* ---- ends of a pipe and of a lookup buffer, each in a thread of its own (ends.c) ---- */
struct part {
	void (*turn)(struct part *p);  /* does something for at most a second or so; called again and again, but not while done */
	bool (*idle)(struct part *p);  /* for the main thread: is what pausing asked for there? NULL: when done */
	_Atomic bool pausing, closing; /* closing: and the end is not to be open when all is done */
	_Atomic bool done;	       /* what pausing asked for */
	pthread_t thread;
};
bool part_begin(struct part *p);

bool end_opened(const char *what, int rc);	 /* of an end; false: not now, and after a moment */
void ends_begin(kvpipe_t *kv, const char *line); /* "pipe WHAT", "lookup WHAT" */
void ends_go(void);
void ends_pause(bool close);
bool ends_idle(void); /* as are none */
void ends_stop(void);

/* "send NAME LEDGER" or "recv NAME LEDGER [PEER]": opens the end of a pipe, and opens it again after each of its ends (pipe.c). */
void pipe_begin(kvpipe_t *kv, const char *what);
/* "own NAME LEDGER" or "select NAME LEDGER [PEER]": likewise, of a lookup buffer (lookup.c). */
void lookup_begin(kvpipe_t *kv, const char *what);

#endif
