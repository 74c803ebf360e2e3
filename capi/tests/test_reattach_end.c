/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that the next daemon does not come for, does not want or wants smaller, and daemons that die again and again. */
#include "restarts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Nobody comes back: errors at the deadline, and no hang. */
static void never(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t take = take_key(kv, "t", KV_SEC), offer = offer_key(kv, "o", KV_SEC), op;
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);

	fake_die(f);
	check_end(kv, take, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "the deadline of 1 s passed while the daemon was away");
	check_end(kv, offer, KVPIPE_FAILED, KVPIPE_E_EXPIRED, "the lease of 1 s passed while the daemon was away");
	op = offer_key(kv, "p", 10 * KV_SEC);
	CHECK_LATE(kvpipe_offer_extend(kv, op, &x, KV_MS), "extend: the daemon went away and was not back within 1 ms: start it again",
		   "extend: the deadline of 1 ms passed while the daemon was away: start it again");
	check_end(kv, take_key(kv, "u", KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "start it again");
	CHECK_FAILS(kvpipe_mem_unregister(kv, 1, KV_MS), KVPIPE_E_UNAVAILABLE, "went away and is not back");
	CHECK_INT(kvpipe_connected(kv), 0);
	kvpipe_close(kv); /* at once */
	fake_stop(f);
}

/* A next daemon that is there and says nothing is not one that is away: nobody is told to start another, neither when it has just come nor
 * when it has been asked in vain. */
static void silent(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	int64_t until = kv_now() + WAIT;
	kvpipe_op_t open = offer_key(kv, "o", 0), op;
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);

	await_seen(1);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	fake_pause(f, true);
	fake_return(f);
	do /* until the session has found it */
		CHECK_INT(kvpipe_mem_unregister(kv, 1, 10 * KV_MS), -KVPIPE_E_UNAVAILABLE);
	while (strstr(kvpipe_last_error(), "does not answer: is it stopped") == NULL && kv_now() < until);
	CHECK_HAS(kvpipe_last_error(), "unregister: the daemon of after the restart does not answer");
	op = take_key(kv, "t", 6 * KV_SEC); /* longer than it is asked once */
	CHECK_FAILS(kvpipe_offer_extend(kv, open, &x, KV_MS), KVPIPE_E_TIMEOUT, "extend: the daemon of after the restart does not answer");
	check_end(kv, op, KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "the daemon of after the restart does not answer");
	fake_pause(f, false);
	await_seen(2);
	CHECK_INT(kvpipe_connected(kv), 1);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A daemon that says goodbye because it stops is awaited like one that died. */
