/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put and get, in a lookup buffer of their own, since what lies under a key stays until it is replaced or its owner is gone. A value is
 * the first item of a sender, whose serial says which put it was and of which key.
 */
#include "lookup.h"
#include "pipe.h"

#include <stdio.h>

#define KEYS_LINGER (20 * MS) /* nobody can take what is left */

static uint64_t serial_of(uint64_t put, uint64_t key) { return put * KEYS + key; }

static bool opened(struct look *l, bool own)
{
	char name[80];
	struct kvpipe_lookup_opts opts = KVPIPE_OPTS(kvpipe_lookup_opts, .name = name, .capacity = own ? SHELF_BYTES : 0,
						     .linger_ns = own ? KEYS_LINGER : 0, .peer = l->peer[0] != '\0' ? l->peer : NULL);

	snprintf(name, sizeof(name), "%s-keys", l->name);
	return l->end != NULL || look_open(l, &opts);
}

/* At rest the end is closed, whatever is in it. */
static bool resting(struct look *l)
{
	if (!l->part.pausing)
		return false;
	if (l->end != NULL)
		look_close(l);
	l->part.done = true;
	return true;
}

static void parted(struct look *l, bool own, int rc)
{
	if (rc != -KVPIPE_E_RESTARTED && (own || (rc != -KVPIPE_E_CLOSED && rc != -KVPIPE_E_PEER_GONE)))
		say("wrong lookup: %s is told: %s: %s", own ? "put" : "get", kvpipe_strerror(rc), kvpipe_last_error());
	look_close(l);
}

void putter_turn(struct part *p)
{
	static uint64_t data[MOST_WORDS];
	struct look *l = look_of(p);
	uint64_t key = look_draw(l, KEYS);
	struct key *k = &l->shelf->keys[key];
	struct kvpipe_tensor t;

	if (resting(l) || !opened(l, true))
		return;
	k->begun = ++l->shelf->puts;
	item_make(&t, data, serial_of(k->begun, key), 0);
	call_begins("lookup: put", CALL);
	int rc = kvpipe_lookup_put(l->end, &key, sizeof(key), &t, CALL);
	call_ends();
	if (rc == 0)
		k->put = k->begun;
	else if (rc != -KVPIPE_E_TIMEOUT)
		parted(l, true, rc);
	poll(NULL, 0, 10);
}

/* What lies under a key now is no older than what lay there when it was asked for, and nobody will put it only later. */
static void examine(const struct key *k, uint64_t key, uint64_t least, const kvpipe_msg_t *m)
{
	struct kvpipe_tensor t = { .sz = sizeof(t) };
	uint64_t serial, number;

	if (kvpipe_msg_count(m) != 1 || kvpipe_msg_tensor(m, 0, &t) != 1 || !item_names(&t, &serial, &number) || number != 0)
		say("wrong lookup: a value that names nobody under key %llu", (unsigned long long)key);
	else if (serial % KEYS != key || serial / KEYS < least || serial / KEYS > k->begun)
		say("wrong lookup: put %llu of key %llu under key %llu, of which put %llu is there", (unsigned long long)(serial / KEYS),
		    (unsigned long long)(serial % KEYS), (unsigned long long)key, (unsigned long long)least);
	else if (!item_right(&t, serial, 0))
		say("wrong lookup: put %llu has other content", (unsigned long long)(serial / KEYS));
}

void getter_turn(struct part *p)
{
	struct look *l = look_of(p);
	uint64_t key = look_draw(l, KEYS);
	const struct key *k = &l->shelf->keys[key];
	kvpipe_query_t *q = NULL;
	kvpipe_msg_t *m = NULL;

	if (resting(l) || !opened(l, false))
		return;
	uint64_t least = k->put;
	call_begins("lookup: get", CALL);
	int rc = kvpipe_lookup_get(l->end, &key, sizeof(key), CALL / 20, &q);
	if (rc == 0)
		rc = kvpipe_query_wait(q, CALL / 10, &m);
	call_ends();
	if (rc == 0) {
		examine(k, key, least, m);
		kvpipe_msg_free(m);
		if (++l->found % 16 == 0)
			say("got %llu", (unsigned long long)key);
	}
	call_begins("lookup: free", CALL);
	kvpipe_query_free(q);
	call_ends();
	if (rc != 0 && rc != -KVPIPE_E_TIMEOUT)
		parted(l, false, rc);
	poll(NULL, 0, 5);
}
