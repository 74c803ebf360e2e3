/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small operations on an operation of this session: extend, seal, withdraw, cancel. Their callers wait for the answer. A
 * caller that gives up at its timeout leaves behind an operation that nobody waits for, if a daemon may have it.
 */
#include "internal.h"

static int state_of(kvpipe_t *kv, kvpipe_op_t id, bool offer, int *state)
{
	pthread_mutex_lock(&kv->lock);
	kv_drain(kv);
	struct kv_op *op = kv_op_find(kv, id);
	int err = 0;
	if (op == NULL || op->internal || op->detached || (offer && op->opcode != KVPIPE_OPCODE_OFFER))
		err = kv_err(KVPIPE_E_NOT_FOUND, "operation %llu is not %s of this session", (unsigned long long)id,
			     offer ? "an offer" : "an operation");
	else
		*state = op->state;
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}

/* Ends what was to be added to an offer that has ended, from op on. No daemon is to hear of it, so it counts against no limit any more. */
static void end_added(kvpipe_t *kv, kvpipe_op_t offer, struct kv_op *op)
{
	for (struct kv_op *next; op != NULL; op = next) {
		next = op->live_next;
		if (op->target == offer && op->state == KV_RUNNING && (op->opcode == KVPIPE_OPCODE_EXTEND || op->opcode == KVPIPE_OPCODE_SEAL))
			kv_op_end_here(kv, op, KVPIPE_E_EXPIRED, "the offer has ended", false);
	}
}

/* Cancels an operation here, if no daemon knows of it at the moment. False: one may know it. */
static bool ends_here(kvpipe_t *kv, kvpipe_op_t id)
{
	pthread_mutex_lock(&kv->lock);
	struct kv_op *op = kv_op_find(kv, id);
	bool here = op != NULL && kv_awaits(kv->state) && !op->begun;
	if (here && op->state == KV_RUNNING) {
		struct kv_op *later = kv->small > 0 ? op->live_next : NULL;
		kv_op_cancel_here(kv, op);
		end_added(kv, id, later);
	}
	kv_wake_waiters(kv);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return here;
}

static struct kv_op *new_internal(uint8_t opcode)
{
	struct kv_op *op = kv_op_new(opcode);

	if (op != NULL)
		op->internal = true;
	return op;
}

static void leave(kvpipe_t *kv, kvpipe_op_t id)
{
	struct kv_op *op = kv_op_find(kv, id);

	if (op != NULL && op->state == KV_RELEASED)
		kv_op_remove(kv, op);
	else if (op != NULL)
		op->abandoned = true;
}

/*
 * Nobody waits for op any more. An extension that no daemon was told of is dropped, so that no daemon ever is: its blocks are the
 * caller's again. Needs lock.
 */
static void give_up(kvpipe_t *kv, kvpipe_op_t id)
{
	struct kv_op *op = kv_op_find(kv, id);

	if (op != NULL && op->state == KV_RUNNING && !op->begun && (op->opcode == KVPIPE_OPCODE_EXTEND || op->opcode == KVPIPE_OPCODE_SEAL))
		kv_op_remove(kv, op);
	else
		leave(kv, id);
}

/* The error of a call whose time has passed. Needs lock. */
static int timed_out(const kvpipe_t *kv, const char *what, int64_t timeout_ns)
{
	if (kv->state == KV_AWAY && kv->refused != 0)
		return kv_err(KVPIPE_E_TIMEOUT, "%s: %s", what, kv->refusal);
	if (kv->state == KV_AWAY)
		return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon went away and was not back within %s: start it again", what, KV_SPAN(timeout_ns));
	if (kv->state == KV_LEAVING)
		return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon is stopping, and had not ended within %s: start it again once it has", what, KV_SPAN(timeout_ns));
	return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon did not answer within %s: " KV_LOOK, what, KV_SPAN(timeout_ns));
}

/* The result of a small operation: its refusal is the caller's error. Leaves alone what the thread's last completion points to.
 * Needs lock. */
static int outcome(const char *what, const struct kv_op *op)
{
	const struct kvpipe_completion *c = &op->end.c;

	if (c->status == KVPIPE_DONE)
		return 0;
	uint32_t reason = c->reason == 0 || c->reason > KVPIPE_E_CLOSED ? (uint32_t)KVPIPE_E_INVALID : c->reason;
	return kv_err((enum kvpipe_reason)reason, "%s: %s", what, kv_note_text(&op->end));
}

