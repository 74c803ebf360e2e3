/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages on the wire: one SEQPACKET datagram each, descriptors beside it. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 1: ready, 0: the deadline passed. */
static int wait_ready(int sock, short events, int64_t deadline)
{
	struct pollfd p = { .fd = sock, .events = events };

	for (;;) {
		int64_t left = deadline - kv_now();
		if (left <= 0)
			return 0;
		struct timespec ts = kv_timespec(left);
		int n = ppoll(&p, 1, &ts, NULL);
		if (n > 0)
			return 1;
	}
}

int kv_ctl_send(int sock, uint16_t type, uint32_t seq, const void *body, size_t len, int fd, int64_t deadline)
{
	struct kvpipe_ctl head = { .magic = KVPIPE_MAGIC, .type = type, .len = (uint32_t)len, .seq = seq };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)body, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = len > 0 ? 2 : 1 };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	for (;;) {
		if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
			return kv_err(KVPIPE_E_UNAVAILABLE, "the daemon closed the connection: %s", strerror(errno));
		if (errno != EAGAIN && errno != ENOBUFS)
			return kv_err(KVPIPE_E_QUOTA, "nothing can be sent to the daemon: %s", kv_why(errno));
		if (!wait_ready(sock, POLLOUT, deadline))
			return kv_err(KVPIPE_E_TIMEOUT, "the daemon does not read its socket: " KV_LOOK);
	}
}

static void take_fds(struct kv_message *m, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (m->nfds < (int)KV_COUNT(m->fds))
				m->fds[m->nfds++] = fd;
			else
				close(fd);
		}
	}
}

void kv_ctl_close_fds(struct kv_message *m)
{
	while (m->nfds > 0)
		close(m->fds[--m->nfds]);
}

int kv_ctl_recv(int sock, struct kv_message *m, int64_t deadline)
{
	struct iovec iov[2] = { { &m->head, sizeof(m->head) }, { m->body, KVPIPE_CTL_MAX } };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * 8)];
	} control;
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control.buf };

	m->nfds = 0;
	m->full = false;
	for (bool last = deadline == 0;;) {
		msg.msg_controllen = sizeof(control.buf);
		ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* ECONNRESET, once: the other end closed without having read all. What it said before can still be read. */
		if (n < 0 && (errno == EINTR || errno == ECONNRESET))
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (last)
				return 0;
			last = !wait_ready(sock, POLLIN, deadline); /* this process may have stood still until then */
			continue;
		}
		if (n <= 0)
			return KV_RECV_EOF;
		take_fds(m, &msg);
		if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && (size_t)n >= sizeof(m->head) &&
		    m->head.magic == KVPIPE_MAGIC && m->head.len == (size_t)n - sizeof(m->head))
			return 1;
		m->full = (msg.msg_flags & MSG_CTRUNC) != 0 && m->nfds < (int)KV_COUNT(m->fds); /* though control had room for more */
		kv_ctl_close_fds(m);
		return KV_RECV_BAD;
	}
}

bool kv_ctl_ack(const struct kv_message *m, struct kvpipe_ack *ack, char text[KV_TEXT])
{
	if (m->head.len < sizeof(*ack))
		return false;
	memcpy(ack, m->body, sizeof(*ack));
	if (ack->text_len > m->head.len - sizeof(*ack))
		return false;
	size_t n = ack->text_len < KV_TEXT - 1 ? ack->text_len : KV_TEXT - 1;
	memcpy(text, m->body + sizeof(*ack), n);
	text[n] = '\0';
	return true;
}
