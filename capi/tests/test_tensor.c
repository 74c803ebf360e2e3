/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on their way: types, shapes and strides; what is refused, and how it is said. */
#include "endpoint.h"
#include "fake_exchange.h"
#include "pipes.h"

static struct exchange *x;
static kvpipe_t *kv;
static kvpipe_pipe_t *tx, *rx;

static void start(uint64_t capacity)
{
	x = exchange_start(2);
	kv = exchange_session(x);
	exchange_next(x, kv, 0);
	tx = open_pipe(kv, KVPIPE_SEND, capacity, 0);
	exchange_next(x, kv, 1);
	rx = open_pipe(kv, KVPIPE_RECV, 0, 0);
}

static void stop(void)
{
	kvpipe_pipe_close(tx);
	kvpipe_pipe_close(rx);
	kvpipe_close(kv);
	exchange_stop(x);
}

/* Sends t and checks what comes: type, shape, and the bytes. */
static void across(const struct kvpipe_tensor *t, const void *bytes, size_t n)
{
	kvpipe_msg_t *m;

	CHECK_INT(kvpipe_pipe_send(tx, t, WAIT), 0);
	CHECK_INT(kvpipe_pipe_recv(rx, WAIT, &m), 0);
	CHECK_INT(kvpipe_msg_count(m), 1);
	CHECK_INT(kvpipe_msg_matched(m), 0);
	struct kvpipe_tensor got = member(m, 0);
	CHECK_INT(got.dtype, t->dtype);
	CHECK_INT(got.ndim, t->ndim);
	int64_t stride = kvpipe_dtype_size(t->dtype);
	for (uint32_t i = t->ndim; i-- > 0; stride *= (int64_t)(t->shape[i] > 0 ? t->shape[i] : 1)) {
		CHECK_INT(got.shape[i], t->shape[i]);
		CHECK_INT(got.strides[i], stride);
	}
	CHECK(n == 0 || (uintptr_t)got.data % 64 == 0);
	CHECK(n == 0 || memcmp(got.data, bytes, n) == 0);
	kvpipe_msg_free(m);
}

static void names(void)
{
	CHECK_INT(kvpipe_dtype_parse("bfloat16"), KVPIPE_BF16);
	CHECK_INT(kvpipe_dtype_size(KVPIPE_BF16), 2);
	CHECK_INT(kvpipe_dtype_parse("float8_e4m3fn"), KVPIPE_F8_E4M3FN);
	CHECK_INT(kvpipe_dtype_parse("complex64"), 0);
	CHECK_INT(kvpipe_dtype_parse(NULL), 0);
	CHECK_INT(kvpipe_dtype_size(0), 0);
	CHECK_INT(kvpipe_dtype_size(KVPIPE_F8_E8M0FNU + 1), 0);
	CHECK(kvpipe_dtype_name(0) == NULL && kvpipe_dtype_name(99) == NULL);
	for (uint32_t d = KVPIPE_BOOL; d <= KVPIPE_F8_E8M0FNU; d++)
		CHECK_INT(kvpipe_dtype_parse(kvpipe_dtype_name(d)), d);
}

static void every_type_and_many_shapes(void)
{
	uint8_t data[4096];

	start(1 << 16);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	for (uint32_t d = KVPIPE_BOOL; d <= KVPIPE_F8_E8M0FNU; d++) {
		struct kvpipe_tensor t = flat(d, 33, data);
		across(&t, data, 33 * kvpipe_dtype_size(d));
		t.ndim = 0; /* one element */
		across(&t, data, kvpipe_dtype_size(d));
		t = (struct kvpipe_tensor){ .sz = sizeof(t), .dtype = d, .ndim = 3, .shape = { 5, 0, 7 } };
		across(&t, NULL, 0); /* none */
	}
	struct kvpipe_tensor deep = flat(KVPIPE_F16, 1, data);
	deep.ndim = 16;
	uint64_t n = 2;
	for (int i = 0; i < 16; i++)
		n *= deep.shape[i] = i % 2 == 0 ? 1 : i < 12 ? 2 : 3;
	across(&deep, data, n);
	stop();
}

