/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.h - the two ends of a pipe. */
#ifndef KVPIPE_PIPE_H
#define KVPIPE_PIPE_H

#include "endpoint.h"

struct kvpipe_pipe {
	struct kv_end end;     /* first: it frees this */
	uint32_t window;
	/* receiving; under the session's lock, posted under pump */
	bool started;          /* an item came: the sender is there */
	uint64_t next;         /* the item that recv returns next */
	uint64_t asked;        /* the first item that was not asked for yet */
	int64_t expires;       /* until started: when the daemon answers TIMEOUT for item `next` */
	uint32_t awake, vain;  /* waits left until a nap is tried again; how many follow a nap that brought few items */
	char said[KV_TEXT];    /* the text of that TIMEOUT */
	struct kv_get gets[];  /* item n: gets[n % window] */
};

bool kv_recv_ready(struct kv_end *e);

#endif
