/* SPDX-License-Identifier: Apache-2.0 */
/* Items: None, tensors without bytes, small ones and larger ones, by sender and number; all but None name these. */
#include "pipe.h"

static uint64_t hash(uint64_t serial, uint64_t number) { return mix(serial * 0xff51afd7ed558ccdu ^ number); }

enum kind item_kind(uint64_t serial, uint64_t number)
{
	uint64_t h = hash(serial, number) % 16;

	if (number == 0) /* whoever receives it knows whom he hears */
		return WORDS;
	return h < 2 ? NONE : h == 2 ? EMPTY : WORDS;
}

static uint64_t words(uint64_t serial, uint64_t number)
{
	uint64_t h = hash(serial, number) >> 8;

	return h % 32 == 0 ? 4096 + (h >> 8) % (MOST_WORDS - 4096) : 2 + (h >> 8) % 255;
}

static uint64_t word(uint64_t h, uint64_t place) { return h ^ place * 0x9e3779b97f4a7c15u; }

static void describe(struct kvpipe_tensor *t, uint64_t *data, uint64_t serial, uint64_t number)
{
	*t = (struct kvpipe_tensor){ .sz = sizeof(*t), .dtype = KVPIPE_U64, .data = data };
	if (item_kind(serial, number) == EMPTY) {
		t->ndim = 3;
		t->shape[0] = number, t->shape[2] = serial;
		t->data = NULL;
		return;
	}
	t->ndim = 1;
	t->shape[0] = words(serial, number);
}

void item_make(struct kvpipe_tensor *t, uint64_t *data, uint64_t serial, uint64_t number)
{
	uint64_t h = hash(serial, number);

	describe(t, data, serial, number);
	if (t->ndim != 1)
		return;
	data[0] = serial, data[1] = number;
	for (uint64_t i = 2; i < t->shape[0]; i++)
		data[i] = word(h, i);
}

bool item_names(const struct kvpipe_tensor *t, uint64_t *serial, uint64_t *number)
{
	const uint64_t *data = t->data;

	if (t->ndim == 3)
		*serial = t->shape[2], *number = t->shape[0];
	else if (t->ndim == 1 && t->shape[0] >= 2 && t->dtype == KVPIPE_U64)
		*serial = data[0], *number = data[1];
	else
		return false;
	return item_kind(*serial, *number) != NONE;
}

bool item_right(const struct kvpipe_tensor *t, uint64_t serial, uint64_t number)
{
	const uint64_t *data = t->data;
	struct kvpipe_tensor want;
	uint64_t h = hash(serial, number);

	describe(&want, NULL, serial, number);
	if (t->dtype != want.dtype || t->ndim != want.ndim)
		return false;
	for (uint32_t d = 0; d < want.ndim; d++)
		if (t->shape[d] != want.shape[d])
			return false;
	for (uint64_t i = 2; want.ndim == 1 && i < want.shape[0]; i++)
		if (data[i] != word(h, i))
			return false;
	return true;
}
