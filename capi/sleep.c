/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions without memory. An engine that sleeps gives up a region's pages and has pages there again later, with the same id, address
 * and layout. The daemon keeps the region's name and the layout; one that is restarted meanwhile is told again (attach.c).
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

/* A call that invalidates or revalidates a region. */
struct change {
	kvpipe_t *kv;
	const char *what;
	struct kv_region *r;
	bool own;         /* memory of kvpipe_mem_alloc(): the pages are ours to give back */
	int64_t deadline;
	uint64_t life;    /* of the daemon that is asked; 0: the session is over */
	uint64_t remote;
};

/* Finds the region and marks it as changing: until kv_region_let_go() nobody else changes it, and it stays listed. 1: it is in the
 * wanted state already, and not marked. */
static int begin(struct change *c, kvpipe_region_t region, bool invalid, int64_t timeout_ns)
{
	kvpipe_t *kv = c->kv;
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_check_timeout(invalid ? "invalidate: timeout_ns" : "revalidate: timeout_ns", &timeout_ns, KV_CALL_NS);
	if (err != 0)
		return err;
	c->what = invalid ? "invalidate" : "revalidate";
	c->deadline = kv_after(kv_now(), timeout_ns);
	pthread_mutex_lock(&kv->lock);
	err = kv_region_ours(kv, c->what, region, &c->r);
	if (err == 0 && c->r->invalid == invalid && !c->r->unsure)
		err = 1;
	if (err == 0) {
		c->r->changing = true;
		c->own = c->r->addr != NULL && !c->r->adopted;
	}
	pthread_mutex_unlock(&kv->lock);
	return err;
}

/*
 * Notes the daemon's answer; KV_LOST: another daemon has come since. If the answer did not come in time, it is not known what the
 * daemon makes of the request: the next call asks again.
 */
static int settle(struct change *c, bool invalid, int err)
{
	kvpipe_t *kv = c->kv;

	pthread_mutex_lock(&kv->lock);
	if (err == 0 && invalid)
		err = kv_await_untold(kv, c->what, c->deadline); /* another daemon may have been told meanwhile */
	if (err == 0 && c->life != 0 && kv->life != c->life)
		err = KV_LOST;
	if (err == 0)
		c->r->invalid = invalid;
	if (err == 0 || err == -KVPIPE_E_TIMEOUT)
		c->r->unsure = err != 0;
	pthread_mutex_unlock(&kv->lock);
	return err;
}

/* Waits for a daemon, which must know invalid regions, and notes its name for this one. */
static int find_daemon(struct change *c)
{
	kvpipe_t *kv = c->kv;
	int err = kv_await_daemon(kv, c->what, c->deadline, &c->life);

	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	bool knows = (kv->says & KVPIPE_SAYS_INVALID) != 0;
	c->remote = c->r->remote;
	pthread_mutex_unlock(&kv->lock);
	if (c->life != 0 && !knows)
		return kv_err(KVPIPE_E_INCOMPATIBLE, "%s: kvpiped %s does not know invalid regions: run a newer one, or unregister the region",
			      c->what, kv_names(kv)->daemon);
	return 0;
}

/*
 * Waits until the daemon has read all that was submitted before. An offer that it read only once the region is valid again would
 * offer what is there then. KV_LOST: ask the next one.
 */
static int await_read(struct change *c)
{
	kvpipe_t *kv = c->kv;
	int64_t pause = 20000;
	uint32_t upto = 0;
	bool counted = false;

	for (;;) {
		pthread_mutex_lock(&kv->sq.lock);
		int state = __atomic_load_n(&kv->state, __ATOMIC_RELAXED);
		if (state == KV_LIVE && !counted) {
			upto = kv->sq.tail;
			counted = true;
		}
		bool here = state == KV_LIVE || state == KV_REPLAY, lost = kv->life != c->life; /* it changes under sq.lock, too */
		bool read = !here || !kv_sq_refresh(&kv->sq, &kv->rings) || (counted && (int32_t)(kv->sq.head - upto) >= 0);
		if (!read)
			kv_ring_bell(kv);
		pthread_mutex_unlock(&kv->sq.lock);
		if (state == KV_LEAVING || state == KV_AWAY || lost)
			return KV_LOST;
		if (read)
			return 0;
		if (kv_now() >= c->deadline)
			return kv_err(KVPIPE_E_TIMEOUT, "%s: the daemon has not read all that was submitted before: collect completions",
				      c->what);
		struct timespec ts = kv_timespec(pause);
		nanosleep(&ts, NULL);
		pause = pause < KV_MS / 2 ? pause * 2 : KV_MS;
	}
}

/* While no daemon has the session and no operation waits for one, nothing touches the memory: the region is marked invalid, and the
 * next daemon is told so. A daemon that is stopping is about to be gone. 1: done. */
