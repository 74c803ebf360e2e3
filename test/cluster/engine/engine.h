/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - what the parts of the engine share. */
#ifndef ENGINE_H
#define ENGINE_H

#include <kvpipe.h>

#include <poll.h>
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

/* ---- the end of a pipe (pipe.c) ---- */
/* "send NAME LEDGER" or "recv NAME LEDGER [PEER]": opens it, and opens it again after each end, in a thread of its own. */
void pipe_begin(kvpipe_t *kv, const char *what);
void pipe_go(void);
void pipe_pause(bool close);
bool pipe_idle(void); /* as is one that was not begun */
void pipe_stop(void);

/* ---- the end of a lookup buffer (lookup.c): likewise ---- */
/* "own NAME LEDGER" or "select NAME LEDGER [PEER]" */
void lookup_begin(kvpipe_t *kv, const char *what);
void lookup_go(void);
void lookup_pause(bool close);
bool lookup_idle(void);
void lookup_stop(void);

/* ---- both (ends.c) ---- */
bool end_opened(const char *what, int rc); /* of an end; false: not now, and after a moment */
void ends_begin(kvpipe_t *kv, const char *line); /* "pipe WHAT", "lookup WHAT" */
void ends_go(void);
void ends_pause(bool close);
bool ends_idle(void);
void ends_stop(void);

#endif
