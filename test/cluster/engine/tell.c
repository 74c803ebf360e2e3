/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine says, and the time by which it judges. */
#include "engine.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Atomic int64_t stolen; /* how long the engine was kept from running when it wanted to */

int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 * MS + t.tv_nsec;
}

int64_t fair(void) { return now() - stolen; }

void nap(struct pollfd *fds, nfds_t n)
{
	int64_t until = now() + 5 * MS;

	poll(fds, n, 5);
	int64_t late = now() - until;
	if (late > MS)
		stolen += late;
}

uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void say(const char *format, ...)
{
	va_list a;

	va_start(a, format);
	flockfile(stdout);
	vprintf(format, a);
	putchar('\n');
	fflush(stdout);
	funlockfile(stdout);
	va_end(a);
}

void over(int rc)
{
	say("over %s: %s", kvpipe_strerror(rc), kvpipe_last_error());
	_Exit(3);
}
