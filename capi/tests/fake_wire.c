/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake daemon says on its control socket. */
#include "fake_internal.h"

#include <sys/socket.h>

void fake_send_fds(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len, const int *fds, size_t n)
{
	struct kvpipe_ctl head = { .magic = KVPIPE_MAGIC, .type = type, .len = len, .seq = seq };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)body, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} control;

	memset(&control, 0, sizeof(control));
	if (n > 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	/* A client that went away meanwhile is not an error. */
	(void)sendmsg(f->conn, &msg, MSG_NOSIGNAL);
}

void fake_send(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len)
{
	fake_send_fds(f, type, seq, body, len, NULL, 0);
}

static void send_ack(struct fake *f, uint16_t type, uint32_t seq, uint32_t reason, uint64_t value, const char *text)
{
	uint8_t buf[sizeof(struct kvpipe_ack) + 1024];
	struct kvpipe_ack ack = { .reason = reason, .value = value, .text_len = text == NULL ? 0 : (uint32_t)strlen(text) };

	memcpy(buf, &ack, sizeof(ack));
	if (text != NULL)
		memcpy(buf + sizeof(ack), text, ack.text_len);
	fake_send(f, type, seq, buf, (uint32_t)sizeof(ack) + ack.text_len);
}

void fake_ack(struct fake *f, uint32_t seq, uint32_t reason, uint64_t value, const char *text)
{
	send_ack(f, KVPIPE_CTL_ACK, seq, reason, value, text);
}

void fake_bye(struct fake *f, uint32_t reason, const char *text)
{
	send_ack(f, KVPIPE_CTL_BYE, 0, reason, 0, text);
}

