/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: what the daemon may map. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct kv_region *kv_region_find(const kvpipe_t *kv, kvpipe_region_t id)
{
	struct kv_region *r = kv->regions;

	while (r != NULL && (r->id != id || r->gone))
		r = r->next;
	return r;
}

void kv_regions_woke(kvpipe_t *kv)
{
	for (struct kv_region *r = kv->regions; r != NULL; r = r->next)
		r->napped = false;
}

bool kv_regions_stale(const kvpipe_t *kv)
{
	for (const struct kv_region *r = kv->regions; r != NULL; r = r->next)
		if (r->gone || r->invalid != r->told)
			return true;
	return false;
}

/*
 * A region's id is the name that the session's first daemon gave it, and stays when a later daemon calls it otherwise. Later daemons
 * may give names that the first one gave before, also to regions that are gone but which a layout may still name. So from the second
 * daemon on ids are made up, in a range that the generations in daemons' names do not reach. So no id is used twice.
 */
static void list(kvpipe_t *kv, struct kv_region *r)
{
	r->id = r->remote;
	if (kv->life > 1 || kv_region_find(kv, r->id) != NULL)
		r->id = 1ull << 63 | ++kv->drawn;
	*kv->regions_end = r;
	kv->regions_end = &r->next;
}

int kv_may_own(const kvpipe_t *kv, const char *what)
{
	if (kv->role == KVPIPE_ROLE_SCHEDULER)
		return kv_err(KVPIPE_E_INVALID, "%s: a scheduler owns no memory: its workers register it", what);
	return 0;
}

