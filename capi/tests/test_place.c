/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon is looked for when nobody says where it is, whose those places are, and who may use them. */
#include "check.h"
#include "child.h"
#include "fakedaemon.h"
#include "internal.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define WORKER(...) KVPIPE_OPTS(kvpipe_connect_opts, .engine_id = "e", .role = KVPIPE_ROLE_WORKER, __VA_ARGS__)

static char dir[64];

static void make_dir(void)
{
	strcpy(dir, "/tmp/kvpipe-test-XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
}

static void dev_default(void)
{
	char path[160];
	kvpipe_t *kv;
	struct kvpipe_connect_opts o = WORKER(.socket = NULL);

	if (access("/run/kvpipe/kvpiped.sock", F_OK) == 0)
		SKIP("this machine has a daemon of the node, which is found first");
	make_dir();
	setenv("XDG_RUNTIME_DIR", dir, 1);
	snprintf(path, sizeof(path), "/run/kvpipe/kvpiped.sock or %s/kvpipe/kvpiped.sock", dir);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_UNAVAILABLE, path);
	unsetenv("XDG_RUNTIME_DIR");
	rmdir(dir);
}

static const char *denied_path, *denied_to;

static void denied_child(void)
{
	struct kvpipe_connect_opts o = WORKER(.socket = denied_path);
	kvpipe_t *kv;

	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_DENIED, denied_to);
	CHECK_HAS(kvpipe_last_error(), "run as ");
}

static void denied_when(mode_t folder, mode_t sock, const char *to)
{
	denied_to = to;
	CHECK(chmod(denied_path, sock) == 0 && chmod(dir, folder) == 0);
	as_nobody(denied_child);
	CHECK(chmod(dir, 0700) == 0);
}

static void denied(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0); /* no fake: its thread might be anywhere when there is a fork */

	make_dir();
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", dir);
	denied_path = addr.sun_path;
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(s, 1) == 0);
	if (geteuid() == 0) { /* the mode says to whom it is open; who is in that group needs no advice */
		denied_when(0755, 0660, "/sock is for members of group \"");
		denied_when(0710, 0666, "is for members of group \""); /* out of reach: the directory counts */
	}
	denied_when(0755, geteuid() == 0 ? 0600 : 0, "/sock is for user \"");
	denied_when(geteuid() == 0 ? 0700 : 0, 0666, "is for user \"");
	close(s);
	unlink(denied_path);
	rmdir(dir);
	if (geteuid() != 0)
		SKIP("members of its group are let in: what others hear of it needs root");
}

struct said {
	int rc;
	char text[KV_TEXT];
};

/* As whoever is not told where the daemon is, with system for the system's socket. */
static struct said dial_default(const char *system)
{
	struct said s = { .rc = 0 };
	struct kv_paths paths;
	const char *at;
	int sock = -1;

	s.rc = kv_find_default(system, &paths);
	if (s.rc == 0)
		s.rc = kv_dial(&paths, kv_now() + KV_CALL_NS, &sock, &at);
	if (s.rc == 0)
		close(sock);
	else
		snprintf(s.text, sizeof(s.text), "%s", kvpipe_last_error());
	return s;
}

/* When nothing is at the system's place, when a daemon that is gone has left its socket there, and when one listens. */
static void dial_in_turn(struct said out[3])
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	make_dir();
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", dir);
	out[0] = dial_default(addr.sun_path);
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	out[1] = dial_default(addr.sun_path);
	CHECK(listen(s, 1) == 0);
	out[2] = dial_default(addr.sun_path);
	close(s);
	unlink(addr.sun_path);
	rmdir(dir);
}

/* What is wrong with the place of --dev counts where the system has no daemon, and only there. */
static void only_without_system(const struct said s[3], int reason, const char *words)
{
	for (int i = 0; i < 2; i++) {
		CHECK_INT(s[i].rc, -reason);
		CHECK_HAS(s[i].text, "no daemon at /tmp/kvpipe-test-");
		CHECK_HAS(s[i].text, words);
	}
	CHECK_INT(s[2].rc, 0);
}

static char tmp[64], tmp_dir[80], tmp_socket[96];

