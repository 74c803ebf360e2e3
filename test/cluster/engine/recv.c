/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end, which looks at every word, at the order, and at what is said when the sender is gone. */
#include "pipe.h"

#include <signal.h>

static pthread_mutex_t doubts = PTHREAD_MUTEX_INITIALIZER; /* the main thread settles them */

static void begin(struct end *e)
{
	static const uint32_t windows[] = { 1, 8, WINDOW };
	const struct kvpipe_pipe_opts opts = KVPIPE_OPTS(kvpipe_pipe_opts, .name = e->name, .end = KVPIPE_RECV,
							 .peer = e->peer[0] != '\0' ? e->peer : NULL, .window = windows[end_draw(e, 3)]);

	e->sender = NULL;
	e->nones = 0;
	e->opening = ++e->ledger->openings;
	e->lives = e->ledger->lives;
	end_open(e, &opts);
}

/* What ends that were opened since the sender's may have taken with them. The first that it had takes nothing. */
static uint64_t allowed(const struct end *e)
{
	uint64_t since = e->serial >> PLACE_BITS;

	return e->opening > since ? (e->opening - since) * WINDOW : 0;
}

static unsigned long long ull(uint64_t n) { return n; }

/* It is the sender's first item at this end, or another one of the same sender. */
static bool meet(struct end *e, uint64_t serial)
{
	struct sender *s = &e->ledger->senders[serial % PLACES];

	if (s->serial != serial || (e->sender != NULL && e->serial != serial) || serial < e->ledger->heard) {
		say("wrong pipe: an item of sender %llx, which is not the one that is heard, %llx", ull(serial),
		    ull(e->sender != NULL ? e->serial : e->ledger->heard));
		return false;
	}
	e->ledger->heard = serial;
	if (e->sender == NULL) {
		e->again = s->lives != e->ledger->lives;
		s->lives = e->lives;
	}
	e->sender = s, e->serial = serial;
	return true;
}

/* Between the last item and this one there are no others but what a dead receiver has fetched. */
static bool in_order(struct end *e, uint64_t number)
{
	struct sender *s = e->sender;
	uint64_t next = s->got, nones = 0;

	if (e->again && number < next && next - number <= WINDOW) {
		s->got = next = number;
		e->nones = 0;
	}
	if (number < next) {
		say("wrong pipe: item %llu of sender %llx after %llu", ull(number), ull(e->serial), ull(next - 1));
		return false;
	}
	for (uint64_t n = next; n < number; n++)
		nones += item_kind(e->serial, n) == NONE;
	if (e->again && e->nones > nones)
		e->nones = nones;
	e->again = false;
	uint64_t missing = number - next - e->nones;
	if (e->nones > nones || s->missing + missing > allowed(e)) {
		say("wrong pipe: after item %llu of sender %llx came %llu times None, and then item %llu; %llu were missing before, %llu may be",
		    ull(next - 1), ull(e->serial), ull(e->nones), ull(number), ull(s->missing), ull(allowed(e)));
		return false;
	}
	s->missing += missing;
	e->nones = 0;
	return true;
}

static void look(struct end *e, const kvpipe_msg_t *m)
{
	struct kvpipe_tensor t = { .sz = sizeof(t) };
	uint64_t serial, number;

	if (kvpipe_msg_tensor(m, 0, &t) == 0) {
		if (e->sender != NULL && item_kind(e->serial, e->sender->got) == NONE && e->nones == 0)
			e->sender->got++;
		else
			e->nones++;
		return;
	}
	if (!item_names(&t, &serial, &number)) {
		say("wrong pipe: an item of %u dimensions that names nobody", t.ndim);
		return;
	}
	if (!meet(e, serial) || !in_order(e, number))
		return;
	if (!item_right(&t, serial, number))
		say("wrong pipe: item %llu of sender %llx has other content", ull(number), ull(serial));
	e->sender->got = number + 1;
	if (++e->count % 8 == 0)
		say("piped %llx %llu", ull(serial), ull(number));
}

/* How many items are lacking that no dead receiver has. */
static uint64_t lacking(const struct end *e)
{
	const struct sender *s = e->sender;
	uint64_t have = s->got + e->nones + (allowed(e) - s->missing), sent = s->sent;

	return sent > have ? sent - have : 0;
}

