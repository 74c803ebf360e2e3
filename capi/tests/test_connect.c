/* SPDX-License-Identifier: Apache-2.0 */
/* Opening sessions: what goes wrong, and what the caller is told to do about it. */
#include "check.h"
#include "child.h"
#include "fakedaemon.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER(...) KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = "e", .role = KVPIPE_ROLE_WORKER, __VA_ARGS__)

static char dir[64];

static void make_dir(void)
{
	strcpy(dir, "/tmp/kvpipe-test-XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
}

static void success(void)
{
	struct fake *f = fake_start(NULL);
	struct kvpipe_connect_opts o =
		WORKER(.socket = fake_path(f), .instance = "inst", .tp_rank = 1, .tp_world = 4, .sq_entries = 64);
	kvpipe_t *kv;

	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	CHECK_INT(kvpipe_connected(kv), 1);
	CHECK_INT(strcmp(kvpipe_node(kv), "fake"), 0);
	CHECK_INT(strcmp(kvpipe_instance(kv), "i1"), 0);
	CHECK_INT(strcmp(kvpipe_advertise(kv), "127.0.0.1:7650"), 0);
	struct kvpipe_hello h = fake_hello(f);
	CHECK_INT(strcmp(h.engine, "e"), 0);
	CHECK_INT(strcmp(h.instance, "inst"), 0);
	CHECK_INT(h.tp_rank, 1);
	CHECK_INT(h.tp_world, 4);
	CHECK_INT(h.pp_world, 1);
	CHECK_INT(h.sq_entries, 64);
	CHECK_INT(h.cq_entries, 4096);
	CHECK_INT(h.pid, getpid());

	struct kvpipe_probe p = { .sz = sizeof(p) };
	CHECK_INT(kvpipe_probe(kv, &p), 0);
	CHECK_INT(p.abi_daemon, KVPIPE_ABI);
	CHECK_INT(p.max_pinned_bytes, 1 << 30);
	CHECK_INT(p.ops, 0xfff);
	kvpipe_close(kv);
	fake_await_requests(f, KVPIPE_CTL_BYE, 1);
	fake_stop(f);
	kvpipe_close(NULL);
}

static void no_daemon(void)
{
	char path[128];
	kvpipe_t *kv;

	make_dir();
	snprintf(path, sizeof(path), "%s/none.sock", dir);
	struct kvpipe_connect_opts o = WORKER(.socket = path);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "none.sock: start one there (\"systemctl start kvpiped\", or ");
	CHECK_HAS(kvpipe_last_error(), "none.sock\"), or name a running daemon's socket"); /* a command that can be run as it is */
	CHECK_HAS(kvpipe_last_error(), path);
	CHECK(strstr(kvpipe_last_error(), "KVPIPE_SOCKET") == NULL); /* whose value would not be looked at */
	CHECK(kv == NULL);

	setenv("KVPIPE_SOCKET", path, 1);
	o.socket = NULL;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "none.sock, which KVPIPE_SOCKET names: start one there");
	CHECK_HAS(kvpipe_last_error(), path);
	unsetenv("KVPIPE_SOCKET");

	/* Left behind by a daemon that is gone. */
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	strcpy(addr.sun_path, path);
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	close(s);
	o.socket = path;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "no daemon at");
	unlink(path);

	/* Another program's socket. */
	s = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(s, 1) == 0);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "is it the socket of kvpiped?");
	close(s);
	unlink(path);
	rmdir(dir);

	char deep[300];
	memset(deep, 'x', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	o.socket = deep;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "has 299 bytes, must be 1 to 107");
}