/* A /tmp of the test's own, with the directory of uid's daemon. */
static void make_tmp(unsigned int uid, mode_t mode)
{
	strcpy(tmp, "/tmp/kvpipe-test-XXXXXX");
	CHECK(mkdtemp(tmp) != NULL && chmod(tmp, 0755) == 0);
	kv_tmp = tmp;
	snprintf(tmp_dir, sizeof(tmp_dir), "%s/kvpipe-%u", tmp, uid);
	snprintf(tmp_socket, sizeof(tmp_socket), "%s/kvpiped.sock", tmp_dir);
	CHECK(mkdir(tmp_dir, 0700) == 0 && chmod(tmp_dir, mode) == 0);
	unsetenv("XDG_RUNTIME_DIR");
}

static void drop_tmp(void)
{
	unlink(tmp_socket);
	rmdir(tmp_dir);
	CHECK_INT(rmdir(tmp), 0);
	kv_tmp = "/tmp";
}

/* A directory in /tmp that somebody else could have made is refused. */
static void planted(void)
{
	struct said open_to_all[3], file[3];

	make_tmp(geteuid(), 0777);
	dial_in_turn(open_to_all);
	rmdir(tmp_dir);
	close(open(tmp_dir, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
	dial_in_turn(file);
	unlink(tmp_dir);
	drop_tmp();
	only_without_system(open_to_all, KVPIPE_E_DENIED, "with mode 0777, must be uid");
	only_without_system(file, KVPIPE_E_DENIED, "is not a directory");
}

/* Nor is a socket below it that was named, until the directory is its user's alone. */
static void planted_and_named(void)
{
	kvpipe_t *kv;

	make_tmp(geteuid(), 0755);
	struct fake *f = fake_start(NULL);
	struct kvpipe_connect_opts o = WORKER(.socket = tmp_socket);
	CHECK(symlink(fake_path(f), tmp_socket) == 0);
	CHECK_FAILS(kvpipe_connect(&o, &kv), KVPIPE_E_DENIED, "with mode 0755, must be uid");
	CHECK_HAS(kvpipe_last_error(), "remove it, or name another socket than ");
	CHECK(chmod(tmp_dir, 0700) == 0);
	CHECK_INT(kvpipe_connect(&o, &kv), 0);
	kvpipe_close(kv);
	fake_stop(f);
	drop_tmp();
}

static void long_dev_default(void)
{
	struct said said[3];
	char deep[150];

	memset(deep, '/', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	setenv("XDG_RUNTIME_DIR", deep, 1);
	dial_in_turn(said);
	unsetenv("XDG_RUNTIME_DIR");
	only_without_system(said, KVPIPE_E_INVALID, "socket path from XDG_RUNTIME_DIR has 169 bytes, must be 1 to 107");
}

static int listen_at(const char *path, bool listens)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	CHECK(bind(s, (struct sockaddr *)&addr, sizeof(addr)) == 0 && (!listens || listen(s, 1) == 0));
	return s;
}

/* The node's service is not for us, and perhaps not there: our own daemon is used where there is one, and else it is said who may. */
static void barred_child(void)
{
	char run[] = "/tmp/kvpipe-xdg-XXXXXX", own[64], at[80];

	CHECK(mkdtemp(run) != NULL);
	snprintf(own, sizeof(own), "%s/kvpipe", run);
	snprintf(at, sizeof(at), "%s/kvpiped.sock", own);
	CHECK_INT(mkdir(own, 0700), 0);
	setenv("XDG_RUNTIME_DIR", run, 1);
	struct said without = dial_default(denied_path);
	int s = listen_at(at, true);
	struct said with = dial_default(denied_path);
	close(s);
	unlink(at);
	rmdir(own);
	rmdir(run);
	CHECK_INT(without.rc, -KVPIPE_E_DENIED);
	CHECK_HAS(without.text, "/sock is for ");
	CHECK_INT(with.rc, 0);
}

static void barred(void)
{
	char path[80];

	make_dir();
	snprintf(path, sizeof(path), "%s/sock", dir);
	denied_path = path;
	int s = listen_at(path, false); /* as systemd leaves it when the service is stopped */
	CHECK(chmod(path, geteuid() == 0 ? 0660 : 0) == 0 && chmod(dir, 0755) == 0);
	as_nobody(barred_child);
	close(s);
	unlink(path);
	rmdir(dir);
}

static void listener_child(void)
{
	struct said s = dial_default("/tmp/kvpipe-none/kvpiped.sock");

	CHECK_INT(s.rc, -KVPIPE_E_DENIED);
	CHECK_HAS(s.text, "uid 0 listens there, must be uid 65534: remove ");
	CHECK_HAS(s.text, tmp_dir);
}

/* Nor is anybody spoken to there who is somebody else, whatever the directory looked like a moment ago. */
static void planted_listener(void)
{
	if (geteuid() != 0)
		SKIP("one user alone cannot be two: run it as root");
	make_tmp(65534, 0700);
	int s = listen_at(tmp_socket, true);
	CHECK(chown(tmp_dir, 65534, 65534) == 0 && chmod(tmp_socket, 0666) == 0);
	as_nobody(listener_child);
	close(s);
	drop_tmp();
}

/* A directory that has taken the place of ours since, such as after a clean-up of /tmp: nobody there hears of the session. */
static void replaced(void)
{
	bool refused = false;
	unsigned int sessions;

	make_tmp(geteuid(), 0700);
	struct fake *f = fake_start(NULL), *other = fake_start(NULL);
	struct kvpipe_connect_opts o = WORKER(.socket = tmp_socket);
	kvpipe_t *kv;
	CHECK(symlink(fake_path(f), tmp_socket) == 0 && kvpipe_connect(&o, &kv) == 0);
	CHECK(unlink(tmp_socket) == 0 && symlink(fake_path(other), tmp_socket) == 0 && chmod(tmp_dir, 0755) == 0);
	fake_hang_up(f);
	while (!refused) {
		sched_yield();
		pthread_mutex_lock(&kv->lock);
		refused = kv->refused != 0;
		pthread_mutex_unlock(&kv->lock);
		sessions = fake_sessions(other);
		refused = refused || sessions > 0;
	}
	int err = kvpipe_mem_unregister(kv, 1, KV_MS);
	char why[KV_TEXT];
	snprintf(why, sizeof(why), "%s", kvpipe_last_error());
	chmod(tmp_dir, 0700);
	fake_await_sessions(other, 1); /* it is ours again */
	kvpipe_close(kv);
	fake_stop(other);
	fake_stop(f);
	drop_tmp();
	CHECK_INT(sessions, 0);
	CHECK_INT(err, -KVPIPE_E_UNAVAILABLE);
	CHECK_HAS(why, "with mode 0755, must be uid");
}

/* Its name is spelled in many ways. */
static void planted_by_another_name(void)
{
	char path[200];
	const char *last;

	make_tmp(geteuid(), 0777);
	last = strrchr(tmp, '/') + 1;
#define DENIED(...) \
	do { \
		snprintf(path, sizeof(path), __VA_ARGS__); \
		CHECK_FAILS(kv_check_place(path), KVPIPE_E_DENIED, "with mode 0777, must be uid"); \
	} while (0)
	DENIED("%s/kvpiped.sock", tmp_dir);
	DENIED("/%s//kvpiped.sock", tmp_dir);
	DENIED("%s/./kvpipe-%u/kvpiped.sock", tmp, (unsigned int)geteuid());
	DENIED("%s/../%s/kvpipe-%u/a/kvpiped.sock", tmp, last, (unsigned int)geteuid());
	DENIED("/../..%s/kvpipe-%u/b/../kvpiped.sock", tmp, (unsigned int)geteuid());
	CHECK(chdir(tmp) == 0);
	DENIED("kvpipe-%u/kvpiped.sock", (unsigned int)geteuid());
	CHECK(chdir("/") == 0);
	DENIED("%s/kvpiped.sock", tmp_dir + 1);
	/* Its neighbours are not it. */
	snprintf(path, sizeof(path), "%s/../kvpiped.sock", tmp_dir);
	CHECK_INT(kv_check_place(path), 0);
	snprintf(path, sizeof(path), "%s0/kvpiped.sock", tmp_dir);
	CHECK_INT(kv_check_place(path), 0);
	CHECK_INT(kv_check_place(tmp_dir), 0);
	drop_tmp();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(dev_default), TEST(denied), TEST(planted), TEST(long_dev_default), TEST(barred), TEST(planted_listener),
		TEST(planted_and_named), TEST(planted_by_another_name), TEST(replaced),
	};
	return RUN(tests);
}
