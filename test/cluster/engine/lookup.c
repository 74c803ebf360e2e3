/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a lookup buffer that an engine may have beside its hand-overs, in a thread of its own: as that of a pipe, but what is in it
 * has no order. Beside it is one for what lies under keys (keys.c). What is selected names its owner and its number, and the ledger knows
 * which ones somebody has. It says, a line each:
 *   found SERIAL NUMBER     some entries came, as they were inserted, to who may have them
 *   got KEY                 so did some of what was put under a key
 *   parted lookup: REASON   the end is over, and is opened again
 *   wrong lookup ...        a broken promise
 *   hung lookup: ...        a call that does not end a second after its deadline, or a query long after it
 */
#include "lookup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct look entries, keys;

struct look *look_of(struct part *p) { return (struct look *)(void *)p; }

uint64_t look_draw(struct look *l, uint64_t below) { return mix(++l->state) % below; }

bool look_open(struct look *l, const struct kvpipe_lookup_opts *opts)
{
	call_begins("lookup: open", 5000 * MS);
	int rc = kvpipe_lookup_open(l->kv, opts, &l->end);
	call_ends();
	if (rc != 0)
		l->end = NULL;
	return end_opened("lookup", rc);
}

void look_close(struct look *l)
{
	call_begins("lookup: close", 6000 * MS); /* as a pipe's */
	kvpipe_lookup_close(l->end);
	call_ends();
	l->end = NULL;
}

struct owner *owner_of(struct shelf *s, uint64_t serial) { return &s->owners[serial % OWNERS]; }

uint32_t lacking(const struct owner *o, uint32_t from)
{
	uint32_t n = 0;

	for (uint32_t i = from; i < o->entries; i++)
		n += o->got[i] == 0;
	return n;
}

static bool start(struct look *l, const struct look *as, void (*turn)(struct part *p))
{
	*l = *as;
	l->part.turn = turn;
	l->state += (uint64_t)(l == &keys) << 36;
	return part_begin(&l->part);
}

void lookup_begin(kvpipe_t *kv, const char *what)
{
	struct look l = { .kv = kv, .state = (uint64_t)getpid() << 40 };
	char role[8];
	int fd;

	if (sscanf(what, "%7s %63s %255s %63s", role, l.name, l.file, l.peer) < 3 || (fd = open(l.file, O_RDWR)) < 0) {
		say("wrong lookup: %s: %m", what);
		return;
	}
	l.shelf = mmap(NULL, sizeof(*l.shelf), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	bool selects = strcmp(role, "select") == 0;
	if (selects && l.shelf != MAP_FAILED) /* what the last one had asked for when it died may have died with it */
		l.shelf->risked += atomic_exchange(&l.shelf->asked, 0);
	if (l.shelf == MAP_FAILED || !start(&entries, &l, selects ? selector_turn : owner_turn) ||
	    !start(&keys, &l, selects ? getter_turn : putter_turn))
		say("wrong lookup: %s: %m", what);
}