/* Submits and waits for the end. 0: it was done; *flags are its completion's. */
static int ask(kvpipe_t *kv, const char *what, const struct kv_submission *s, int64_t deadline, uint32_t *flags)
{
	struct kv_waiter w = { .kind = KV_WAIT_END };
	struct kv_op *op = new_internal(s->opcode);

	if (op == NULL)
		return -KVPIPE_E_QUOTA;
	int err = kv_submit(kv, s, op, &w.op);
	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	if (!kv_wait_until(kv, &w, deadline)) {
		err = timed_out(kv, what, s->timeout_ns);
	} else {
		op = kv_op_find(kv, w.op);
		err = op != NULL && op->state != KV_RUNNING ? outcome(what, op) : timed_out(kv, what, s->timeout_ns);
		if (err == 0)
			*flags = op->end.c.flags;
	}
	give_up(kv, w.op);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return err;
}

/* The timeout that the daemon is told; the caller's may be longer. */
static int64_t within(int64_t timeout_ns)
{
	return timeout_ns < KV_MONTH_NS ? timeout_ns : KV_MONTH_NS;
}

/* KVPIPE_NOWAIT: submits an operation that nobody will wait for. */
static int tell(kvpipe_t *kv, struct kv_submission *s, kvpipe_op_t target)
{
	struct kv_op *op = new_internal(s->opcode);
	kvpipe_op_t id;

	if (op == NULL)
		return -KVPIPE_E_QUOTA;
	s->target = target;
	s->timeout_ns = KV_CALL_NS;
	int err = kv_submit(kv, s, op, &id);
	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	leave(kv, id);
	kv_settle(kv);
	pthread_mutex_unlock(&kv->lock);
	return 0;
}

static int run(kvpipe_t *kv, const char *what, struct kv_submission *s, kvpipe_op_t target, int64_t timeout_ns,
	       uint32_t *flags)
{
	if (timeout_ns == KVPIPE_NOWAIT)
		return tell(kv, s, target);
	int64_t start = kv_now();
	int err = kv_check_timeout(what, &timeout_ns, KV_CALL_NS);

	if (err != 0)
		return err;
	s->target = target;
	s->timeout_ns = within(timeout_ns);
	return ask(kv, what, s, kv_after(start, timeout_ns), flags);
}

/* The daemon forgets offers that have ended. So whether the offer has ended is looked up here: before the daemon is asked, and when
 * it answers that it knows no such offer. */
static int add(kvpipe_t *kv, const char *what, struct kv_submission *s, kvpipe_op_t offer, int state, int64_t timeout_ns)
{
	uint32_t flags;

	if (timeout_ns == KVPIPE_NOWAIT) /* the offer's own end says it */
		return run(kv, what, s, offer, timeout_ns, &flags);
	int ended = state != KV_RUNNING ? kv_offer_ended(kv, what, offer) : 0;
	if (ended != 0)
		return ended;
	int err = run(kv, what, s, offer, timeout_ns, &flags);
	if (err == -KVPIPE_E_NOT_FOUND || err == -KVPIPE_E_EXPIRED)
		ended = kv_offer_ended(kv, what, offer);
	return ended != 0 ? ended : err;
}

int kvpipe_offer_extend(kvpipe_t *kv, kvpipe_op_t offer, const struct kvpipe_extend_opts *opts, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kvpipe_extend_opts o;
	uint64_t groups;
	int state, err = kv_enter(kv);

	if (err == 0)
		err = kv_copy_opts("extend", opts, &o, sizeof(o));
	if (err == 0)
		err = kv_check_zero("extend", o.reserved, KV_COUNT(o.reserved));
	if (err == 0 && (o.flags & ~(uint32_t)(KVPIPE_OP_SEALED | KVPIPE_OP_LAYERED)) != 0)
		err = kv_err(KVPIPE_E_INVALID, "extend: flags is %#x: only KVPIPE_OP_SEALED and KVPIPE_OP_LAYERED", o.flags);
	if (err == 0)
		err = kv_blocks_check(kv, o.blocks, o.nblocks, &groups);
	if (err == 0)
		err = state_of(kv, offer, true, &state);
	if (err != 0)
		return err;
	struct kvpipe_rec_extend rec = { .flags = o.flags, .ngroups = o.nblocks, .after = o.after };
	struct kv_submission s = {
		.opcode = KVPIPE_OPCODE_EXTEND,
		.head = &rec,
		.head_len = sizeof(rec),
		.blocks = o.blocks,
		.nblocks = o.nblocks,
	};
	return add(kv, "extend", &s, offer, state, timeout_ns);
}

