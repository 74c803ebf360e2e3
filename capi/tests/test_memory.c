/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and layouts on their way to the daemon. */
#include "check.h"
#include "child.h"
#include "fakedaemon.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the fake daemon was asked, last. */
struct asked {
	struct kvpipe_register reg;
	struct kvpipe_unregister unreg;
	int seals, same_memory;
	off_t size, blocks;
	uint32_t answer;
	unsigned int keep; /* requests of this type are kept unanswered */
	uint32_t kept_seq;
	/* the layout, put together again */
	struct kvpipe_view views[KVPIPE_MAX_VIEWS];
	uint32_t nviews, nfields, commits, messages;
	char fields[1 << 16];
	size_t fields_len;
};

static void layout(struct asked *a, const uint8_t *body, uint32_t len)
{
	struct kvpipe_layout_msg m;

	memcpy(&m, body, sizeof(m));
	size_t at = sizeof(m) + m.nviews * sizeof(struct kvpipe_view);
	CHECK(at <= len && a->nviews + m.nviews <= KVPIPE_MAX_VIEWS);
	memcpy(a->views + a->nviews, body + sizeof(m), m.nviews * sizeof(struct kvpipe_view));
	a->nviews += m.nviews;
	a->nfields += m.nfields;
	for (uint32_t i = 0; i < m.nfields; i++) {
		uint16_t n[2];
		memcpy(n, body + at, 4);
		a->fields_len += (size_t)snprintf(a->fields + a->fields_len, sizeof(a->fields) - a->fields_len, "%.*s=%.*s;",
						  n[0], (const char *)body + at + 4, n[1], (const char *)body + at + 4 + n[0]);
		at += 4u + n[0] + n[1];
	}
	CHECK_INT(at, len);
	a->commits += m.flags & KVPIPE_LAYOUT_COMMIT;
	a->messages++;
}

static bool request(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct asked *a = fake_arg(f);
	struct stat st;

	if (head->type == KVPIPE_CTL_REGISTER) {
		CHECK_INT(head->len, sizeof(a->reg));
		memcpy(&a->reg, body, sizeof(a->reg));
		CHECK(fd >= 0 && fstat(fd, &st) == 0);
		a->seals = fcntl(fd, F_GET_SEALS);
		a->size = st.st_size;
		a->blocks = st.st_blocks;
		uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(p != MAP_FAILED);
		a->same_memory = p[17];
		munmap(p, 4096);
	}
	if (head->type == KVPIPE_CTL_UNREGISTER)
		memcpy(&a->unreg, body, sizeof(a->unreg));
	if (head->type == KVPIPE_CTL_LAYOUT)
		layout(a, body, head->len);
	if (head->type == a->keep) {
		a->kept_seq = head->seq;
		return true;
	}
	if (a->answer != 0)
		fake_ack(f, head->seq, a->answer, 0, "this daemon will not");
	return a->answer != 0;
}

static struct asked asked;
static struct fake_conf asking = { .request = request, .arg = &asked };

static void alloc(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	const uint32_t flags[] = { 0, KVPIPE_MEM_NO_HUGE };
	void *addr;
	kvpipe_region_t region;

	for (int i = 0; i < 2; i++) {
		memset(&asked, 0, sizeof(asked));
		CHECK_INT(kvpipe_mem_alloc(kv, 3 * 4096 + 100, flags[i], &addr, &region), 0);
		CHECK(region != 0 && (uintptr_t)addr % 4096 == 0);
		CHECK_INT(asked.reg.bytes, 3 * 4096 + 100);
		CHECK_INT(asked.reg.kind, 1);
		const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
		CHECK_INT(asked.seals & want, want);
		CHECK(asked.size >= 4 * 4096 && asked.blocks * 512 >= 3 * 4096 + 100); /* all of it is there */
		memset(addr, 0x5a, 3 * 4096 + 100);
		CHECK_INT(kvpipe_mem_unregister(kv, region, 60 * KV_SEC), 0);
		CHECK_INT(asked.unreg.region, region);
		CHECK_INT(asked.unreg.timeout_ns, 60 * KV_SEC);
		CHECK(msync(addr, 4096, MS_ASYNC) == -1 && errno == ENOMEM); /* unmapped */
		CHECK_FAILS(kvpipe_mem_unregister(kv, region, 0), KVPIPE_E_NOT_FOUND, "is not of this session");
	}
	CHECK_FAILS(kvpipe_mem_alloc(kv, 0, 0, &addr, &region), KVPIPE_E_INVALID, "nbytes is 0");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 8, &addr, &region), KVPIPE_E_INVALID, "flags is 0x8");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 3, &addr, &region), KVPIPE_E_INVALID, "flags is 0x3");
	/* No file may grow so large in this process, whatever the library tries. */
	const struct rlimit small = { .rlim_cur = 1 << 24, .rlim_max = RLIM_INFINITY };
	struct rlimit old;
	signal(SIGXFSZ, SIG_IGN);
	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0 && setrlimit(RLIMIT_FSIZE, &small) == 0);
	CHECK_FAILS(kvpipe_mem_alloc(kv, 1ull << 46, KVPIPE_MEM_NO_HUGE, &addr, &region), KVPIPE_E_QUOTA,
		    "more than this machine's memory, ");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 1 << 25, KVPIPE_MEM_NO_HUGE, &addr, &region), KVPIPE_E_QUOTA,
		    "no memory for 33554432 bytes: File too large");
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
	asked.answer = KVPIPE_E_QUOTA;
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), KVPIPE_E_QUOTA, "register: this daemon will not");
	asked.answer = 0;
	/* What is still registered goes with the session. */
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), 0);
	kvpipe_close(kv);
	CHECK(msync(addr, 4096, MS_ASYNC) == -1 && errno == ENOMEM);
	fake_stop(f);
}

