/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of a pipe and of a lookup buffer that an engine may have: their threads, and what they are told together. */
#include "engine.h"

#include <string.h>

enum { PARTS = 3 };

static struct part *parts[PARTS]; /* the main thread's */
static unsigned int nparts;
static _Atomic bool stopping;

static void *run(void *arg)
{
	struct part *p = arg;

	while (!stopping)
		if (p->done)
			poll(NULL, 0, 2);
		else
			p->turn(p);
	return NULL;
}

bool part_begin(struct part *p)
{
	if (nparts == PARTS || pthread_create(&p->thread, NULL, run, p) != 0)
		return false;
	parts[nparts++] = p;
	return true;
}

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

/* Once all are idle: one that has not rested yet could miss it. */
void ends_go(void)
{
	for (unsigned int i = 0; i < nparts; i++) {
		parts[i]->pausing = parts[i]->closing = false;
		parts[i]->done = false; /* last: until then it has no turn, and so it never sees itself half asked to rest */
	}
}

void ends_pause(bool close)
{
	for (unsigned int i = 0; i < nparts; i++) {
		parts[i]->closing = close;
		parts[i]->done = false;
		parts[i]->pausing = true;
	}
}

bool ends_idle(void)
{
	bool idle = true;

	for (unsigned int i = 0; i < nparts; i++)
		idle &= parts[i]->idle != NULL ? parts[i]->idle(parts[i]) : parts[i]->done;
	return idle;
}

void ends_stop(void)
{
	stopping = true;
	for (unsigned int i = 0; i < nparts; i++)
		pthread_join(parts[i]->thread, NULL);
}
