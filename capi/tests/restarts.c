/* SPDX-License-Identifier: Apache-2.0 */
#include "restarts.h"

#include <sched.h>
#include <time.h>

struct world world = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void note(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	struct kvpipe_rec_offer offer = { 0 };
	struct kvpipe_rec_take take = { 0 };
	struct seen s = { .e = *e };
	bool small = e->op == KVPIPE_OPCODE_EXTEND || e->op == KVPIPE_OPCODE_SEAL;

	if (e->op == KVPIPE_OPCODE_OFFER) {
		memcpy(&offer, record, sizeof(offer));
		memcpy(s.key, record + sizeof(offer), offer.key_len < 7 ? offer.key_len : 7);
		s.flags = offer.flags;
	} else if (e->op == KVPIPE_OPCODE_TAKE) {
		memcpy(&take, record, sizeof(take));
		memcpy(s.key, record + sizeof(take), take.key_len < 7 ? take.key_len : 7);
		s.flags = take.flags;
	} else if (e->op == KVPIPE_OPCODE_EXTEND) {
		memcpy(&s.flags, record, sizeof(s.flags));
	}
	pthread_mutex_lock(&world.lock);
	s.life = fake_sessions(f);
	CHECK(world.n < SEEN);
	world.all[world.n++] = s;
	pthread_cond_broadcast(&world.changed);
	bool end = world.done || (world.accept && small);
	pthread_mutex_unlock(&world.lock);
	if (end)
		fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

static bool asked(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct kvpipe_layout_msg m;
	struct kvpipe_view v;

	(void)fd;
	if (head->type == KVPIPE_CTL_REGISTER) {
		pthread_mutex_lock(&world.lock);
		uint64_t id = 100 * fake_sessions(f) + ++world.regions;
		pthread_mutex_unlock(&world.lock);
		fake_ack(f, head->seq, 0, id, NULL);
		return true;
	}
	if (head->type == KVPIPE_CTL_LAYOUT) {
		memcpy(&m, body, sizeof(m));
		memcpy(&v, (const uint8_t *)body + sizeof(m), sizeof(v));
		pthread_mutex_lock(&world.lock);
		world.views += m.nviews;
		world.view_region = v.region;
		pthread_mutex_unlock(&world.lock);
	}
	return false;
}

struct fake_conf by_hand = { .submission = note, .request = asked, .layers = 64 };

struct fake *first_daemon(void)
{
	pthread_mutex_lock(&world.lock);
	world.n = world.views = world.regions = 0;
	world.view_region = 0;
	world.done = world.accept = false;
	pthread_mutex_unlock(&world.lock);
	return fake_start(&by_hand);
}

void await_seen(unsigned int n)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&world.lock);
	while (world.n < n) {
		if (pthread_cond_timedwait(&world.changed, &world.lock, &until) != 0)
			FAIL("%u of %u submissions came", world.n, n);
	}
	pthread_mutex_unlock(&world.lock);
}

unsigned int count_seen(void)
{
	pthread_mutex_lock(&world.lock);
	unsigned int n = world.n;
	pthread_mutex_unlock(&world.lock);
	return n;
}

struct seen seen(unsigned int i)
{
	pthread_mutex_lock(&world.lock);
	CHECK(i < world.n);
	struct seen s = world.all[i];
	pthread_mutex_unlock(&world.lock);
	return s;
}

kvpipe_op_t take_key(kvpipe_t *kv, const char *key, int64_t timeout_ns)
{
	const uint32_t ids[] = { 3, 5 };
	const struct kvpipe_blocks b = { .group = 2, .ntokens = 2, .count = 2, .ids = ids };
	struct kvpipe_take_opts o =
		KVPIPE_OPTS(kvpipe_take_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN, .token_len = 16,
			    .blocks = &b, .nblocks = 1, .tag = 6, .timeout_ns = timeout_ns);
	kvpipe_op_t op;

	int err;
	do /* the fake daemon may get no processor for as long as a submission waits for room */
		err = kvpipe_take(kv, &o, &op);
	while (err == -KVPIPE_E_BUSY);
	CHECK_INT(err, 0);
	return op;
}

kvpipe_op_t offer_key(kvpipe_t *kv, const char *key, int64_t lease_ns)
{
	const uint32_t ids[] = { 1, 2 };
	const struct kvpipe_blocks b = { .group = 2, .ntokens = 2, .count = 2, .ids = ids };
	struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = key, .key_len = (uint32_t)strlen(key), .token = TOKEN,
						 .token_len = 16, .blocks = &b, .nblocks = 1, .lease_ns = lease_ns);
	kvpipe_op_t op;

	int err;
	do
		err = kvpipe_offer(kv, &o, &op);
	while (err == -KVPIPE_E_BUSY);
	CHECK_INT(err, 0);
	return op;
}

void check_end(kvpipe_t *kv, kvpipe_op_t op, uint32_t status, uint32_t reason, const char *words)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
	CHECK_INT(c.status, status);
	CHECK_INT(c.reason, reason);
	CHECK_INT(c.flags, 0);
	CHECK_HAS(c.message, words);
	CHECK_INT(kvpipe_op_released(kv, op), 1);
}

/* Stands for a thread that sleeps on the old daemon's bell, and is not awake yet. */
static struct kv_waiter sleeper;

void hold_helper(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	kv->sleeper = &sleeper;
	pthread_mutex_unlock(&kv->lock);
}

void await_held(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	while (!kv->swapping) {
		pthread_mutex_unlock(&kv->lock);
		sched_yield();
		pthread_mutex_lock(&kv->lock);
	}
	pthread_mutex_unlock(&kv->lock);
}

void let_helper_go(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	kv->sleeper = NULL;
	pthread_cond_broadcast(&kv->back);
	pthread_mutex_unlock(&kv->lock);
}

void grant_last(struct fake *f)
{
	struct kvpipe_sqe e = fake_last(f);

	CHECK(e.op == KVPIPE_OPCODE_TAKE && e.layer_slot != UINT32_MAX);
	fake_grant(f, e.layer_slot, e.user_data);
}