/* The end is over: was it time? */
static void parted(struct end *e, int rc)
{
	struct sender *s = e->sender;

	if (rc != -KVPIPE_E_CLOSED && rc != -KVPIPE_E_PEER_GONE && rc != -KVPIPE_E_RESTARTED && rc != -KVPIPE_E_BUSY)
		say("wrong pipe: the receiver is told: %s: %s", kvpipe_strerror(rc), kvpipe_last_error());
	if (s != NULL && rc == -KVPIPE_E_CLOSED && (s->fate != CLOSED || lacking(e) > 0))
		say("wrong pipe: closed, its sender %llx %s, %llu items lacking: %s", ull(e->serial), s->fate == CLOSED ? "as well" : "is not",
		    ull(lacking(e)), kvpipe_last_error());
	if (s != NULL && rc == -KVPIPE_E_PEER_GONE) {
		pthread_mutex_lock(&doubts);
		e->doubted = s, e->doubt = e->serial, e->lacking = lacking(e), e->reached = s->got;
		pthread_mutex_unlock(&doubts);
	}
	say("parted %s", kvpipe_strerror(rc));
	end_close(e);
}

/* How many items of a sender may have come since an end lost it: the next one goes on, and of what it gets a None at the very end names nobody. */
static uint64_t later(const struct sender *s, uint64_t serial, uint64_t reached)
{
	uint64_t nones = 0;

	while (nones < s->sent && item_kind(serial, s->sent - 1 - nones) == NONE)
		nones++;
	return (s->got > reached ? s->got - reached : 0) + nones;
}

/* Of a sender that was said to be dead: is it, and was everything received? Asked when it has noticed itself that its daemon is another one. */
static void settle(struct end *e)
{
	pthread_mutex_lock(&doubts);
	struct sender *s = e->doubted;
	uint64_t doubt = e->doubt, lack = e->lacking, reached = e->reached;
	e->doubted = NULL;
	pthread_mutex_unlock(&doubts);
	if (s == NULL || s->serial != doubt || s->fate != OPEN)
		return;
	bool lives = kill(s->pid, 0) == 0;
	if (lives && e->peer[0] == '\0') /* another node may have been out of reach, and the next end goes on */
		say("wrong pipe: sender %llx is said to be gone, and is not", ull(doubt));
	else if (!lives && lack > later(s, doubt, reached))
		say("wrong pipe: %llu items of sender %llx, which died, are lacking", ull(lack - later(s, doubt, reached)), ull(doubt));
}

/* The newest sender has nothing more to say. */
static bool drained(const struct end *e)
{
	const struct sender *s = &e->ledger->senders[e->ledger->newest % PLACES];

	return s->got == s->sent && (!e->part.closing || s->fate == CLOSED);
}

/* Closes an end that is not to stay open; one that has met the newest sender hears that it is closed. */
static void rest(struct end *e)
{
	if (!e->part.closing || !drained(e))
		return;
	if (e->pipe != NULL && (e->sender == NULL || e->serial != e->ledger->newest))
		end_close(e);
	e->part.done = e->pipe == NULL;
}

bool receiver_idle(struct part *p)
{
	struct end *e = end_of(p);

	if (!e->part.pausing || !(e->part.closing ? e->part.done : drained(e)))
		return false;
	settle(e);
	return true;
}

void receiver_turn(struct part *p)
{
	struct end *e = end_of(p);
	kvpipe_msg_t *m;

	if (e->part.pausing)
		rest(e);
	if (e->pipe == NULL && e->ledger->closed && drained(e)) {
		poll(NULL, 0, 2);
		return;
	}
	if (e->pipe == NULL) {
		begin(e);
		return;
	}
	int64_t timeout = e->part.pausing ? CALL / 50 : CALL;
	call_begins("pipe: recv", timeout);
	int rc = kvpipe_pipe_recv(e->pipe, timeout, &m);
	call_ends();
	if (rc == 0) {
		look(e, m);
		kvpipe_msg_free(m);
	} else if (rc != -KVPIPE_E_TIMEOUT) {
		parted(e, rc);
	}
}
