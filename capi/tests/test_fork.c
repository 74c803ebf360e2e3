/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child has the parent's handles and may not use them; the parent does not notice. */
#include "check.h"
#include "fakedaemon.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef"

static struct fake *f;
static kvpipe_t *kv;
static kvpipe_op_t op;
static void *addr;
static kvpipe_region_t region;
static uint8_t page[4096]; /* that nobody adopts */

static bool mapped(const void *p)
{
	return msync((void *)((uintptr_t)p & ~4095ul), 4096, MS_ASYNC) == 0;
}

static void in_child(void)
{
	struct kvpipe_offer_opts offer = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	struct kvpipe_take_opts take = KVPIPE_OPTS(kvpipe_take_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	struct kvpipe_key_opts key = KVPIPE_OPTS(kvpipe_key_opts, .key = "k", .key_len = 1, .token = TOKEN, .token_len = 16);
	struct kvpipe_extend_opts extend = KVPIPE_OPTS(kvpipe_extend_opts, .nblocks = 0);
	struct kvpipe_view view = { .layer = 1 };
	struct kvpipe_probe probe = { .sz = sizeof(probe) };
	struct kvpipe_adopt_opts adopt = KVPIPE_OPTS(kvpipe_adopt_opts, .addr = page, .nbytes = sizeof(page));
	struct kvpipe_pipe_opts pipe_opts = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_RECV);
	struct kvpipe_lookup_opts lookup_opts = KVPIPE_OPTS(kvpipe_lookup_opts, .name = "l");
	struct kvpipe_completion c;
	kvpipe_pipe_t *p;
	kvpipe_lookup_t *l;
	uint8_t token[32];
	uint32_t len = sizeof(token);
	kvpipe_op_t id;
	int fd = kv->ctl.fd;
	void *own[] = { kv, kv->helper.body, kv->regions }; /* copies that the fork made */

	CHECK(!mapped(addr) && !mapped(kv->rings.c) && !mapped(kv->rings.d));
#define CLOSED(call) CHECK_FAILS(call, KVPIPE_E_CLOSED, "belongs to the parent process: connect again after fork()")
	CLOSED(kvpipe_fd(kv));
	CLOSED(kvpipe_poll(kv, &c, 1));
	CLOSED(kvpipe_wait(kv, op, 0, &c));
	CLOSED(kvpipe_wait_released(kv, op, 0));
	CLOSED(kvpipe_wait_layer(kv, op, 0, 0));
	CLOSED(kvpipe_op_released(kv, op));
	CLOSED(kvpipe_offer(kv, &offer, &id));
	CLOSED(kvpipe_take(kv, &take, &id));
	CLOSED(kvpipe_watch(kv, &key, &id));
	CLOSED(kvpipe_drop(kv, &key, &id));
	CLOSED(kvpipe_offer_extend(kv, op, &extend, 0));
	CLOSED(kvpipe_offer_seal(kv, op, 0));
	CLOSED(kvpipe_offer_withdraw(kv, op, 0, NULL));
	CLOSED(kvpipe_offer_token(kv, op, token, &len));
	CLOSED(kvpipe_cancel(kv, op, 0, NULL));
	CLOSED(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region));
	CLOSED(kvpipe_mem_register_fd(kv, 0, 4096, 0, &region));
	CLOSED(kvpipe_mem_adopt(kv, &adopt, &region));
	CLOSED(kvpipe_mem_invalidate(kv, region, 0));
	CLOSED(kvpipe_mem_revalidate(kv, region, 0));
	CLOSED(kvpipe_mem_unregister(kv, region, 0));
	CLOSED(kvpipe_set_layout(kv, &view, 1, NULL, 0));
	CLOSED(kvpipe_progress(kv, 5));
	CLOSED(kvpipe_probe(kv, &probe));
	CLOSED(kvpipe_pipe_open(kv, &pipe_opts, &p));
	CLOSED(kvpipe_lookup_open(kv, &lookup_opts, &l));
	CHECK_INT(kvpipe_connected(kv), 0);
	CHECK_INT(strcmp(kvpipe_node(kv), ""), 0);
	CHECK_INT(strcmp(kvpipe_instance(kv), ""), 0);
	CHECK_INT(strcmp(kvpipe_advertise(kv), ""), 0);
	kvpipe_op_free(kv, op);
	kvpipe_close(kv);
	for (size_t i = 0; i < KV_COUNT(own); i++)
		CHECK_FREED(own[i]);
	CHECK(fcntl(fd, F_GETFD) >= 0); /* the number may be somebody else's by now: left alone */
}

