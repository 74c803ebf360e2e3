/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose time goes by before they ask the daemon, as the kernel takes long to provide memory, or as this process stands still. */
#include "fakedaemon.h"
#include "pipes.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void stand_still(int64_t ns)
{
	for (int64_t until = kv_now() + ns, now; (now = kv_now()) < until;)
		poll(NULL, 0, (int)((until - now) / KV_MS) + 1);
}

static _Atomic bool slow;

/* In the place of libc's, for the library as well. */
int madvise(void *addr, size_t len, int advice)
{
	if (slow && len > 1 << 20 && advice == 23) /* MADV_POPULATE_WRITE */
		stand_still(KV_CALL_NS);
	return (int)syscall(SYS_madvise, addr, len, advice);
}

/* What was asked first has no answer before the call looks for it. */
static void answer_in_a_while(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record)
{
	(void)record;
	stand_still(20 * KV_MS);
	if (e->op != KVPIPE_OPCODE_BIND)
		fake_end(f, e->user_data, KVPIPE_DONE, 0, 0);
}

static bool acknowledge_in_a_while(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)f;
	(void)head;
	(void)body;
	(void)fd;
	stand_still(20 * KV_MS);
	return false;
}

/* Opening an end waits 5 s for the daemon, and has them also where the memory takes as long as that. */
static void opened(void)
{
	struct fake_conf conf = { .submission = answer_in_a_while };
	struct fake *parent = fake_start(NULL), *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(parent);

	snprintf(kv->path, sizeof(kv->path), "%s", fake_path(f));
	slow = true;
	kvpipe_pipe_close(open_pipe(kv, KVPIPE_SEND, 2 << 20, 0));
	slow = false;
	kvpipe_close(kv);
	fake_stop(f);
	fake_stop(parent);
}

/* So does bringing a region back. */
static void woken(void)
{
	struct fake_conf conf = { .request = acknowledge_in_a_while };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region;
	void *addr;

	CHECK_INT(kvpipe_mem_alloc(kv, 2 << 20, 0, &addr, &region), 0);
	CHECK_INT(kvpipe_mem_invalidate(kv, region, 0), 0);
	slow = true;
	CHECK_INT(kvpipe_mem_revalidate(kv, region, 0), 0);
	slow = false;
	kvpipe_close(kv);
	fake_stop(f);
}

struct call {
	kvpipe_t *kv;
	kvpipe_pipe_t *tx;
	int err;
	char text[KV_TEXT];
};

static void *opens(void *arg)
{
	struct kvpipe_pipe_opts o = KVPIPE_OPTS(kvpipe_pipe_opts, .name = "p", .end = KVPIPE_SEND, .capacity = 4096);
	struct call *c = arg;

	c->err = kvpipe_pipe_open(c->kv, &o, &c->tx);
	snprintf(c->text, sizeof(c->text), "%s", kvpipe_last_error());
	return NULL;
}

/* A process that stood still until its call's time was over does not say of a daemon that it did not answer. */
static void opened_too_late(void)
{
	struct fake_conf conf = { .submission = answer_in_a_while };
	struct fake *parent = fake_start(NULL), *f = fake_start(&conf);
	struct call c = { .kv = fake_connect(parent) };
	pthread_t thread;

	snprintf(c.kv->path, sizeof(c.kv->path), "%s", fake_path(f));
	for (;;) {
		pthread_mutex_lock(&c.kv->lock); /* where the call stands */
		CHECK(pthread_create(&thread, NULL, opens, &c) == 0);
		stand_still(KV_CALL_NS + 100 * KV_MS);
		pthread_mutex_unlock(&c.kv->lock);
		CHECK(pthread_join(thread, NULL) == 0);
		if (c.err != 0)
			break;
		kvpipe_pipe_close(c.tx); /* the thread began late */
	}
	CHECK_INT(c.err, -KVPIPE_E_TIMEOUT);
	CHECK_HAS(c.text, "pipe: its time was over before the daemon was asked: call again");
	kvpipe_close(c.kv);
	fake_stop(f);
	fake_stop(parent);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(opened), TEST(woken), TEST(opened_too_late) };
	return RUN(tests);
}
