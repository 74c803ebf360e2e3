/* SPDX-License-Identifier: Apache-2.0 */
/* Offers. */
#include "internal.h"

#include <string.h>

static int check(const kvpipe_t *kv, const struct kvpipe_offer_opts *o, size_t *trace_len, uint64_t *groups)
{
	int err = kv_check_zero("offer", o->reserved, KV_COUNT(o->reserved));

	if (err == 0)
		err = kv_check_bytes("offer: key", o->key, o->key_len, 1, KVPIPE_MAX_KEY);
	if (err == 0 && o->token_len != 0)
		err = kv_check_bytes("offer: token", o->token, o->token_len, KVPIPE_MIN_TOKEN, KVPIPE_MAX_TOKEN);
	if (err == 0)
		err = kv_check_bytes("offer: content", o->content, o->content_len, 0, KVPIPE_MAX_CONTENT);
	if (err == 0)
		err = kv_check_text("offer: trace", o->trace, KVPIPE_MAX_TRACE, trace_len);
	if (err == 0 && (o->flags & ~(uint32_t)(KVPIPE_OP_SEALED | KVPIPE_OP_LAYERED)) != 0)
		err = kv_err(KVPIPE_E_INVALID, "offer: flags is %#x: only KVPIPE_OP_SEALED and KVPIPE_OP_LAYERED", o->flags);
	if (err == 0 && o->consumers > KVPIPE_MAX_CONSUMERS)
		err = kv_err(KVPIPE_E_INVALID, "offer: consumers is %u: at most %u", o->consumers, KVPIPE_MAX_CONSUMERS);
	if (err == 0)
		err = kv_blocks_check(kv, o->blocks, o->nblocks, groups);
	return err;
}

int kvpipe_offer(kvpipe_t *kv, const struct kvpipe_offer_opts *opts, kvpipe_op_t *id)
{
	KV_UNCANCELLED;
	struct kvpipe_offer_opts o;
	size_t trace_len;
	uint64_t groups;
	bool lets_daemon = false;
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_copy_opts("offer", opts, &o, sizeof(o));
	if (err == 0)
		err = id == NULL ? kv_err(KVPIPE_E_INVALID, "offer: op is NULL") : check(kv, &o, &trace_len, &groups);
	if (err == 0) {
		lets_daemon = o.lease_ns == 0;
		err = kv_check_timeout("offer: lease_ns", &o.lease_ns, KV_OP_NS);
	}
	if (err != 0)
		return err;
	struct kv_op *op = kv_op_new(KVPIPE_OPCODE_OFFER);
	if (op == NULL)
		return -KVPIPE_E_QUOTA;
	op->groups = groups;
	op->token_len = o.token_len;
	if (o.token_len > 0) {
		memcpy(op->token, o.token, o.token_len);
	} else {
		op->token_len = KVPIPE_MIN_TOKEN;
		if (!kv_random(op->token, op->token_len)) {
			kv_op_destroy(op);
			return kv_err(KVPIPE_E_UNAVAILABLE, "offer: no random bytes for a token");
		}
	}
	/* The operation may be gone once it is submitted: the record needs a token of its own. */
	uint8_t token[KVPIPE_MAX_TOKEN];
	memcpy(token, op->token, op->token_len);
	struct kvpipe_rec_offer rec = {
		.flags = o.flags,
		.consumers = o.consumers == 0 ? 1 : o.consumers,
		.after = o.after,
		.key_len = (uint16_t)o.key_len,
		.token_len = (uint16_t)op->token_len,
		.content_len = (uint16_t)o.content_len,
		.trace_len = (uint16_t)trace_len,
		.ngroups = o.nblocks,
	};
	struct kv_submission s = {
		.opcode = KVPIPE_OPCODE_OFFER,
		.tag = o.tag,
		.timeout_ns = o.lease_ns,
		.lets_daemon = lets_daemon,
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { o.key, o.key_len }, { token, op->token_len }, { o.content, o.content_len }, { o.trace, trace_len } },
		.blocks = o.blocks,
		.nblocks = o.nblocks,
	};
	return kv_submit(kv, &s, op, id);
}

int kvpipe_offer_token(kvpipe_t *kv, kvpipe_op_t offer, void *token, uint32_t *len)
{
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	if (token == NULL || len == NULL)
		return kv_err(KVPIPE_E_INVALID, "offer_token: token or len is NULL");
	pthread_mutex_lock(&kv->lock);
	struct kv_op *op = kv_op_find(kv, offer);
	if (op == NULL || op->opcode != KVPIPE_OPCODE_OFFER || op->detached) {
		err = kv_err(KVPIPE_E_NOT_FOUND, "operation %llu is not an offer of this session", (unsigned long long)offer);
	} else if (*len < op->token_len) {
		err = kv_err(KVPIPE_E_INVALID, "offer_token: room for %u bytes, the token has %u", *len, op->token_len);
		*len = op->token_len;
	} else {
		memcpy(token, op->token, op->token_len);
		*len = op->token_len;
	}
	pthread_mutex_unlock(&kv->lock);
	return err;
}
