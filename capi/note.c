/* SPDX-License-Identifier: Apache-2.0 */
/* Completions of our own operations: the queue for kvpipe_poll(), and what a caller sees of one. */
#include "internal.h"

#include <stdlib.h>
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

/* No block may be used: says so with one run per group. False: out of memory. */
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

const char *kv_note_text(const struct kv_note *n)
{
	if (n->blob != NULL && n->blob->text_len > 0)
		return (const char *)(n->blob->runs + n->blob->nfailed);
	return n->text != NULL ? n->text : default_text(&n->c);
}

bool kv_note_deliver(const struct kv_note *n, struct kvpipe_completion *out)
{
	*out = n->c;
	out->failed = NULL;
	out->message = kv_note_text(n);
	if (n->blob != NULL) { /* the blob ends with the operation, so the caller gets a copy */
		size_t size = sizeof(*n->blob) + n->blob->nfailed * sizeof(struct kvpipe_run) + n->blob->text_len + 1;
		struct kv_blob *copy = kv_thread_alloc(size);
		if (copy == NULL)
			return false;
		memcpy(copy, n->blob, size);
		out->nfailed = copy->nfailed;
		out->failed = copy->nfailed > 0 ? copy->runs : NULL;
		if (copy->text_len > 0)
			out->message = (const char *)(copy->runs + copy->nfailed);
	}
	return !n->all_failed || deliver_all_failed(n->op->groups, out);
}

/* Copies a foreign completion; order: its place among ours. NULL: out of memory. */
static struct kv_note *copy_foreign(kvpipe_t *kv, const struct kvpipe_cqe *e, uint64_t order)
{
	struct kv_note *n = calloc(1, sizeof(*n));
	struct kvpipe_result head;
	size_t size = 0;

	if (n == NULL)
		return NULL;
	n->order = order;
	n->c = kv_completion(e);
	n->c.flags |= KVPIPE_C_FOREIGN;
	if (kv_result_check(&kv->rings, e, &head, &size) == 0 && size > 0) {
		n->blob = malloc(size);
		if (n->blob != NULL)
			kv_result_fill(&kv->rings, e, &head, n->blob);
		else
			n->text = "out of memory: which blocks failed is not known";
	}
	return n;
}

static void insert_before(kvpipe_t *kv, struct kv_note *at, struct kv_note *n)
{
	n->next = at;
	n->prev = at != NULL ? at->prev : kv->last;
	if (n->prev != NULL)
		n->prev->next = n;
	else
		kv->first = n;
	if (at != NULL)
		at->prev = n;
	else
		kv->last = n;
	n->queued = true;
	kv->queued++;
	kv->fresh = true;
}

void kv_notes_keep_foreign(kvpipe_t *kv)
{
	struct kv_note *at = kv->first;

	for (; kv->cq_head != kv->seen; kv->cq_head++) {
		struct kvpipe_cqe e = kv->rings.cqes[kv->cq_head & (kv->rings.cq_entries - 1)];
		if (e.user_data != 0)
			continue;
		while (at != NULL && at->order <= kv->cq_head)
			at = at->next;
		struct kv_note *n = copy_foreign(kv, &e, kv->cq_head);
		if (n != NULL)
			insert_before(kv, at, n);
	}
}

void kv_owe_foreign(kvpipe_t *kv, const struct kvpipe_completion *c)
{
	struct kv_note **at = &kv->owed;

	if (c->status == KVPIPE_RELEASED) {
		while (*at != NULL && (*at)->c.op_id != c->op_id)
			at = &(*at)->next;
		struct kv_note *n = *at;
		if (n != NULL) {
			*at = n->next;
			kv_note_free_foreign(n);
		}
	} else if ((c->flags & KVPIPE_C_MORE) != 0) {
		struct kv_note *n = calloc(1, sizeof(*n));
		if (n == NULL)
			return;
		n->c = *c;
		n->c.status = KVPIPE_RELEASED;
		n->c.reason = KVPIPE_OK;
		n->c.flags = KVPIPE_C_FOREIGN;
		n->c.bytes = 0;
		n->next = kv->owed;
		kv->owed = n;
	}
}

void kv_notes_settle_foreign(kvpipe_t *kv)
{
	/* Completions that nobody has collected yet count as well. */
	for (struct kv_note *n = kv->first; n != NULL; n = n->next) {
		if (n->op == NULL)
			kv_owe_foreign(kv, &n->c);
	}
	while (kv->owed != NULL) {
		struct kv_note *n = kv->owed;
		kv->owed = n->next;
		n->order = kv->seen;
		insert_before(kv, NULL, n);
	}
}

void kv_notes_renumber(kvpipe_t *kv)
{
	for (struct kv_note *n = kv->first; n != NULL; n = n->next)
		n->order = 0;
}

void kv_note_free_foreign(struct kv_note *n)
{
	free(n->blob);
	free(n);
}