static bool transparent;

/* Where shmem gets transparent huge pages (shmem_enabled), files tell of them as of what is best for them. */
int fstat(int fd, struct stat *st)
{
	int rc = fstatat(fd, "", st, AT_EMPTY_PATH);

	if (transparent)
		st->st_blksize = 2 << 20;
	return rc;
}

static void transparent_huge_pages(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	void *addr;
	kvpipe_region_t region;

	memset(&asked, 0, sizeof(asked));
	transparent = true;
	CHECK_INT(kvpipe_mem_alloc(kv, 5000, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	transparent = false;
	CHECK_INT(asked.size, 2 * 4096); /* and no more counts to limits */
	kvpipe_close(kv);
	fake_stop(f);
}

/* Huge pages, where this machine has some; and a clear answer where it has none. */
static void huge(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	void *addr;
	kvpipe_region_t region;

	memset(&asked, 0, sizeof(asked));
	int rc = kvpipe_mem_alloc(kv, 5000, KVPIPE_MEM_HUGE, &addr, &region);
	if (rc == 0) {
		CHECK_INT(asked.reg.bytes, 5000);
		CHECK(asked.size >= 1 << 20);
		CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	} else {
		CHECK_INT(rc, -KVPIPE_E_QUOTA);
		CHECK_HAS(kvpipe_last_error(), "raise /proc/sys/vm/nr_hugepages");
	}
	kvpipe_close(kv);
	fake_stop(f);
}

static int memfd(off_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && ftruncate(fd, size) == 0 && fallocate(fd, 0, 0, size) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

/* It is said to be short of files, not of memory or huge pages, which there may be enough of. */
static void no_files(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region;
	void *p;
	int fd = memfd(8192, F_SEAL_SHRINK);
	struct rlimit files, none;

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = 3; /* those that are open stay; the daemon of this test polls that many */
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8192, 0, &region), KVPIPE_E_QUOTA, "ulimit -n");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 8192, 0, &p, &region), KVPIPE_E_QUOTA, "ulimit -n");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 8192, KVPIPE_MEM_HUGE, &p, &region), KVPIPE_E_QUOTA, "ulimit -n");
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
	close(fd);
	kvpipe_close(kv);
	fake_stop(f);
}

static void register_fd(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region;
	int fd = memfd(8192, F_SEAL_SHRINK);
	uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	memset(&asked, 0, sizeof(asked));
	p[17] = 99;
	CHECK_INT(kvpipe_mem_register_fd(kv, fd, 8000, 0, &region), 0);
	close(fd); /* the library has its own */
	CHECK_INT(asked.same_memory, 99);
	CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	p[17] = 1; /* the caller's mapping is the caller's */
	munmap(p, 8192);

	CHECK_FAILS(kvpipe_mem_register_fd(kv, -1, 1, 0, &region), KVPIPE_E_INVALID, "fd -1: Bad file descriptor");
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, pipes[0], 1, 0, &region), KVPIPE_E_INVALID, "is not a memfd");
	close(pipes[0]);
	close(pipes[1]);
	fd = memfd(8192, F_SEAL_GROW);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8192, 0, &region), KVPIPE_E_INVALID, "seal it with F_SEAL_SHRINK");
	close(fd);
	fd = memfd(8192, F_SEAL_SHRINK);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8193, 0, &region), KVPIPE_E_INVALID, "nbytes is 8193: must be 1 to the memfd's size, 8192");
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 0, 0, &region), KVPIPE_E_INVALID, "nbytes is 0");
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8192, 1, &region), KVPIPE_E_INVALID, "flags is 0x1");
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int ro = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, ro, 8192, 0, &region), KVPIPE_E_INVALID, "open for reading and writing");
	close(ro);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8192, 0, &region), KVPIPE_E_INVALID, "is sparse: 4096 of 8192 bytes");
	close(fd);
	fd = memfd(8192, F_SEAL_SHRINK | F_SEAL_WRITE);
	CHECK_FAILS(kvpipe_mem_register_fd(kv, fd, 8192, 0, &region), KVPIPE_E_INVALID, "sealed against writing");
	close(fd);
	kvpipe_close(kv);
	fake_stop(f);
}

