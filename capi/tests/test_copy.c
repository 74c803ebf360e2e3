/* SPDX-License-Identifier: Apache-2.0 */
/* Copies past the caches, and what a full pipe does with them. */
#include "endpoint.h"
#include "fake_exchange.h"
#include "pipes.h"

#define ROOM (5u * 8192)
#define GUARD 0xa5

static uint8_t from[ROOM + 256], to[ROOM + 256];

/* Copies n bytes between two offsets, and looks for a byte that is wrong, or is none of them. */
static void copy(size_t n, size_t src, size_t dst)
{
	memset(to, GUARD, sizeof(to));
	kv_copy_past(to + dst, from + src, n);
	for (size_t i = 0; i < sizeof(to); i++) {
		uint8_t want = i < dst || i >= dst + n ? GUARD : from[i - dst + src];
		if (to[i] != want)
			FAIL("%zu bytes from %zu to %zu: byte %zu is %u, want %u", n, src, dst, i, to[i], want);
	}
}

static void lengths_and_offsets(void)
{
	static const size_t lengths[] = { 0, 1, 63, 64, 4096, 8191, 8192, 8193, 8255, 8256, 16384, 20000, ROOM };
	static const size_t offsets[] = { 0, 1, 31, 32, 63, 64, 127 };

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t i = 0; i < KV_COUNT(lengths); i++)
		for (size_t s = 0; s < KV_COUNT(offsets); s++)
			for (size_t d = 0; d < KV_COUNT(offsets); d++)
				copy(lengths[i], offsets[s], offsets[d]);
}

/* More waits in the pipe than caches hold: the first items are copied as ever, the last ones past the caches. */
static void full_pipe(void)
{
	enum { SIZE = 3 << 20, ITEMS = 8 };
	struct exchange *x = exchange_start(2);
	kvpipe_t *kv = exchange_session(x);
	uint8_t *bytes = malloc(SIZE);
	kvpipe_msg_t *m;

	exchange_next(x, kv, 0);
	kvpipe_pipe_t *tx = open_pipe(kv, KVPIPE_SEND, ITEMS * SIZE, 0);
	exchange_next(x, kv, 1);
	kvpipe_pipe_t *rx = open_pipe(kv, KVPIPE_RECV, 0, 0);
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = KVPIPE_U8, .ndim = 1, .shape = { SIZE }, .data = bytes);
	CHECK(SIZE * (ITEMS - 1) > KV_CACHED);
	for (int i = 0; i < ITEMS; i++) {
		for (size_t k = 0; k < SIZE; k++)
			bytes[k] = (uint8_t)(k * 31 + k / 4096 + (size_t)i);
		CHECK_INT(kvpipe_pipe_send(tx, &t, WAIT), 0);
	}
	for (int i = 0; i < ITEMS; i++) {
		CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
		const uint8_t *got = member(m, 0).data;
		for (size_t k = 0; k < SIZE; k++) {
			if (got[k] != (uint8_t)(k * 31 + k / 4096 + (size_t)i))
				FAIL("item %d: byte %zu is %u", i, k, got[k]);
		}
		kvpipe_msg_free(m);
	}
	free(bytes);
	kvpipe_pipe_close(tx);
	kvpipe_pipe_close(rx);
	kvpipe_close(kv);
	exchange_stop(x);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(lengths_and_offsets), TEST(full_pipe) };
	return RUN(tests);
}
