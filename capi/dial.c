/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to the daemon's socket, and saying what to do when that fails. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* The group or user that owns the file, by name, or by number when it has none. */
static const char *owner(const struct stat *st, bool group, char *buf, size_t len)
{
	struct passwd pw, *user = NULL;
	struct group gr, *members = NULL;

	if (group && getgrgid_r(st->st_gid, &gr, buf, len, &members) == 0 && members != NULL)
		return gr.gr_name;
	if (!group && getpwuid_r(st->st_uid, &pw, buf, len, &user) == 0 && user != NULL)
		return pw.pw_name;
	snprintf(buf, len, "%u", (unsigned int)(group ? st->st_gid : st->st_uid));
	return buf;
}

/* Says who may use the socket, or its directory if the socket is out of reach: the group if the mode lets it in, else the user. */
static int denied(const char *path, int why)
{
	char file[sizeof(((struct kv_paths *)0)->path[0])], buf[1024];
	struct stat st;

	snprintf(file, sizeof(file), "%s", path);
	if (stat(file, &st) != 0) {
		char *slash = strrchr(file, '/');
		if (slash == NULL || slash == file)
			return kv_err(KVPIPE_E_DENIED, "%s: %s", path, strerror(why));
		*slash = '\0';
		if (stat(file, &st) != 0)
			return kv_err(KVPIPE_E_DENIED, "%s: %s", path, strerror(why));
	}
	bool group = (st.st_mode & (S_ISDIR(st.st_mode) ? S_IXGRP : S_IWGRP)) != 0;
	return kv_err(KVPIPE_E_DENIED, "%s: %s: %s is for %s \"%s\" alone (mode %04o): %s", path, strerror(why), file,
		      group ? "members of group" : "user", owner(&st, group, buf, sizeof(buf)),
		      (unsigned int)(st.st_mode & 07777), group ? "run as one of them" : "run as that user");
}

/* Returns an errno. EAGAIN: the daemon's backlog was full until the deadline. */
static int connect_by(int sock, const char *path, int64_t deadline)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	memcpy(addr.sun_path, path, strlen(path));
	do { /* a signal ends an attempt; each gets the time that is left */
		int64_t left = deadline - kv_now();
		struct timeval tv = { .tv_sec = (time_t)(left / KV_SEC), .tv_usec = (suseconds_t)(left % KV_SEC / 1000) };
		if (left < 1000) /* a timeout of 0 would mean for ever */
			return EAGAIN;
		setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
		if (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) == 0)
			return 0;
	} while (errno == EINTR);
	return errno;
}

/* Returns the socket, or -errno. */
static int dial_one(const char *path, int64_t deadline)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (sock < 0)
		return -errno;
	int err = connect_by(sock, path, deadline);
	if (err == 0 && fcntl(sock, F_SETFL, O_NONBLOCK) != 0)
		err = errno;
	if (err == 0)
		return sock;
	close(sock);
	return -err;
}

bool kv_nobody(int err)
{
	return err == ENOENT || err == ENOTDIR || err == ECONNREFUSED; /* the last: a daemon that is gone left its socket behind */
}

/* Connects to a daemon only if it may be trusted with all we say. Returns the socket, or -errno; *err is then the error, if its text
 * is set already, else 0. */
static int dial_ours(const char *path, int64_t deadline, int *err)
{
	*err = kv_check_place(path);
	if (*err != 0)
		return -EPERM;
	int sock = dial_one(path, deadline);
	if (sock < 0)
		return sock;
	*err = kv_check_listener(path, sock);
	if (*err == 0)
		return sock;
	close(sock);
	return -EPERM;
}

static int failed(const char *path, int why, int64_t patience)
{
	switch (why) {
	case EAGAIN:
		return kv_err(KVPIPE_E_UNAVAILABLE, "%s: the daemon does not accept connections within %s: " KV_LOOK, path, KV_SPAN(patience));
	case EMFILE:
	case ENFILE:
		return kv_err(KVPIPE_E_QUOTA, "connect: %s", kv_why(why));
	default:
		return kv_err(KVPIPE_E_UNAVAILABLE, "%s: %s: is it the socket of kvpiped?", path, strerror(why));
	}
}

int kv_dial(const struct kv_paths *paths, int64_t deadline, int *sock, const char **path)
{
	int64_t start = kv_now();
	const char *barred = NULL; /* whether anybody listens there cannot be known, so it counts only if nobody answers elsewhere */
	int barred_by = 0, err;

	for (int i = 0; i < paths->n; i++) {
		*path = paths->path[i];
		*sock = dial_ours(*path, deadline, &err);
		if (*sock >= 0 || err != 0)
			return err;
		if (*sock == -EACCES || *sock == -EPERM) {
			barred = barred != NULL ? barred : *path;
			barred_by = barred_by != 0 ? barred_by : *sock;
		} else if (!kv_nobody(-*sock)) {
			return failed(*path, -*sock, deadline - start);
		}
	}
	if (barred != NULL) {
		*sock = barred_by;
		return denied(barred, -barred_by);
	}
	/* python/kvpipe/vllm/session.py looks for "no daemon at PATH", and then says what to do in a pod. */
	if (paths->err != 0)
		return kv_err((enum kvpipe_reason)-paths->err, "no daemon at %s, and of \"kvpiped --dev\" none is looked for: %s",
			      paths->path[0], paths->why);
	if (paths->named != NULL)
		return kv_err(KVPIPE_E_UNAVAILABLE,
			      "no daemon at %s%s: start one there (\"systemctl start kvpiped\", or \"kvpiped --dev --socket %s\"), "
			      "or name a running daemon's socket",
			      paths->path[0], paths->named, paths->path[0]);
	return kv_err(KVPIPE_E_UNAVAILABLE,
		      "no daemon at %s%s%s: start \"kvpiped --dev\", or point KVPIPE_SOCKET at a running daemon's socket",
		      paths->path[0], paths->n > 1 ? " or " : "", paths->n > 1 ? paths->path[1] : "");
}
