/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: received items, in the hands of the caller. */
#include "endpoint.h"

#include <stdlib.h>
#include <string.h>

uint32_t kvpipe_msg_count(const kvpipe_msg_t *m)
{
	return m == NULL ? 0 : m->count;
}

uint64_t kvpipe_msg_matched(const kvpipe_msg_t *m)
{
	return m == NULL ? 0 : m->matched;
}

int kvpipe_msg_tensor(const kvpipe_msg_t *m, uint32_t i, struct kvpipe_tensor *out)
{
	struct kvpipe_tensor t = { 0 };

	if (m == NULL || out == NULL)
		return kv_err(KVPIPE_E_INVALID, "msg_tensor: the message or out is NULL");
	if (i >= m->count)
		return kv_err(KVPIPE_E_INVALID, "msg_tensor: i is %u: the message has %u members", i, m->count);
	const struct kv_member *member = &m->members[i];
	if (member->present) {
		t.dtype = member->dtype;
		t.ndim = member->ndim;
		memcpy(t.shape, member->shape, member->ndim * sizeof(*t.shape));
		t.data = m->data != NULL ? m->data + member->offset : NULL;
		uint64_t stride = kvpipe_dtype_size(t.dtype); /* may wrap for a tensor without bytes, where it is not used */
		for (uint32_t d = t.ndim; d-- > 0; stride *= t.shape[d] > 0 ? t.shape[d] : 1)
			t.strides[d] = (int64_t)stride;
	}
	int err = kv_copy_out("msg_tensor", "kvpipe_tensor", out, &t, sizeof(t));
	return err != 0 ? err : member->present;
}

void kvpipe_msg_free(kvpipe_msg_t *m)
{
	KV_UNCANCELLED;
	if (m == NULL)
		return;
	/* In a forked child the blocks are the parent's, and are not mapped. */
	if (m->pool == NULL)
		free(m->data);
	else if (kv_process_is(m->process))
		kv_pool_return(m->pool, &m->span);
	else
		kv_pool_forget(m->pool);
	free(m);
}
