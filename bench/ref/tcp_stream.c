/* Slices: which blocks, which stream, header and payload. */
#include <pthread.h>
#include <string.h>

#include "tcp.h"
#include "util.h"

#define MAGIC 0x6563696c73666572u

struct header {
	uint64_t magic;
	uint32_t slice, bytes;
	uint8_t reserved[48];
};

struct stream {
	const struct tcp_side *side;
	const struct tcp_opts *o;
	int fd, index, of;
	bool sender;
};

static void check_header(const struct header *h, const struct header *want)
{
	if (h->magic != want->magic || h->slice != want->slice ||
	    h->bytes != want->bytes)
		die("slice %u of %u bytes came, want slice %u of %u", h->slice,
		    h->bytes, want->slice, want->bytes);
}

static void one_slice(const struct stream *s, size_t slice, size_t first,
		      size_t count)
{
	const struct tcp_side *d = s->side;
	struct iovec iov[TCP_MAX_IOV];
	struct header want = {.magic = MAGIC, .slice = (uint32_t)slice,
			      .bytes = (uint32_t)(count * d->block)};
	struct header h = want;
	int n = 1;
	iov[0] = (struct iovec){&h, sizeof h};
	for (size_t i = first; i < first + count; i++)
		iov[n++] = (struct iovec){
			d->base + (size_t)d->ids[i] * d->block, d->block};
	if (s->sender) {
		tcp_send(s->fd, iov, n, s->o);
	} else if (s->o->joint) {
		tcp_recv(s->fd, iov, n, s->o);
		check_header(&h, &want);
	} else {
		tcp_recv(s->fd, iov, 1, s->o);
		check_header(&h, &want);
		tcp_recv(s->fd, iov + 1, n - 1, s->o);
	}
}

static void *stream_main(void *arg)
{
	const struct stream *s = arg;
	const struct tcp_side *d = s->side;
	size_t per = d->slice / d->block;
	size_t slices = (d->blocks + per - 1) / per;
	if (!s->sender)
		tcp_begin(s->fd);
	for (size_t i = (size_t)s->index; i < slices; i += (size_t)s->of) {
		size_t first = i * per, count = d->blocks - first;
		one_slice(s, i, first, count < per ? count : per);
	}
	return NULL;
}

void tcp_move(const struct tcp_side *side, const int *fd, int nfd, bool sender,
	      const struct tcp_opts *o)
{
	struct stream s[TCP_MAX_STREAMS];
	pthread_t id[TCP_MAX_STREAMS];
	for (int i = 0; i < nfd; i++) {
		s[i] = (struct stream){side, o, fd[i], i, nfd, sender};
		if (i && pthread_create(&id[i], NULL, stream_main, &s[i]))
			die("pthread_create failed");
	}
	stream_main(&s[0]);
	for (int i = 1; i < nfd; i++)
		pthread_join(id[i], NULL);
}
