/* SPDX-License-Identifier: Apache-2.0 */
/* What the library says about itself and its codes. */
#include "internal.h"

#define STR2(x) #x
#define STR(x) STR2(x)

const char *kvpipe_version(void)
{
	return STR(KVPIPE_VERSION_MAJOR) "." STR(KVPIPE_VERSION_MINOR) "." STR(KVPIPE_VERSION_PATCH);
}

const char *kvpipe_strerror(int code)
{
	static const char *const text[] = {
		[KVPIPE_OK] = "done",
		[KVPIPE_E_INVALID] = "an argument is malformed or out of range",
		[KVPIPE_E_NOT_FOUND] = "no such key, peer, region or operation",
		[KVPIPE_E_EXPIRED] = "the offer has expired, or was withdrawn or consumed",
		[KVPIPE_E_DENIED] = "not allowed",
		[KVPIPE_E_INCOMPATIBLE] = "versions, layouts or fingerprints do not agree",
		[KVPIPE_E_BUSY] = "a conflicting hold, a key in use, or a full queue",
		[KVPIPE_E_QUOTA] = "a limit is reached",
		[KVPIPE_E_TIMEOUT] = "the deadline passed",
		[KVPIPE_E_CANCELLED] = "cancelled by its owner",
		[KVPIPE_E_PEER_GONE] = "the other engine or daemon is gone",
		[KVPIPE_E_RESTARTED] = "the daemon went away while bytes were granted",
		[KVPIPE_E_UNAVAILABLE] = "no daemon, or something that is needed is not there",
		[KVPIPE_E_CORRUPT] = "a checksum did not agree, or memory faulted",
		[KVPIPE_E_CLOSED] = "the session is closed",
	};
	unsigned int n = code < 0 ? 0u - (unsigned int)code : (unsigned int)code;

	return n < KV_COUNT(text) ? text[n] : "an error that this version does not know";
}

int kvpipe_probe(kvpipe_t *kv, struct kvpipe_probe *out)
{
	struct kvpipe_probe p = {
		.abi_lib = KVPIPE_ABI,
		.max_ids = KVPIPE_MAX_IDS,
		.max_views = KVPIPE_MAX_VIEWS,
		.max_regions = KVPIPE_MAX_REGIONS,
		.max_inflight = KVPIPE_MAX_INFLIGHT,
		.max_groups = KVPIPE_MAX_GROUPS,
		.max_key = KVPIPE_MAX_KEY,
		.ops = (2ull << KVPIPE_OPCODE_GET) - 1,
	};

	if (out == NULL)
		return kv_err(KVPIPE_E_INVALID, "probe: out is NULL");
	if (kv != NULL) {
		int err = kv_enter(kv);
		if (err != 0)
			return err;
		pthread_mutex_lock(&kv->lock);
		p.abi_daemon = kv->abi;
		p.features = kv->features;
		p.max_ids = kv->max_ids;
		p.max_views = kv->max_views;
		p.max_regions = kv->max_regions;
		p.max_inflight = kv->max_inflight;
		p.max_pinned_bytes = kv->max_pinned_bytes;
		p.ops &= kv->ops;
		pthread_mutex_unlock(&kv->lock);
	}
	return kv_copy_out("probe", "kvpipe_probe", out, &p, sizeof(p));
}
