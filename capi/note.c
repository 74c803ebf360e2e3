/* SPDX-License-Identifier: Apache-2.0 */
/* Completions of our own operations: the queue for kvpipe_poll(), and what a caller sees of one. */
#include "internal.h"

#include <string.h>

void kv_note_push(kvpipe_t *kv, struct kv_note *n)
{
	n->order = kv->seen;
	n->next = NULL;
	n->prev = kv->last;
	if (kv->last != NULL)
		kv->last->next = n;
	else
		kv->first = n;
	kv->last = n;
	n->queued = true;
	kv->queued++;
	kv->fresh = true;
}

void kv_note_drop(kvpipe_t *kv, struct kv_note *n)
{
	if (!n->queued)
		return;
	if (n->prev != NULL)
		n->prev->next = n->next;
	else
		kv->first = n->next;
	if (n->next != NULL)
		n->next->prev = n->prev;
	else
		kv->last = n->prev;
	n->queued = false;
	kv->queued--;
}

static const char *default_text(const struct kvpipe_completion *c)
{
	bool bad = c->status == KVPIPE_FAILED || c->status == KVPIPE_CANCELLED || c->status == KVPIPE_QUARANTINED;

	return bad ? kvpipe_strerror((int)c->reason) : "";
}

/* Nothing may be used: one run per group says so. */
static bool deliver_all_failed(uint64_t groups, struct kvpipe_completion *out)
{
	uint32_t n = (uint32_t)__builtin_popcountll(groups);
	struct kvpipe_run *runs = n == 0 ? NULL : kv_thread_alloc(n * sizeof(*runs));

	if (n > 0 && runs == NULL)
		return false;
	out->failed = runs;
	out->nfailed = n;
	for (uint32_t i = 0; i < n; i++, groups &= groups - 1)
		runs[i] = (struct kvpipe_run){ .group = (uint32_t)__builtin_ctzll(groups), .first = 0, .count = UINT32_MAX };
	return true;
}

bool kv_note_deliver(const kvpipe_t *kv, const struct kv_note *n, struct kvpipe_completion *out)
{
	*out = n->c;
	out->failed = NULL;
	out->message = default_text(out);
	if (n->text != NULL) {
		/* The session's own text ends with the session; the caller's copy need not. */
		if (n->text == kv->end_text) {
			char *text = kv_thread_alloc(strlen(n->text) + 1);
			if (text == NULL)
				return false;
			memcpy(text, n->text, strlen(n->text) + 1);
			out->message = text;
		} else {
			out->message = n->text;
		}
	}
	if (n->all_failed)
		return deliver_all_failed(n->op->groups, out);
	if (n->blob == NULL)
		return true;
	size_t size = sizeof(*n->blob) + n->blob->nfailed * sizeof(struct kvpipe_run) + n->blob->text_len + 1;
	struct kv_blob *copy = kv_thread_alloc(size);
	if (copy == NULL)
		return false;
	memcpy(copy, n->blob, size);
	out->nfailed = copy->nfailed;
	out->failed = copy->nfailed > 0 ? copy->runs : NULL;
	if (copy->text_len > 0)
		out->message = (const char *)(copy->runs + copy->nfailed);
	return true;
}