static void strides(void)
{
	uint16_t data[24 * 30], want[24 * 30], *to = want;
	struct kvpipe_tensor t = {
		.sz = sizeof(t), .dtype = KVPIPE_BF16, .ndim = 2, .shape = { 30, 24 }, .strides = { 2, 60 },
		.data = data, .flags = KVPIPE_TENSOR_STRIDED,
	};

	start(1 << 16);
	for (uint16_t i = 0; i < 24 * 30; i++)
		data[i] = i;
	for (int i = 0; i < 30; i++) { /* transposed */
		for (int k = 0; k < 24; k++)
			*to++ = data[k * 30 + i];
	}
	across(&t, want, sizeof(want));

	to = want; /* every second row, backwards, of which every third element */
	t.shape[0] = 12, t.shape[1] = 10;
	t.strides[0] = -120, t.strides[1] = 6;
	t.data = data + 23 * 30;
	for (int i = 0; i < 12; i++) {
		for (int k = 0; k < 10; k++)
			*to++ = data[(23 - 2 * i) * 30 + 3 * k];
	}
	across(&t, want, 240);

	to = want; /* one row, eleven times */
	t.shape[0] = 11, t.shape[1] = 30;
	t.strides[0] = 0, t.strides[1] = 2;
	t.data = data + 60;
	for (int i = 0; i < 330; i++)
		*to++ = data[60 + i % 30];
	across(&t, want, 660);

	/* A part of each row, larger than what is copied at a time. */
	static uint8_t wide[64][128], part[64][100];
	for (int i = 0; i < 64 * 128; i++)
		wide[i / 128][i % 128] = (uint8_t)(i * 13);
	for (int i = 0; i < 64; i++)
		memcpy(part[i], &wide[i][5], 100);
	struct kvpipe_tensor w = {
		.sz = sizeof(w), .dtype = KVPIPE_I8, .ndim = 3, .shape = { 64, 1, 100 }, .strides = { 128, 77, 1 },
		.data = &wide[0][5], .flags = KVPIPE_TENSOR_STRIDED,
	};
	across(&w, part, sizeof(part));

	/* Elements of each size, apart from each other. */
	static const uint32_t types[] = { KVPIPE_U8, KVPIPE_I16, KVPIPE_F32, KVPIPE_I64 };
	for (size_t d = 0; d < KV_COUNT(types); d++) {
		size_t size = kvpipe_dtype_size(types[d]), n = 2500 / size;
		struct kvpipe_tensor apart = {
			.sz = sizeof(apart), .dtype = types[d], .ndim = 1, .shape = { n }, .strides = { 3 * (int64_t)size },
			.data = wide, .flags = KVPIPE_TENSOR_STRIDED,
		};
		uint8_t *at = (uint8_t *)part;
		for (size_t i = 0; i < n; i++, at += size)
			memcpy(at, (uint8_t *)wide + 3 * size * i, size);
		across(&apart, part, n * size);
	}
	stop();
}

/* Bytes that tell one span, and one place in it, from another. */
static void pattern(uint8_t *to, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(i * 31 + i / 251 + seed);
}

/* Written in parts, one of which is left out, as items with several tensors are. */
static void write_pattern(const struct kv_pool *p, const struct kv_span *span, size_t n, unsigned int seed)
{
	static uint8_t data[200 * 256];
	struct kv_sink k;

	pattern(data, n, seed);
	kv_sink_open(&k, p, span);
	kv_sink_write(&k, data, n / 3);
	kv_sink_skip(&k, n / 3);
	kv_sink_write(&k, data + n / 3 * 2, n - n / 3 * 2);
	kv_sink_open(&k, p, span);
	kv_sink_skip(&k, n / 3);
	k.past = true;
	kv_sink_write(&k, data + n / 3, n / 3);
}

static void check_pattern(const struct kv_pool *p, const struct kv_span *span, size_t n, unsigned int seed)
{
	static uint8_t want[200 * 256], got[200 * 256];

	pattern(want, n, seed);
	kv_span_read(p, span, got, n);
	CHECK(memcmp(got, want, n) == 0);
}

