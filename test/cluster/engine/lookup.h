/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.h - what the two ends of the engine's lookup buffer share: the ledger, which outlives them, and how entries look. */
#ifndef ENGINE_LOOKUP_H
#define ENGINE_LOOKUP_H

#include "engine.h"

#include <stddef.h>

#define SHELF_BYTES (2u << 20)	   /* capacity */
#define SHELF_LINGER (60000 * MS) /* longer than a bad network keeps a dead owner's entries from being selected */

enum { QUERIES = 8, LONGEST = 8, MEMBERS = 5, KEYS = 4 };
enum { OWNER_BITS = 5, OWNERS = 1 << OWNER_BITS, NUMBER_BITS = 11, ENTRIES = 1 << NUMBER_BITS };

/* An owner's life, from the opening of its end on. Its serial says when that was, and where in the ledger it is. */
enum stay { OWNING = 1, LEFT, BEREFT };

struct owner {
	_Atomic uint64_t serial;
	_Atomic uint64_t homes;	  /* the ledger's when it opened */
	_Atomic uint64_t risked;  /* the ledger's when the owner was last looked at */
	_Atomic uint32_t entries; /* that were inserted for certain */
	_Atomic uint32_t rested;  /* those before it were looked at */
	_Atomic uint32_t missing; /* of those, dead ones took */
	_Atomic uint32_t twice;	  /* came again, because the selecting end's daemon had ended */
	_Atomic int fate, pid;
	_Atomic uint16_t got[ENTRIES]; /* in which life of the selecting end's daemon, from 1 on; 0: not yet */
};

struct key {
	_Atomic uint64_t begun, put; /* the newest put: it may be there; it is, or was there as long as its owner was */
};

struct shelf { /* a file, which all engines of a test map */
	_Atomic uint64_t lives, homes; /* how often the selecting end's daemon has ended, and the owner's: the test writes it (../ledger.go) */
	_Atomic uint64_t openings, places;
	_Atomic uint64_t newest;  /* owner that is open */
	_Atomic uint64_t heard;	  /* newest owner of which an entry came */
	_Atomic uint64_t settled; /* owner all of whose entries are out */
	_Atomic uint64_t asked;	  /* queries whose end is not known yet: each may have an entry */
	_Atomic uint64_t risked;  /* entries that may be lost, because who asked for them died, closed or gave up */
	_Atomic bool resting;	  /* the owner wants all to be out */
	struct owner owners[OWNERS];
	_Atomic uint64_t puts;
	struct key keys[KEYS];
};
_Static_assert(sizeof(struct shelf) <= 256 << 10, "ledger.go makes a file of ledgerBytes");

/* What an entry lies under, and what a query asks for. */
struct sequence {
	uint32_t n, tokens[LONGEST];
	uint8_t roi[LONGEST];
	bool masked; /* else all count */
};

struct query {
	kvpipe_query_t *query; /* NULL: none */
	uint32_t match;	       /* 0: any entry */
	bool told;	       /* a wait said TIMEOUT, perhaps as its end */
	bool silent;	       /* because the daemon did not answer */
	struct sequence asked;
	int64_t due; /* in fair time */
};

struct look {
	struct part part; /* first */
	kvpipe_t *kv;
	kvpipe_lookup_t *end; /* NULL: not open */
	char name[64], file[256], peer[64];
	struct shelf *shelf;
	uint64_t state; /* of what is drawn */

	struct owner *owner; /* of this end; of the selecting one the last that it met */
	uint64_t serial;
	uint32_t number;
	bool tried; /* since it pauses: so the daemon is known to be there */
	/* selecting */
	struct query queries[QUERIES];
	uint64_t lives; /* of the daemon, when the end was opened */
	uint64_t doubt; /* serial of an owner that is said to be gone */
	uint64_t found;
	int ending; /* why nothing more is asked */
};

uint64_t look_draw(struct look *l, uint64_t below);
bool look_open(struct look *l, const struct kvpipe_lookup_opts *opts);
void look_close(struct look *l);
struct owner *owner_of(struct shelf *s, uint64_t serial);
/* Entries from that number on that nobody has. */
uint32_t lacking(const struct owner *o, uint32_t from);

struct look *look_of(struct part *p);
void owner_turn(struct part *p);    /* insert.c */
void selector_turn(struct part *p); /* select.c */
void putter_turn(struct part *p);   /* keys.c */
void getter_turn(struct part *p);

/* ---- entries (entry.c) ---- */
/* Draws tokens of which few are different, so that many match. */
void sequence_draw(struct sequence *s, uint64_t h);
/* Tensors over s. NULL roi: there is none. */
const struct kvpipe_tensor *sequence_tokens(struct kvpipe_tensor *t, struct sequence *s);
const struct kvpipe_tensor *sequence_roi(struct kvpipe_tensor *t, struct sequence *s);

struct entry {
	struct kvpipe_tensor tensors[MEMBERS];
	const struct kvpipe_tensor *members[MEMBERS];
	struct sequence under;
};
/* filling: it is as large as the buffer. What it points to is the next entry's, too. */
void entry_make(struct entry *e, uint64_t serial, uint32_t number, bool filling);
/* Whose it is, as it says itself; false: no entry of ours. */
bool entry_names(const kvpipe_msg_t *m, uint64_t *serial, uint32_t *number, bool *filling);
/* Every byte of it is right; else *what says which member is not. */
bool entry_right(const kvpipe_msg_t *m, uint64_t serial, uint32_t number, bool filling, const char **what);
/* It is an entry that the query may get, and .matched is what agrees. */
bool entry_fits(const kvpipe_msg_t *m, uint64_t serial, uint32_t number, bool filling, const struct query *q);

#endif
