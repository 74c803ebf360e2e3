/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon's socket is. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ELSEWHERE "name another socket than %s (KVPIPE_SOCKET)"
#define SYSTEM_SOCKET "/run/kvpipe/kvpiped.sock"

const char *kv_tmp = "/tmp";

static int add(struct kv_paths *out, const char *path, const char *from)
{
	size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	size_t len = strlen(path);

	if (len == 0 || len > max)
		return kv_err(KVPIPE_E_INVALID, "socket path from %s has %zu bytes, must be 1 to %zu: \"%.60s\"", from, len,
			      max, path);
	memcpy(out->path[out->n++], path, len + 1);
	return 0;
}

/* Writes the directory of `kvpiped --dev` for when there is no XDG_RUNTIME_DIR; returns its length. */
static size_t tmp_dir(char *to, size_t size)
{
	return (size_t)snprintf(to, size, "%s/kvpipe-%u", kv_tmp, (unsigned int)geteuid());
}

/* Anybody may make a directory in /tmp: our daemon's can only be one that is ours alone. path: the daemon's socket. */
static int check_private(const char *dir, const char *path)
{
	struct stat st;

	if (lstat(dir, &st) != 0)
		return errno == ENOENT ? 0 : kv_err(KVPIPE_E_DENIED, "%s: %s", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return kv_err(KVPIPE_E_DENIED, "%s is not a directory: remove it, or " ELSEWHERE, dir, path);
	if (st.st_uid != geteuid() || (st.st_mode & 07777) != 0700)
		return kv_err(KVPIPE_E_DENIED,
			      "%s belongs to uid %u with mode %04o, must be uid %u with mode 0700: remove it, or " ELSEWHERE, dir,
			      (unsigned int)st.st_uid, (unsigned int)(st.st_mode & 07777), (unsigned int)geteuid(), path);
	return 0;
}

/* Writes path as one from "/" without "", "." and "..", as its words are: a link on the way is not followed. False: it is too long. */
static bool plain(const char *path, char *to, size_t size)
{
	size_t len = 0;

	if (path[0] != '/') {
		if (getcwd(to, size) == NULL)
			return false;
		len = strlen(to) == 1 ? 0 : strlen(to);
	}
	while (*path != '\0') {
		size_t n = strcspn(path, "/");
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && to[--len] != '/')
				;
		} else if (n > 0 && (n != 1 || path[0] != '.')) {
			if (len + 1 + n >= size)
				return false;
			to[len++] = '/';
			memcpy(to + len, path, n);
			len += n;
		}
		path += path[n] == '/' ? n + 1 : n;
	}
	to[len] = '\0';
	return true;
}

/* Whether the path leads into it, however it is spelled. */
static bool in_tmp_dir(const char *path, char *dir, size_t size)
{
	size_t len = tmp_dir(dir, size);
	char spelled[4096 + sizeof(((struct sockaddr_un *)0)->sun_path)];

	return plain(path, spelled, sizeof(spelled)) && strncmp(spelled, dir, len) == 0 && spelled[len] == '/';
}

int kv_check_place(const char *path)
{
	char dir[64];

	return in_tmp_dir(path, dir, sizeof(dir)) ? check_private(dir, path) : 0;
}

int kv_check_listener(const char *path, int sock)
{
	char dir[64];
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);

	if (!in_tmp_dir(path, dir, sizeof(dir)))
		return 0;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0)
		return kv_err(KVPIPE_E_DENIED, "%s: who listens there is not known: %s", path, strerror(errno));
	if (who.uid != geteuid())
		return kv_err(KVPIPE_E_DENIED, "%s: uid %u listens there, must be uid %u: remove %s, or " ELSEWHERE, path,
			      (unsigned int)who.uid, (unsigned int)geteuid(), dir, path);
	return 0;
}

/* The socket of `kvpiped --dev`. */
static int add_dev(struct kv_paths *out)
{
	char path[4096];
	const char *run = secure_getenv("XDG_RUNTIME_DIR");

	if (run != NULL && run[0] == '/') {
		snprintf(path, sizeof(path), "%s/kvpipe/kvpiped.sock", run);
		return add(out, path, "XDG_RUNTIME_DIR");
	}
	size_t len = tmp_dir(path, sizeof(path));
	snprintf(path + len, sizeof(path) - len, "/kvpiped.sock");
	int err = kv_check_place(path);
	return err != 0 ? err : add(out, path, "the user id");
}

int kv_find_default(const char *system, struct kv_paths *out)
{
	*out = (struct kv_paths){ 0 };
	int err = add(out, system, "the system");

	if (err == 0)
		out->err = add_dev(out);
	/* Anybody may spoil the directory in /tmp. That must not keep us from the system's daemon; it is said when that is not there. */
	if (out->err != 0)
		snprintf(out->why, sizeof(out->why), "%s", kvpipe_last_error());
	return err;
}

int kv_find_socket(const char *given, struct kv_paths *out)
{
	const char *env = secure_getenv("KVPIPE_SOCKET");

	*out = (struct kv_paths){ 0 };
	if (given != NULL) {
		out->named = "";
		return add(out, given, "opts.socket");
	}
	if (env != NULL && env[0] != '\0') {
		out->named = ", which KVPIPE_SOCKET names";
		return add(out, env, "KVPIPE_SOCKET");
	}
	return kv_find_default(SYSTEM_SOCKET, out);
}
