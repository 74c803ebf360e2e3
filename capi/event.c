/* SPDX-License-Identifier: Apache-2.0 */
/* Eventfds: a bell that stays rung until it is cleared. All of ours are non-blocking. */
#include "internal.h"

#include <unistd.h>

void kv_event_signal(int fd)
{
	uint64_t one = 1;
	/* EAGAIN, the only failure, says that it is rung already. */
	ssize_t n = write(fd, &one, sizeof(one));
	(void)n;
}

void kv_event_clear(int fd)
{
	uint64_t count;
	/* EAGAIN: not rung. */
	ssize_t n = read(fd, &count, sizeof(count));
	(void)n;
}
