/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens by which an entry of a lookup buffer is found: those of a tensor that a mask (roi) keeps. */
#include "endpoint.h"

#include <stdlib.h>
#include <string.h>

static bool is_integer(uint32_t dtype)
{
	return dtype >= KVPIPE_U8 && dtype <= KVPIPE_I64;
}

/* Reads an element as a number below 2^32. False: it is none. *value: the number as it is. */
static bool element(const uint8_t *p, uint32_t dtype, uint32_t *out, long long *value)
{
	union {
		uint8_t u8; int8_t i8; uint16_t u16; int16_t i16;
		uint32_t u32; int32_t i32; uint64_t u64; int64_t i64;
	} v;

	memcpy(&v, p, kvpipe_dtype_size(dtype));
	switch (dtype) {
	case KVPIPE_U8: *value = v.u8; break;
	case KVPIPE_I8: *value = (int64_t)v.i8; break;
	case KVPIPE_U16: *value = v.u16; break;
	case KVPIPE_I16: *value = v.i16; break;
	case KVPIPE_U32: *value = v.u32; break;
	case KVPIPE_I32: *value = v.i32; break;
	default: *value = v.i64; break; /* a uint64 from 2^63 on is negative here, and refused as well */
	}
	*out = (uint32_t)*value;
	return *value >= 0 && *value <= UINT32_MAX;
}

static int64_t stride_of(const struct kvpipe_tensor *t)
{
	return (t->flags & KVPIPE_TENSOR_STRIDED) != 0 ? t->strides[0] : (int64_t)kvpipe_dtype_size(t->dtype);
}

/* Whether roi keeps element i. */
static bool counts(const struct kvpipe_tensor *roi, uint64_t i)
{
	return roi == NULL || *((const uint8_t *)roi->data + (int64_t)i * stride_of(roi)) != 0;
}

/* How many tokens count, before any memory is asked for. */
static int count(const char *what, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi, uint32_t *n)
{
	const unsigned long long all = tokens->shape[0];
	unsigned long long left = roi == NULL ? all : 0;

	for (uint64_t i = 0; roi != NULL && i < all; i++)
		left += counts(roi, i);
	if (left == 0)
		return kv_err(KVPIPE_E_INVALID, "%s: none of %llu tokens counts under roi: at least one must (both NULL: any entry)",
			      what, all);
	if (left > KVPIPE_MAX_TOKENS)
		return kv_err(KVPIPE_E_INVALID, "%s: %llu tokens count under roi: at most %u", what, left, KVPIPE_MAX_TOKENS);
	*n = (uint32_t)left;
	return 0;
}

/* Takes no more than n tokens, as the caller may write to roi meanwhile. */
static int collect(const char *what, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi, uint32_t *to,
		   uint32_t *n)
{
	uint32_t at = 0;

	for (uint64_t i = 0; i < tokens->shape[0] && at < *n; i++) {
		long long value;
		if (!counts(roi, i))
			continue;
		if (!element((const uint8_t *)tokens->data + (int64_t)i * stride_of(tokens), tokens->dtype, &to[at++], &value))
			return kv_err(KVPIPE_E_INVALID, "%s: tokens[%llu] is %lld: must be 0 to 4294967295", what,
				      (unsigned long long)i, value);
	}
	*n = at;
	return 0;
}

int kv_tokens(const char *what, const struct kvpipe_tensor *utokens, const struct kvpipe_tensor *uroi, uint32_t **out,
	      uint32_t *n)
{
	struct kvpipe_tensor tokens, roi;
	uint64_t bytes;

	*out = NULL;
	*n = 0;
	if (utokens == NULL && uroi == NULL)
		return 0;
	if (utokens == NULL)
		return kv_err(KVPIPE_E_INVALID, "%s: roi without tokens: give both, tokens alone, or neither", what);
	int err = kv_tensor_check(what, utokens, &tokens, &bytes);
	if (err == 0 && uroi != NULL)
		err = kv_tensor_check(what, uroi, &roi, &bytes);
	if (err != 0)
		return err;
	if (tokens.ndim != 1 || !is_integer(tokens.dtype))
		return kv_err(KVPIPE_E_INVALID, "%s: tokens has %u dimensions of %s: must have one, of integers", what, tokens.ndim,
			      kvpipe_dtype_name(tokens.dtype));
	if (uroi != NULL && (roi.ndim != 1 || (roi.dtype != KVPIPE_BOOL && roi.dtype != KVPIPE_U8) || roi.shape[0] != tokens.shape[0]))
		return kv_err(KVPIPE_E_INVALID, "%s: roi has %u dimensions of %s, the first of %llu: must be bool or uint8, one for each of %llu tokens",
			      what, roi.ndim, kvpipe_dtype_name(roi.dtype), (unsigned long long)(roi.ndim > 0 ? roi.shape[0] : 1),
			      (unsigned long long)tokens.shape[0]);
	err = count(what, &tokens, uroi != NULL ? &roi : NULL, n);
	if (err != 0)
		return err;
	*out = malloc(*n * sizeof(**out));
	if (*out == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	err = collect(what, &tokens, uroi != NULL ? &roi : NULL, *out, n);
	if (err != 0) {
		free(*out);
		*out = NULL;
	}
	return err;
}