int kvpipe_offer_seal(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct kv_submission s = { .opcode = KVPIPE_OPCODE_SEAL };
	int state, err = kv_enter(kv);

	if (err == 0)
		err = state_of(kv, offer, true, &state);
	return err != 0 ? err : add(kv, "seal", &s, offer, state, timeout_ns);
}

int kvpipe_offer_withdraw(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns, int *reusable)
{
	KV_UNCANCELLED;
	struct kv_submission s = { .opcode = KVPIPE_OPCODE_WITHDRAW };
	uint32_t flags = KVPIPE_C_MORE;
	int state = KV_RUNNING, err = kv_enter(kv);

	if (err == 0)
		err = state_of(kv, offer, true, &state);
	if (err == 0 && state == KV_RUNNING && ends_here(kv, offer))
		state = KV_RELEASED;
	if (err == 0 && state == KV_RUNNING) {
		err = run(kv, "withdraw", &s, offer, timeout_ns, &flags);
		/* It may have ended by itself meanwhile; what counts is whether the blocks are free. */
		if ((err == 0 || err == -KVPIPE_E_NOT_FOUND || err == -KVPIPE_E_EXPIRED) &&
		    state_of(kv, offer, true, &state) == 0 && state != KV_RUNNING)
			err = 0;
	}
	if (err == 0 && reusable != NULL)
		*reusable = state == KV_RELEASED || (flags & KVPIPE_C_MORE) == 0;
	return err;
}

int kvpipe_cancel(kvpipe_t *kv, kvpipe_op_t id, int64_t timeout_ns, int *reusable)
{
	KV_UNCANCELLED;
	struct kv_submission s = { .opcode = KVPIPE_OPCODE_CANCEL, .target = id };
	struct kv_waiter w = { .kind = KV_WAIT_CANCEL, .target = id };
	int64_t deadline = kv_now();
	int state = KV_RUNNING, err = kv_enter(kv);
	bool wait = timeout_ns != KVPIPE_NOWAIT;

	if (err == 0 && wait)
		err = kv_check_timeout("cancel", &timeout_ns, KV_CALL_NS);
	if (err == 0)
		err = state_of(kv, id, false, &state);
	if (err == 0 && state == KV_RUNNING && ends_here(kv, id))
		state = KV_RELEASED;
	if (err == 0 && state == KV_RUNNING && !wait) {
		err = tell(kv, &s, id);
	} else if (err == 0 && state == KV_RUNNING) {
		struct kv_op *op = new_internal(KVPIPE_OPCODE_CANCEL);
		s.timeout_ns = within(timeout_ns);
		deadline = kv_after(deadline, timeout_ns);
		err = op == NULL ? -KVPIPE_E_QUOTA : kv_submit(kv, &s, op, &w.op);
		if (err != 0)
			return err;
		pthread_mutex_lock(&kv->lock);
		bool ended = kv_wait_until(kv, &w, deadline);
		struct kv_op *target = kv_op_find(kv, id);
		op = kv_op_find(kv, w.op);
		if (!ended)
			err = timed_out(kv, "cancel", timeout_ns);
		else if (target == NULL || target->detached)
			err = kv_err(KVPIPE_E_NOT_FOUND, "cancel: operation %llu was freed meanwhile", (unsigned long long)id);
		else if (target->state != KV_RUNNING)
			state = target->state;
		else if (op != NULL)
			err = outcome("cancel", op);
		leave(kv, w.op);
		kv_settle(kv);
		pthread_mutex_unlock(&kv->lock);
	}
	if (err == 0 && reusable != NULL)
		*reusable = state == KV_RELEASED;
	return err;
}
