/* SPDX-License-Identifier: Apache-2.0 */
/* The shared rings: what the daemon says about them is checked here once, and never again. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int bad(const char *what, uint64_t value)
{
	return kv_err(KVPIPE_E_INCOMPATIBLE, "welcome: %s is %llu: the daemon does not speak this ring protocol", what,
		      (unsigned long long)value);
}

/* Maps one memfd; a memfd that can shrink could kill us with SIGBUS. */
static int map(int fd, uint64_t bytes, uint64_t least, int prot, const char *what, void **out)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (bytes < least || bytes > SIZE_MAX / 2 || fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)
		return bad(what, bytes);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return kv_err(KVPIPE_E_INCOMPATIBLE, "welcome: %s is not sealed against shrinking", what);
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return kv_err(KVPIPE_E_QUOTA, "cannot map %s: %llu bytes: %s", what, (unsigned long long)bytes, kv_why(errno));
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP);
	*out = p;
	return 0;
}

#ifdef MADV_POPULATE_WRITE
/*
 * Has the kernel map the pages of a ring now; otherwise each costs a page fault during the first lap. A hint, which
 * kernels before 5.14 do not know.
 */
static void prefault(const void *ring, size_t size, int advice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)ring & ~(page - 1), to = ((uintptr_t)ring + size + page - 1) & ~(page - 1);

	(void)madvise((void *)from, to - from, advice);
}
#endif

struct want {
	const char *name;
	uint32_t kind, memfd, entry_size, entries;
	uint8_t *at; /* NULL until found */
};

static int place(const struct kv_rings *r, const struct kvpipe_ring_desc *d, struct want *w)
{
	uint64_t all = w->memfd == 0 ? r->c_bytes : r->d_bytes;
	uint64_t first = w->memfd == 0 ? sizeof(struct kvpipe_ring_c) : sizeof(struct kvpipe_ring_d);
	uint64_t size = (uint64_t)d->entries * d->entry_size;

	if (d->memfd != w->memfd || d->entry_size != w->entry_size || w->at != NULL)
		return bad(w->name, d->entry_size);
	if (d->entries == 0 || (d->entries & (d->entries - 1)) != 0 || d->entries > 1u << 30)
		return bad(w->name, d->entries);
	if (d->offset % 64 != 0 || d->offset < first || d->offset > all || size > all - d->offset)
		return bad(w->name, d->offset);
	w->at = (uint8_t *)(w->memfd == 0 ? (uintptr_t)r->all_c : (uintptr_t)r->all_d) + d->offset;
	w->entries = d->entries;
	return 0;
}

static int place_all(struct kv_rings *r, const struct kvpipe_welcome *w)
{
	struct want want[] = {
		{ "ring SQ", KVPIPE_RING_SQ, 0, sizeof(struct kvpipe_sqe), 0, NULL },
		{ "ring CQ", KVPIPE_RING_CQ, 1, sizeof(struct kvpipe_cqe), 0, NULL },
		{ "ring RECORDS", KVPIPE_RING_RECORDS, 0, 1, 0, NULL },
		{ "ring RESULTS", KVPIPE_RING_RESULTS, 1, 1, 0, NULL },
		{ "ring LAYERS", KVPIPE_RING_LAYERS, 1, sizeof(struct kvpipe_layer_slot), 0, NULL },
	};

	if (w->nrings > KVPIPE_RINGS_MAX)
		return bad("number of rings", w->nrings);
	for (uint32_t i = 0; i < w->nrings; i++) {
		for (size_t k = 0; k < KV_COUNT(want); k++) {
			if (want[k].kind == w->rings[i].kind) {
				int err = place(r, &w->rings[i], &want[k]);
				if (err != 0)
					return err;
			}
		}
	}
	for (size_t k = 0; k < KV_COUNT(want); k++) {
		if (want[k].at == NULL)
			return kv_err(KVPIPE_E_INCOMPATIBLE, "welcome: %s is missing", want[k].name);
	}
	r->sqes = (struct kvpipe_sqe *)(void *)want[0].at;
	r->cqes = (const struct kvpipe_cqe *)(const void *)want[1].at;
	r->records = want[2].at;
	r->results = want[3].at;
	r->layers = (const struct kvpipe_layer_slot *)(const void *)want[4].at;
	r->sq_entries = want[0].entries;
	r->cq_entries = want[1].entries;
	r->record_bytes = want[2].entries;
	r->result_bytes = want[3].entries;
	r->layer_slots = want[4].entries;
#ifdef MADV_POPULATE_WRITE
	prefault(r->sqes, r->sq_entries * sizeof(*r->sqes), MADV_POPULATE_WRITE);
	prefault(r->cqes, r->cq_entries * sizeof(*r->cqes), MADV_POPULATE_READ);
#endif
	return 0;
}

