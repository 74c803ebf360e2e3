/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.h - what the two ends of the engine's pipe share: the ledger, which outlives them, and how items look. */
#ifndef ENGINE_PIPE_H
#define ENGINE_PIPE_H

#include "engine.h"

#include <stddef.h>

#define CAPACITY (2u << 20)   /* bytes */
#define LINGER (60000 * MS)   /* longer than a bad network keeps a dead sender's items from being received */
#define WINDOW 64u	      /* items that an end fetches ahead at most, and loses when it dies */
#define MOST_WORDS (1u << 16) /* of an item */

/*
 * A sender's life, from the opening of its end on. Its serial says when that was, in the order of all openings of ends, and where
 * in the ledger it is.
 */
enum fate { OPEN = 1, CLOSED, LOST };
enum { PLACE_BITS = 10, PLACES = 1 << PLACE_BITS };

struct sender {
	_Atomic uint64_t serial;
	_Atomic uint64_t sent;    /* items that were sent for certain */
	_Atomic uint64_t got;     /* number of the item that is received next */
	_Atomic uint64_t missing; /* items that dead receivers had fetched */
	_Atomic int fate, pid;
	_Atomic uint64_t lives;	  /* of the receiver's daemon, when its items were last begun to be received */
};

struct ledger { /* a file, which all engines of a test map */
	_Atomic uint64_t lives, homes; /* how often the receiver's daemon has ended, and the sender's: the test writes it (../ledger.go) */
	_Atomic uint64_t openings, places;
	_Atomic uint64_t newest; /* sender that is open */
	_Atomic uint64_t heard;  /* newest sender of which an item came */
	_Atomic bool closed;     /* and no sender comes before all begins again */
	struct sender senders[PLACES];
};
_Static_assert(sizeof(struct ledger) <= 256 << 10, "ledger.go makes a file of ledgerBytes");

struct end {
	struct part part; /* first */
	kvpipe_t *kv;
	kvpipe_pipe_t *pipe; /* NULL: not open */
	char name[64], file[256], peer[64];
	struct ledger *ledger;
	uint64_t opening;
	uint64_t state; /* of what is drawn */

	struct sender *sender; /* of this end; of the receiving one once it is known */
	uint64_t serial, number;
	/* receiving */
	uint64_t nones; /* that came after the last tensor, and whose numbers are not known */
	uint64_t lives; /* of the daemon, when the end was opened */
	bool again;	/* the daemon went, perhaps before it told the sender's of the last items: these may come again */
	uint64_t count;
	struct sender *doubted; /* it is said to be dead */
	uint64_t doubt, lacking, reached; /* its serial; items that had not come; the one that was to come next */
};

uint64_t end_draw(struct end *e, uint64_t below);
void end_close(struct end *e);
/* Opens the end; false: not now. */
bool end_open(struct end *e, const struct kvpipe_pipe_opts *opts);

struct end *end_of(struct part *p);
void sender_turn(struct part *p);   /* send.c */
void receiver_turn(struct part *p); /* recv.c */
bool receiver_idle(struct part *p); /* also while a call of it waits */

/* ---- items (item.c) ---- */
enum kind { NONE, EMPTY, WORDS };
enum kind item_kind(uint64_t serial, uint64_t number);
/* Makes t, over data of MOST_WORDS, of a kind that is not NONE. */
void item_make(struct kvpipe_tensor *t, uint64_t *data, uint64_t serial, uint64_t number);
/* Who sent it, as it says itself; false: no item of ours. */
bool item_names(const struct kvpipe_tensor *t, uint64_t *serial, uint64_t *number);
bool item_right(const struct kvpipe_tensor *t, uint64_t serial, uint64_t number);

#endif