static int without_daemon(struct change *c)
{
	kvpipe_t *kv = c->kv;
	struct timespec ts = kv_timespec(c->deadline);

	pthread_mutex_lock(&kv->lock);
	while (kv->state == KV_LEAVING && kv_now() < c->deadline)
		pthread_cond_timedwait(&kv->back, &kv->lock, &ts);
	int err = kv_await_untold(kv, c->what, c->deadline);
	if (err == 0 && kv->state == KV_AWAY && !kv_ops_wait(kv)) {
		c->r->invalid = c->r->napped = true;
		err = 1;
	}
	pthread_mutex_unlock(&kv->lock);
	return err;
}

static int invalidate(struct change *c)
{
	int err;

	do {
		err = without_daemon(c);
		if (err != 0)
			return err == 1 ? 0 : err;
		err = find_daemon(c);
		if (err == 0 && c->life != 0)
			err = await_read(c);
		if (err == 0 && c->life != 0) {
			int64_t left = c->deadline - kv_now();
			struct kvpipe_unregister body = { .region = c->remote, .timeout_ns = (uint64_t)(left > KV_MS ? left : KV_MS) };
			err = kv_request(c->kv, c->what, c->life, KVPIPE_CTL_INVALIDATE, &body, sizeof(body), -1,
					 kv_after(c->deadline, KV_GRACE_NS), NULL);
		}
		err = settle(c, true, err);
	} while (err == KV_LOST);
	return err;
}

static bool punch(const struct kv_region *r)
{
	return fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)r->mapped) == 0;
}

/* Gives the pages back to the system; the mapping stays. */
static int give_back(const struct change *c)
{
	if (punch(c->r))
		return 0;
	return kv_err(KVPIPE_E_UNAVAILABLE, "%s: the region is invalid, but its pages stay: %s", c->what, strerror(errno));
}

int kvpipe_mem_invalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct change c = { .kv = kv };
	int err = begin(&c, region, true, timeout_ns);

	if (err != 0)
		return err == 1 ? 0 : err;
	err = invalidate(&c);
	if (err == 0 && c.own)
		err = give_back(&c);
	kv_region_let_go(kv, c.r);
	return err;
}

/* If the daemon is away, marks the region valid: the helper will tell the next daemon. False: it is not away. */
static bool for_the_next(struct change *c)
{
	kvpipe_t *kv = c->kv;

	pthread_mutex_lock(&kv->lock);
	bool away = kv->state == KV_AWAY || kv->state == KV_LEAVING;
	if (away) {
		c->r->napped |= c->r->invalid;
		c->r->invalid = false;
	}
	pthread_mutex_unlock(&kv->lock);
	return away;
}

static int revalidate(struct change *c)
{
	int err;

	do {
		if (for_the_next(c))
			return kv_await_session(c->kv, c->what, c->deadline, &c->life);
		err = find_daemon(c);
		int over = err == 0 ? kv_over(c->kv) : 0;
		if (over != 0)
			return over;
		if (err == -KVPIPE_E_UNAVAILABLE) { /* it went away just now, and may be back just now, too */
			if (for_the_next(c))
				return err;
			err = KV_LOST;
			continue;
		}
		if (err == 0) {
			struct kvpipe_revalidate body = { .region = c->remote };
			err = kv_request(c->kv, c->what, c->life, KVPIPE_CTL_REVALIDATE, &body, sizeof(body), c->r->fd, c->deadline, NULL);
		}
		err = settle(c, false, err);
	} while (err == KV_LOST);
	return err;
}

static int populate(const struct change *c)
{
	const struct kv_region *r = c->r;
	struct statfs fs;
	int err = fstatfs(r->fd, &fs) == 0 ? kv_populate(r->fd, r->addr, r->mapped, (size_t)fs.f_bsize) : errno;

	if (err == 0)
		return 0;
	return kv_err(KVPIPE_E_QUOTA, "%s: no memory for %zu bytes: %s", c->what, r->mapped,
		      strerror(err == EFAULT ? ENOMEM : err)); /* EFAULT: the file has no page left */
}

/*
 * All of the caller's memfd has to be there again, as when it was registered. This is checked here, as a restarted daemon that is
 * told of the region could only refuse the whole session.
 */
static int check_whole(const struct change *c)
{
	struct stat st;

	if (fstat(c->r->fd, &st) != 0)
		return kv_err(KVPIPE_E_INVALID, "%s: region %#llx: %s", c->what, (unsigned long long)c->r->id, strerror(errno));
	if (st.st_blocks * 512 >= st.st_size)
		return 0;
	return kv_err(KVPIPE_E_INVALID, "%s: the memfd of region %#llx is sparse: %lld of %lld bytes are allocated: call fallocate() first", c->what,
		      (unsigned long long)c->r->id, (long long)st.st_blocks * 512, (long long)st.st_size);
}

int kvpipe_mem_revalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	struct change c = { .kv = kv };
	int err = begin(&c, region, false, timeout_ns);

	if (err != 0)
		return err == 1 ? 0 : err;
	int64_t begun = kv_now();
	err = c.own ? populate(&c) : check_whole(&c);
	c.deadline = kv_after(c.deadline, kv_now() - begun); /* the kernel's time is not the daemon's */
	if (err == 0)
		err = revalidate(&c);
	if (err != 0 && c.own && c.r->invalid) /* nobody else changes that */
		punch(c.r);
	kv_region_let_go(kv, c.r);
	return err;
}
