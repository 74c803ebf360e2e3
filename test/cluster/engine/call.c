/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the threads that have an end each: the main thread looks whether one is late. */
#include "engine.h"

#include <stdatomic.h>

#define LATE (1000 * MS) /* how much later than its deadline a call may end */

enum { THREADS = 4 };

static struct call {
	_Atomic(const char *) what;
	_Atomic int64_t due; /* in fair time; 0: no call */
} calls[THREADS];
static _Atomic int threads;
static _Thread_local struct call *mine;

void call_begins(const char *what, int64_t timeout)
{
	if (mine == NULL)
		mine = &calls[threads++ % THREADS];
	mine->what = what;
	mine->due = fair() + timeout + LATE;
}

void call_ends(void) { mine->due = 0; }

void calls_look(void)
{
	for (struct call *c = calls; c < calls + THREADS; c++) {
		int64_t until = c->due;

		if (until == 0 || fair() <= until)
			continue;
		say("hung %s: it has not ended %lld ms after its deadline", c->what, (long long)((fair() - until + LATE) / MS));
		c->due = INT64_MAX;
	}
}
