/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes for tokens and ids. */
#include "internal.h"

#include <errno.h>
#include <sys/random.h>

bool kv_random(void *to, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = getrandom((char *)to + at, n - at, 0);
		if (got < 0 && errno != EINTR)
			return false;
		at += got > 0 ? (size_t)got : 0;
	}
	return true;
}