static void refused(void)
{
	struct fake_conf conf = { .refuse = KVPIPE_E_BUSY, .refusal = "rank 0 of instance i1 has a session" };
	struct fake *f = fake_start(&conf);
	struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f));
	kvpipe_t *kv;

	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_BUSY, "rank 0 of instance i1 has a session");
	fake_stop(f);

	conf = (struct fake_conf){ .refuse = KVPIPE_E_INCOMPATIBLE, .refusal = "kvpiped 9.9.9 speaks ring protocol 4 to 5" };
	f = fake_start(&conf);
	o.socket = fake_path(f);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INCOMPATIBLE, "speaks ring protocol 1 to 1");
	CHECK_HAS(kvpipe_last_error(), "kvpiped 9.9.9 speaks ring protocol 4 to 5");
	fake_stop(f);

	conf = (struct fake_conf){ .abi = 3 };
	f = fake_start(&conf);
	o.socket = fake_path(f);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INCOMPATIBLE, "kvpiped 9.9.9 chose 3");
	fake_stop(f);

	conf = (struct fake_conf){ .refuse = KVPIPE_E_UNAVAILABLE, .refusal = "the daemon is stopping", .farewell = true };
	f = fake_start(&conf);
	o.socket = fake_path(f);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "the daemon is stopping");
	fake_stop(f);
	conf = (struct fake_conf){ .hang_up = true };
	f = fake_start(&conf);
	o.socket = fake_path(f);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "closed the connection without a reason");
	fake_stop(f);

	conf = (struct fake_conf){ .silent = true };
	f = fake_start(&conf);
	o.socket = fake_path(f);
	o.timeout_ns = 50000000;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "does not answer within ");
	CHECK_HAS(kvpipe_last_error(), "kvpipectl doctor");
	fake_stop(f);
}

static struct fake *waits; /* for what it is to answer */
static pthread_t caller;
static int64_t time_over; /* of the caller's call, and a little more */
static bool answered;     /* before it was over */

static void stand_still(int sig)
{
	int was = errno;

	(void)sig;
	while (kv_now() < time_over)
		poll(NULL, 0, 10);
	errno = was;
}

static void *interrupt(void *arg)
{
	fake_await_requests(waits, KVPIPE_CTL_HELLO, 1);
	poll(NULL, 0, 50);
	CHECK_INT(pthread_kill(caller, SIGUSR1), 0);
	fake_ack(waits, 1, KVPIPE_E_BUSY, 0, "rank 0 of instance i1 has a session"); /* the handler has begun, or is the first to run */
	answered = kv_now() < time_over - 100 * KV_MS;
	return arg;
}

/* The caller, in a signal's handler, stood still until its time was over: what lies in the socket by then is the answer. A machine that is
 * too busy to answer before tries again. */
static void unread(void)
{
	struct fake_conf conf = { .silent = true };
	struct sigaction act = { .sa_handler = stand_still };

	caller = pthread_self();
	CHECK_INT(sigaction(SIGUSR1, &act, NULL), 0);
	answered = false;
	for (int tries = 0; !answered; tries++) {
		struct fake *f = waits = fake_start(&conf);
		struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f), .timeout_ns = KV_SEC);
		char said[256];
		kvpipe_t *kv;
		pthread_t other;

		CHECK(tries < 20);
		time_over = kv_now() + 1100 * KV_MS;
		CHECK_INT(pthread_create(&other, NULL, interrupt, NULL), 0);
		int err = kvpipe_connect(&o, &kv);
		snprintf(said, sizeof(said), "%s", kvpipe_last_error());
		CHECK_INT(pthread_join(other, NULL), 0);
		if (answered) {
			CHECK_INT(err, -KVPIPE_E_BUSY);
			CHECK_HAS(said, "rank 0 of instance i1 has a session");
		}
		fake_stop(f);
	}
}

/* Who listens at a socket of its own, and a thread that talks to those who connect. */
struct service {
	struct sockaddr_un addr;
	int listener;
	pthread_t thread;
};

static void serve(struct service *d, void *(*talk)(void *listener))
{
	*d = (struct service){ .addr.sun_family = AF_UNIX, .listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) };
	make_dir();
	snprintf(d->addr.sun_path, sizeof(d->addr.sun_path), "%s/s", dir);
	CHECK(bind(d->listener, (struct sockaddr *)&d->addr, sizeof(d->addr)) == 0 && listen(d->listener, 1) == 0);
	CHECK(pthread_create(&d->thread, NULL, talk, &d->listener) == 0);
}

static void end_service(struct service *d)
{
	shutdown(d->listener, SHUT_RDWR); /* a thread that waits for the next one hears of it */
	CHECK(pthread_join(d->thread, NULL) == 0);
	close(d->listener);
	unlink(d->addr.sun_path);
	rmdir(dir);
}

