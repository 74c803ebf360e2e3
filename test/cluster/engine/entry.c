/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries, by owner and number. Their key, value and hidden are the first items of a sender of which there is one for each entry
 * (item.c): the key says which, the others may be None. Some lie under no tokens, and some under only a part of theirs.
 */
#include "lookup.h"
#include "pipe.h"

#include <string.h>

#define FILLING (1ull << 63)
#define FILLED (SHELF_BYTES / 8 - 1) /* words: no other entry has room beside it */

enum { TOKENS, ROI, KEY, VALUE, HIDDEN };
static const char *const names[MEMBERS] = { "tokens", "roi", "key", "value", "hidden" };

static uint64_t name_of(uint64_t serial, uint32_t number, bool filling)
{
	return serial << NUMBER_BITS | number | (filling ? FILLING : 0);
}

void sequence_draw(struct sequence *s, uint64_t h)
{
	s->n = 1 + h % LONGEST;
	s->masked = (h >> 8) % 2;
	for (uint32_t i = 0; i < s->n; i++) {
		bool counts = !s->masked || i == s->n / 2 || (h >> (16 + i)) % 2;
		uint64_t drawn = mix(h + i);
		s->roi[i] = counts;
		s->tokens[i] = (uint32_t)(counts ? drawn % 3 : drawn);
	}
}

static struct sequence under(uint64_t name)
{
	struct sequence s = { 0 };
	uint64_t h = mix(name);

	if ((name & FILLING) == 0 && h % 8 != 0)
		sequence_draw(&s, h >> 3);
	return s;
}

static uint32_t counting(const struct sequence *s, uint32_t out[LONGEST])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (s->roi[i])
			out[n++] = s->tokens[i];
	return n;
}

const struct kvpipe_tensor *sequence_tokens(struct kvpipe_tensor *t, struct sequence *s)
{
	*t = (struct kvpipe_tensor){ .sz = sizeof(*t), .dtype = KVPIPE_U32, .ndim = 1, .shape = { s->n }, .data = s->tokens };
	return s->n > 0 ? t : NULL;
}

const struct kvpipe_tensor *sequence_roi(struct kvpipe_tensor *t, struct sequence *s)
{
	*t = (struct kvpipe_tensor){ .sz = sizeof(*t), .dtype = KVPIPE_BOOL, .ndim = 1, .shape = { s->n }, .data = s->roi };
	return s->n > 0 && s->masked ? t : NULL;
}

static uint64_t fill_word(uint64_t name, uint64_t place) { return mix(name + place); }

static const struct kvpipe_tensor *filler(struct kvpipe_tensor *t, uint64_t *data, uint64_t name, uint64_t words)
{
	for (uint64_t i = 0; i < words; i++)
		data[i] = fill_word(name, i);
	*t = (struct kvpipe_tensor){ .sz = sizeof(*t), .dtype = KVPIPE_U64, .ndim = 1, .shape = { words }, .data = data };
	return t;
}

void entry_make(struct entry *e, uint64_t serial, uint32_t number, bool filling)
{
	static uint64_t data[MEMBERS][MOST_WORDS], much[FILLED];
	const uint64_t name = name_of(serial, number, filling);

	e->under = under(name);
	e->members[TOKENS] = sequence_tokens(&e->tensors[TOKENS], &e->under);
	e->members[ROI] = sequence_roi(&e->tensors[ROI], &e->under);
	for (int i = KEY; i <= HIDDEN; i++) {
		uint64_t item = (uint64_t)(i - KEY);
		e->members[i] = NULL;
		if (item_kind(name, item) == NONE || (filling && i != KEY))
			continue;
		item_make(&e->tensors[i], data[i], name, item);
		e->members[i] = &e->tensors[i];
	}
	if (filling)
		e->members[HIDDEN] = filler(&e->tensors[HIDDEN], much, name, FILLED - e->tensors[KEY].shape[0]);
}

bool entry_names(const kvpipe_msg_t *m, uint64_t *serial, uint32_t *number, bool *filling)
{
	struct kvpipe_tensor t = { .sz = sizeof(t) };
	uint64_t name, item;

	if (kvpipe_msg_count(m) != MEMBERS || kvpipe_msg_tensor(m, KEY, &t) != 1 || !item_names(&t, &name, &item) || item != 0)
		return false;
	*filling = (name & FILLING) != 0;
	*serial = (name & ~FILLING) >> NUMBER_BITS;
	*number = name % ENTRIES;
	return true;
}

static bool same(const struct kvpipe_tensor *got, const struct kvpipe_tensor *want)
{
	if (got == NULL || want == NULL)
		return got == want;
	return got->dtype == want->dtype && got->ndim == 1 && got->shape[0] == want->shape[0] &&
	       memcmp(got->data, want->data, want->shape[0] * kvpipe_dtype_size(want->dtype)) == 0;
}

static bool filled(const struct kvpipe_tensor *got, uint64_t name, uint64_t words)
{
	if (got == NULL || got->dtype != KVPIPE_U64 || got->ndim != 1 || got->shape[0] != words)
		return false;
	for (uint64_t i = 0; i < words; i++)
		if (((const uint64_t *)got->data)[i] != fill_word(name, i))
			return false;
	return true;
}

bool entry_right(const kvpipe_msg_t *m, uint64_t serial, uint32_t number, bool filling, const char **what)
{
	const uint64_t name = name_of(serial, number, filling);
	struct kvpipe_tensor t[MEMBERS], want;
	const struct kvpipe_tensor *got[MEMBERS];
	struct sequence s = under(name);
	bool right = true;

	for (uint32_t i = 0; i < MEMBERS; i++) {
		t[i].sz = sizeof(t[i]);
		got[i] = kvpipe_msg_tensor(m, i, &t[i]) == 1 ? &t[i] : NULL;
	}
	for (int i = 0; i < MEMBERS && right; i++) {
		uint64_t item = (uint64_t)(i - KEY);
		*what = names[i];
		if (i == TOKENS)
			right = same(got[i], sequence_tokens(&want, &s));
		else if (i == ROI)
			right = same(got[i], sequence_roi(&want, &s));
		else if (filling && i == HIDDEN)
			right = filled(got[i], name, FILLED - t[KEY].shape[0]);
		else if (item_kind(name, item) == NONE || (filling && i == VALUE))
			right = got[i] == NULL;
		else
			right = got[i] != NULL && item_right(got[i], name, item);
	}
	return right;
}

bool entry_fits(const kvpipe_msg_t *m, uint64_t serial, uint32_t number, bool filling, const struct query *q)
{
	uint32_t lies[LONGEST], asked[LONGEST];
	struct sequence s = under(name_of(serial, number, filling));
	uint32_t n = counting(&s, lies), k = counting(&q->asked, asked), least = n < k ? n : k;

	if (q->match == 0) /* of anything, what the entry lies under */
		return kvpipe_msg_matched(m) == n;
	if (kvpipe_msg_matched(m) != least || memcmp(lies, asked, least * sizeof(*lies)) != 0)
		return false;
	return least > 0 && (q->match == KVPIPE_PREFIX || n == k);
}
