/* The ways to wait for a socket. Every mode moves the same bytes with the same
 * calls; only what happens when the socket isn't ready differs. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp.h"
#include "util.h"

const char *const tcp_mode_name[TCP_MODES] = {"blocking", "waitall", "rcvlowat",
					      "spin", "rspin", "bspin"};

enum tcp_mode tcp_mode_parse(const char *name)
{
	int m = 0;
	while (m < TCP_MODES && strcmp(name, tcp_mode_name[m]))
		m++;
	return (enum tcp_mode)m;
}

static size_t iov_bytes(const struct iovec *iov, int n)
{
	size_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* Drops the first `done` bytes of *iov. */
static void iov_advance(struct iovec **iov, int *n, size_t done)
{
	while (*n && done >= (*iov)->iov_len) {
		done -= (*iov)->iov_len;
		(*iov)++;
		(*n)--;
	}
	if (done) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + done;
		(*iov)->iov_len -= done;
	}
}

/* Returns how many entries of iov one call takes: as many as fit in chunk, but
 * at least one. */
static int iov_take(const struct iovec *iov, int n, size_t chunk)
{
	size_t sum = 0;
	int k = 0;
	if (!chunk)
		return n;
	while (k < n && (k == 0 || sum + iov[k].iov_len <= chunk))
		sum += iov[k++].iov_len;
	return k;
}

static void set_lowat(int fd, size_t want)
{
	int v = (int)want;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof v) < 0)
		die_errno("SO_RCVLOWAT");
}

static void wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			die_errno("poll");
}

/* Does what the mode says after a call failed with EAGAIN. *since is when this
 * wait began, 0 if it begins now. */
static void not_ready(int fd, short events, size_t left, uint64_t *since,
		      const struct tcp_opts *o)
{
	if (o->mode == TCP_SPIN || o->mode == TCP_RSPIN)
		return;
	if (o->mode == TCP_BSPIN) {
		uint64_t now = now_ns();
		if (!*since)
			*since = now;
		if (now - *since < o->spin_ns)
			return;
	}
	if (events == POLLIN)
		set_lowat(fd, left < o->lowat ? left : o->lowat);
	wait_for(fd, events);
	*since = 0;
}

static bool is_blocking(enum tcp_mode m, bool sender)
{
	return m == TCP_BLOCKING || m == TCP_WAITALL ||
	       (m == TCP_RSPIN && sender);
}

static void move(int fd, struct iovec *iov, int n, bool sender,
		 const struct tcp_opts *o)
{
	int flags = is_blocking(o->mode, sender) ? 0 : MSG_DONTWAIT;
	size_t left = iov_bytes(iov, n);
	uint64_t since = 0;
	if (sender)
		flags |= MSG_NOSIGNAL;
	else if (o->mode == TCP_WAITALL)
		flags |= MSG_WAITALL;
	while (left) {
		struct msghdr m = {.msg_iov = iov,
				   .msg_iovlen = (size_t)iov_take(iov, n, o->chunk)};
		ssize_t r = sender ? sendmsg(fd, &m, flags) : recvmsg(fd, &m, flags);
		if (r > 0) {
			since = 0;
			left -= (size_t)r;
			iov_advance(&iov, &n, (size_t)r);
		} else if (r == 0) {
			die("the other end closed the stream");
		} else if (errno == EAGAIN) {
			not_ready(fd, sender ? POLLOUT : POLLIN, left, &since, o);
		} else if (errno != EINTR) {
			die_errno(sender ? "sendmsg" : "recvmsg");
		}
	}
}

void tcp_begin(int fd)
{
	/* A round in another mode may have left a higher mark. A sleeping
	 * reader is not woken below that mark, and would miss the end of the
	 * list. */
	set_lowat(fd, 1);
}

void tcp_send(int fd, struct iovec *iov, int n, const struct tcp_opts *o)
{
	move(fd, iov, n, true, o);
}

void tcp_recv(int fd, struct iovec *iov, int n, const struct tcp_opts *o)
{
	move(fd, iov, n, false, o);
}
