/* SPDX-License-Identifier: Apache-2.0 */
/* Results of completions: failed runs and a text, in the daemon's RESULTS ring. */
#include "internal.h"

#include <string.h>

static const uint8_t *place(const struct kv_rings *r, const struct kvpipe_cqe *e)
{
	return r->results + (e->result_off & (r->result_bytes - 1));
}

int kv_result_check(const struct kv_rings *r, const struct kvpipe_cqe *e, struct kvpipe_result *head, size_t *size)
{
	uint64_t at = e->result_off & (r->result_bytes - 1);

	*head = (struct kvpipe_result){ 0 };
	*size = 0;
	if (e->result_len == 0)
		return 0;
	if (e->result_off % 8 != 0 || e->result_len < sizeof(*head) || e->result_len > r->result_bytes - at)
		return -1;
	memcpy(head, place(r, e), sizeof(*head));
	uint64_t runs = (uint64_t)head->nfailed * sizeof(struct kvpipe_run);
	if (sizeof(*head) + runs + head->text_len > e->result_len)
		return -1;
	*size = sizeof(struct kv_blob) + runs + head->text_len + 1;
	return 0;
}

void kv_result_fill(const struct kv_rings *r, const struct kvpipe_cqe *e, const struct kvpipe_result *head,
		    struct kv_blob *blob)
{
	size_t runs = head->nfailed * sizeof(struct kvpipe_run);
	char *text = (char *)blob + sizeof(*blob) + runs;

	blob->nfailed = head->nfailed;
	blob->text_len = head->text_len;
	memcpy(blob->runs, place(r, e) + sizeof(*head), runs + head->text_len);
	text[head->text_len] = '\0';
}

struct kvpipe_completion kv_completion(const struct kvpipe_cqe *e)
{
	return (struct kvpipe_completion){
		.op_id = e->op_id,
		.tag = e->tag,
		.bytes = e->bytes,
		.status = e->status,
		.reason = e->reason,
		.flags = e->flags & KVPIPE_C_MORE,
		.rank = e->rank,
		.epoch = e->epoch,
	};
}