static void stopping(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t take = take_key(kv, "t", 0);

	await_seen(1);
	fake_bye(f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	while (kvpipe_connected(kv))
		;
	take_key(kv, "u", 0); /* queues while that one still fences */
	fake_hang_up(f);
	await_seen(3);
	CHECK(seen(1).e.user_data == take && strcmp(seen(2).key, "u") == 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Until the next daemon has n submissions. False: the offer's lease passed first, as this process stood still while no daemon was there. */
static bool comes_back(kvpipe_t *kv, kvpipe_op_t offer, int64_t left, int64_t lease, unsigned int n)
{
	struct kvpipe_completion c;

	while (kvpipe_wait(kv, offer, 10 * KV_MS, &c) != 0) {
		if (count_seen() >= n)
			return true;
		CHECK(kv_now() - left < WAIT);
	}
	CHECK_INT(c.reason, KVPIPE_E_EXPIRED);
	CHECK(kv_now() - left >= lease);
	return false;
}

/* What a daemon was asked for while it stopped is the next one's, however long it takes to fence: offers that only their consumers keep, and
 * extensions that nobody waits for. */
static void stopping_slowly(void)
{
	bool back = false;

	for (int tries = 0; !back; tries++) {
		CHECK(tries < 20);
		struct fake *f = first_daemon();
		kvpipe_t *kv = fake_connect(f);
		struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
		kvpipe_op_t renewed = offer_key(kv, "r", KV_SEC), open = offer_key(kv, "o", 0);

		await_seen(2);
		CHECK_INT(kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT), 0);
		await_seen(3); /* and not answered: it begins nothing any more */
		fake_bye(f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
		while (kvpipe_connected(kv))
			;
		CHECK_INT(kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT), 0);
		check_end(kv, take_key(kv, "u", 2 * KV_SEC), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, ""); /* later than the lease */
		int64_t left = kv_now();
		fake_hang_up(f);
		back = comes_back(kv, renewed, left, KV_SEC, 3 + 4);
		if (back) {
			CHECK(seen(3).e.user_data == renewed && seen(4).e.user_data == open);
			for (unsigned int i = 5; i < 7; i++)
				CHECK(seen(i).e.op == KVPIPE_OPCODE_EXTEND && seen(i).e.target == open && seen(i).flags == KVPIPE_OP_SEALED);
		}
		kvpipe_close(kv);
		fake_stop(f);
	}
}

/* A daemon that is stopping and has not ended is not one that is away: nobody is told to start another while it has the socket. */
static void stopping_is_said(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);

	fake_bye(f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_LEAVING)
		sched_yield();
	CHECK_FAILS(kvpipe_mem_unregister(kv, 1, KV_MS), KVPIPE_E_UNAVAILABLE, "unregister: the daemon is stopping, and has not ended yet: ");
	check_end(kv, take_key(kv, "t", KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "the deadline of 1 ms passed while the daemon was stopping: ");
	CHECK_FAILS(kvpipe_offer_seal(kv, offer_key(kv, "o", 0), KV_MS), KVPIPE_E_TIMEOUT, "seal: the daemon is stopping, and had not ended within 1 ms: ");
	fake_hang_up(f);
	kvpipe_close(kv);
	fake_stop(f);
}

/* So are those that were given to the library while no daemon was there, for as long as their offer is. */
static void extended_away(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	kvpipe_op_t open = offer_key(kv, "o", 0), brief = offer_key(kv, "b", KV_SEC);

	await_seen(2);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	CHECK_INT(kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT), 0);
	CHECK_INT(kvpipe_offer_extend(kv, brief, &x, KVPIPE_NOWAIT), 0);
	check_end(kv, take_key(kv, "u", 5 * KV_SEC + KV_SEC / 2), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "while the daemon was away");
	fake_return(f);
	take_key(kv, "v", 0);
	await_seen(2 + 3);
	CHECK(seen(2).e.user_data == open && strcmp(seen(4).key, "v") == 0);
	CHECK(seen(3).e.op == KVPIPE_OPCODE_EXTEND && seen(3).e.target == open && seen(3).flags == KVPIPE_OP_SEALED);
	kvpipe_close(kv);
	fake_stop(f);
}

/* They are not kept without end, and those that are kept take no room from operations that the session may still begin. */
static void extended_without_end(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	kvpipe_op_t open = offer_key(kv, "o", 0), op;
	uint32_t kept = 0;

	await_seen(1);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	while (kept <= KV_MAX_RECORDS && kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT) == 0)
		kept++;
	CHECK_INT(kept, KV_MAX_RECORDS);
	CHECK_FAILS(kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT), KVPIPE_E_QUOTA, "65536 extensions and the like are not answered yet, the limit is 65536");
	CHECK_FAILS(kvpipe_offer_seal(kv, open, KV_SEC), KVPIPE_E_QUOTA, "wait for the daemon, or withdraw offers");
	op = offer_key(kv, "p", 0);
	CHECK_INT(kvpipe_cancel(kv, op, KVPIPE_NOWAIT, NULL), 0);
	op = offer_key(kv, "q", 0);
	CHECK_FAILS(kvpipe_offer_extend(kv, op, &x, KVPIPE_NOWAIT), KVPIPE_E_QUOTA, "or withdraw offers");
	CHECK_INT(kvpipe_offer_withdraw(kv, open, 0, NULL), 0);
	CHECK_INT(kvpipe_offer_extend(kv, op, &x, KVPIPE_NOWAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Nor are those kept of an offer that was withdrawn while its daemon was stopping. */
static void extended_and_withdrawn(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	kvpipe_op_t open = offer_key(kv, "o", 0);

	await_seen(1);
	fake_bye(f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_LEAVING)
		sched_yield();
	while (kvpipe_offer_extend(kv, open, &x, KVPIPE_NOWAIT) == 0)
		;
	CHECK_INT(kvpipe_offer_withdraw(kv, open, KVPIPE_NOWAIT, NULL), 0);
	fake_die(f);
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_AWAY)
		sched_yield();
	CHECK_INT(kvpipe_offer_extend(kv, offer_key(kv, "q", 0), &x, KVPIPE_NOWAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Of one whose caller was told that it did not come in time no later daemon hears: the blocks are others' by then. */
static void extended_in_vain(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_extend_opts x = KVPIPE_OPTS(kvpipe_extend_opts, .flags = KVPIPE_OP_SEALED);
	kvpipe_op_t open = offer_key(kv, "o", 0);

	await_seen(1);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	CHECK_LATE(kvpipe_offer_extend(kv, open, &x, 50 * KV_MS), "went away and was not back within 50 ms: start it again",
		   "the deadline of 50 ms passed while the daemon was away: start it again");
	CHECK_LATE(kvpipe_offer_seal(kv, open, 50 * KV_MS), "went away and was not back within 50 ms: start it again",
		   "the deadline of 50 ms passed while the daemon was away: start it again");
	take_key(kv, "v", 0);
	fake_return(f);
	await_seen(1 + 2);
	CHECK(seen(1).e.user_data == open && strcmp(seen(2).key, "v") == 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A daemon of before that does not say what it granted: whatever it has seen counts as granted. */
static void mute(void)
{
	struct fake_conf conf = by_hand;

	conf.mute = true;
	fake_stop(first_daemon());
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_op_t a = take_key(kv, "a", 0);
	await_seen(1);
	fake_pause(f, true);
	kvpipe_op_t b = take_key(kv, "b", 0); /* stays in the queue */
	fake_die(f);
	check_end(kv, a, KVPIPE_FAILED, KVPIPE_E_RESTARTED, "");
	fake_pause(f, false);
	fake_return(f);
	await_seen(2);
	CHECK_INT(seen(1).e.user_data, b);
	kvpipe_close(kv);
	fake_stop(f);
}

/* What is over for good: another instance has taken the place, the secret is wrong, the versions do not fit. */
static void refused(void)
{
	static const uint32_t reasons[] = { KVPIPE_E_CLOSED, KVPIPE_E_DENIED, KVPIPE_E_INCOMPATIBLE };

	for (size_t i = 0; i < KV_COUNT(reasons); i++) {
		struct fake *f = first_daemon();
		kvpipe_t *kv = fake_connect(f);
		kvpipe_op_t take = take_key(kv, "t", 0), open = offer_key(kv, "o", 0), op;
		struct kvpipe_offer_opts o = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
		struct kvpipe_completion c;

		await_seen(2);
		CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
		CHECK_INT(kvpipe_progress(kv, 1), 0);
		fake_refuse(f, reasons[i], "not you");
		fake_hang_up(f);
		check_end(kv, take, KVPIPE_FAILED, reasons[i], "refused the session: not you");
		CHECK_FAILS(kvpipe_offer(kv, &o, &op), reasons[i], "close the session and connect again");
		CHECK_FAILS(kvpipe_offer_seal(kv, open, 0), reasons[i], "close the session and connect again");
		CHECK_INT(kvpipe_wait(kv, open, 0, NULL), 0);
		CHECK_FAILS(kvpipe_poll(kv, &c, 1), reasons[i], "close the session and connect again");
		CHECK_FAILS(kvpipe_progress(kv, 1), reasons[i], "close the session and connect again");
		kvpipe_close(kv);
		fake_stop(f);
	}
	/* A daemon that refuses for no reason has no end of it: the session is over, and says so. */
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct kvpipe_completion c;
	void *addr;
	kvpipe_region_t region;
	fake_refuse_for_nothing(f);
	fake_hang_up(f);
	while (kvpipe_connected(kv)) /* else the request is still answered */
		sched_yield();
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), KVPIPE_E_INVALID, "close the session and connect again");
	CHECK_FAILS(kvpipe_poll(kv, &c, 1), KVPIPE_E_INVALID, "close the session and connect again");
	kvpipe_close(kv);
	fake_stop(f);
	/* It is asked again while it says that it may do so. */
	f = first_daemon();
	kv = fake_connect(f);
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	take_key(kv, "t", 0);
	await_seen(1);
	fake_refuse(f, KVPIPE_E_BUSY, "not yet");
	fake_hang_up(f);
	fake_await_requests(f, KVPIPE_CTL_HELLO, 4);
	/* Who does not wait for that long is told what it says, not to start it. */
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, KV_MS), KVPIPE_E_UNAVAILABLE, "does not take the session yet: not yet");
	check_end(kv, take_key(kv, "u", KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "does not take the session yet: not yet");
	check_end(kv, offer_key(kv, "o", KV_MS), KVPIPE_FAILED, KVPIPE_E_EXPIRED, "does not take the session yet: not yet");
	fake_refuse(f, 0, NULL);
	await_seen(2);
	kvpipe_close(kv);
	fake_stop(f);
}

static void await_refusal(kvpipe_t *kv)
{
	bool refused = false;

	while (!refused) {
		sched_yield();
		pthread_mutex_lock(&kv->lock);
		refused = kv->refused != 0;
		pthread_mutex_unlock(&kv->lock);
	}
}

/* Who does not get to a daemon hears what is in the way, and not to start one. */
static void unreached(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct rlimit files, none;

	fake_die(f);
	while (kvpipe_connected(kv))
		;
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = 3; /* those have their use; of others some may still be closed, and would make room below a higher limit */
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	await_refusal(kv);
	CHECK_FAILS(kvpipe_mem_unregister(kv, 1, KV_MS), KVPIPE_E_UNAVAILABLE, "ulimit -n");
	check_end(kv, take_key(kv, "t", KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "does not reach the daemon of after the restart yet: ");
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
	take_key(kv, "u", 0);
	fake_return(f);
	await_seen(1);
	kvpipe_close(kv);
	fake_stop(f);
}

/* The end of a session that nobody asks anything of is heard, too, at every look, and those who listen for edges hear it beside what
 * nobody has collected. */
static void heard(void)
{
	for (int left = 0; left < 2; left++) {
		struct fake *f = first_daemon();
		kvpipe_t *kv = fake_connect(f);
		struct pollfd ready = { .fd = kvpipe_fd(kv), .events = POLLIN };
		struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
		struct kvpipe_completion c;
		int edges = epoll_create1(EPOLL_CLOEXEC);

		CHECK(edges >= 0 && epoll_ctl(edges, EPOLL_CTL_ADD, ready.fd, &ev) == 0);
		if (left != 0) {
			kvpipe_op_t take = take_key(kv, "t", 0);
			await_seen(1);
			fake_end(f, take, KVPIPE_DONE, 0, 0);
			CHECK_INT(epoll_wait(edges, &ev, 1, 60000), 1);
			CHECK_INT(kvpipe_op_released(kv, take), 1); /* it is off the ring, and not collected */
			while (epoll_wait(edges, &ev, 1, 0) > 0)
				;
		}
		CHECK_INT(poll(&ready, 1, 0), left);
		fake_refuse(f, KVPIPE_E_CLOSED, "not you");
		fake_hang_up(f);
		CHECK_INT(epoll_wait(edges, &ev, 1, 60000), 1);
		CHECK_INT(poll(&ready, 1, 0), 1);
		if (left != 0)
			CHECK_INT(kvpipe_poll(kv, &c, 1), 1);
		for (int i = 0; i < 2; i++) {
			CHECK_INT(poll(&ready, 1, 0), 1);
			CHECK_FAILS(kvpipe_poll(kv, &c, 1), KVPIPE_E_CLOSED, "not you: close the session and connect again");
		}
		CHECK_INT(epoll_wait(edges, &ev, 1, 0), 0);
		CHECK_INT(kvpipe_fd(kv), ready.fd);
		close(edges);
		kvpipe_close(kv);
		fake_stop(f);
	}
}

/* Rings that cannot be watched are not taken: the session stays as it was, and asks again. */
static void unwatched(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	struct pollfd ready = { .fd = kvpipe_fd(kv), .events = POLLIN };
	kvpipe_op_t take = take_key(kv, "t", 0);
	struct kvpipe_completion c;

	await_seen(1);
	fake_die(f);
	fake_dull(f, true);
	fake_return(f);
	fake_await_sessions(f, 3); /* the second was given up */
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0); /* with what it said */
	check_end(kv, take_key(kv, "u", KV_MS), KVPIPE_FAILED, KVPIPE_E_TIMEOUT, "cannot watch the new eventfd");
	fake_dull(f, false);
	await_seen(2);
	CHECK_INT(seen(1).e.user_data, take);
	fake_end(f, take, KVPIPE_DONE, 0, 0);
	CHECK_INT(poll(&ready, 1, 60000), 1); /* what could be watched is */
	check_end(kv, take, KVPIPE_DONE, 0, "");
	kvpipe_close(kv);
	fake_stop(f);
}

static void await_closing(kvpipe_t *kv)
{
	bool closing = false;

	while (!closing) {
		pthread_mutex_lock(&kv->lock);
		closing = kv->closing;
		pthread_mutex_unlock(&kv->lock);
		sched_yield();
	}
}

/* From here on the helper begins nothing more. */
static void await_stopping(kvpipe_t *kv)
{
	bool stop = false;

	while (!stop) {
		pthread_mutex_lock(&kv->lock);
		stop = kv->helper.stop;
		pthread_mutex_unlock(&kv->lock);
		sched_yield();
	}
}

static void *let_go_at_close(void *arg)
{
	await_closing(arg);
	let_helper_go(arg);
	return NULL;
}

/* A session that is closed when it has told the next daemon of its memory, and not taken it yet: that is told of nothing more, and has
 * fenced when the close returns. */
static void closed_on_the_way(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region;
	pthread_t t;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	take_key(kv, "t", 0);
	await_seen(1);
	fake_die(f);
	while (kvpipe_connected(kv))
		;
	hold_helper(kv);
	fake_return(f);
	await_held(kv);
	CHECK(pthread_create(&t, NULL, let_go_at_close, kv) == 0);
	kvpipe_close(kv);
	CHECK(fake_client_gone(f));
	pthread_join(t, NULL);
	pthread_mutex_lock(&world.lock);
	CHECK(world.n == 1 && world.regions == 2);
	pthread_mutex_unlock(&world.lock);
	fake_await_requests(f, KVPIPE_CTL_BYE, 1);
	fake_stop(f);
}

static unsigned int told; /* regions, of all sessions */

/* Has room for one region less than the daemon before. */
static bool narrow(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)body;
	(void)fd;
	if (head->type != KVPIPE_CTL_REGISTER || ++told <= 3)
		return false;
	fake_ack(f, head->seq, KVPIPE_E_QUOTA, 0, "8192 bytes, the limit is 4096");
	return true;
}

static bool fenced;

static void *fence_at_close(void *arg)
{
	struct fake *f = arg;
	kvpipe_t *const *kv = fake_arg(f);

	await_closing(*kv);
	await_stopping(*kv);
	fake_await_reader(f); /* nobody but who waits for the fence */
	__atomic_store_n(&fenced, true, __ATOMIC_RELAXED);
	fake_hang_up(f);
	return NULL;
}

static kvpipe_t *connect_with_two(struct fake *f, kvpipe_region_t *last)
{
	kvpipe_t *kv = fake_connect(f);
	void *addr;

	told = 0;
	for (int i = 0; i < 2; i++)
		CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, last), 0);
	return kv;
}