#define NOT_ASKED "its time was over before the daemon was asked: call again" /* to a caller that stood still */

/* Regions that the daemon will not let go of yet, or that it confirms too late. */
static void slow(void)
{
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region;
	void *addr;

	memset(&asked, 0, sizeof(asked));
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), 0);
	asked.answer = KVPIPE_E_TIMEOUT;
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, 60 * KV_SEC), KVPIPE_E_TIMEOUT, "unregister: this daemon will not");
	*(volatile char *)addr = 1; /* still there */
	asked.answer = 0;
	asked.keep = KVPIPE_CTL_UNREGISTER;
	CHECK_LATE(kvpipe_mem_unregister(kv, region, KV_MS), "unregister: the daemon does not answer", "unregister: " NOT_ASKED);
	fake_await_requests(f, KVPIPE_CTL_UNREGISTER, 2);
	asked.keep = 0;
	asked.answer = KVPIPE_E_NOT_FOUND; /* that late answer was yes */
	CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	asked.answer = 0;

	/* A registration confirmed after its caller left is undone. */
	asked.keep = KVPIPE_CTL_REGISTER;
	struct kvpipe_register body = { .bytes = 4096, .kind = 1 };
	int fd = memfd(4096, F_SEAL_SHRINK);
	CHECK_LATE(kv_request(kv, "register", kv->life, KVPIPE_CTL_REGISTER, &body, sizeof(body), fd, kv_now() + KV_MS, NULL),
		   "register: the daemon does not answer", "register: " NOT_ASKED);
	close(fd);
	fake_await_requests(f, KVPIPE_CTL_REGISTER, 2);
	asked.keep = KVPIPE_CTL_UNREGISTER;
	fake_ack(f, asked.kept_seq, 0, 4711, NULL);
	fake_await_requests(f, KVPIPE_CTL_UNREGISTER, 4);
	asked.keep = 0;
	CHECK_INT(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), 0); /* answered after the one above */
	CHECK_INT(asked.unreg.region, 4711);
	/* With the daemon gone, memory is the caller's at once. */
	fake_hang_up(f);
	CHECK_INT(kvpipe_mem_unregister(kv, region, 0), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

/* Sends so many descriptors to the other end, where nobody receives them. */
static void send_files(int to, int n)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(100 * sizeof(int))];
	} control = { .buf = { 0 } };
	struct iovec iov = { "x", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &to, sizeof(to));
	CHECK_INT(sendmsg(to, &msg, 0), 1);
}

static int under_way[2];

/* When a session has come back and says the first of its regions. */
static bool send_files_again(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	(void)body;
	(void)fd;
	if (head->type == KVPIPE_CTL_REGISTER && fake_sessions(f) == 2)
		send_files(under_way[0], 100);
	return false;
}

static void files_under_way_child(void)
{
	const struct fake_conf conf = { .request = send_files_again };
	struct fake *f = fake_start(&conf);
	kvpipe_t *kv = fake_connect(f);
	kvpipe_region_t region, more;
	struct rlimit files;
	char x;
	void *addr;

	for (int i = 0; i < 2; i++)
		CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = 64;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, under_way), 0);
	send_files(under_way[0], 100);
	int64_t begun = kv_now();
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &more), KVPIPE_E_QUOTA, "(ulimit -n)");
	CHECK(kv_now() - begun < KV_CALL_NS);
	CHECK_INT(recv(under_way[1], &x, 1, 0), 1); /* without the descriptors, which are closed */
	fake_hang_up(f);
	for (bool refused = false; !refused;) { /* until it has tried to come back, and what was told the first region then is gone */
		poll(NULL, 0, 1);
		pthread_mutex_lock(&kv->lock);
		refused = kv->state == KV_AWAY && kv->refused != 0 && !kv->told;
		pthread_mutex_unlock(&kv->lock);
	}
	CHECK_FAILS(kvpipe_mem_unregister(kv, region, KV_SEC), KVPIPE_E_UNAVAILABLE, "does not reach the daemon of after the restart yet: ");
	CHECK_HAS(kvpipe_last_error(), "(ulimit -n)");
	CHECK_INT(recv(under_way[1], &x, 1, 0), 1);
	fake_hang_up(f); /* nor could the fake say anything */
	CHECK_INT(kvpipe_mem_unregister(kv, region, 60 * KV_SEC), 0);
	close(under_way[0]);
	close(under_way[1]);
	kvpipe_close(kv);
	fake_stop(f);
}

