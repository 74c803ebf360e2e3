/* SPDX-License-Identifier: Apache-2.0 */
/* The selecting end of a lookup buffer: several queries at a time, some of them given up, and a look at every byte of what they get. */
#include "lookup.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#define OVERDUE (1000 * MS) /* how much later than its time a query may end, also while its daemon is stopped */

static void begin(struct look *l)
{
	const struct kvpipe_lookup_opts opts = KVPIPE_OPTS(kvpipe_lookup_opts, .name = l->name, .peer = l->peer[0] != '\0' ? l->peer : NULL);

	l->owner = NULL;
	l->ending = 0;
	l->tried = false;
	/* Not before: the daemon may take a while to end, and who opens waits for the next one. */
	if (look_open(l, &opts))
		l->lives = l->shelf->lives;
}

/* The query is over. What came of it is known, or it may have taken an entry along. */
static void forget(struct look *l, struct query *q, bool known)
{
	call_begins("lookup: free", CALL);
	kvpipe_query_free(q->query);
	call_ends();
	q->query = NULL;
	if (!known)
		l->shelf->risked++;
	l->shelf->asked--;
}

/* Somebody has it already. That is so when this end's daemon before ended between handing it out and telling the owner's. */
static bool again(struct look *l, struct owner *o, uint32_t number)
{
	if (l->peer[0] == '\0' || o->got[number] == l->lives + 1)
		return false;
	o->got[number] = (uint16_t)(l->lives + 1);
	return ++o->twice <= QUERIES * l->lives;
}

/* Notes who has an entry. */
static bool enter(struct look *l, uint64_t serial, uint32_t number)
{
	struct shelf *s = l->shelf;
	struct owner *o = owner_of(s, serial);

	if (o->serial != serial || serial < s->heard || number > o->entries) {
		say("wrong lookup: entry %u of owner %" PRIx64 ", who has %u; owner %" PRIx64 " was heard", number, serial, o->entries, s->heard);
		return false;
	}
	s->heard = serial;
	l->owner = o, l->serial = serial;
	if (o->got[number] != 0) {
		if (again(l, o, number))
			return true;
		say("wrong lookup: entry %u of owner %" PRIx64 " came in life %u of the daemon, and again in %" PRIu64, number, serial,
		    o->got[number] - 1u, l->lives);
		return false;
	}
	o->got[number] = (uint16_t)(l->lives + 1);
	return true;
}

static void examine(struct look *l, const struct query *q, const kvpipe_msg_t *m)
{
	const char *what;
	uint64_t serial;
	uint32_t number;
	bool filling;

	if (!entry_names(m, &serial, &number, &filling)) {
		say("wrong lookup: an entry of %u members that names nobody", kvpipe_msg_count(m));
		return;
	}
	if (!enter(l, serial, number))
		return;
	if (!entry_right(m, serial, number, filling, &what))
		say("wrong lookup: %s of entry %u of owner %" PRIx64 " is not what was inserted", what, number, serial);
	if (!entry_fits(m, serial, number, filling, q))
		say("wrong lookup: entry %u of owner %" PRIx64 " for a query that it does not match, by %" PRIu64 " tokens", number, serial,
		    kvpipe_msg_matched(m));
	if (++l->found % 2 == 0)
		say("found %" PRIx64 " %u", serial, number);
}

/* A query's end without an entry. Some ends are about the whole buffer. */
static void failed(struct look *l, const struct query *q, int rc)
{
	if (rc == -KVPIPE_E_CLOSED || rc == -KVPIPE_E_PEER_GONE || rc == -KVPIPE_E_RESTARTED)
		l->ending = rc;
	else if (rc != -KVPIPE_E_NOT_FOUND || !q->told)
		say("wrong lookup: a query is told: %s: %s", kvpipe_strerror(rc), kvpipe_last_error());
}

/* Sees to a query's end, if it has ended. */
static void collect(struct look *l, struct query *q)
{
	kvpipe_msg_t *m;

	call_begins("lookup: wait", 0);
	int rc = kvpipe_query_wait(q->query, 0, &m);
	call_ends();
	if (rc == -KVPIPE_E_TIMEOUT) { /* of this wait or of the query: the next one knows */
		q->told = true;
		q->silent = strstr(kvpipe_last_error(), "the daemon does not answer") != NULL;
		if (!kvpipe_query_done(q->query) && fair() > q->due) {
			say("hung lookup: a query, %lld ms after its deadline", (long long)((fair() - q->due + OVERDUE) / MS));
			q->due = INT64_MAX;
		}
	} else if (rc == 0) {
		examine(l, q, m);
		kvpipe_msg_free(m);
		forget(l, q, true);
	} else {
		failed(l, q, rc);
		forget(l, q, rc != -KVPIPE_E_RESTARTED && !q->silent); /* the daemon that ended, or stands still, may have had one */
	}
}

