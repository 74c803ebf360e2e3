/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of the fake daemon: made, written, lied in. */
#include "fake_internal.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#define PAGE 4096u

static int make_memfd(const char *name, uint64_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static void add_ring(struct kvpipe_welcome *w, uint32_t kind, uint32_t memfd, uint32_t entries, uint32_t size)
{
	uint64_t *bytes = memfd == 0 ? &w->ring_c_bytes : &w->ring_d_bytes;

	w->rings[w->nrings++] = (struct kvpipe_ring_desc){
		.kind = kind, .memfd = memfd, .offset = *bytes, .entries = entries, .entry_size = size
	};
	*bytes += ((uint64_t)entries * size + PAGE - 1) / PAGE * PAGE;
}

static uint32_t or(uint32_t value, uint32_t def)
{
	return value != 0 ? value : def;
}

uint8_t *fake_area(struct fake *f, uint32_t kind, uint32_t *mask)
{
	for (uint32_t i = 0; i < f->welcome.nrings; i++) {
		struct kvpipe_ring_desc *d = &f->welcome.rings[i];
		if (d->kind == kind) {
			*mask = d->entries - 1;
			return (d->memfd == 0 ? f->c : f->d) + d->offset;
		}
	}
	FAIL("no ring of kind %u", kind);
}

void fake_open_session(struct fake *f, uint32_t seq)
{
	struct kvpipe_welcome *w = &f->welcome;

	*w = (struct kvpipe_welcome){
		.abi = or(f->conf.abi, KVPIPE_ABI),
		.epoch = 7 + f->sessions,
		.session = 42 + f->sessions,
		.says = f->conf.mute ? 0 : KVPIPE_SAYS_GRANTED | KVPIPE_SAYS_INVALID | KVPIPE_SAYS_AGAIN,
		.ring_c_bytes = PAGE,
		.ring_d_bytes = PAGE,
		.max_pinned_bytes = 1 << 30,
		.ops = f->conf.ops != 0 ? f->conf.ops : 0xfff,
		.max_ids = KVPIPE_MAX_IDS,
		.max_views = KVPIPE_MAX_VIEWS,
		.max_regions = KVPIPE_MAX_REGIONS,
		.max_inflight = or(f->conf.max_inflight, KVPIPE_MAX_INFLIGHT),
		.node = "fake",
		.instance = "i1",
		.advertise = "127.0.0.1:7650",
		.daemon = "9.9.9",
	};
	memset(w->secret, 0x50 + (int)f->sessions++, sizeof(w->secret));
	add_ring(w, KVPIPE_RING_SQ, 0, or(f->conf.sq, f->hello.sq_entries), sizeof(struct kvpipe_sqe));
	add_ring(w, KVPIPE_RING_RECORDS, 0, or(f->conf.records, 65536), 1);
	add_ring(w, KVPIPE_RING_CQ, 1, or(f->conf.cq, f->hello.cq_entries), sizeof(struct kvpipe_cqe));
	add_ring(w, KVPIPE_RING_RESULTS, 1, or(f->conf.results, 65536), 1);
	add_ring(w, KVPIPE_RING_LAYERS, 1, or(f->conf.layers, 4), sizeof(struct kvpipe_layer_slot));
	add_ring(w, 99, 1, 1, 64); /* a kind that the library does not know */

	int c = make_memfd("ring_c", w->ring_c_bytes), d = make_memfd("ring_d", w->ring_d_bytes);
	f->c = mmap(NULL, w->ring_c_bytes, PROT_READ, MAP_SHARED, c, 0);
	f->d = mmap(NULL, w->ring_d_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d, 0);
	CHECK(f->c != MAP_FAILED && f->d != MAP_FAILED);
	CHECK(fcntl(c, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	if (!f->conf.unsealed)
		CHECK(fcntl(d, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0);
	f->ring_c = (struct kvpipe_ring_c *)(void *)f->c;
	f->ring_d = (struct kvpipe_ring_d *)(void *)f->d;
	__atomic_store_n(&f->ring_d->heartbeat, f->conf.heartbeat, __ATOMIC_RELAXED);
	f->sq_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->cq_event = f->dull ? make_memfd("bell", 0) : eventfd(0, EFD_CLOEXEC);
	CHECK(f->sq_event >= 0 && f->cq_event >= 0);
	__atomic_store_n(&f->ring_d->cq_tail, f->dull ? 1u : 0u, __ATOMIC_RELAXED);
	struct kvpipe_welcome sent = *w;
	if (f->conf.welcome != NULL)
		f->conf.welcome(&sent);
	const int fds[4] = { c, d, f->sq_event, f->cq_event };
	fake_send_fds(f, KVPIPE_CTL_WELCOME, seq, &sent, sizeof(sent), fds, 4);
	close(c);
	close(d);
}

/* Needs lock. */
void fake_close_session(struct fake *f)
{
	if (f->conn >= 0)
		close(f->conn);
	if (f->c != NULL) {
		munmap(f->c, f->welcome.ring_c_bytes);
		munmap(f->d, f->welcome.ring_d_bytes);
		close(f->sq_event);
		close(f->cq_event);
	}
	f->conn = f->sq_event = f->cq_event = -1;
	f->c = f->d = NULL;
	f->ring_c = NULL;
	f->ring_d = NULL;
	f->sq_head = f->cq_tail = f->sleep = f->rung = 0;
	f->results_used = 0;
	f->hang_up = false;
	pthread_cond_broadcast(&f->changed);
}

/* Needs lock. */
static void wake_client(struct fake *f)
{
	if (f->hushed)
		return;
	kvpipe_full_barrier();
	uint32_t asleep = kvpipe_load_acquire(&f->ring_c->cq_waiting);
	/* Rings as rarely as is allowed: a client that needs more gets stuck. */
	if (asleep == 1 || (asleep != 0 && asleep != f->rung))
		ring(f->cq_event);
	f->rung = asleep;
}

void fake_post_result(struct fake *f, struct kvpipe_cqe e, const void *head, uint32_t head_len, const void *tail, uint32_t tail_len)
{
	uint32_t mask, rmask, len = head_len + tail_len;

	lock(f);
	e.epoch = f->welcome.epoch;
	if (f->d == NULL) {
		unlock(f);
		return;
	}
	struct kvpipe_cqe *cq = (struct kvpipe_cqe *)(void *)fake_area(f, KVPIPE_RING_CQ, &mask);
	uint8_t *results = fake_area(f, KVPIPE_RING_RESULTS, &rmask);
	if (len > 0) {
		uint64_t off = f->results_used;
		if ((off & rmask) + len > (uint64_t)rmask + 1)
			off = (off + rmask) & ~(uint64_t)rmask;
		memcpy(results + (off & rmask), head, head_len);
		if (tail_len > 0)
			memcpy(results + (off & rmask) + head_len, tail, tail_len);
		f->results_used = (off + len + 7) / 8 * 8;
		e.result_off = off;
		e.result_len = len;
	}
	CHECK(f->cq_tail - kvpipe_load_acquire(&f->ring_c->cq_head) <= mask);
	cq[f->cq_tail & mask] = e;
	f->cq_tail++;
	kvpipe_store_release(&f->ring_d->cq_tail, f->cq_tail);
	wake_client(f);
	unlock(f);
}

void fake_post(struct fake *f, struct kvpipe_cqe e, const struct kvpipe_run *runs, uint32_t nruns, const char *text)
{
	struct {
		struct kvpipe_result r;
		struct kvpipe_run runs[2048];
	} head = { .r = { .nfailed = nruns, .text_len = text == NULL ? 0 : (uint32_t)strlen(text) } };

	CHECK(nruns <= 2048);
	if (nruns > 0)
		memcpy(head.runs, runs, nruns * sizeof(*runs));
	uint32_t len = nruns > 0 || text != NULL ? (uint32_t)(sizeof(head.r) + nruns * sizeof(*runs)) : 0;
	fake_post_result(f, e, &head, len, text, head.r.text_len);
}

void fake_end(struct fake *f, uint64_t user_data, uint32_t status, uint32_t reason, uint32_t flags)
{
	struct kvpipe_cqe e = {
		.user_data = user_data,
		.op_id = user_data + 1000,
		.status = (uint16_t)status,
		.reason = (uint16_t)reason,
		.flags = flags,
	};

	fake_post(f, e, NULL, 0, NULL);
}

static void own_slot(struct kvpipe_layer_slot *s, uint64_t user_data)
{
	if (s->user_data == user_data)
		return;
	__atomic_store_n(&s->ready, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->granted, 0, __ATOMIC_RELAXED);
	kvpipe_store_release(&s->user_data, user_data);
}

void fake_layer(struct fake *f, uint32_t slot, uint64_t user_data, uint32_t ready)
{
	uint32_t mask;

	lock(f);
	struct kvpipe_layer_slot *s = (struct kvpipe_layer_slot *)(void *)fake_area(f, KVPIPE_RING_LAYERS, &mask) + slot;
	own_slot(s, user_data);
	kvpipe_store_release(&s->ready, ready);
	wake_client(f);
	unlock(f);
}

void fake_grant(struct fake *f, uint32_t slot, uint64_t user_data)
{
	uint32_t mask;

	lock(f);
	struct kvpipe_layer_slot *s = (struct kvpipe_layer_slot *)(void *)fake_area(f, KVPIPE_RING_LAYERS, &mask) + slot;
	own_slot(s, user_data);
	kvpipe_store_release(&s->granted, 1);
	unlock(f);
}

void fake_set_cq_tail(struct fake *f, uint32_t tail)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->cq_tail, tail);
	wake_client(f);
	unlock(f);
}

void fake_set_sq_head(struct fake *f, uint32_t head)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->sq_head, head);
	unlock(f);
}

void fake_set_progress_wait(struct fake *f, uint64_t value)
{
	lock(f);
	kvpipe_store_release(&f->ring_d->progress_wait, value);
	unlock(f);
}

void fake_hush(struct fake *f, bool hushed)
{
	lock(f);
	f->hushed = hushed;
	unlock(f);
}

void fake_beat(struct fake *f)
{
	lock(f);
	__atomic_add_fetch(&f->ring_d->heartbeat, 1, __ATOMIC_RELEASE);
	unlock(f);
}