int kv_rings_map(struct kv_rings *r, const struct kvpipe_welcome *w, const int fds[4])
{
	void *c = NULL, *d = NULL;

	*r = (struct kv_rings){ .sq_event = fds[2], .cq_event = fds[3] };
	int err = map(fds[0], w->ring_c_bytes, sizeof(struct kvpipe_ring_c), PROT_READ | PROT_WRITE, "ring_c", &c);
	if (err == 0) {
		r->all_c = c;
		r->c_bytes = w->ring_c_bytes;
		err = map(fds[1], w->ring_d_bytes, sizeof(struct kvpipe_ring_d), PROT_READ, "ring_d", &d);
	}
	if (err == 0) {
		r->all_d = d;
		r->d_bytes = w->ring_d_bytes;
		err = map(fds[0], sizeof(*r->c), 0, PROT_READ | PROT_WRITE, "ring_c", &c);
	}
	if (err == 0) {
		r->c = c;
		err = map(fds[1], sizeof(*r->d), 0, PROT_READ, "ring_d", &d);
	}
	if (err == 0) {
		r->d = d;
		err = place_all(r, w);
	}
	/* Several threads may clear the bell that the daemon rings: none of them must block. */
	if (err == 0 && (fcntl(r->cq_event, F_SETFL, O_NONBLOCK) != 0 || fcntl(r->sq_event, F_GETFL) < 0))
		err = kv_err(KVPIPE_E_INCOMPATIBLE, "welcome: the eventfds are not usable");
	close(fds[0]);
	close(fds[1]);
	if (err != 0)
		kv_rings_unmap(r);
	return err;
}

static void unmap(const void *at, size_t size)
{
	if (at != NULL)
		munmap((void *)(uintptr_t)at, size);
}

/* Moves an index page over another one. A thread that looks there meanwhile waits in the kernel. */
static bool move_page(const void *from, const void *to, size_t size)
{
	return mremap((void *)(uintptr_t)from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

/* Puts the file of *from behind the descriptor `to`, which a thread may be about to write to. */
static bool move_event(int *from, int to)
{
	if (dup3(*from, to, O_CLOEXEC) != to)
		return false;
	close(*from);
	*from = -1;
	return true;
}

int kv_rings_replace(struct kv_rings *r, struct kv_rings *by)
{
	struct kv_rings old = *r;
	bool ok = move_event(&by->sq_event, old.sq_event);

	if (ok && move_page(by->c, old.c, sizeof(*by->c))) {
		by->c = NULL;
		ok = move_page(by->d, old.d, sizeof(*by->d));
	}
	/* On failure, what has moved stays so until the next attempt. The page that says what there is to read moves last. */
	if (!ok || by->c != NULL)
		return kv_err(KVPIPE_E_QUOTA, "cannot put the new rings in the place of the old ones: %s", strerror(errno));
	close(old.cq_event);
	unmap(old.all_c, old.c_bytes);
	unmap(old.all_d, old.d_bytes);
	/* c, d and sq_event, which others use without a lock, stay as they are. */
	r->cq_event = by->cq_event;
	r->all_c = by->all_c;
	r->all_d = by->all_d;
	r->c_bytes = by->c_bytes;
	r->d_bytes = by->d_bytes;
	r->sqes = by->sqes;
	r->cqes = by->cqes;
	r->records = by->records;
	r->results = by->results;
	r->layers = by->layers;
	r->sq_entries = by->sq_entries;
	r->cq_entries = by->cq_entries;
	r->record_bytes = by->record_bytes;
	r->result_bytes = by->result_bytes;
	r->layer_slots = by->layer_slots;
	*by = (struct kv_rings){ .sq_event = -1, .cq_event = -1 };
	return 0;
}

void kv_rings_unmap(struct kv_rings *r)
{
	unmap(r->c, sizeof(*r->c));
	unmap(r->d, sizeof(*r->d));
	unmap(r->all_c, r->c_bytes);
	unmap(r->all_d, r->d_bytes);
	if (r->sq_event >= 0)
		close(r->sq_event);
	if (r->cq_event >= 0)
		close(r->cq_event);
	*r = (struct kv_rings){ .sq_event = -1, .cq_event = -1 };
}