/* Says BYE to whoever connects and closes the connection, without having read anything. */
static void *show_out(void *listener)
{
	static const char text[] = "this connection made room for others";
	struct {
		struct kvpipe_ctl head;
		struct kvpipe_ack ack;
		char text[sizeof(text) - 1];
	} __attribute__((packed)) bye = {
		.head = { .magic = KVPIPE_MAGIC, .type = KVPIPE_CTL_BYE, .len = sizeof(bye.ack) + sizeof(bye.text) },
		.ack = { .reason = KVPIPE_E_QUOTA, .text_len = sizeof(bye.text) },
	};
	int conn;

	memcpy(bye.text, text, sizeof(bye.text));
	while ((conn = accept4(*(int *)listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		CHECK(send(conn, &bye, sizeof(bye), MSG_NOSIGNAL) == sizeof(bye));
		close(conn);
	}
	return NULL;
}

/* Before HELLO was sent (EPIPE), before it was read (ECONNRESET), or while it is on its way: the reason is heard. */
static void shown_out(void)
{
	struct service d;
	kvpipe_t *kv;

	serve(&d, show_out);
	struct kvpipe_connect_opts o = WORKER(.socket = d.addr.sun_path);
	for (int i = 0; i < 300; i++)
		CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_QUOTA, "connect: this connection made room for others");
	end_service(&d);
}

/* Answers with something that is no message of a daemon, and stays. */
static void *babble(void *listener)
{
	int conn = accept4(*(int *)listener, NULL, NULL, SOCK_CLOEXEC);
	char rest[8];

	CHECK(conn >= 0 && send(conn, "HTTP/1.1 400", 12, MSG_NOSIGNAL) == 12);
	while (recv(conn, rest, sizeof(rest), 0) > 0)
		;
	close(conn);
	return NULL;
}

/* Who listens there and is no kvpiped has not closed the connection. */
static void another_service(void)
{
	struct service d;
	kvpipe_t *kv;

	serve(&d, babble);
	struct kvpipe_connect_opts o = WORKER(.socket = d.addr.sun_path);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INCOMPATIBLE, "instead of a welcome: is it kvpiped?");
	end_service(&d);
}

/* Every 20 ms; a connect() that is begun anew each time outlasts them all. */
enum { TICKS = 500 };
static volatile sig_atomic_t ticks;

static void tick(int unused)
{
	const struct itimerval off = { { 0, 0 }, { 0, 0 } };

	(void)unused;
	if (++ticks == TICKS)
		setitimer(ITIMER_REAL, &off, NULL);
}

/* Signals do not make the time longer for which a daemon that accepts nobody is waited for. */
static void full_backlog(void)
{
	const struct itimerval on = { { 0, 20000 }, { 0, 20000 } }, off = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = tick, .sa_flags = SA_RESTART }, before;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	kvpipe_t *kv;

	make_dir();
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/s", dir);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(s, 0) == 0);
	CHECK(connect(first, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	struct kvpipe_connect_opts o = WORKER(.socket = addr.sun_path, .timeout_ns = 200 * KV_MS);
	ticks = 0;
	CHECK(sigaction(SIGALRM, &sa, &before) == 0 && setitimer(ITIMER_REAL, &on, NULL) == 0);
	int err = kvpipe_connect(&o, &kv);
	CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0 && sigaction(SIGALRM, &before, NULL) == 0);
	CHECK_INT(err, -KVPIPE_E_UNAVAILABLE);
	CHECK_HAS(kvpipe_last_error(), "does not accept connections within ");
	CHECK(ticks < TICKS);
	close(first);
	close(s);
	unlink(addr.sun_path);
	rmdir(dir);
}

static void no_sq(struct kvpipe_welcome *w)
{
	w->rings[0].kind = 77;
}

static void odd_entries(struct kvpipe_welcome *w)
{
	w->rings[2].entries = 1000;
}

static void beyond(struct kvpipe_welcome *w)
{
	w->rings[1].offset = w->ring_c_bytes;
}

static void wrapped(struct kvpipe_welcome *w)
{
	w->rings[1].offset = UINT64_MAX - 63;
}

static void wrong_size(struct kvpipe_welcome *w)
{
	w->rings[0].entry_size = 32;
}

static void wrong_memfd(struct kvpipe_welcome *w)
{
	w->rings[0].memfd = 1;
}

static void too_long(struct kvpipe_welcome *w)
{
	w->ring_d_bytes += 1 << 20;
}

static void too_many(struct kvpipe_welcome *w)
{
	w->nrings = 1000;
}

static void twice(struct kvpipe_welcome *w)
{
	w->rings[5] = w->rings[0];
}

