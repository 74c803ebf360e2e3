/* ref-tcp: the best plain TCP program for a list of blocks at random places.
 *
 * There are two processes on 127.0.0.1: A (this one, which dials) and B (its
 * child, which accepts). Each has one mapping, which it reads when it sends and
 * writes when it receives. A measures from its order to B until both ends have
 * moved everything. */
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "list.h"
#include "serve.h"
#include "tcp.h"
#include "util.h"

struct bench {
	struct tcp_side send, recv; /* same base, different ids */
	size_t pool, rounds, sndbuf;
	uint64_t seed;
	const char *list;
	long streams;
	char dir[3];
	bool pin;
	struct tcp_opts o;
	int fd[TCP_MAX_STREAMS], control;
};

/* A's order to B. B answers with the number of bad blocks. */
struct order {
	struct tcp_opts o;
	int streams;
	bool b_sends, verify;
	uint64_t salt;
};

static void tune(const struct bench *b, int fd)
{
	int one = 1, size = (int)b->sndbuf;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (size)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

static int listen_on(struct bench *b, struct sockaddr_in *a)
{
	socklen_t len = sizeof *a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*a = (struct sockaddr_in){.sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (l < 0 || bind(l, (struct sockaddr *)a, sizeof *a) < 0)
		die_errno("bind");
	tune(b, l); /* before listen: accepted sockets inherit it */
	if (listen(l, TCP_MAX_STREAMS) < 0 ||
	    getsockname(l, (struct sockaddr *)a, &len) < 0)
		die_errno("listen");
	return l;
}

static void connect_all(struct bench *b, const struct sockaddr_in *a)
{
	for (int i = 0; i < TCP_MAX_STREAMS; i++) {
		b->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (b->fd[i] < 0)
			die_errno("socket");
		tune(b, b->fd[i]);
		if (connect(b->fd[i], (const struct sockaddr *)a, sizeof *a) < 0)
			die_errno("connect");
	}
}

static void accept_all(struct bench *b, int l)
{
	for (int i = 0; i < TCP_MAX_STREAMS; i++) {
		b->fd[i] = accept(l, NULL, NULL);
		if (b->fd[i] < 0)
			die_errno("accept");
		tune(b, b->fd[i]);
	}
}

static void prepare(struct bench *b, const struct order *o, bool sender)
{
	if (sender)
		mem_fill(b->send.base, b->send.ids, b->send.blocks,
			 b->send.block, o->salt);
	else
		memset(b->recv.base, 0, b->pool * b->recv.block);
}

static void b_main(struct bench *b)
{
	struct order o;
	if (b->pin)
		pin_cpu(1);
	while (read(b->control, &o, sizeof o) == sizeof o) {
		size_t bad = 0;
		if (o.verify) {
			prepare(b, &o, o.b_sends);
			/* A starts its clock only once both are ready. */
			if (write(b->control, &bad, sizeof bad) != sizeof bad)
				break;
		}
		tcp_move(o.b_sends ? &b->send : &b->recv, b->fd, o.streams,
			 o.b_sends, &o.o);
		if (o.verify && !o.b_sends)
			bad = mem_check(b->recv.base, b->recv.ids,
					b->recv.blocks, b->recv.block, o.salt);
		if (write(b->control, &bad, sizeof bad) != sizeof bad)
			break;
	}
	exit(0);
}

static size_t b_answer(struct bench *b)
{
	size_t bad;
	if (read(b->control, &bad, sizeof bad) != sizeof bad)
		die("process B has gone");
	return bad;
}

static double one_round(struct bench *b, const struct order *o)
{
	if (o->verify)
		prepare(b, o, !o->b_sends);
	uint64_t start = now_ns();
	if (write(b->control, o, sizeof *o) != sizeof *o)
		die_errno("order to process B");
	if (o->verify) {
		b_answer(b);
		start = now_ns();
	}
	tcp_move(o->b_sends ? &b->recv : &b->send, b->fd, o->streams,
		 !o->b_sends, &o->o);
	size_t bad = b_answer(b);
	double s = (double)(now_ns() - start) / 1e9;
	if (o->verify && o->b_sends)
		bad = mem_check(b->recv.base, b->recv.ids, b->recv.blocks,
				b->recv.block, o->salt);
	if (bad)
		die("%zu blocks arrived wrong", bad);
	return s;
}

static void run(void *ctx, const char *args)
{
	struct bench *b = ctx;
	struct order o = {.o = b->o, .salt = now_ns()};
	char mode[16], dir[8];
	strcpy(dir, b->dir);
	strcpy(mode, tcp_mode_name[b->o.mode]);
	arg_text(args, "mode", mode, sizeof mode);
	arg_text(args, "dir", dir, sizeof dir);
	o.o.mode = tcp_mode_parse(mode);
	o.o.joint = arg_long(args, "joint", b->o.joint);
	o.o.chunk = (size_t)arg_long(args, "chunk", (long)b->o.chunk);
	o.streams = (int)arg_long(args, "streams", b->streams);
	o.verify = arg_long(args, "verify", 0);
	o.b_sends = strcmp(dir, "ba") == 0;
	if (o.o.mode == TCP_MODES) {
		serve_error("mode: want blocking, waitall, rcvlowat, spin, rspin or bspin");
		return;
	}
	if (strcmp(dir, "ab") && strcmp(dir, "ba")) {
		serve_error("dir: want ab or ba");
		return;
	}
	if (o.streams < 1 || o.streams > TCP_MAX_STREAMS) {
		serve_error("streams: %d is not in 1..%d", o.streams,
			    TCP_MAX_STREAMS);
		return;
	}
	double s = one_round(b, &o);
	double bytes = (double)b->send.blocks * (double)b->send.block;
	printf("{\"ref\":\"tcp\",\"mode\":\"%s\",\"dir\":\"%s\",\"streams\":%d,"
	       "\"joint\":%d,\"chunk\":%zu,\"block\":%zu,\"blocks\":%zu,"
	       "\"bytes\":%.0f,\"seconds\":%.6f,\"gb_per_s\":%.3f}\n",
	       mode, dir, o.streams, o.o.joint, o.o.chunk, b->send.block,
	       b->send.blocks, bytes, s, bytes / s / 1e9);
	fflush(stdout);
}

static const char usage[] =
	"usage: ref-tcp [flags]\n"
	"  --block BYTES     bytes a block (default 64K)\n"
	"  --blocks N        blocks in the list (default 16384)\n"
	"  --pool N          blocks in each mapping (default: --blocks)\n"
	"  --seed N          of the lists, see list.h (default 1)\n"
	"  --list FILE       lists from a file instead, see list.h\n"
	"  --streams N       connections used, 1..8 (default 1)\n"
	"  --dir ab|ba       who sends: the dialling process or the other (default ab)\n"
	"  --mode MODE       blocking, waitall, rcvlowat, spin (both ends),\n"
	"                    rspin (receiver only) or bspin (bounded); without it\n"
	"                    all are run\n"
	"  --joint 0|1       header and payload in one readv (default 0)\n"
	"  --slice BYTES     payload behind one header (default 1M)\n"
	"  --chunk BYTES     most bytes a system call, 0: a slice (default 0)\n"
	"  --lowat BYTES     most that SO_RCVLOWAT asks for (default 256K)\n"
	"  --spin-us N       how long bspin spins (default 60)\n"
	"  --sndbuf BYTES    SO_SNDBUF, 0: what the kernel chooses (default 0)\n"
	"  --pin             A on CPU 0, B on CPU 1\n"
	"  --rounds N        measured rounds a mode, each one JSON line (default 5)\n"
	"  --serve           take commands from stdin: run [mode=] [dir=]\n"
	"                    [streams=] [joint=] [chunk=] [verify=1]\n"
	"  --help\n";

static const struct option options[] = {
	{"block", 1, 0, 'b'},	{"blocks", 1, 0, 'n'}, {"pool", 1, 0, 'p'},
	{"seed", 1, 0, 's'},	{"streams", 1, 0, 't'}, {"dir", 1, 0, 'D'},
	{"mode", 1, 0, 'm'},	{"joint", 1, 0, 'j'},  {"slice", 1, 0, 'l'},
	{"chunk", 1, 0, 'c'},	{"lowat", 1, 0, 'w'},  {"spin-us", 1, 0, 'u'},
	{"sndbuf", 1, 0, 'B'}, {"pin", 0, 0, 'P'},    {"rounds", 1, 0, 'r'},
	{"serve", 0, 0, 'S'},	{"list", 1, 0, 'L'},   {"help", 0, 0, 'h'},
	{0, 0, 0, 0}};

static void parse(struct bench *b, int argc, char **argv, bool *serve)
{
	int c;
	b->o.mode = TCP_MODES;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'b': b->send.block = parse_size("--block", optarg); break;
		case 'n': b->send.blocks = parse_size("--blocks", optarg); break;
		case 'p': b->pool = parse_size("--pool", optarg); break;
		case 'L': b->list = optarg; break;
		case 's': b->seed = parse_size("--seed", optarg); break;
		case 't': b->streams = (long)parse_size("--streams", optarg); break;
		case 'D': snprintf(b->dir, sizeof b->dir, "%s", optarg); break;
		case 'm':
			b->o.mode = tcp_mode_parse(optarg);
			if (b->o.mode == TCP_MODES)
				die("--mode: %s is not a mode, see --help", optarg);
			break;
		case 'j': b->o.joint = parse_size("--joint", optarg) != 0; break;
		case 'l': b->send.slice = parse_size("--slice", optarg); break;
		case 'c': b->o.chunk = parse_size("--chunk", optarg); break;
		case 'w': b->o.lowat = parse_size("--lowat", optarg); break;
		case 'u': b->o.spin_ns = 1000 * parse_size("--spin-us", optarg); break;
		case 'B': b->sndbuf = parse_size("--sndbuf", optarg); break;
		case 'P': b->pin = true; break;
		case 'r': b->rounds = parse_size("--rounds", optarg); break;
		case 'S': *serve = true; break;
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (b->send.block < 8 || b->send.block % 8)
		die("--block: %zu is not a multiple of 8", b->send.block);
	if (b->send.slice / b->send.block < 1 ||
	    b->send.slice / b->send.block >= TCP_MAX_IOV)
		die("--block: a slice of %zu bytes holds %zu blocks of %zu, want 1..%d",
		    b->send.slice, b->send.slice / b->send.block, b->send.block,
		    TCP_MAX_IOV - 1);
	if (!b->pool)
		b->pool = b->send.blocks;
}

static void start(struct bench *b)
{
	struct sockaddr_in a;
	int l = listen_on(b, &a), pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die_errno("socketpair");
	b->recv = b->send;
	b->send.ids = b->list ? list_load(b->list, false, b->pool, b->send.blocks) :
				list_draw(b->seed, b->pool, b->send.blocks);
	b->recv.ids = b->list ? list_load(b->list, true, b->pool, b->send.blocks) :
				list_draw(b->seed + LIST_DST, b->pool, b->send.blocks);
	bool child = fork_child() == 0;
	b->control = pair[child];
	close(pair[!child]);
	if (child)
		accept_all(b, l);
	else
		connect_all(b, &a);
	close(l);
	b->send.base = mem_map("ref-tcp", b->pool * b->send.block);
	b->recv.base = b->send.base;
	if (child)
		b_main(b);
	if (b->pin)
		pin_cpu(0);
}

int main(int argc, char **argv)
{
	struct bench b = {.send = {.block = 65536, .blocks = 16384, .slice = 1 << 20},
			  .rounds = 5, .seed = 1, .streams = 1, .dir = "ab",
			  .o = {.lowat = 256 << 10, .spin_ns = 60000}};
	bool serve = false;
	parse(&b, argc, argv, &serve);
	bool all = b.o.mode == TCP_MODES;
	if (all)
		b.o.mode = TCP_WAITALL;
	start(&b);
	if (serve) {
		serve_loop("tcp", run, &b);
		return 0;
	}
	one_round(&b, &(struct order){.o = b.o, .streams = 1, .verify = true});
	/* Modes take turns, so that a disturbance affects all of them. */
	for (size_t r = 0; r < b.rounds; r++) {
		char args[32];
		for (int m = 0; all && m < TCP_MODES; m++) {
			snprintf(args, sizeof args, "mode=%s", tcp_mode_name[m]);
			run(&b, args);
		}
		if (!all)
			run(&b, "");
	}
	return 0;
}
