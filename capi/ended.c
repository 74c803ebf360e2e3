/* SPDX-License-Identifier: Apache-2.0 */
/* Offers that have ended. The daemon forgets them, so the library itself tells a caller that still adds to one which offer it was,
 * how it ended and why. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 64u /* bytes of a key in a text, as in the daemon's */

static void quote(const struct kv_op *offer, char to[SHOWN + 8])
{
	struct kvpipe_rec_offer rec;

	memcpy(&rec, offer->record->record, sizeof(rec));
	bool cut = rec.key_len > SHOWN;
	snprintf(to, SHOWN + 8, "\"%.*s\"%s", cut ? (int)SHOWN - 3 : (int)rec.key_len, (const char *)offer->record->record + sizeof(rec),
		 cut ? "..." : "");
}

static int say(const char *what, const struct kv_op *offer)
{
	const struct kvpipe_completion *c = &offer->end.c;
	enum kvpipe_reason reason = KVPIPE_E_EXPIRED;
	const char *how = "it was withdrawn: offer it again";
	char key[SHOWN + 8];

	if (c->status == KVPIPE_DONE) {
		how = "it was consumed by all it was for: offer what follows anew";
	} else if (c->status != KVPIPE_CANCELLED) {
		reason = c->reason == 0 || c->reason > KVPIPE_E_CLOSED ? KVPIPE_E_INVALID : (enum kvpipe_reason)c->reason;
		how = kv_note_text(&offer->end);
	}
	quote(offer, key);
	bool named = strstr(how, key) != NULL;
	return kv_err(reason, "%s: the offer%s%s has ended: %s", what, named ? "" : " of key ", named ? "" : key, how);
}

int kv_offer_ended(kvpipe_t *kv, const char *what, kvpipe_op_t id)
{
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv);
	const struct kv_op *op = kv_op_find(kv, id);
	bool ended = op != NULL && !op->detached && op->opcode == KVPIPE_OPCODE_OFFER && op->state != KV_RUNNING;
	int err = kv_ended(kv); /* a session that is over says more than what ended with it */
	if (err == 0 && ended)
		err = say(what, op);
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}
