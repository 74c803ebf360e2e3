/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: their sizes and names. */
#include "internal.h"

#include <string.h>

static const struct dtype {
	const char *name;
	uint32_t size;
} dtypes[] = {
	[KVPIPE_BOOL] = { "bool", 1 },
	[KVPIPE_U8] = { "uint8", 1 },
	[KVPIPE_I8] = { "int8", 1 },
	[KVPIPE_U16] = { "uint16", 2 },
	[KVPIPE_I16] = { "int16", 2 },
	[KVPIPE_U32] = { "uint32", 4 },
	[KVPIPE_I32] = { "int32", 4 },
	[KVPIPE_U64] = { "uint64", 8 },
	[KVPIPE_I64] = { "int64", 8 },
	[KVPIPE_F16] = { "float16", 2 },
	[KVPIPE_BF16] = { "bfloat16", 2 },
	[KVPIPE_F32] = { "float32", 4 },
	[KVPIPE_F64] = { "float64", 8 },
	[KVPIPE_F8_E4M3FN] = { "float8_e4m3fn", 1 },
	[KVPIPE_F8_E5M2] = { "float8_e5m2", 1 },
	[KVPIPE_F8_E4M3FNUZ] = { "float8_e4m3fnuz", 1 },
	[KVPIPE_F8_E5M2FNUZ] = { "float8_e5m2fnuz", 1 },
	[KVPIPE_F8_E8M0FNU] = { "float8_e8m0fnu", 1 },
};

uint32_t kvpipe_dtype_size(uint32_t dtype)
{
	return dtype < KV_COUNT(dtypes) ? dtypes[dtype].size : 0;
}

const char *kvpipe_dtype_name(uint32_t dtype)
{
	return dtype < KV_COUNT(dtypes) ? dtypes[dtype].name : NULL;
}

uint32_t kvpipe_dtype_parse(const char *name)
{
	for (uint32_t i = 1; name != NULL && i < KV_COUNT(dtypes); i++) {
		if (strcmp(name, dtypes[i].name) == 0)
			return i;
	}
	return 0;
}
