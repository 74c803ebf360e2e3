/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup buffers: opening, inserting, closing. Asking is query.c. */
#include "endpoint.h"

#include <stdlib.h>

struct kvpipe_lookup {
	struct kv_end end; /* first: it frees this */
	bool unseen;       /* atomic: the daemon did not confirm in time that it knows of a put */
};

static bool selecting_ready(struct kv_end *e)
{
	return e->over || e->ended > 0 || kv_get_pumpable(e);
}

int kvpipe_lookup_open(kvpipe_t *kv, const struct kvpipe_lookup_opts *opts, kvpipe_lookup_t **out)
{
	KV_UNCANCELLED;
	struct kvpipe_lookup_opts o;
	int err = kv_enter(kv);

	if (err == 0 && out == NULL)
		err = kv_err(KVPIPE_E_INVALID, "lookup: out is NULL");
	if (err == 0)
		err = kv_copy_opts("lookup", opts, &o, sizeof(o));
	if (err == 0)
		err = kv_check_zero("lookup", o.reserved, KV_COUNT(o.reserved));
	if (err == 0 && o.flags != 0)
		err = kv_err(KVPIPE_E_INVALID, "lookup: flags is %#x: must be 0", o.flags);
	if (err != 0)
		return err;
	struct kvpipe_lookup *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	bool owner = o.capacity > 0;
	const struct kv_end_opts e = {
		.what = "lookup",
		.kind = owner ? KVPIPE_BIND_OWN : KVPIPE_BIND_SELECT,
		.name = o.name,
		.capacity = o.capacity,
		.token = o.token,
		.token_len = o.token_len,
		.peer = o.peer,
		.linger_ns = o.linger_ns,
		.ready = owner ? kv_put_ready : selecting_ready,
	};
	err = kv_end_open(kv, &e, &l->end);
	if (err == 0)
		*out = l;
	return err;
}

struct kv_end *kv_lookup_enter(kvpipe_lookup_t *l, const char *what, bool home, int *err)
{
	*err = l == NULL ? kv_err(KVPIPE_E_INVALID, "%s: the lookup buffer is NULL", what) : kv_end_enter(&l->end, what);
	if (*err == 0 && l->end.home != home) {
		*err = kv_err(KVPIPE_E_INVALID, home ? "%s: this is a selecting end of \"%s\"" : "%s: this is the owner's end of \"%s\"",
			      what, l->end.name);
		kv_end_leave(&l->end);
	}
	return *err == 0 ? &l->end : NULL;
}

int kvpipe_lookup_insert(kvpipe_lookup_t *l, const struct kvpipe_tensor *const members[5], int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kv_put put = { .what = "insert", .form = KVPIPE_MATCH_ANY, .count = KV_MEMBERS };
	uint32_t *tokens;
	int err;

	if (members == NULL)
		return kv_err(KVPIPE_E_INVALID, "insert: members is NULL");
	struct kv_end *e = kv_lookup_enter(l, "insert", true, &err);
	if (e == NULL)
		return err;
	for (uint32_t i = 0; i < KV_MEMBERS; i++)
		put.members[i] = members[i];
	err = kv_tokens("insert", members[0], members[0] == NULL ? NULL : members[1], &tokens, &put.ntokens);
	if (put.ntokens > 0)
		put.form = KVPIPE_MATCH_PREFIX;
	put.tokens = tokens;
	if (err == 0)
		err = kv_end_put(e, &put, timeout_ns);
	free(tokens);
	kv_end_leave(e);
	return err;
}

/* Returns once the daemon knows of everything that was put before; a try waits a moment for it, too. */
static int seen(struct kvpipe_lookup *l, int64_t deadline)
{
	int64_t least = kv_now() + KV_GRACE_NS;
	int err = kv_end_sync(&l->end, "put", deadline > least ? deadline : least);

	__atomic_store_n(&l->unseen, err < 0, __ATOMIC_RELAXED);
	if (err == -KVPIPE_E_TIMEOUT)
		return kv_end_says(&l->end, KVPIPE_E_TIMEOUT, "put", "it takes effect once the daemon answers, which it does not in time: " KV_LOOK);
	return err < 0 ? err : 0;
}

int kvpipe_lookup_put(kvpipe_lookup_t *l, const void *key, uint32_t key_len, const struct kvpipe_tensor *value, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kv_answer answer = { 0 };
	struct kv_put put = {
		.what = "put", .form = KVPIPE_MATCH_KEY, .members = { value }, .count = 1, .key = key, .key_len = key_len,
		.answer = &answer,
	};
	int err = kv_check_bytes("put: key", key, key_len, 1, KVPIPE_MAX_KEY);

	if (err == 0)
		err = kv_end_timeout("put", timeout_ns, &put.deadline);
	if (err != 0)
		return err;
	struct kv_end *e = kv_lookup_enter(l, "put", true, &err);
	if (e == NULL)
		return err;
	/* A caller that repeats a put as it was not confirmed must not fill the buffer with it. */
	if (__atomic_load_n(&l->unseen, __ATOMIC_RELAXED))
		err = seen(l, put.deadline);
	if (err == 0)
		err = kv_end_put(e, &put, timeout_ns);
	if (err == 0) { /* whoever hears of the put and asks for the key must not find the old value */
		err = seen(l, put.deadline);
		kv_put_forget(e, &answer);
		if (answer.status == KVPIPE_FAILED)
			err = kv_end_says(e, answer.reason, "put", answer.text);
	}
	kv_end_leave(e);
	return err;
}

int kvpipe_lookup_fd(kvpipe_lookup_t *l)
{
	int fd = l == NULL ? kv_err(KVPIPE_E_INVALID, "lookup_fd: the lookup buffer is NULL") : kv_end_enter(&l->end, "lookup_fd");

	if (fd == 0) {
		fd = kvpipe_fd(l->end.kv);
		kv_end_leave(&l->end);
	}
	return fd;
}

void kvpipe_lookup_close(kvpipe_lookup_t *l)
{
	KV_UNCANCELLED;
	if (l == NULL)
		return;
	kv_end_finish(&l->end, kv_now() + KV_CALL_NS);
	kv_end_unref(&l->end);
}
