/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipe: tensors from one engine to another, in order. Both ends are in this one process here; in life they are two programs, on
 * one node or, with `.peer` in the receiver's options, on two.
 *
 *   kvpiped --dev &
 *   build/bin/examples/pipe
 */
#include <kvpipe.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 3, COLUMNS = 4, PADDED = 6, SECOND = 1000000000 };

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvpipe_strerror(rc), kvpipe_last_error());
	exit(1);
}

static kvpipe_t *connect_as(const char *name)
{
	struct kvpipe_connect_opts o = KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = name, .role = KVPIPE_ROLE_WORKER);
	kvpipe_t *kv;

	check(kvpipe_connect(&o, &kv), "connect");
	return kv;
}

static void send_all(kvpipe_pipe_t *tx)
{
	float data[ROWS][PADDED];

	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < PADDED; c++)
			data[r][c] = (float)(10 * r + c);
	/* A part of each row: what is between is left out, whatever the strides. */
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = KVPIPE_F32, .ndim = 2, .shape = { ROWS, COLUMNS },
					     .strides = { sizeof(data[0]), sizeof(float) }, .flags = KVPIPE_TENSOR_STRIDED,
					     .data = data);
	check(kvpipe_pipe_send(tx, &t, SECOND), "send"); /* copied: data may be written again */
	check(kvpipe_pipe_send(tx, NULL, SECOND), "send None");
}

static void receive_one(kvpipe_pipe_t *rx)
{
	struct kvpipe_tensor t = KVPIPE_OPTS(kvpipe_tensor, .dtype = 0);
	kvpipe_msg_t *m;

	check(kvpipe_pipe_recv(rx, 10ll * SECOND, &m), "receive");
	int there = kvpipe_msg_tensor(m, 0, &t);
	check(there, "look");
	if (there == 0) {
		printf("None\n");
	} else {
		const float *f = t.data;
		printf("%s, %" PRIu64 " x %" PRIu64 ": %g ... %g\n", kvpipe_dtype_name(t.dtype), t.shape[0], t.shape[1],
		       (double)f[0], (double)f[t.shape[0] * t.shape[1] - 1]);
	}
	kvpipe_msg_free(m); /* its memory was ours until here */
}

int main(void)
{
	kvpipe_t *prefill = connect_as("prefill-0"), *decode = connect_as("decode-0");
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "example", .end = KVPIPE_SEND, .capacity = 1 << 20);
	kvpipe_pipe_t *tx, *rx;

	check(kvpipe_pipe_open(prefill, &o, &tx), "open the sending end");
	o.end = KVPIPE_RECV;
	o.capacity = 0;
	check(kvpipe_pipe_open(decode, &o, &rx), "open the receiving end");
	send_all(tx);
	receive_one(rx);
	receive_one(rx);
	kvpipe_pipe_close(tx);
	kvpipe_pipe_close(rx);
	kvpipe_close(prefill);
	kvpipe_close(decode);
	return 0;
}
