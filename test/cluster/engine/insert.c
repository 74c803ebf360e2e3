/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's end of a lookup buffer: bursts of entries, now and then a close with entries in it. */
#include "lookup.h"

#include <unistd.h>

#define SPARE 64u /* numbers that are kept for the time of rest */

static void begin(struct look *l)
{
	struct shelf *s = l->shelf;
	const struct kvpipe_lookup_opts opts = KVPIPE_OPTS(kvpipe_lookup_opts, .name = l->name, .capacity = SHELF_BYTES, .linger_ns = SHELF_LINGER);

	if (l->owner == NULL)
		l->owner = &s->owners[s->places++ % OWNERS];
	struct owner *o = l->owner;
	/* Anew at each attempt, as a pipe's sender. */
	l->serial = ++s->openings << OWNER_BITS | (uint64_t)(o - s->owners);
	o->entries = o->rested = o->missing = o->twice = 0;
	for (uint32_t i = 0; i < ENTRIES; i++)
		o->got[i] = 0;
	o->homes = s->homes;
	o->risked = s->risked;
	o->fate = OWNING;
	o->pid = getpid();
	o->serial = l->serial;
	l->number = 0;
	l->tried = false;
	if (!look_open(l, &opts))
		return;
	if (o->homes == s->homes)
		s->newest = l->serial;
	else /* whose daemon it is is not known */
		look_close(l);
}

static void finish(struct look *l, enum stay fate)
{
	l->owner->fate = fate;
	look_close(l);
	l->owner = NULL;
}

/* The daemon is another one, and what was inserted is lost with the last. */
static void parted(struct look *l, int rc)
{
	if (rc != -KVPIPE_E_RESTARTED)
		say("wrong lookup: the owner of %u entries is told: %s: %s", l->number, kvpipe_strerror(rc), kvpipe_last_error());
	say("parted lookup: %s", kvpipe_strerror(rc));
	finish(l, BEREFT);
}

/* Inserts the next entry; false: there is no room, or no buffer any more. */
static bool put(struct look *l, bool filling)
{
	struct entry e;

	if (l->number == ENTRIES)
		return false;
	entry_make(&e, l->serial, l->number, filling);
	call_begins("lookup: insert", CALL);
	int rc = kvpipe_lookup_insert(l->end, e.members, CALL);
	call_ends();
	if (rc == 0)
		l->owner->entries = ++l->number;
	else if (rc != -KVPIPE_E_TIMEOUT)
		parted(l, rc);
	return rc == 0;
}

static bool out(const struct look *l, uint32_t from)
{
	for (int i = 0; i < 50 && lacking(l->owner, from) > 0; i++)
		poll(NULL, 0, 1);
	return lacking(l->owner, from) == 0;
}

/*
 * Nothing is in the buffer any more. Either somebody has whatever there was; or, when who asked for some is dead, there is room for an
 * entry as large as the buffer, and somebody has that.
 */
static bool settled(struct look *l)
{
	if (!l->tried) { /* the daemon is there, and this one's */
		l->tried = put(l, false);
		return false;
	}
	if (out(l, l->owner->rested))
		return true;
	return put(l, true) && out(l, l->number - 1);
}

static void rest(struct look *l)
{
	l->shelf->resting = true;
	if (!settled(l))
		return;
	l->owner->rested = l->number;
	uint64_t serial = l->serial;
	if (l->part.closing) {
		for (uint64_t n = look_draw(l, 4); n > 0 && put(l, false); n--)
			;
		if (l->end == NULL)
			return;
		finish(l, LEFT);
	}
	l->shelf->settled = serial;
	l->tried = false;
	l->part.done = true;
}

void owner_turn(struct part *p)
{
	struct look *l = look_of(p);

	if (l->end == NULL)
		begin(l);
	else if (l->part.pausing)
		rest(l);
	else if (l->number + SPARE >= ENTRIES || look_draw(l, 200) == 0)
		finish(l, LEFT);
	else {
		l->shelf->resting = false;
		for (uint64_t n = look_draw(l, look_draw(l, 20) == 0 ? 100 : 8); n > 0 && !l->part.pausing && l->number + SPARE < ENTRIES && put(l, false); n--)
			;
		poll(NULL, 0, 10);
	}
}
