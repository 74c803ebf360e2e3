/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake daemon share. */
#ifndef FAKE_INTERNAL_H
#define FAKE_INTERNAL_H

#include "fakedaemon.h"

#include "check.h"

#include <kvpipe/barrier.h>
#include <pthread.h>
#include <unistd.h>

#define TYPES 16 /* of requests */

struct fake {
	struct fake_conf conf;
	char dir[64], path[96];
	int listener, bell; /* bell: something changed for the thread */
	pthread_t thread;
	uint8_t *record, body[KVPIPE_CTL_MAX]; /* the thread's */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t changed;
	bool stop, paused, hang_up, client_gone, dead, dull, fence_long, hushed;
	int conn, sq_event, cq_event;
	struct kvpipe_hello hello;
	struct kvpipe_welcome welcome;
	uint8_t *c, *d;
	struct kvpipe_ring_c *ring_c;
	struct kvpipe_ring_d *ring_d;
	struct kvpipe_sqe last;
	uint64_t results_used, next_region;
	uint32_t sq_head, cq_tail;
	uint32_t sleep, rung; /* number of its own last sleep; number of the client's sleep that it last rang for */
	unsigned int sessions, submissions, requests[TYPES];
};

static inline void lock(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
}

static inline void unlock(struct fake *f)
{
	pthread_mutex_unlock(&f->lock);
}

static inline void ring(int fd)
{
	uint64_t one = 1;

	CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
}

void fake_send_fds(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len, const int *fds, size_t n);
/* These need the lock. */
void fake_open_session(struct fake *f, uint32_t seq);
void fake_close_session(struct fake *f);
uint8_t *fake_area(struct fake *f, uint32_t kind, uint32_t *mask);

#endif
