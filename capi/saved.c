/* SPDX-License-Identifier: Apache-2.0 */
/* Encoded submissions, kept in case another daemon has to be told of them. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

struct kv_saved *kv_saved_new(uint8_t opcode, size_t size)
{
	struct kv_saved *s = malloc(sizeof(*s) + size);

	if (s == NULL) {
		kv_err(KVPIPE_E_QUOTA, "out of memory");
		return NULL;
	}
	s->next = NULL;
	s->len = (uint32_t)size;
	s->opcode = opcode;
	return s;
}

struct kv_saved *kv_saved_key(struct kv_saved *offer)
{
	struct kvpipe_rec_offer rec;

	memcpy(&rec, offer->record, sizeof(rec));
	size_t len = sizeof(rec) + rec.key_len;
	struct kv_saved *key = realloc(offer, sizeof(*offer) + len);
	if (key == NULL) /* it stays as large as it was */
		return offer;
	key->len = (uint32_t)len;
	return key;
}

void kv_saved_free(struct kv_saved *list)
{
	while (list != NULL) {
		struct kv_saved *next = list->next;
		free(list);
		list = next;
	}
}
