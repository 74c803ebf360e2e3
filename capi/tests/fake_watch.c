/* SPDX-License-Identifier: Apache-2.0 */
/* What a test sees of the fake daemon's client. */
#include "fake_internal.h"

#include <sys/socket.h>
#include <time.h>

static void await(struct fake *f, const unsigned int *counter, unsigned int n, const bool *flag)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 60;
	lock(f);
	while (counter != NULL ? *counter < n : !*flag) {
		if (pthread_cond_timedwait(&f->changed, &f->lock, &until) != 0)
			FAIL("the fake daemon waited in vain for its client");
	}
	unlock(f);
}

void fake_await_submissions(struct fake *f, unsigned int n)
{
	await(f, &f->submissions, n, NULL);
}

unsigned int fake_submissions(struct fake *f)
{
	lock(f);
	unsigned int n = f->submissions;
	unlock(f);
	return n;
}

void fake_await_requests(struct fake *f, uint16_t type, unsigned int n)
{
	await(f, &f->requests[type % TYPES], n, NULL);
}

unsigned int fake_sessions(struct fake *f)
{
	lock(f);
	unsigned int n = f->sessions;
	unlock(f);
	return n;
}

void fake_await_sessions(struct fake *f, unsigned int n)
{
	await(f, &f->sessions, n, NULL);
}

void fake_await_hangup(struct fake *f)
{
	await(f, NULL, 0, &f->client_gone);
}

/* Sends an end of a pipe. The client closes it when it takes it out of the socket. So does the kernel when nobody has the socket open,
 * but then the send() at the end fails. */
void fake_await_reader(struct fake *f)
{
	int ends[2];
	char nothing;

	CHECK(pipe(ends) == 0);
	fake_send_fds(f, KVPIPE_CTL_PING, 0, NULL, 0, &ends[1], 1);
	close(ends[1]);
	CHECK(read(ends[0], &nothing, 1) == 0);
	close(ends[0]);
	CHECK(send(f->conn, &nothing, 1, MSG_NOSIGNAL) == 1);
}

bool fake_client_gone(struct fake *f)
{
	lock(f);
	bool gone = f->client_gone;
	unlock(f);
	return gone;
}

struct kvpipe_sqe fake_last(struct fake *f)
{
	lock(f);
	struct kvpipe_sqe e = f->last;
	unlock(f);
	return e;
}

uint32_t fake_cq_head(struct fake *f)
{
	lock(f);
	uint32_t head = kvpipe_load_acquire(&f->ring_c->cq_head);
	unlock(f);
	return head;
}

uint64_t fake_progress(struct fake *f)
{
	lock(f);
	uint64_t value = kvpipe_load_acquire(&f->ring_c->progress);
	unlock(f);
	return value;
}

struct kvpipe_hello fake_hello(struct fake *f)
{
	lock(f);
	struct kvpipe_hello h = f->hello;
	unlock(f);
	return h;
}
