/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a pipe that an engine may have beside its hand-overs, in a thread of its own. What is received names its sender and its
 * number, and the ledger knows how many there are of whom. It says, a line each:
 *   piped SERIAL NUMBER     some items came, as they were sent and in their order
 *   parted REASON           the end is over, and is opened again
 *   wrong pipe ...          a broken promise
 *   hung pipe: ...          a call that does not end a second after its deadline
 */
#include "pipe.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct end end;

struct end *end_of(struct part *p) { return (struct end *)(void *)p; }

uint64_t end_draw(struct end *e, uint64_t below) { return mix(++e->state) % below; }

void end_close(struct end *e)
{
	call_begins("pipe: close", 6000 * MS); /* a second until it is sealed, 5 s until it is closed */
	kvpipe_pipe_close(e->pipe);
	call_ends();
	e->pipe = NULL;
}

bool end_open(struct end *e, const struct kvpipe_pipe_opts *opts)
{
	call_begins("pipe: open", 5000 * MS);
	int rc = kvpipe_pipe_open(e->kv, opts, &e->pipe);
	call_ends();
	if (rc != 0)
		e->pipe = NULL;
	return end_opened("pipe", rc);
}

void pipe_begin(kvpipe_t *kv, const char *what)
{
	struct end *e = &end;
	char role[8];
	int fd;

	if (sscanf(what, "%7s %63s %255s %63s", role, e->name, e->file, e->peer) < 3 || (fd = open(e->file, O_RDWR)) < 0) {
		say("wrong pipe: %s: %m", what);
		return;
	}
	e->ledger = mmap(NULL, sizeof(*e->ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	e->kv = kv;
	e->state = (uint64_t)getpid() << 32;
	bool receives = strcmp(role, "recv") == 0;
	e->part.turn = receives ? receiver_turn : sender_turn;
	e->part.idle = receives ? receiver_idle : NULL;
	if (e->ledger == MAP_FAILED || !part_begin(&e->part))
		say("wrong pipe: %s: %m", what);
}