/* Blocks are handed out as long as enough are free, in any number of runs. Each belongs to one span, and keeps what is written there. */
static void pools_of_blocks(void)
{
	struct kv_span s[64], whole;
	struct kv_pool *p;
	unsigned int seed = 1, scattered = 0;
	uint32_t held = 0;

	CHECK_INT(kv_pool_new(1 << 19, 256, &p), 0);
	memset(s, 0, sizeof(s));
	for (int n = 0; n < 10000; n++) {
		unsigned int i = (unsigned int)rand_r(&seed) % 64;
		struct kv_span *one = &s[i];
		uint32_t want = 1 + (uint32_t)rand_r(&seed) % 200;
		if (one->blocks > 0) {
			held -= one->blocks;
			check_pattern(p, one, one->blocks * 256u, i);
			kv_pool_give(p, one);
		} else if (kv_pool_take(p, want, one)) {
			uint32_t sum = 0;
			for (uint32_t k = 0; k < one->nruns; k++)
				sum += kv_runs(one)[k].n;
			CHECK_INT(sum, want);
			scattered += one->nruns > 1;
			held += want;
			write_pattern(p, one, want * 256, i);
			if (want > 3 && n % 2 == 0) {
				kv_pool_trim(p, one, want / 3);
				held -= want - want / 3;
				write_pattern(p, one, want / 3 * 256, i);
			}
		} else {
			CHECK(held + want > p->nblocks); /* refused only when there are too few */
		}
		CHECK_INT(p->nfree, p->nblocks - held);
	}
	CHECK(scattered > 100); /* else the sizes above scatter nothing: change them */
	for (unsigned int i = 0; i < 64; i++) {
		check_pattern(p, &s[i], s[i].blocks * 256u, i);
		kv_pool_give(p, &s[i]);
	}
	CHECK(kv_pool_take(p, p->nblocks, &whole));
	CHECK_INT(whole.nruns, 1);
	CHECK(!kv_pool_take(p, 1, &s[0]));
	kv_pool_give(p, &whole);
	kv_pool_unref(p);
}

static void refusals(void)
{
	uint8_t data[8] = { 0 };
	struct kvpipe_tensor t = flat(KVPIPE_U8, 8, data), bad;

	start(1 << 16);
	bad = t, bad.dtype = 77;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "dtype is 77");
	bad = t, bad.ndim = 17;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "ndim is 17: at most 16");
	bad = t, bad.data = NULL;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "data is NULL, the tensor has 8 bytes");
	bad = t, bad.flags = 2;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "flags is 0x2");
	bad = t, bad.reserved[1] = 5;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "reserved[1] is 0x5");
	bad = t, bad.sz = 0;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "sz is 0");
	bad = t, bad.shape[0] = 65537;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "65537 bytes, the capacity of \"p\" is 65536");
	bad = t, bad.shape[0] = 1ull << 62;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "more than 4294967231 bytes");
	bad = t, bad.ndim = 2, bad.shape[0] = 0, bad.shape[1] = 1ull << 63;
	CHECK_FAILS(kvpipe_pipe_send(tx, &bad, 0), KVPIPE_E_INVALID, "not 0 make more than 2^63 - 1 bytes");
	CHECK_FAILS(kvpipe_pipe_send(tx, &t, -1), KVPIPE_E_INVALID, "timeout of -1 ns");
	CHECK_FAILS(kvpipe_pipe_send(tx, &t, KVPIPE_FOREVER), KVPIPE_E_INVALID, "finite");
	CHECK_FAILS(kvpipe_pipe_send(rx, &t, 0), KVPIPE_E_INVALID, "receiving end of \"p\"");
	CHECK_FAILS(kvpipe_pipe_flush(rx, 0), KVPIPE_E_INVALID, "receiving end of \"p\"");
	CHECK_FAILS(kvpipe_pipe_recv(tx, 0, &(kvpipe_msg_t *){ NULL }), KVPIPE_E_INVALID, "sending end of \"p\"");
	CHECK_FAILS(kvpipe_pipe_send(NULL, &t, 0), KVPIPE_E_INVALID, "NULL");
	stop();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(names), TEST(every_type_and_many_shapes), TEST(strides), TEST(pools_of_blocks), TEST(refusals),
	};
	return RUN(tests);
}
