/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of callers: checked, and copied in C order whatever their strides. */
#include "endpoint.h"

#include <string.h>

bool kv_shape_exists(uint32_t ndim, const uint64_t *shape, uint64_t size)
{
	for (uint32_t i = 0; i < ndim; i++) {
		if (shape[i] > INT64_MAX / size)
			return false;
		size *= shape[i] > 0 ? shape[i] : 1;
	}
	return true;
}

static int check_shape(const char *what, const struct kvpipe_tensor *t, uint64_t *nbytes)
{
	uint32_t size = kvpipe_dtype_size(t->dtype);
	uint64_t n = size;

	if (size == 0)
		return kv_err(KVPIPE_E_INVALID, "%s: dtype is %u: must be one of enum kvpipe_dtype, 1 to %u", what, t->dtype,
			      KVPIPE_F8_E8M0FNU);
	if (t->ndim > KVPIPE_MAX_DIMS)
		return kv_err(KVPIPE_E_INVALID, "%s: ndim is %u: at most %u", what, t->ndim, KVPIPE_MAX_DIMS);
	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->shape[i] == 0 && !kv_shape_exists(t->ndim, t->shape, size))
			return kv_err(KVPIPE_E_INVALID, "%s: the dimensions that are not 0 make more than 2^63 - 1 bytes: no tensor has that shape", what);
		if (t->shape[i] == 0) {
			*nbytes = 0;
			return 0;
		}
	}
	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->shape[i] > KV_ITEM_MAX / n)
			return kv_err(KVPIPE_E_INVALID, "%s: the tensor has more than %u bytes at dimension %u: send it in parts",
				      what, KV_ITEM_MAX, i);
		n *= t->shape[i];
	}
	*nbytes = n;
	return 0;
}

int kv_tensor_check(const char *what, const struct kvpipe_tensor *user, struct kvpipe_tensor *t, uint64_t *nbytes)
{
	int err = kv_copy_opts(what, user, t, sizeof(*t));

	if (err == 0)
		err = kv_check_zero(what, t->reserved, KV_COUNT(t->reserved));
	if (err == 0 && t->reserved0 != 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: reserved0 is %#x: it must be 0", what, t->reserved0);
	if (err == 0 && (t->flags & ~(uint32_t)KVPIPE_TENSOR_STRIDED) != 0)
		err = kv_err(KVPIPE_E_INVALID, "%s: flags is %#x: only KVPIPE_TENSOR_STRIDED", what, t->flags);
	if (err == 0)
		err = check_shape(what, t, nbytes);
	if (err == 0 && *nbytes > 0 && t->data == NULL)
		err = kv_err(KVPIPE_E_INVALID, "%s: data is NULL, the tensor has %llu bytes", what, (unsigned long long)*nbytes);
	return err;
}

struct walk { /* dimensions of more than one element, neighbours merged where their elements follow each other */
	uint32_t ndim;
	uint64_t shape[KVPIPE_MAX_DIMS];
	int64_t stride[KVPIPE_MAX_DIMS];
};

static void plan(struct walk *w, const struct kvpipe_tensor *t, int64_t size)
{
	int64_t dense = size;

	w->ndim = 0;
	/* From the last dimension on: the innermost becomes dimension 0 of the plan. */
	for (uint32_t i = t->ndim; i-- > 0;) {
		int64_t stride = (t->flags & KVPIPE_TENSOR_STRIDED) != 0 ? t->strides[i] : dense;
		dense *= (int64_t)t->shape[i];
		if (t->shape[i] == 1)
			continue;
		uint32_t last = w->ndim - 1;
		if (w->ndim > 0 && stride == w->stride[last] * (int64_t)w->shape[last]) {
			w->shape[last] *= t->shape[i];
		} else {
			w->shape[w->ndim] = t->shape[i];
			w->stride[w->ndim++] = stride;
		}
	}
}

/* n elements of a row whose elements do not follow each other. */
static void write_row(struct kv_sink *to, const uint8_t *from, uint64_t n, int64_t stride, size_t size)
{
	uint8_t buf[2048];

	while (n > 0) {
		size_t some = n < sizeof(buf) / size ? (size_t)n : sizeof(buf) / size;
		uint8_t *at = buf;
		/* The size is a constant in each loop, so that an element is a load and a store. */
		switch (size) {
		case 1:
			for (size_t i = 0; i < some; i++, from += stride)
				*at++ = *from;
			break;
		case 2:
			for (size_t i = 0; i < some; i++, from += stride, at += 2)
				memcpy(at, from, 2);
			break;
		case 4:
			for (size_t i = 0; i < some; i++, from += stride, at += 4)
				memcpy(at, from, 4);
			break;
		default:
			for (size_t i = 0; i < some; i++, from += stride, at += 8)
				memcpy(at, from, 8);
			break;
		}
		kv_sink_write(to, buf, some * size);
		n -= some;
	}
}

/* Dimension 0 of the plan is the innermost. */
void kv_tensor_write(struct kv_sink *to, const struct kvpipe_tensor *t)
{
	uint32_t size = kvpipe_dtype_size(t->dtype);
	uint64_t at[KVPIPE_MAX_DIMS] = { 0 };
	const uint8_t *from = t->data;
	struct walk w;

	plan(&w, t, size);
	if (w.ndim == 0) {
		kv_sink_write(to, from, size);
		return;
	}
	for (;;) {
		if (w.stride[0] == (int64_t)size)
			kv_sink_write(to, from, w.shape[0] * size);
		else
			write_row(to, from, w.shape[0], w.stride[0], size);
		uint32_t d = 1;
		for (; d < w.ndim; d++) {
			from += w.stride[d];
			if (++at[d] < w.shape[d])
				break;
			from -= w.stride[d] * (int64_t)w.shape[d];
			at[d] = 0;
		}
		if (d >= w.ndim)
			return;
	}
}