/* The user's processes have as many descriptors under way to others as one may have open: the daemon is not blamed, nor waited for. */
static void files_under_way(void) { as_somebody(files_under_way_child); }

static void layouts(void)
{
	static struct kvpipe_view views[1500];
	struct kvpipe_field fields[64];
	static char keys[64][129], values[64][257];
	kvpipe_region_t region;
	void *addr;
	memset(&asked, 0, sizeof(asked));
	struct fake *f = fake_start(&asking);
	kvpipe_t *kv = fake_connect(f);

	CHECK_INT(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_NO_HUGE, &addr, &region), 0);
	for (uint32_t i = 0; i < 1500; i++)
		views[i] = (struct kvpipe_view){ .region = region, .base = i, .layer = 1500 - i, .group = i % 3, .part = "kv" };
	for (int i = 0; i < 64; i++) {
		memset(keys[i], 'a' + i % 26, 128);
		memset(values[i], 'A' + i % 26, 256);
		fields[i] = (struct kvpipe_field){ keys[i], values[i] };
	}
	fields[1] = (struct kvpipe_field){ "dtype", "" };
	CHECK_INT(kvpipe_set_layout(kv, views, 1500, fields, 64), 0);
	CHECK(asked.nviews == 1500 && asked.nfields == 64 && asked.commits == 1 && asked.messages == 4);
	CHECK(memcmp(asked.views, views, sizeof(views)) == 0);
	CHECK_HAS(asked.fields, "aa=AA");
	CHECK_HAS(asked.fields, ";dtype=;cccc");

	memset(&asked, 0, sizeof(asked));
	asked.answer = KVPIPE_E_INCOMPATIBLE;
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1500, fields, 64), KVPIPE_E_INCOMPATIBLE, "set_layout: this daemon will not");
	CHECK_INT(asked.messages, 1);
	asked.answer = 0;
	views[1499].region = region + 1;
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1500, fields, 64), KVPIPE_E_INVALID, "view 1499 (layer 1): region 0x2 is not registered in this session");
	CHECK_INT(asked.messages, 1); /* not even the first one was sent */
	CHECK_FAILS(kvpipe_set_layout(kv, views, 0, NULL, 0), KVPIPE_E_INVALID, "nviews is 0: must be 1 to 4096");
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, fields, 65), KVPIPE_E_INVALID, "nfields is 65: at most 64");
	CHECK_FAILS(kvpipe_set_layout(kv, NULL, 1, fields, 64), KVPIPE_E_INVALID, "set_layout: views is NULL, nviews is 1");
	CHECK_FAILS(kvpipe_set_layout(kv, NULL, 0, fields, 64), KVPIPE_E_INVALID, "nviews is 0: must be 1 to 4096");
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, NULL, 2), KVPIPE_E_INVALID, "set_layout: fingerprint is NULL, nfields is 2");
	fields[2].value = NULL;
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, fields, 64), KVPIPE_E_INVALID, "fingerprint[2] has a NULL string");
	fields[2] = (struct kvpipe_field){ "", "x" };
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, fields, 64), KVPIPE_E_INVALID, "fingerprint[2] has an empty key");
	char value[KVPIPE_MAX_VALUE + 2] = { 0 };
	memset(value, 'v', KVPIPE_MAX_VALUE + 1);
	fields[2] = (struct kvpipe_field){ "x", value };
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, fields, 64), KVPIPE_E_INVALID, "set_layout: fingerprint value");
	views[3].reserved[6] = 1;
	CHECK_FAILS(kvpipe_set_layout(kv, views, 4, NULL, 0), KVPIPE_E_INVALID, "views[3].reserved[6] is 0x1");
	views[2].group = 64;
	CHECK_FAILS(kvpipe_set_layout(kv, views, 4, NULL, 0), KVPIPE_E_INVALID, "views[2].group is 64");
	kvpipe_close(kv);

	kv = fake_connect_as(f, KVPIPE_ROLE_SCHEDULER);
	CHECK_FAILS(kvpipe_set_layout(kv, views, 1, NULL, 0), KVPIPE_E_INVALID, "a scheduler has no memory");
	CHECK_FAILS(kvpipe_progress(kv, 1 << 16), KVPIPE_E_INVALID, "progress: a scheduler writes no blocks: each worker says");
	CHECK_INT(fake_progress(f), 0);
	kvpipe_close(kv);
	fake_stop(f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(alloc), TEST(transparent_huge_pages), TEST(huge), TEST(no_files), TEST(register_fd), TEST(slow), TEST(files_under_way), TEST(layouts) };
	return RUN(tests);
}