/* A session whose threads have started and sleep: a sanitizer's allocator does not survive a fork() in its middle. */
static kvpipe_t *connect_quietly(struct fake *to)
{
	kvpipe_t *own = fake_connect(to);

	/* Through all threads and back. */
	CHECK_INT(kvpipe_mem_alloc(own, 4096, 0, &addr, &region), 0);
	return own;
}

static int how_a_child_ends(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		run();
		fflush(NULL);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

/* Returns the child's exit status. */
static int in_a_child(void (*run)(void))
{
	int status = how_a_child_ends(run);

	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void parents_handle(void)
{
	struct fake_conf conf = { .submission = fake_nothing };
	struct kvpipe_offer_opts offer = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	struct kvpipe_completion c;

	f = fake_start(&conf);
	kv = connect_quietly(f);
	CHECK_INT(kvpipe_offer(kv, &offer, &op), 0);
	CHECK_INT(in_a_child(in_child), 0);
	/* Nothing has changed here. */
	CHECK_INT(kvpipe_connected(kv), 1);
	*(volatile char *)addr = 1;
	fake_end(f, op, KVPIPE_DONE, 0, 0);
	CHECK_INT(kvpipe_wait(kv, op, 60 * KV_SEC, &c), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Whichever way a child ends that never touched the session, it is none of the session's ends. */
static void exits(void)
{
	_exit(0);
}

static void is_killed(void)
{
	raise(SIGKILL);
}

static void childs_end(void)
{
	void (*const ends[])(void) = { in_child, exits, is_killed };
	struct kvpipe_offer_opts offer = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	struct kvpipe_completion c;

	f = fake_start(NULL);
	kv = connect_quietly(f);
	for (size_t i = 0; i < KV_COUNT(ends); i++) {
		int status = how_a_child_ends(ends[i]);
		CHECK(ends[i] == is_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK_INT(kvpipe_connected(kv), 1);
		CHECK_INT(kvpipe_offer(kv, &offer, &op), 0);
		CHECK_INT(kvpipe_wait(kv, op, 60 * KV_SEC, &c), 0);
		kvpipe_op_free(kv, op);
		CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
		CHECK_INT(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), 0);
	}
	kvpipe_close(kv);
	fake_stop(f);
}

/* A child may have a session of its own; and its child not. */
static kvpipe_t *childs;

static void grandchild(void)
{
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_poll(kv, &c, 1), -KVPIPE_E_CLOSED);
	CHECK_INT(kvpipe_poll(childs, &c, 1), -KVPIPE_E_CLOSED);
	kvpipe_close(childs);
	kvpipe_close(kv);
}

static void child_connects(void)
{
	struct fake *own = fake_start(NULL);
	struct kvpipe_offer_opts offer = KVPIPE_OPTS(kvpipe_offer_opts, .key = "k", .key_len = 1);
	struct kvpipe_completion c;

	CHECK_INT(kvpipe_poll(kv, &c, 1), -KVPIPE_E_CLOSED);
	childs = connect_quietly(own);
	CHECK_INT(kvpipe_poll(kv, &c, 1), -KVPIPE_E_CLOSED); /* still not */
	CHECK_INT(kvpipe_offer(childs, &offer, &op), 0);
	CHECK_INT(kvpipe_wait(childs, op, 60 * KV_SEC, &c), 0);
	CHECK_INT(in_a_child(grandchild), 0);
	CHECK_INT(kvpipe_poll(childs, &c, 1), 0);
	kvpipe_close(childs);
	kvpipe_close(kv);
	fake_stop(own);
}

static void childs_session(void)
{
	f = fake_start(NULL);
	kv = connect_quietly(f);
	CHECK_INT(in_a_child(child_connects), 0);
	CHECK_INT(kvpipe_connected(kv), 1);
	kvpipe_close(kv);
	fake_stop(f);
}

/* What all sessions share is not locked in a child, whatever another thread did at that moment. */
static _Atomic int stop;
static sem_t begun;

static void *busy(void *unused)
{
	(void)unused;
	while (!stop) {
		kv_process_lock();
		sem_post(&begun);
		sched_yield();
		kv_process_unlock();
	}
	return NULL;
}

static void takes_the_lock(void)
{
	alarm(20); /* instead of for ever */
	kv_process_lock();
	kv_process_unlock();
}

static void shared_lock(void)
{
	pthread_t thread;

	kv_process_mark();
	CHECK(sem_init(&begun, 0, 0) == 0);
	CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
	for (int i = 0; i < 50; i++) {
		CHECK(sem_wait(&begun) == 0);
		CHECK_INT(in_a_child(takes_the_lock), 0);
	}
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
}

static bool keeps_waiting(struct fake *daemon, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)daemon;
	(void)body;
	(void)fd;
	return head->type == KVPIPE_CTL_REGISTER;
}

static void *registers(void *unused)
{
	void *at;
	kvpipe_region_t id;

	(void)unused;
	CHECK(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &at, &id) != 0);
	return NULL;
}

static void closes(void) { kvpipe_close(kv); }

/* The child closes the handle while a thread of the parent, which it does not have, waits for an answer. */
static void parents_thread(void)
{
	struct fake_conf conf = { .request = keeps_waiting };
	pthread_t thread;

	f = fake_start(&conf);
	kv = fake_connect(f);
	CHECK(pthread_create(&thread, NULL, registers, NULL) == 0);
	fake_await_requests(f, KVPIPE_CTL_REGISTER, 1);
	CHECK_INT(in_a_child(closes), 0);
	fake_hang_up(f);
	CHECK(pthread_join(thread, NULL) == 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* A lookup buffer and its queries, which the child closes and frees in two threads of its own: each is gone once, and nothing stays. */
static struct fake *buffer;
static kvpipe_lookup_t *sel;
static kvpipe_query_t *queries[2][6000];

static void answer_cancels(struct fake *daemon, const struct kvpipe_sqe *e, const uint8_t *record)
{
	(void)record;
	if (e->op == KVPIPE_OPCODE_CANCEL)
		fake_end(daemon, e->user_data, KVPIPE_DONE, 0, 0);
}

static void *frees(void *half)
{
	for (size_t i = 0; i < KV_COUNT(queries[0]); i++)
		kvpipe_query_free(((kvpipe_query_t **)half)[i]);
	return NULL;
}

static void frees_beside_another(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, frees, queries[1]) == 0);
	frees(queries[0]);
	CHECK(pthread_join(thread, NULL) == 0);
	kvpipe_lookup_close(sel);
	CHECK_FREED(sel);
	kvpipe_close(kv);
}

static void queries_of_the_parent(void)
{
	struct fake_conf conf = { .records = 1 << 20, .submission = answer_cancels };
	struct kvpipe_lookup_opts opts = KVPIPE_OPTS(kvpipe_lookup_opts, .name = "l");
	int err;

	f = fake_start(NULL);
	buffer = fake_start(&conf);
	kv = fake_connect(f);
	snprintf(kv->path, sizeof(kv->path), "%s", fake_path(buffer));
	CHECK_INT(kvpipe_lookup_open(kv, &opts, &sel), 0);
	for (size_t i = 0; i < KV_COUNT(queries); i++) {
		for (size_t k = 0; k < KV_COUNT(queries[0]); k++) {
			do /* the fake daemon may get no processor for a second */
				err = kvpipe_lookup_select(sel, NULL, NULL, KVPIPE_EXACT, 600 * KV_SEC, &queries[i][k]);
			while (err == -KVPIPE_E_TIMEOUT);
			CHECK_INT(err, 0);
		}
	}
	CHECK_INT(in_a_child(frees_beside_another), 0);
	kvpipe_lookup_close(sel);
	frees(queries[0]);
	frees(queries[1]);
	kvpipe_close(kv);
	fake_stop(buffer);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(parents_handle), TEST(childs_end), TEST(childs_session), TEST(shared_lock), TEST(parents_thread),
					     TEST(queries_of_the_parent) };
	return RUN(tests);
}
