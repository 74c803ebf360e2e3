/* ref-tcp: the parts of the plain TCP program.
 *
 * Blocks travel in slices (by default of at most 1 MiB): a 64-byte header and
 * the slice's blocks. sendmsg gathers the blocks from where they lie, and
 * recvmsg scatters them to where they belong. Stream s of n carries slices s,
 * s+n, s+2n, ...
 */
#ifndef BENCH_TCP_H
#define BENCH_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define TCP_MAX_STREAMS 8
#define TCP_MAX_IOV 1024 /* Linux's UIO_MAXIOV */

/* How a thread waits for its socket. */
enum tcp_mode {
	TCP_BLOCKING, /* sendmsg and recvmsg sleep in the kernel */
	TCP_WAITALL,  /* the same, but recvmsg with MSG_WAITALL */
	TCP_RCVLOWAT, /* non-blocking, poll, SO_RCVLOWAT set to what is missing */
	TCP_SPIN,     /* MSG_DONTWAIT again and again, both ends */
	TCP_RSPIN,    /* the receiver spins, the sender blocks */
	TCP_BSPIN,    /* spin for a while, then poll with SO_RCVLOWAT */
	TCP_MODES
};

extern const char *const tcp_mode_name[TCP_MODES];
/* TCP_MODES if there is no mode of that name. */
enum tcp_mode tcp_mode_parse(const char *name);

struct tcp_opts {
	enum tcp_mode mode;
	size_t lowat;	 /* most that SO_RCVLOWAT asks for, in bytes */
	uint64_t spin_ns; /* how long TCP_BSPIN spins */
	size_t chunk;	 /* most bytes per system call; 0: a whole slice */
	bool joint; /* header and payload in one recvmsg: the receiver knows
		     * the list, and need not look at the header first */
};

/* tcp_io.c: prepares a receiver's socket for a round. */
void tcp_begin(int fd);

/* tcp_io.c: moves all of iov (which it consumes), or exits. */
void tcp_send(int fd, struct iovec *iov, int n, const struct tcp_opts *o);
void tcp_recv(int fd, struct iovec *iov, int n, const struct tcp_opts *o);

/* tcp_stream.c: one end's blocks. */
struct tcp_side {
	uint8_t *base;
	uint32_t *ids;
	size_t block, blocks, slice;
};

/* Sends or receives the whole list over nfd streams, with one thread per stream
 * (the caller is the first). */
void tcp_move(const struct tcp_side *side, const int *fd, int nfd, bool sender,
	      const struct tcp_opts *o);

#endif