static int add(kvpipe_t *kv, int fd, uint32_t skip, uint64_t nbytes, struct kv_region as, int64_t deadline, kvpipe_region_t *region)
{
	struct kv_region *r = calloc(1, sizeof(*r));
	int err;

	if (r == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	*r = as;
	r->fd = fd;
	r->body = (struct kvpipe_register){ .bytes = nbytes, .kind = 1, .flags = skip & KVPIPE_REGISTER_SKIP };
	do {
		uint64_t life = 0;
		err = kv_await_session(kv, "register", deadline, &life);
		if (err == 0)
			err = kv_request(kv, "register", life, KVPIPE_CTL_REGISTER, &r->body, sizeof(r->body), fd, deadline,
					 &r->remote);
		pthread_mutex_lock(&kv->lock);
		if (err == 0 && kv->life != life) /* the daemon that was told has gone since */
			err = KV_LOST;
		if (err == 0) {
			list(kv, r);
			*region = r->id;
		}
		pthread_mutex_unlock(&kv->lock);
	} while (err == KV_LOST);
	if (err != 0)
		free(r);
	return err;
}

int kv_region_add(kvpipe_t *kv, int fd, uint64_t nbytes, void *addr, size_t mapped, kvpipe_region_t *region)
{
	return add(kv, fd, 0, nbytes, (struct kv_region){ .addr = addr, .mapped = mapped }, kv_now() + KV_CALL_NS, region);
}

int kv_region_add_adopted(kvpipe_t *kv, int fd, uint32_t skip, uint64_t nbytes, void *addr, size_t mapped,
			  kvpipe_region_t *region)
{
	return add(kv, fd, skip, nbytes, (struct kv_region){ .addr = addr, .mapped = mapped, .adopted = true }, kv_now() + KV_CALL_NS,
		   region);
}

static int check_fd(int fd, uint64_t nbytes)
{
	struct stat st;
	int mode = fcntl(fd, F_GETFL);
	int seals = fcntl(fd, F_GET_SEALS);

	if (mode < 0 || fstat(fd, &st) != 0)
		return kv_err(KVPIPE_E_INVALID, "register_fd: fd %d: %s", fd, strerror(errno));
	if (seals < 0)
		return kv_err(KVPIPE_E_INVALID, "register_fd: fd %d is not a memfd made with MFD_ALLOW_SEALING", fd);
	if ((mode & O_ACCMODE) != O_RDWR)
		return kv_err(KVPIPE_E_INVALID, "register_fd: fd %d must be open for reading and writing", fd);
	if ((seals & F_SEAL_SHRINK) == 0)
		return kv_err(KVPIPE_E_INVALID, "register_fd: fd %d can shrink: seal it with F_SEAL_SHRINK", fd);
	if ((seals & F_SEAL_WRITE) != 0)
		return kv_err(KVPIPE_E_INVALID, "register_fd: fd %d is sealed against writing", fd);
	if (nbytes == 0 || nbytes > (uint64_t)st.st_size)
		return kv_err(KVPIPE_E_INVALID, "register_fd: nbytes is %llu: must be 1 to the memfd's size, %lld",
			      (unsigned long long)nbytes, (long long)st.st_size);
	if ((uint64_t)st.st_blocks * 512 < nbytes)
		return kv_err(KVPIPE_E_INVALID,
			      "register_fd: fd %d is sparse: %llu of %llu bytes are allocated: call fallocate() first", fd,
			      (unsigned long long)st.st_blocks * 512, (unsigned long long)nbytes);
	return 0;
}

int kv_region_add_fd(kvpipe_t *kv, int fd, uint64_t nbytes, int64_t deadline, kvpipe_region_t *region)
{
	int err = check_fd(fd, nbytes);

	if (err != 0)
		return err;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return kv_err(KVPIPE_E_QUOTA, "register_fd: cannot duplicate fd %d: %s", fd, kv_why(errno));
	err = add(kv, own, 0, nbytes, (struct kv_region){ 0 }, deadline, region);
	if (err != 0)
		close(own);
	return err;
}

int kvpipe_mem_register_fd(kvpipe_t *kv, int fd, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region)
{
	KV_UNCANCELLED;
	int err = kv_enter(kv);

	if (err == 0 && region == NULL)
		err = kv_err(KVPIPE_E_INVALID, "register_fd: region is NULL");
	if (err == 0)
		err = kv_may_own(kv, "register_fd");
	if (err == 0 && flags != 0)
		err = kv_err(KVPIPE_E_INVALID, "register_fd: flags is %#x: must be 0", flags);
	return err != 0 ? err : kv_region_add_fd(kv, fd, nbytes, kv_now() + KV_CALL_NS, region);
}

static void unmap_it(struct kv_region *r)
{
	if (r->adopted)
		kv_adopt_end(r->addr, r->mapped);
	else if (r->addr != NULL)
		munmap(r->addr, r->mapped);
	r->adopted = false;
	r->addr = NULL;
}

static void drop(struct kv_region *r, bool unmap)
{
	if (unmap) {
		unmap_it(r);
		close(r->fd);
	}
	free(r);
}

static void unlist(kvpipe_t *kv, const struct kv_region *r)
{
	struct kv_region **at = &kv->regions;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (*at == NULL)
		kv->regions_end = at;
}

void kv_regions_sweep(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	for (struct kv_region *r = kv->regions, *next; r != NULL; r = next) {
		next = r->next;
		if (r->gone) {
			unlist(kv, r);
			drop(r, true);
		}
	}
	pthread_mutex_unlock(&kv->lock);
}

static int busy(const char *what, kvpipe_region_t region)
{
	return kv_err(KVPIPE_E_BUSY, "%s: another thread invalidates, revalidates or unregisters region %#llx", what,
		      (unsigned long long)region);
}

/*
 * After a restart, a daemon with a smaller quota may refuse the session for what it holds. Then the region is given up here, as
 * nobody could make the session smaller otherwise. 1: done; 0: the daemon is to be asked.
 */
static int give_up(kvpipe_t *kv, kvpipe_region_t region, int64_t deadline)
{
	struct kv_region memory = { 0 };

	pthread_mutex_lock(&kv->lock);
	int err = kv_await_untold(kv, "unregister", deadline);
	bool narrow = err == 0 && kv->state == KV_AWAY && kv->refused == KVPIPE_E_QUOTA;
	struct kv_region *r = narrow ? kv_region_find(kv, region) : NULL;
	if (r != NULL && r->changing) {
		err = busy("unregister", region);
	} else if (r != NULL && kv_ops_wait(kv)) {
		err = kv_err(KVPIPE_E_BUSY, "unregister: operations wait for the daemon: withdraw or cancel them first: %s", kv->refusal);
	} else if (r != NULL) {
		memory = *r; /* once it is gone, the helper may free it */
		r->gone = true;
		r->adopted = false;
		r->addr = NULL;
	}
	pthread_mutex_unlock(&kv->lock);
	if (r == NULL || err != 0)
		return err;
	unmap_it(&memory);
	return 1;
}

int kv_region_ours(kvpipe_t *kv, const char *what, kvpipe_region_t region, struct kv_region **out)
{
	struct kv_region *r = kv_region_find(kv, region);
	if (r == NULL)
		return kv_err(KVPIPE_E_NOT_FOUND, "%s: region %#llx is not of this session", what, (unsigned long long)region);
	if (r->changing)
		return busy(what, region);
	*out = r;
	return 0;
}

void kv_region_let_go(kvpipe_t *kv, struct kv_region *r)
{
	pthread_mutex_lock(&kv->lock);
	r->changing = false;
	pthread_mutex_unlock(&kv->lock);
}

/* One attempt. KV_LOST: the daemon went meanwhile. */
static int unregister(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns, int64_t deadline)
{
	struct kvpipe_unregister body = { .timeout_ns = (uint64_t)timeout_ns };
	struct kv_region *r = NULL;
	uint64_t life = 0;
	int err = kv_await_daemon(kv, "unregister", deadline, &life);

	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->lock);
	err = kv_region_ours(kv, "unregister", region, &r);
	if (err == 0) {
		r->changing = true;
		body.region = r->remote;
	}
	pthread_mutex_unlock(&kv->lock);
	if (err != 0)
		return err;
	/* When the session is over nothing touches the memory. Nor does a daemon that has forgotten the region: its answer to an
	 * earlier call came too late. */
	if (life != 0)
		err = kv_request(kv, "unregister", life, KVPIPE_CTL_UNREGISTER, &body, sizeof(body), -1,
				 kv_after(deadline, KV_GRACE_NS), NULL);
	if (err == 0 || err == -KVPIPE_E_NOT_FOUND) {
		pthread_mutex_lock(&kv->lock);
		err = kv_await_untold(kv, "unregister", deadline); /* another daemon may have been told meanwhile */
		if (err == 0 && life != 0 && kv->life != life)
			err = KV_LOST;
		if (err == 0)
			unlist(kv, r);
		pthread_mutex_unlock(&kv->lock);
	}
	if (err == 0)
		drop(r, true);
	else
		kv_region_let_go(kv, r);
	return err;
}

int kvpipe_mem_unregister(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns)
{
	KV_UNCANCELLED;
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_check_timeout("unregister: timeout_ns", &timeout_ns, KV_CALL_NS);
	if (err != 0)
		return err;
	int64_t deadline = kv_after(kv_now(), timeout_ns);
	err = give_up(kv, region, deadline);
	if (err != 0)
		return err == 1 ? 0 : err;
	do
		err = unregister(kv, region, timeout_ns, deadline);
	while (err == KV_LOST);
	return err;
}

void kv_regions_drop(kvpipe_t *kv, bool unmap)
{
	while (kv->regions != NULL) {
		struct kv_region *r = kv->regions;
		kv->regions = r->next;
		drop(r, unmap);
	}
}
