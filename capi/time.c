/* SPDX-License-Identifier: Apache-2.0 */
/* Times: nanoseconds of CLOCK_MONOTONIC. */
#include "internal.h"

#include <stdio.h>
#include <time.h>

int64_t kv_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * KV_SEC + ts.tv_nsec;
}

int64_t kv_after(int64_t start, int64_t ns)
{
	return ns > INT64_MAX - start ? INT64_MAX : start + ns;
}

const char *kv_span(char to[32], int64_t ns)
{
	int64_t ms = ns <= 0 ? 0 : ns / KV_MS + (ns % KV_MS >= KV_MS / 2);

	if (ms < 1000)
		snprintf(to, 32, "%d ms", (int)ms);
	else if (ms < 86400000)
		snprintf(to, 32, "%.6g s", (double)ms / 1e3);
	else
		snprintf(to, 32, "%.6g days", (double)ms / 864e5);
	return to;
}

void kv_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

struct timespec kv_timespec(int64_t ns)
{
	if (ns < 0)
		ns = 0;
	return (struct timespec){ .tv_sec = (time_t)(ns / KV_SEC), .tv_nsec = (long)(ns % KV_SEC) };
}
