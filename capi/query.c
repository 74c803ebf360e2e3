/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of a lookup buffer: each is a GET of its own, which waits at the owner's node, and for no other query. */
#include "endpoint.h"

#include <stdlib.h>

#define NO_ROOM "an entry was found, and not received in time: wait for queries before their time is over, and free what was found"

struct kvpipe_query {
	struct kv_end *end;
	struct kv_get get;     /* under the session's lock, as long as there is one */
	const char *what;
	int64_t timeout_ns;
	bool told;             /* its end was collected, or the library has ended it */
};

static int ask(struct kv_end *e, const char *what, const struct kv_ask *a, int64_t timeout_ns, kvpipe_query_t **out)
{
	int err = kv_check_timeout(what, &timeout_ns, KV_OP_NS);

	if (err == 0 && timeout_ns > KV_MONTH_NS)
		err = kv_err(KVPIPE_E_INVALID, "%s: timeout of %lld ns: at most 30 days", what, (long long)timeout_ns);
	if (err != 0)
		return err;
	struct kvpipe_query *q = calloc(1, sizeof(*q));
	if (q == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	q->end = e;
	q->what = what;
	q->timeout_ns = timeout_ns;
	pthread_mutex_lock(&e->pump);
	q->get.order = ++e->order;
	err = kv_get_ask(e, &q->get, a, false, kv_after(kv_now(), timeout_ns));
	if (err == 0 && e->ndeclines > 0)
		(void)kv_get_pump(e, kv_get_patience(0));
	pthread_mutex_unlock(&e->pump);
	if (err != 0) {
		free(q);
		return err;
	}
	kv_end_ref(e);
	*out = q;
	return 0;
}

int kvpipe_lookup_select(kvpipe_lookup_t *l, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi, uint32_t match,
			 int64_t timeout_ns, kvpipe_query_t **out)
{
	KV_UNCANCELLED;
	struct kv_ask a = { .match = KVPIPE_MATCH_ANY };
	uint32_t *masked;
	int err;

	if (out == NULL)
		return kv_err(KVPIPE_E_INVALID, "select: out is NULL");
	if (match != KVPIPE_PREFIX && match != KVPIPE_EXACT)
		return kv_err(KVPIPE_E_INVALID, "select: match is %u: must be KVPIPE_PREFIX (1) or KVPIPE_EXACT (2)", match);
	struct kv_end *e = kv_lookup_enter(l, "select", false, &err);
	if (e == NULL)
		return err;
	err = kv_tokens("select", tokens, roi, &masked, &a.ntokens);
	a.tokens = masked;
	if (a.ntokens > 0)
		a.match = match == KVPIPE_PREFIX ? KVPIPE_MATCH_PREFIX : KVPIPE_MATCH_EXACT;
	if (err == 0)
		err = ask(e, "select", &a, timeout_ns, out);
	free(masked);
	kv_end_leave(e);
	return err;
}

int kvpipe_lookup_get(kvpipe_lookup_t *l, const void *key, uint32_t key_len, int64_t timeout_ns, kvpipe_query_t **out)
{
	KV_UNCANCELLED;
	const struct kv_ask a = { .match = KVPIPE_MATCH_KEY, .key = key, .key_len = key_len };
	int err = out == NULL ? kv_err(KVPIPE_E_INVALID, "get: out is NULL") : kv_check_bytes("get: key", key, key_len, 1, KVPIPE_MAX_KEY);

	if (err != 0)
		return err;
	struct kv_end *e = kv_lookup_enter(l, "get", false, &err);
	if (e == NULL)
		return err;
	err = ask(e, "get", &a, timeout_ns, out);
	kv_end_leave(e);
	return err;
}

static bool ended(const struct kvpipe_query *q)
{
	return q->get.state == KV_GET_LANDED || q->get.state == KV_GET_FAILED;
}

/* When the query is over at the latest. The daemon ends it before; if it does not answer, the library ends it then. */
static int64_t due(const struct kvpipe_query *q)
{
	return kv_after(q->get.deadline, KV_GRACE_NS);
}

/* True also when there is room for a query that was SHORT, whoever's it is: any thread that waits asks again for it. */
static bool may_go_on(void *arg)
{
	const struct kvpipe_query *q = arg;

	return q->end->over || q->told || ended(q) || kv_get_pumpable(q->end) || kv_now() >= due(q);
}

/* After a wait: what the query found, or why nothing. *again: first pump, as some GET can have room or be submitted. Needs lock. */
static int collect(struct kvpipe_query *q, kvpipe_msg_t **out, bool *again)
{
	struct kv_end *e = q->end;
	bool told = q->told;
	int64_t now = kv_now();
	int err;

	*again = false;
	if (!ended(q) && now >= due(q)) /* this process may have stood still since it last looked */
		kv_end_look(e);
	if (ended(q)) {
		q->told = true;
		err = kv_get_end(e, &q->get, q->what, out);
		if (err == 0 || !told)
			return err;
	}
	if (told)
		return kv_err(KVPIPE_E_NOT_FOUND, "wait: the query's end was collected before");
	err = kv_end_error(e, q->what);
	q->told = err != 0 || now >= due(q);
	if (err != 0)
		return err;
	*again = !q->told && kv_get_pumpable(e);
	if (*again)
		return 0;
	if (now >= q->get.deadline && q->get.state == KV_GET_QUEUED) /* the daemon was not asked */
		return kv_end_says(e, KVPIPE_E_TIMEOUT, q->what, KV_CROWD);
	if (q->told && q->get.state == KV_GET_SHORT) /* the daemon has answered */
		return kv_end_says(e, KVPIPE_E_TIMEOUT, q->what, NO_ROOM);
	if (q->told)
		return kv_err(KVPIPE_E_TIMEOUT, "%s: \"%s\": nothing came within %s, and the daemon does not answer: " KV_LOOK, q->what,
			      e->name, KV_SPAN(q->timeout_ns));
	return kv_err(KVPIPE_E_TIMEOUT, "%s: \"%s\": still running", q->what, e->name);
}

static int wait_query(kvpipe_query_t *q, int64_t deadline, kvpipe_msg_t **out)
{
	struct kv_end *e = q->end;
	bool again;
	int err;

	do {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_cancel_late(e);
		kv_end_look(e);
		kv_end_wait(e, may_go_on, q, deadline < due(q) ? deadline : due(q));
		err = collect(q, out, &again);
		kv_end_unlock(e);
		if (again) {
			int64_t patience = kv_get_patience(deadline < due(q) ? deadline : due(q));
			pthread_mutex_lock(&e->pump);
			err = kv_get_pump(e, patience);
			pthread_mutex_unlock(&e->pump);
			if (err == KV_LATER)
				err = kv_now() < deadline ? 0 : -KVPIPE_E_TIMEOUT;
		}
	} while (err == 0 && again);
	return err;
}

int kvpipe_query_wait(kvpipe_query_t *q, int64_t timeout_ns, kvpipe_msg_t **out)
{
	KV_UNCANCELLED;
	int64_t deadline;
	int err = q == NULL || out == NULL ? kv_err(KVPIPE_E_INVALID, "wait: the query or out is NULL") : 0;

	if (err == 0)
		err = kv_end_timeout("wait", timeout_ns, &deadline);
	if (err == 0)
		err = kv_end_enter(q->end, "wait");
	if (err != 0)
		return err;
	*out = NULL;
	err = wait_query(q, deadline, out);
	kv_end_leave(q->end);
	return err;
}

int kvpipe_query_done(const kvpipe_query_t *q)
{
	KV_UNCANCELLED;
	if (q == NULL || kv_end_enter(q->end, "done") != 0)
		return 1;
	struct kv_end *e = q->end;
	pthread_mutex_lock(&e->kv->lock);
	kv_end_look(e);
	bool done = e->over || ended(q) || q->told || kv_now() >= due(q);
	kv_end_unlock(e);
	kv_end_leave(e);
	return done;
}

void kvpipe_query_free(kvpipe_query_t *q)
{
	KV_UNCANCELLED;
	if (q == NULL)
		return;
	struct kv_end *e = q->end;
	uint64_t target = 0;
	if (!kv_process_is(e->process)) {
		kvpipe_msg_free(q->get.msg);
	} else if (kv_end_enter(e, "free") != 0) {
		kv_end_await(e); /* until then a completion may still be written into the query */
		kvpipe_msg_free(q->get.msg);
	} else {
		pthread_mutex_lock(&e->kv->lock);
		kv_end_look(e);
		kv_get_forget(e, &q->get, &target);
		kv_end_unlock(e);
		if (target != 0)
			kv_end_cancel(e, target, kv_now() + KV_ROOM_NS);
		kv_end_leave(e);
	}
	kv_end_unref(e);
	free(q->get.kept);
	free(q);
}
