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

static int add(kvpipe_t *kv, int fd, uint32_t skip, uint64_t nbytes, struct kv_region as, kvpipe_region_t *region)
{
	struct kvpipe_register body = { .bytes = nbytes, .kind = 1, .flags = skip & KVPIPE_REGISTER_SKIP };
	struct kv_region *r = calloc(1, sizeof(*r));
	uint64_t id = 0;

	if (r == NULL)
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	int err = kv_request(kv, "register", KVPIPE_CTL_REGISTER, &body, sizeof(body), fd, kv_now() + KV_CALL_NS, &id);
	if (err != 0) {
		free(r);
		return err;
	}
	*r = as;
	r->id = id;
	r->fd = fd;
	pthread_mutex_lock(&kv->region_lock);
	r->next = kv->regions;
	kv->regions = r;
	pthread_mutex_unlock(&kv->region_lock);
	*region = id;
	return 0;
}

int kv_region_add(kvpipe_t *kv, int fd, uint64_t nbytes, void *addr, size_t mapped, kvpipe_region_t *region)
{
	return add(kv, fd, 0, nbytes, (struct kv_region){ .addr = addr, .mapped = mapped }, region);
}

int kv_region_add_adopted(kvpipe_t *kv, int fd, uint32_t skip, uint64_t nbytes, void *addr, size_t mapped,
			  kvpipe_region_t *region)
{
	return add(kv, fd, skip, nbytes, (struct kv_region){ .addr = addr, .mapped = mapped, .adopted = true }, region);
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

int kvpipe_mem_register_fd(kvpipe_t *kv, int fd, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region)
{
	int err = kv_enter(kv);

	if (err == 0 && region == NULL)
		err = kv_err(KVPIPE_E_INVALID, "register_fd: region is NULL");
	if (err == 0 && flags != 0)
		err = kv_err(KVPIPE_E_INVALID, "register_fd: flags is %#x: must be 0", flags);
	if (err == 0)
		err = check_fd(fd, nbytes);
	if (err != 0)
		return err;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return kv_err(KVPIPE_E_QUOTA, "register_fd: cannot duplicate fd %d: %s", fd, strerror(errno));
	err = kv_region_add(kv, own, nbytes, NULL, 0, region);
	if (err != 0)
		close(own);
	return err;
}

static void drop(struct kv_region *r, bool unmap)
{
	if (unmap && r->adopted)
		kv_adopt_end(r->addr, r->mapped);
	else if (unmap && r->addr != NULL)
		munmap(r->addr, r->mapped);
	if (unmap)
		close(r->fd);
	free(r);
}

static struct kv_region **find(kvpipe_t *kv, kvpipe_region_t id)
{
	struct kv_region **at = &kv->regions;

	while (*at != NULL && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

int kvpipe_mem_unregister(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns)
{
	int err = kv_enter(kv);

	if (err == 0)
		err = kv_check_timeout("unregister: timeout_ns", &timeout_ns, KV_CALL_NS);
	if (err != 0)
		return err;
	pthread_mutex_lock(&kv->region_lock);
	bool known = *find(kv, region) != NULL;
	pthread_mutex_unlock(&kv->region_lock);
	if (!known)
		return kv_err(KVPIPE_E_NOT_FOUND, "unregister: region %#llx is not of this session", (unsigned long long)region);

	struct kvpipe_unregister body = { .region = region, .timeout_ns = (uint64_t)timeout_ns };
	/* A daemon that is gone touches nothing; one that forgot the region, after an answer that came too late, neither. */
	if (__atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_GONE)
		err = kv_request(kv, "unregister", KVPIPE_CTL_UNREGISTER, &body, sizeof(body), -1,
				 kv_after(kv_after(kv_now(), timeout_ns), KV_GRACE_NS), NULL);
	if (err != 0 && err != -KVPIPE_E_NOT_FOUND && __atomic_load_n(&kv->state, __ATOMIC_RELAXED) != KV_GONE)
		return err;
	pthread_mutex_lock(&kv->region_lock);
	struct kv_region **at = find(kv, region);
	struct kv_region *r = *at;
	if (r != NULL)
		*at = r->next;
	pthread_mutex_unlock(&kv->region_lock);
	if (r != NULL)
		drop(r, true);
	return 0;
}

void kv_regions_drop(kvpipe_t *kv, bool unmap)
{
	while (kv->regions != NULL) {
		struct kv_region *r = kv->regions;
		kv->regions = r->next;
		drop(r, unmap);
	}
}