static void bad_welcomes(void)
{
	void (*const changes[])(struct kvpipe_welcome *) = { no_sq,	 odd_entries, beyond,	wrapped, wrong_size,
							     wrong_memfd, too_long,    too_many, twice };
	kvpipe_t *kv;

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct fake_conf conf = { .welcome = changes[i] };
		struct fake *f = fake_start(&conf);
		struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f));
		CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INCOMPATIBLE, "welcome: ");
		fake_stop(f);
	}
	struct fake_conf conf = { .unsealed = true };
	struct fake *f = fake_start(&conf);
	struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f));
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INCOMPATIBLE, "not sealed against shrinking");
	fake_stop(f);
}

static void arguments(void)
{
	struct fake *f = fake_start(NULL);
	struct kvpipe_connect_opts o;
	kvpipe_t *kv;
	char id[140];

	memset(id, 'x', sizeof(id));
	id[139] = '\0';
	CHECK_FAILS(kvpipe_connect(NULL, &kv), KVPIPE_E_INVALID, "opts is NULL");
	o = WORKER(.socket = fake_path(f));
	CHECK_FAILS(kvpipe_connect(&o, NULL), KVPIPE_E_INVALID, "out is NULL");
	o.engine_id = NULL;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "engine_id is required");
	o.engine_id = id;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "engine_id: longer than 128 bytes");
	id[128] = '\0';
	o.role = 3;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "role is 3");
	o.role = KVPIPE_ROLE_WORKER;
	o.tp_rank = 2;
	o.tp_world = 2;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "(tp 2, pp 0) is outside the world (tp 2, pp 1)");
	o.tp_rank = 0;
	o.sq_entries = 1000;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "sq_entries is 1000");
	o.sq_entries = 0;
	o.flags = 4;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "flags is 0x4");
	o.flags = 0;
	o.timeout_ns = -1;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "-1 ns is negative");
	o.timeout_ns = KVPIPE_FOREVER;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "KVPIPE_FOREVER");
	o.timeout_ns = 0;
	o.reserved[2] = 5;
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_INVALID, "reserved[2] is 0x5");
	o.reserved[2] = 0;
	CHECK_INT(kvpipe_connect(&o, &kv), 0); /* an id of 128 bytes fits */
	kvpipe_close(kv);
	fake_stop(f);
}

/* Structs of older and newer headers. */
static void sizes(void)
{
	struct fake *f = fake_start(NULL);
	struct {
		struct kvpipe_connect_opts o;
		uint64_t later[2];
	} newer = { .o = WORKER(.socket = fake_path(f)) };
	kvpipe_t *kv;

	newer.o.sz = sizeof(newer);
	CHECK_INT(kvpipe_connect(&newer.o, &kv), 0);
	kvpipe_close(kv);
	newer.later[1] = 1ull << 56;
	CHECK_FAILS(kvpipe_connect(&newer.o, &kv), KVPIPE_E_INVALID, "a newer library is needed");

	/* An older header's struct ended before timeout_ns: what lies behind is not ours to read. */
	struct kvpipe_connect_opts older = WORKER(.socket = fake_path(f), .timeout_ns = -5, .reserved = { 1 });
	older.sz = offsetof(struct kvpipe_connect_opts, timeout_ns);
	CHECK_INT(kvpipe_connect(&older, &kv), 0);

	older.sz = 0;
	kvpipe_t *none;
	CHECK_FAILS(kvpipe_connect(&older, &none), KVPIPE_E_INVALID, "sz is 0: initialise the struct with KVPIPE_OPTS");

	struct kvpipe_probe p;
	memset(&p, 0xee, sizeof(p));
	p.sz = offsetof(struct kvpipe_probe, max_ids);
	CHECK_INT(kvpipe_probe(kv, &p), 0);
	CHECK_INT(p.abi_lib, KVPIPE_ABI);
	CHECK_INT(p.max_ids, 0xeeeeeeee);
	struct {
		struct kvpipe_probe p;
		uint64_t later;
	} big = { .later = 77 };
	big.p.sz = sizeof(big);
	CHECK_INT(kvpipe_probe(NULL, &big.p), 0);
	CHECK_INT(big.p.sz, sizeof(big));
	CHECK_INT(big.p.max_ids, KVPIPE_MAX_IDS);
	CHECK_INT(big.p.abi_daemon, 0);
	CHECK_INT(big.later, 0);
	kvpipe_close(kv);
	fake_stop(f);
}

