/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of pipes and lookup buffers share: tensors and ends in a line. */
#ifndef PIPES_H
#define PIPES_H

#include "check.h"
#include "internal.h"

#define WAIT (60 * KV_SEC)
#define TOKEN "0123456789abcdef"

static inline struct kvpipe_tensor flat(uint32_t dtype, uint64_t n, const void *data)
{
	return KVPIPE_OPTS(kvpipe_tensor, .dtype = dtype, .ndim = 1, .shape = { n }, .data = (void *)(uintptr_t)data);
}

static inline struct kvpipe_tensor member(const kvpipe_msg_t *m, uint32_t i)
{
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = 0);

	CHECK_INT(kvpipe_msg_tensor(m, i, &t), 1);
	return t;
}

static inline kvpipe_pipe_t *open_pipe(kvpipe_t *kv, uint32_t end, uint64_t capacity, uint32_t window)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = end, .capacity = capacity, .window = window);
	kvpipe_pipe_t *p;

	CHECK_INT(kvpipe_pipe_open(kv, &o, &p), 0);
	return p;
}

static inline kvpipe_lookup_t *open_lookup_named(kvpipe_t *kv, const char *name, uint64_t capacity)
{
	struct kvpipe_lookup_opts o = KVPIPE_OPTS(kvpipe_lookup_opts, .name = name, .capacity = capacity);
	kvpipe_lookup_t *l;

	CHECK_INT(kvpipe_lookup_open(kv, &o, &l), 0);
	return l;
}

static inline kvpipe_lookup_t *open_lookup(kvpipe_t *kv, uint64_t capacity) { return open_lookup_named(kv, "l", capacity); }

static inline void send_number(kvpipe_pipe_t *p, uint64_t n)
{
	struct kvpipe_tensor t = flat(KVPIPE_U64, 1, &n);

	CHECK_INT(kvpipe_pipe_send(p, &t, WAIT), 0);
}

static inline void recv_number(kvpipe_pipe_t *p, uint64_t n)
{
	kvpipe_msg_t *m;
	uint64_t got;

	CHECK_INT(kvpipe_pipe_recv(p, WAIT, &m), 0);
	struct kvpipe_tensor t = member(m, 0);
	memcpy(&got, t.data, sizeof(got));
	CHECK_INT(got, n);
	kvpipe_msg_free(m);
}

#endif
