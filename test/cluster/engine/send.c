/* SPDX-License-Identifier: Apache-2.0 */
/* The sending end: bursts that at times fill the pipe, now and then a close with items in it. */
#include "pipe.h"

#include <unistd.h>

static void begin(struct end *e)
{
	const struct kvpipe_pipe_opts opts = KVPIPE_OPTS(kvpipe_pipe_opts, .name = e->name, .end = KVPIPE_SEND, .capacity = CAPACITY,
							 .linger_ns = LINGER);

	e->ledger->closed = false;
	if (e->sender == NULL)
		e->sender = &e->ledger->senders[e->ledger->places++ % PLACES];
	struct sender *s = e->sender;
	/* Anew at each attempt: the later it is, the fewer receivers may have met another sender. */
	e->serial = ++e->ledger->openings << PLACE_BITS | (uint64_t)(s - e->ledger->senders);
	s->sent = s->got = s->missing = 0;
	s->lives = e->ledger->lives;
	s->fate = OPEN;
	s->pid = getpid();
	s->serial = e->serial;
	e->number = 0;
	if (end_open(e, &opts))
		e->ledger->newest = e->serial;
}

static void finish(struct end *e, enum fate fate)
{
	e->sender->fate = fate;
	end_close(e);
	e->sender = NULL;
}

/* The daemon is another one, or lost the receiver's: what was sent may be lost. */
static void parted(struct end *e, int rc)
{
	if (rc != -KVPIPE_E_RESTARTED && rc != -KVPIPE_E_PEER_GONE)
		say("wrong pipe: the sender of %llu items is told: %s: %s", (unsigned long long)e->number, kvpipe_strerror(rc), kvpipe_last_error());
	say("parted %s", kvpipe_strerror(rc));
	finish(e, LOST);
}

/* Sends the next item; false: there is no room, or no pipe any more. */
static bool put(struct end *e)
{
	static uint64_t data[MOST_WORDS];
	struct kvpipe_tensor t, *what = NULL;

	if (item_kind(e->serial, e->number) != NONE)
		item_make(what = &t, data, e->serial, e->number);
	call_begins("pipe: send", CALL);
	int rc = kvpipe_pipe_send(e->pipe, what, CALL);
	call_ends();
	if (rc == 0)
		e->sender->sent = ++e->number;
	else if (rc != -KVPIPE_E_TIMEOUT)
		parted(e, rc);
	return rc == 0;
}

/* Everything that was sent was received, and the receiver says so itself. */
static bool settled(struct end *e)
{
	call_begins("pipe: flush", CALL);
	int rc = kvpipe_pipe_flush(e->pipe, CALL);
	call_ends();
	if (rc != 0 && rc != -KVPIPE_E_TIMEOUT)
		parted(e, rc);
	if (rc != 0)
		return false;
	for (int i = 0; i < 50 && e->number > 0 && e->sender->got != e->number; i++)
		poll(NULL, 0, 1);
	if (e->number > 0 && e->sender->got == e->number)
		return true;
	put(e); /* who received the last of them is dead: the next one must say it */
	return false;
}

static void rest(struct end *e)
{
	if (!settled(e))
		return;
	if (e->part.closing) {
		for (uint64_t n = end_draw(e, 4); n > 0 && put(e); n--)
			;
		if (e->pipe == NULL)
			return;
		e->ledger->closed = true;
		finish(e, CLOSED);
	}
	e->part.done = true;
}

void sender_turn(struct part *p)
{
	struct end *e = end_of(p);

	if (e->pipe == NULL)
		begin(e);
	else if (e->part.pausing)
		rest(e);
	else if (end_draw(e, 200) == 0)
		finish(e, CLOSED);
	else {
		for (uint64_t n = end_draw(e, end_draw(e, 50) == 0 ? 2000 : 32); n > 0 && !e->part.pausing && put(e); n--)
			;
		poll(NULL, 0, 5);
	}
}