static void ask(struct look *l, struct query *q, int64_t timeout, bool anything)
{
	struct kvpipe_tensor tokens, roi;

	*q = (struct query){ .due = fair() + timeout + OVERDUE };
	if (!anything && q != l->queries && look_draw(l, 4) > 0) { /* the first always is for anything */
		q->match = look_draw(l, 2) ? KVPIPE_PREFIX : KVPIPE_EXACT;
		sequence_draw(&q->asked, look_draw(l, UINT64_MAX));
	}
	l->shelf->asked++;
	call_begins("lookup: select", CALL);
	int rc = kvpipe_lookup_select(l->end, sequence_tokens(&tokens, &q->asked), sequence_roi(&roi, &q->asked),
				      q->match != 0 ? q->match : KVPIPE_PREFIX, timeout, &q->query);
	call_ends();
	if (rc != 0) {
		failed(l, q, rc);
		l->shelf->asked--;
	}
}

static uint32_t running(const struct look *l)
{
	uint32_t n = 0;

	for (const struct query *q = l->queries; q < l->queries + QUERIES; q++)
		n += q->query != NULL;
	return n;
}

/* The end is over; was it time? What is still asked may be lost with it. */
static void parted(struct look *l)
{
	if (l->ending == -KVPIPE_E_CLOSED && l->owner != NULL && l->owner->serial == l->serial && l->owner->fate == OWNING)
		say("wrong lookup: closed, and its owner %" PRIx64 " is not", l->serial);
	if (l->ending == -KVPIPE_E_PEER_GONE && l->owner != NULL)
		l->doubt = l->serial;
	if (l->ending != 0)
		say("parted lookup: %s", kvpipe_strerror(l->ending));
	look_close(l);
	for (struct query *q = l->queries; q < l->queries + QUERIES; q++)
		if (q->query != NULL)
			forget(l, q, false);
}

/* Waits a little for any of them, and collects what there is. */
static void collect_all(struct look *l)
{
	struct pollfd fd = { .fd = kvpipe_lookup_fd(l->end), .events = POLLIN }; /* none of an end that is over: the queries say so */

	poll(&fd, 1, 5);
	for (struct query *q = l->queries; q < l->queries + QUERIES; q++)
		if (q->query != NULL)
			collect(l, q);
}

/* Of all owners, now that nothing is under way: nobody was said to be gone who is not, and no entry is lacking but what dead ones took. */
static void judge(struct look *l)
{
	struct shelf *s = l->shelf;
	struct owner *doubted = owner_of(s, l->doubt);

	if (l->doubt != 0 && doubted->serial == l->doubt && doubted->fate == OWNING && kill(doubted->pid, 0) == 0 && l->peer[0] == '\0')
		say("wrong lookup: owner %" PRIx64 " is said to be gone, and is not", l->doubt);
	l->doubt = 0;
	for (struct owner *o = s->owners; o < s->owners + OWNERS; o++) {
		uint32_t lack = lacking(o, 0), more = lack > o->missing ? lack - o->missing : 0;
		if (o->serial == 0 || o->homes != s->homes) /* lost with their daemon */
			continue;
		if (more > s->risked - o->risked)
			say("wrong lookup: of %u entries of owner %" PRIx64 " %u are lacking, %" PRIu64 " may be", o->entries, o->serial, more,
			    s->risked - o->risked);
		o->missing = lack;
		o->risked = s->risked;
	}
}

/* Nothing is in the buffer any more, as its newest owner says, or what that has left there is out. */
static bool out(struct shelf *s)
{
	const struct owner *o = owner_of(s, s->newest);

	return s->newest != 0 && s->settled == s->newest && lacking(o, o->rested) == 0;
}

/* At rest, once nothing is asked any more and the daemon is known to be this end's. */
static void rest(struct look *l)
{
	if (running(l) > 0 || !out(l->shelf))
		return;
	if (l->part.closing && l->end != NULL)
		parted(l);
	if (l->part.closing || l->tried) {
		judge(l);
		l->tried = false;
		l->part.done = true;
	}
}

void selector_turn(struct part *p)
{
	struct look *l = look_of(p);
	struct shelf *s = l->shelf;

	if (l->part.pausing)
		rest(l);
	if (l->part.done)
		return;
	if (l->end == NULL) {
		begin(l);
		return;
	}
	bool resting = l->part.pausing || s->resting, hasty = !resting && look_draw(l, 300) == 0;
	if (hasty && look_draw(l, 2) == 0) {
		parted(l);
		return;
	}
	for (struct query *q = l->queries; q < l->queries + QUERIES && l->ending == 0; q++)
		if (hasty && q->query != NULL)
			forget(l, q, false);
		else if (!resting && q->query == NULL)
			ask(l, q, (int64_t)(5 + look_draw(l, 60)) * MS, false);
	/* At rest one at a time; when all is out, one that finds nothing, so that the end is known to be alive. */
	if (resting && l->ending == 0 && running(l) == 0) {
		l->tried = l->part.pausing && out(s);
		ask(l, l->queries, (l->tried ? 1 : 50) * MS, true);
	}
	collect_all(l);
	if (l->ending != 0 && running(l) == 0)
		parted(l);
}