/* Comes back, is told of memory, and has not fenced when its client has left it. */
static void returns_and_fences(struct fake *f)
{
	fake_fence_long(f);
	fake_die(f);
	fake_return(f);
	fake_await_sessions(f, 2);
	fake_await_hangup(f);
}

/* The session's daemon of after a restart was told of its memory, does not take it, and fences. */
static struct fake *fencing_as(bool (*request)(struct fake *, const struct kvpipe_ctl *, const void *, int), kvpipe_t **kv,
			       kvpipe_region_t *region)
{
	struct fake_conf conf = { .request = request, .arg = kv };
	struct fake *f = fake_start(&conf);

	*kv = connect_with_two(f, region);
	returns_and_fences(f);
	return f;
}

static struct fake *fencing(kvpipe_t **kv, kvpipe_region_t *region)
{
	return fencing_as(narrow, kv, region);
}

/* It is asked again once it has fenced, and who closes the session in between waits for that fence. */
static void closed_between_attempts(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing(&kv, &region);
	pthread_t t;

	CHECK(pthread_create(&t, NULL, fence_at_close, f) == 0);
	kvpipe_close(kv);
	CHECK(__atomic_load_n(&fenced, __ATOMIC_RELAXED));
	pthread_join(t, NULL);
	fake_stop(f);
}