static struct rlimit no_more_files(void)
{
	struct rlimit was, now;

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	now.rlim_cur = 1; /* those that are open stay */
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &now), 0);
	return was;
}

/* It is this process that lacks something, and the daemon is not blamed. */
static void no_files(void)
{
	struct kvpipe_connect_opts o = WORKER(.socket = "/tmp/x");
	struct kv_message m = { .body = malloc(KVPIPE_CTL_MAX) };
	struct rlimit was;
	kvpipe_t *kv;
	int s[2];

	CHECK(m.body != NULL);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0);
	CHECK_INT(kv_ctl_send(s[0], KVPIPE_CTL_WELCOME, 1, NULL, 0, s[0], kv_now() + KV_SEC), 0);
	was = no_more_files();
	int got = kv_ctl_recv(s[1], &m, 0);
	bool full = m.full;
	int err = kvpipe_connect(&o, &kv);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
	CHECK_INT(got, KV_RECV_BAD);
	CHECK(full);
	CHECK_FAILS(err, KVPIPE_E_QUOTA, "may open no more files");

	CHECK_INT(kv_ctl_send(s[0], KVPIPE_CTL_WELCOME, 1, NULL, 0, s[0], kv_now() + KV_SEC), 0);
	CHECK_INT(kv_ctl_recv(s[1], &m, 0), 1);
	CHECK(m.nfds == 1 && !m.full);
	kv_ctl_close_fds(&m);
	CHECK_INT(send(s[0], "x", 1, 0), 1);
	CHECK_INT(kv_ctl_recv(s[1], &m, 0), KV_RECV_BAD);
	CHECK(!m.full);
	close(s[0]);
	close(s[1]);
	free(m.body);
}

/* Installs a filter, for good, by which a system call fails. */
static void fails(unsigned int call, unsigned int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog all = { KV_COUNT(code), code };

	CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all), 0);
}

static void forbid(unsigned int call) { fails(call, EPERM); }

/* The fake's thread began before the filter, which is this thread's alone. */
static void sandbox_child(void)
{
	struct fake *f = fake_start(NULL);
	struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f));
	kvpipe_region_t region;
	void *addr;
	kvpipe_t *kv;

	forbid(SYS_memfd_create);
	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), KVPIPE_E_UNAVAILABLE, "allow memfd_create");
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, KVPIPE_MEM_HUGE, &addr, &region), KVPIPE_E_UNAVAILABLE, "allow memfd_create");
	kvpipe_close(kv);
	forbid(SYS_eventfd2);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, "allow eventfd2");
	fake_stop(f);
}

/* What a sandbox forbids is named, and memory and files, of which there are enough, are not blamed. */
static void sandbox(void) { in_child(sandbox_child, 0); }

static void crowded_child(void)
{
	struct fake *f = fake_start(NULL);
	struct kvpipe_connect_opts o = WORKER(.socket = fake_path(f));
	kvpipe_region_t region;
	void *addr;
	kvpipe_t *kv;

	fails(SYS_memfd_create, ENFILE);
	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	CHECK_FAILS(kvpipe_mem_alloc(kv, 4096, 0, &addr, &region), KVPIPE_E_QUOTA, "fs.file-max");
	kvpipe_close(kv);
	fails(SYS_eventfd2, ENFILE);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_QUOTA, "fs.file-max");
	fails(SYS_socket, ENFILE);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_QUOTA, "fs.file-max");
	fake_stop(f);
}

/* Where the node has no more files, it is neither this process's limit nor the socket. */
static void crowded(void) { in_child(crowded_child, 0); }

static void codes(void)
{
	for (int i = 0; i <= KVPIPE_E_CLOSED; i++) {
		CHECK(kvpipe_strerror(i) == kvpipe_strerror(-i));
		CHECK(kvpipe_strerror(i)[0] != '\0');
	}
	CHECK_HAS(kvpipe_strerror(1000), "does not know");
	CHECK_HAS(kvpipe_strerror(INT32_MIN), "does not know");
	CHECK_INT(strcmp(kvpipe_version(), "0.1.0"), 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(success), TEST(no_daemon),
		TEST(refused), TEST(unread), TEST(shown_out), TEST(another_service), TEST(full_backlog), TEST(bad_welcomes), TEST(arguments), TEST(sizes), TEST(no_files), TEST(sandbox), TEST(crowded), TEST(codes),
	};
	return RUN(tests);
}
