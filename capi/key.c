/* SPDX-License-Identifier: Apache-2.0 */
/* Watch and drop: what a queued request's consumer says about a key. */
#include "internal.h"

static int key_op(kvpipe_t *kv, const char *what, uint8_t opcode, int64_t def, const struct kvpipe_key_opts *opts,
		  kvpipe_op_t *id)
{
	KV_UNCANCELLED;
	struct kvpipe_key_opts o;
	size_t trace_len, peer_len;
	int err = kv_enter(kv);

	if (err == 0 && id == NULL)
		err = kv_err(KVPIPE_E_INVALID, "%s: op is NULL", what);
	if (err == 0)
		err = kv_copy_opts(what, opts, &o, sizeof(o));
	if (err == 0)
		err = kv_check_zero(what, o.reserved, KV_COUNT(o.reserved));
	if (err == 0)
		err = kv_check_bytes("key", o.key, o.key_len, 1, KVPIPE_MAX_KEY);
	if (err == 0)
		err = kv_check_bytes("token", o.token, o.token_len, KVPIPE_MIN_TOKEN, KVPIPE_MAX_TOKEN);
	if (err == 0)
		err = kv_check_text("trace", o.trace, KVPIPE_MAX_TRACE, &trace_len);
	if (err == 0)
		err = kv_check_text("peer", o.peer, KVPIPE_MAX_PEER, &peer_len);
	if (err == 0)
		err = kv_check_deadline("timeout_ns", &o.timeout_ns, def);
	if (err != 0)
		return err;
	struct kv_op *op = kv_op_new(opcode);
	if (op == NULL)
		return -KVPIPE_E_QUOTA;
	struct kvpipe_rec_key rec = {
		.key_len = (uint16_t)o.key_len,
		.token_len = (uint16_t)o.token_len,
		.trace_len = (uint16_t)trace_len,
		.peer_len = (uint16_t)peer_len,
	};
	struct kv_submission s = {
		.opcode = opcode,
		.tag = o.tag,
		.timeout_ns = o.timeout_ns,
		.head = &rec,
		.head_len = sizeof(rec),
		.strings = { { o.key, o.key_len }, { o.token, o.token_len }, { o.trace, trace_len }, { o.peer, peer_len } },
	};
	return kv_submit(kv, &s, op, id);
}

int kvpipe_watch(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op)
{
	return key_op(kv, "watch", KVPIPE_OPCODE_WATCH, KV_OP_NS, opts, op);
}

int kvpipe_drop(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op)
{
	return key_op(kv, "drop", KVPIPE_OPCODE_DROP, KV_CALL_NS, opts, op);
}
