/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of a pipe and of a lookup buffer that an engine may have: what they are told together. */
#include "engine.h"

#include <string.h>

bool end_opened(const char *what, int rc)
{
	if (rc == 0)
		return true;
	/* The last one is not over yet, as when a buffer's entries are not all out; or there is no daemon. */
	if (rc != -KVPIPE_E_BUSY && rc != -KVPIPE_E_UNAVAILABLE && rc != -KVPIPE_E_TIMEOUT && rc != -KVPIPE_E_RESTARTED)
		say("wrong %s: open: %s: %s", what, kvpipe_strerror(rc), kvpipe_last_error());
	poll(NULL, 0, 5);
	return false;
}

void ends_begin(kvpipe_t *kv, const char *line)
{
	if (strncmp(line, "pipe ", 5) == 0)
		pipe_begin(kv, line + 5);
	else if (strncmp(line, "lookup ", 7) == 0)
		lookup_begin(kv, line + 7);
}

void ends_go(void)
{
	pipe_go();
	lookup_go();
}

void ends_pause(bool close)
{
	pipe_pause(close);
	lookup_pause(close);
}

bool ends_idle(void) { return pipe_idle() && lookup_idle(); }

void ends_stop(void)
{
	pipe_stop();
	lookup_stop();
}
