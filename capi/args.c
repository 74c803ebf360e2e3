/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what callers pass: sized structs, reserved fields, times, strings. Each error names field, value, limit. */
#include "internal.h"

#include <string.h>

int kv_copy_opts(const char *what, const void *user, void *ours, size_t size)
{
	size_t sz;

	if (user == NULL)
		return kv_err(KVPIPE_E_INVALID, "%s: opts is NULL", what);
	memcpy(&sz, user, sizeof(sz));
	if (sz <= sizeof(sz) || sz > 65536)
		return kv_err(KVPIPE_E_INVALID, "%s: sz is %zu: initialise the struct with KVPIPE_OPTS", what, sz);
	for (size_t i = size; i < sz; i++) {
		if (((const char *)user)[i] != 0)
			return kv_err(KVPIPE_E_INVALID,
				      "%s: byte %zu of %zu is set, but libkvpipe %s knows %zu: a newer library is needed",
				      what, i, sz, kvpipe_version(), size);
	}
	memset(ours, 0, size);
	memcpy(ours, user, sz < size ? sz : size);
	return 0;
}

int kv_copy_out(const char *what, const char *type, void *user, void *ours, size_t size)
{
	size_t sz;

	memcpy(&sz, user, sizeof(sz));
	if (sz < sizeof(sz) || sz > 65536)
		return kv_err(KVPIPE_E_INVALID, "%s: sz is %zu: set it to sizeof(struct %s), here %zu", what, sz, type, size);
	/* The caller's size counts: an older caller gets the head of our struct, a newer one zeroes behind it. */
	memcpy(ours, &sz, sizeof(sz));
	memcpy(user, ours, sz < size ? sz : size);
	if (sz > size)
		memset((char *)user + size, 0, sz - size);
	return 0;
}

int kv_check_zero(const char *what, const uint64_t *reserved, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (reserved[i] != 0)
			return kv_err(KVPIPE_E_INVALID, "%s: reserved[%zu] is %#llx: it must be 0", what, i,
				      (unsigned long long)reserved[i]);
	}
	return 0;
}

int kv_check_timeout(const char *what, int64_t *ns, int64_t def)
{
	if (*ns == 0)
		*ns = def;
	if (*ns < 0)
		return kv_err(KVPIPE_E_INVALID, "%s: %lld ns is negative: times are relative", what, (long long)*ns);
	if (*ns == KVPIPE_FOREVER)
		return kv_err(KVPIPE_E_INVALID, "%s: KVPIPE_FOREVER is only for kvpipe_wait*(): give a finite time", what);
	return 0;
}

int kv_check_deadline(const char *what, int64_t *ns, int64_t def)
{
	int err = kv_check_timeout(what, ns, def);

	if (err == 0 && *ns > KV_HOUR_NS && *ns <= KV_MONTH_NS)
		*ns = KV_HOUR_NS;
	return err;
}

int kv_check_bytes(const char *what, const void *p, size_t len, size_t min, size_t max)
{
	if (len < min || len > max)
		return kv_err(KVPIPE_E_INVALID, "%s: %zu bytes: must be %zu to %zu", what, len, min, max);
	if (p == NULL && len > 0)
		return kv_err(KVPIPE_E_INVALID, "%s: pointer is NULL, length %zu", what, len);
	return 0;
}

int kv_check_text(const char *what, const char *s, size_t max, size_t *len)
{
	*len = s == NULL ? 0 : strnlen(s, max + 1);
	if (*len > max)
		return kv_err(KVPIPE_E_INVALID, "%s: longer than %zu bytes: \"%.40s...\"", what, max, s);
	return 0;
}
