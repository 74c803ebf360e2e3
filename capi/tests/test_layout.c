/* SPDX-License-Identifier: Apache-2.0 */
/* A layout that needs several messages, and a daemon that stands still between two of them. The daemon is fake, and keeps to docs/protocol.md. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#define VIEWS 600u
#define BYTES 64u /* of a view */

/* What the daemon has of the layout that comes. Its thread writes it, while the test waits for its answers. */
static struct {
	uint32_t views, layouts;
	unsigned int still; /* the message of this number is not answered */
} has;

static bool request(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct kvpipe_layout_msg m;

	(void)fd;
	if (head->type != KVPIPE_CTL_LAYOUT)
		return false;
	if (has.still > 0 && --has.still == 0) {
		fake_pause(f, true);
		return true;
	}
	memcpy(&m, body, sizeof(m));
	has.views += m.nviews;
	if (m.total_views == 0 || has.views > m.total_views) {
		has.views = 0;
		fake_ack(f, head->seq, KVPIPE_E_INVALID, 0, "layout: not so many");
		return true;
	}
	if (m.flags & KVPIPE_LAYOUT_COMMIT) {
		CHECK_INT(has.views, VIEWS);
		has.views = 0;
		has.layouts++;
	}
	return false;
}

/* Whichever message is not answered: the very same layout can be set again, and is whole. */
static void set_again(void)
{
	static struct kvpipe_view v[VIEWS];
	kvpipe_region_t region;
	void *memory;

	for (unsigned int still = 1; still <= 2; still++) {
		const struct fake_conf conf = { .request = request };
		struct fake *f = fake_start(&conf);
		kvpipe_t *kv = fake_connect(f);
		CHECK_INT(kvpipe_mem_alloc(kv, (size_t)VIEWS * BYTES, KVPIPE_MEM_NO_HUGE, &memory, &region), 0);
		for (uint32_t i = 0; i < VIEWS; i++)
			v[i] = (struct kvpipe_view){
				.region = region, .base = (uint64_t)i * BYTES, .num_blocks = 1, .block_stride = BYTES,
				.token_stride = 1, .head_stride = 1, .content_bytes = 1, .layer = i,
				.kind = KVPIPE_VIEW_PAGED, .block_size = BYTES, .heads = 1, .total_heads = 1, .part = "kv",
			};
		has.views = has.layouts = 0;
		has.still = still;
		CHECK_FAILS(kvpipe_set_layout(kv, v, VIEWS, NULL, 0), KVPIPE_E_TIMEOUT, "the daemon does not answer");
		fake_pause(f, false);
		CHECK_INT(kvpipe_set_layout(kv, v, VIEWS, NULL, 0), 0);
		CHECK_INT(has.layouts, 1);
		kvpipe_close(kv);
		fake_stop(f);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(set_again) };

	return RUN(tests);
}
