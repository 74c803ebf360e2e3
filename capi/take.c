/* SPDX-License-Identifier: Apache-2.0 */
/* Takes. */
#include "internal.h"

struct lens {
	size_t trace, peer;
	uint64_t groups;
};

static int check(kvpipe_t *kv, struct kvpipe_take_opts *o, struct lens *l)
{
	int err = kv_check_zero("take", o->reserved, KV_COUNT(o->reserved));

	if (err == 0 && o->reserved0 != 0)
		err = kv_err(KVPIPE_E_INVALID, "take: reserved0 is %#x: it must be 0", o->reserved0);
	if (err == 0)
		err = kv_check_bytes("take: key", o->key, o->key_len, 1, KVPIPE_MAX_KEY);
	if (err == 0)
		err = kv_check_bytes("take: token", o->token, o->token_len, KVPIPE_MIN_TOKEN, KVPIPE_MAX_TOKEN);
	if (err == 0)
		err = kv_check_bytes("take: content", o->content, o->content_len, 0, KVPIPE_MAX_CONTENT);
	if (err == 0)
		err = kv_check_text("take: trace", o->trace, KVPIPE_MAX_TRACE, &l->trace);
	if (err == 0)
		err = kv_check_text("take: peer", o->peer, KVPIPE_MAX_PEER, &l->peer);
	if (err == 0 && (o->flags & ~(uint32_t)KVPIPE_OP_LAYERED) != 0)
		err = kv_err(KVPIPE_E_INVALID, "take: flags is %#x: only KVPIPE_OP_LAYERED", o->flags);
	if (o->parts == 0)
		o->parts = 1;
	if (err == 0 && (o->parts > KVPIPE_MAX_CONSUMERS || o->part >= o->parts))
		err = kv_err(KVPIPE_E_INVALID, "take: part %u of %u: parts is at most %u and part below it", o->part, o->parts,
			     KVPIPE_MAX_CONSUMERS);
	if (err == 0)
		err = kv_blocks_check(kv, o->blocks, o->nblocks, &l->groups);
	if (err == 0)
		err = kv_check_deadline("take: timeout_ns", &o->timeout_ns, KV_OP_NS);
	/* Counted up from a random start, so that no two sessions of an instance draw the same id; 0 would mean none. */
	while (err == 0 && o->take_id == 0)
		o->take_id = __atomic_add_fetch(&kv->take_id, 1, __ATOMIC_RELAXED);
	return err;
}

int kvpipe_take(kvpipe_t *kv, const struct kvpipe_take_opts *opts, kvpipe_op_t *id)
{
	KV_UNCANCELLED;
	struct kvpipe_take_opts o;
	struct lens l;
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_copy_opts("take", opts, &o, sizeof(o));
	if (err == 0)
		err = id == NULL ? kv_err(KVPIPE_E_INVALID, "take: op is NULL") : check(kv, &o, &l);
	if (err != 0)
		return err;
	struct kv_op *op = kv_op_new(KVPIPE_OPCODE_TAKE);
	if (op == NULL)
		return -KVPIPE_E_QUOTA;
	op->groups = l.groups;
	op->layered = (o.flags & KVPIPE_OP_LAYERED) != 0;
	struct kvpipe_rec_take rec = {
		.flags = o.flags,
		.part = o.part,
		.parts = o.parts,
		.take_id = o.take_id,
		.after = o.after,
		.key_len = (uint16_t)o.key_len,
		.token_len = (uint16_t)o.token_len,
		.content_len = (uint16_t)o.content_len,
		.trace_len = (uint16_t)l.trace,
		.peer_len = (uint16_t)l.peer,
		.ngroups = o.nblocks,
	};
	struct kv_submission s = {
		.opcode = KVPIPE_OPCODE_TAKE,
		.tag = o.tag,
		.timeout_ns = o.timeout_ns,
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { o.key, o.key_len },
			     { o.token, o.token_len },
			     { o.content, o.content_len },
			     { o.trace, l.trace },
			     { o.peer, l.peer } },
		.blocks = o.blocks,
		.nblocks = o.nblocks,
	};
	return kv_submit(kv, &s, op, id);
}