/* So does who wants memory back, and hears what the daemon said. */
static void taken_back_between_attempts(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing(&kv, &region);

	CHECK_FAILS(kvpipe_mem_invalidate(kv, region, 50 * KV_MS), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, 50 * KV_MS), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	pthread_mutex_lock(&kv->lock);
	CHECK_INT(kv->refused, KVPIPE_E_QUOTA);
	pthread_mutex_unlock(&kv->lock);
	fake_hang_up(f);
	CHECK_INT(kvpipe_mem_unregister(kv, region, WAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* So it does however long the fence takes: its own end of file says that a daemon has fenced, and nothing else does. */
static void taken_back_late(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing(&kv, &region);

	CHECK_FAILS(kvpipe_mem_invalidate(kv, region, KV_CALL_NS + KV_SEC), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, KV_MS), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	fake_hang_up(f);
	CHECK_INT(kvpipe_mem_unregister(kv, region, WAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Another daemon takes the session while that one still fences, and memory waits for both. */
static void taken_over_meanwhile(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing(&kv, &region), *other = fake_start(NULL);

	CHECK_INT(rename(fake_path(other), fake_path(f)), 0);
	check_end(kv, take_key(kv, "t", WAIT), KVPIPE_DONE, 0, "");
	CHECK_INT(fake_sessions(other), 1);
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, 50 * KV_MS), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	fake_hang_up(f);
	CHECK_INT(kvpipe_mem_unregister(kv, region, WAIT), 0);
	kvpipe_close(kv);
	fake_stop(other);
	fake_stop(f);
}

struct giving {
	kvpipe_t *kv;
	kvpipe_region_t region;
};

static void *give_back(void *arg)
{
	const struct giving *g = arg;

	CHECK_INT(kvpipe_mem_unregister(g->kv, g->region, WAIT), 0);
	CHECK(__atomic_load_n(&fenced, __ATOMIC_RELAXED));
	return NULL;
}

/* Stands still when it is to give memory back, and has room for less after its restart. */
static bool grudge(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	return head->type == KVPIPE_CTL_UNREGISTER || narrow(f, head, body, fd);
}

/* Who has asked before either of them came waits for both. */
static void taken_back_before(void)
{
	struct giving g = { .kv = NULL };
	struct fake_conf conf = { .request = grudge };
	struct fake *f = fake_start(&conf), *other = fake_start(NULL);
	pthread_t t;

	__atomic_store_n(&fenced, false, __ATOMIC_RELAXED);
	g.kv = connect_with_two(f, &g.region);
	CHECK(pthread_create(&t, NULL, give_back, &g) == 0);
	fake_await_requests(f, KVPIPE_CTL_UNREGISTER, 1);
	returns_and_fences(f);
	CHECK_INT(rename(fake_path(other), fake_path(f)), 0);
	fake_await_requests(other, KVPIPE_CTL_UNREGISTER, 1);
	for (int i = 0; i < 20; i++) /* it has answered long ago */
		check_end(g.kv, take_key(g.kv, "t", WAIT), KVPIPE_DONE, 0, "");
	__atomic_store_n(&fenced, true, __ATOMIC_RELAXED);
	fake_hang_up(f);
	pthread_join(t, NULL);
	kvpipe_close(g.kv);
	fake_stop(other);
	fake_stop(f);
}

/* Refuses the session for good once it knows one region. */
static bool dismiss(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)body;
	(void)fd;
	if (head->type != KVPIPE_CTL_REGISTER || ++told <= 3)
		return false;
	fake_ack(f, head->seq, KVPIPE_E_CLOSED, 0, "not you");
	return true;
}

/* A session that is over for good gives nothing back either before the daemon that ended it has fenced. */
static void dismissed_late(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing_as(dismiss, &kv, &region);
	struct kvpipe_completion c;

	CHECK_FAILS(kvpipe_mem_unregister(kv, region, KV_CALL_NS + KV_SEC), KVPIPE_E_TIMEOUT, "has not fenced it yet");
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0);
	fake_hang_up(f);
	CHECK_INT(kvpipe_mem_unregister(kv, region, WAIT), 0);
	CHECK_FAILS(kvpipe_poll(kv, &c, 1), KVPIPE_E_CLOSED, "refused the session: not you");
	kvpipe_close(kv);
	fake_stop(f);
}

/* Who closes it waits no longer than for any daemon. */
static void dismissed_and_closed(void)
{
	kvpipe_t *kv;
	kvpipe_region_t region;
	struct fake *f = fencing_as(dismiss, &kv, &region);

	fake_await_requests(f, KVPIPE_CTL_BYE, 1); /* its last word; now it waits for the fence */
	kv_close(kv, kv_now() + 50 * KV_MS);
	fake_hang_up(f);
	fake_stop(f);
}

static void closed_after(void (*what)(struct fake *f, kvpipe_t *kv), int state)
{
	kvpipe_t *kv;
	struct fake_conf conf = { .arg = &kv };
	struct fake *f = fake_start(&conf);
	pthread_t t;

	kv = fake_connect(f);
	fake_fence_long(f);
	what(f, kv);
	while (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != state)
		poll(NULL, 0, 1);
	__atomic_store_n(&fenced, false, __ATOMIC_RELAXED);
	CHECK(pthread_create(&t, NULL, fence_at_close, f) == 0);
	kvpipe_close(kv);
	CHECK(__atomic_load_n(&fenced, __ATOMIC_RELAXED));
	pthread_join(t, NULL);
	fake_stop(f);
}

static void says_goodbye(struct fake *f, kvpipe_t *kv)
{
	(void)kv;
	fake_bye(f, KVPIPE_E_CLOSED, "replaced");
}

static void stops(struct fake *f, kvpipe_t *kv)
{
	(void)kv;
	fake_bye(f, KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
}

static void breaks_the_rules(struct fake *f, kvpipe_t *kv)
{
	struct kvpipe_completion c;

	fake_set_cq_tail(f, 100000);
	CHECK_INT(kvpipe_poll(kv, &c, 1), 0); /* it has nothing to tell before the fence */
}

/* A daemon that has said goodbye, or broken the rules, may still be fencing: who closes the session waits for that. */
static void closed_before_the_fence(void)
{
	closed_after(says_goodbye, KV_BYE);
	closed_after(stops, KV_LEAVING);
	closed_after(breaks_the_rules, KV_BROKEN);
}

/* The next daemon has a smaller quota: the session gives up what is too much for it, and comes back without. */
static void smaller_quota(void)
{
	struct fake *f = first_daemon();
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region[2];
	kvpipe_op_t take = take_key(kv, "t", 0);
	void *addr[2];

	for (int i = 0; i < 2; i++)
		CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr[i], &region[i]), 0);
	await_seen(1);
	int fd = kv->regions->fd;
	fake_refuse(f, KVPIPE_E_QUOTA, "8192 bytes, the limit is 4096");
	fake_hang_up(f);
	fake_await_requests(f, KVPIPE_CTL_HELLO, 4);
	CHECK_FAILS(kvpipe_mem_unregister(kv, region[0], WAIT), KVPIPE_E_BUSY, "withdraw or cancel them first: ");
	CHECK_INT(kvpipe_cancel(kv, take, WAIT, NULL), 0);
	CHECK_INT(kvpipe_mem_unregister(kv, region[0], WAIT), 0);
	CHECK_FAILS(kvpipe_mem_unregister(kv, region[0], KV_MS), KVPIPE_E_UNAVAILABLE, "the limit is 4096");
	CHECK(msync(addr[0], 4096, MS_ASYNC) != 0); /* it is not mapped any more */
	for (int i = 0; i < 2000 && fcntl(fd, F_GET_SEALS) >= 0; i++)
		poll(NULL, 0, 5);
	CHECK(fcntl(fd, F_GET_SEALS) < 0); /* nor open, though no daemon takes the session: the system has its pages again */
	pthread_mutex_lock(&world.lock);
	world.regions = 0;
	pthread_mutex_unlock(&world.lock);
	fake_refuse(f, 0, NULL);
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr[0], &region[0]), 0);
	pthread_mutex_lock(&world.lock);
	CHECK_INT(world.regions, 1 + 1);
	pthread_mutex_unlock(&world.lock);
	*(volatile char *)addr[1] = 1;
	CHECK_INT(kvpipe_mem_unregister(kv, region[1], WAIT), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static kvpipe_region_t given_up;

/* The session gives a region up as soon as this daemon was told of the one before it, and is told of no memory that is its owner's again. */
static bool interrupted(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	kvpipe_t *const *kv = fake_arg(f);
	const struct kvpipe_register *r = body;

	if (head->type != KVPIPE_CTL_REGISTER || *kv == NULL)
		return false;
	if ((r->flags & KVPIPE_REGISTER_INVALID) == 0)
		told++;
	else if (given_up != 0)
		CHECK_INT(kvpipe_mem_unregister(*kv, given_up, WAIT), 0);
	given_up = 0;
	(void)fd;
	return false;
}

static void given_up_on_the_way(void)
{
	kvpipe_t *kv = NULL;
	struct fake_conf conf = { .request = interrupted, .arg = &kv };
	struct fake *f = fake_start(&conf);
	kvpipe_t *session = fake_connect(f);
	kvpipe_region_t asleep;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(session, 4096, KVPIPE_MEM_NO_HUGE, &addr, &asleep), 0);
	CHECK_INT(kvpipe_mem_alloc(session, 4096, KVPIPE_MEM_NO_HUGE, &addr, &given_up), 0);
	CHECK_INT(kvpipe_mem_invalidate(session, asleep, WAIT), 0);
	told = 0;
	kv = session;
	fake_refuse(f, KVPIPE_E_QUOTA, "8192 bytes, the limit is 4096");
	fake_hang_up(f);
	fake_await_requests(f, KVPIPE_CTL_HELLO, 3);
	fake_refuse(f, 0, NULL);
	fake_await_sessions(f, 3);
	CHECK_INT(given_up, 0);
	CHECK_INT(told, 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Threads that submit, wait, poll and register while the daemon dies again and again. Each operation ends once. */
#define LONG (600 * KV_SEC) /* an offer may be kept by one daemon after the other */

static kvpipe_t *stormy;
static bool storm_over;

static void *submitter(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct kvpipe_completion c;

	while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
		kvpipe_op_t op = rand_r(&seed) % 2 ? take_key(stormy, "t", LONG) : offer_key(stormy, "o", LONG);
		CHECK_INT(kvpipe_wait(stormy, op, LONG, &c), 0);
		CHECK(c.op == op && (c.status == KVPIPE_DONE || c.reason == KVPIPE_E_RESTARTED));
		CHECK_INT(kvpipe_wait_released(stormy, op, WAIT), 0);
		kvpipe_op_free(stormy, op);
		CHECK_INT(kvpipe_progress(stormy, (uint64_t)op), 0);
	}
	return NULL;
}

static void *registrar(void *arg)
{
	kvpipe_region_t region;
	void *addr;

	(void)arg;
	while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
		CHECK_INT(kvpipe_mem_alloc(stormy, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
		CHECK_INT(kvpipe_mem_unregister(stormy, region, WAIT), 0);
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct kvpipe_completion c[4];

	(void)arg;
	CHECK(kvpipe_fd(stormy) >= 0);
	while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
		CHECK(kvpipe_poll(stormy, c, 4) >= 0);
		(void)kvpipe_connected(stormy);
		(void)kvpipe_advertise(stormy);
	}
	return NULL;
}

/* Each daemon keeps one operation until it dies. */
static void end_or_not(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	static unsigned int kept; /* by which daemon */

	(void)record;
	if (kept == fake_sessions(f) || e->user_data % 5 != 0)
		fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
	else if ((kept = fake_sessions(f)) % 2 == 0 && e->op == KVPIPE_OPCODE_TAKE && e->layer_slot != UINT32_MAX)
		fake_grant(f, e->layer_slot, e->user_data);
}

static void storm(void)
{
	struct fake_conf conf = { .submission = end_or_not, .layers = 64 };
	struct fake *f = fake_start(&conf);
	pthread_t t[5];

	stormy = fake_connect(f);
	storm_over = false;
	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, submitter, (void *)(i + 1)) == 0);
	CHECK(pthread_create(&t[3], NULL, registrar, NULL) == 0);
	CHECK(pthread_create(&t[4], NULL, poller, NULL) == 0);
	for (unsigned int i = 1; i < 40; i++) {
		fake_await_sessions(f, i);
		fake_await_submissions(f, i * 50);
		if (i % 2) {
			fake_die(f);
			fake_return(f);
		} else {
			fake_hang_up(f);
		}
		fake_await_sessions(f, i + 1);
	}
	fake_set_submission(f, NULL); /* from here on everything ends */
	__atomic_store_n(&storm_over, true, __ATOMIC_RELAXED);
	fake_hang_up(f);
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	kvpipe_close(stormy);
	fake_stop(f);
}

/* The RELEASED that is owed names the operation as its end did, whether the daemon is awaited or the session is over, and after its record was freed. */
static void released_by_the_daemons_end(void)
{
	for (int way = 0; way < 4; way++) {
		struct fake *f = first_daemon();
		kvpipe_t *kv = fake_connect(f);
		kvpipe_op_t op = take_key(kv, "t", 0);
		struct kvpipe_completion c;
		int got = 0;
		bool freed = way % 2 == 1, over = way / 2 == 1;

		await_seen(1);
		fake_end(f, op, KVPIPE_FAILED, KVPIPE_E_BUSY, KVPIPE_C_MORE);
		CHECK_INT(kvpipe_wait(kv, op, WAIT, &c), 0);
		CHECK_INT(c.op_id, op + 1000);
		if (freed)
			kvpipe_op_free(kv, op);
		if (over)
			fake_bye(f, KVPIPE_E_CLOSED, "replaced");
		fake_die(f);
		while (got == 0)
			got = kvpipe_poll(kv, &c, 1);
		CHECK_INT(got, 1);
		CHECK_INT(c.status, KVPIPE_RELEASED);
		CHECK_INT(c.op_id, op + 1000);
		CHECK_INT(c.op, freed ? 0 : op);
		kvpipe_close(kv);
		fake_stop(f);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(never), TEST(silent), TEST(stopping), TEST(stopping_slowly), TEST(stopping_is_said), TEST(extended_away), TEST(extended_without_end), TEST(extended_and_withdrawn), TEST(extended_in_vain), TEST(mute), TEST(refused), TEST(unreached), TEST(heard), TEST(unwatched),
		TEST(closed_on_the_way), TEST(closed_between_attempts),
		TEST(taken_back_between_attempts), TEST(taken_back_late), TEST(taken_over_meanwhile), TEST(taken_back_before), TEST(dismissed_late), TEST(dismissed_and_closed), TEST(closed_before_the_fence),
		TEST(smaller_quota), TEST(given_up_on_the_way), TEST(released_by_the_daemons_end), TEST(storm),
	};
	return RUN(tests);
}
