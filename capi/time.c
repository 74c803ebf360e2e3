/* SPDX-License-Identifier: Apache-2.0 */
/* Times: nanoseconds of CLOCK_MONOTONIC. */
#include "internal.h"

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

struct timespec kv_timespec(int64_t ns)
{
	if (ns < 0)
		ns = 0;
	return (struct timespec){ .tv_sec = (time_t)(ns / KV_SEC), .tv_nsec = (long)(ns % KV_SEC) };
}
