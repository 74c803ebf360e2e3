/* ref-latency: the round trips that a small hand-over is measured against.
 *
 * Two servers are forked, both blocked in read. One echoes an eventfd; the
 * other answers each 64-byte request on a loopback TCP connection with 4 KiB.
 * The client does one round trip at a time, or one of each, timed together.
 * Nobody spins. Client and servers are pinned, because where they run decides
 * the result. */
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve.h"
#include "util.h"

#define REQUEST 64
#define ANSWER 4096
#define MAX_N 1000000

struct bench {
	int client_cpu, server_cpu;
	long n;
	size_t rounds;
	int ask, answer, tcp;
	uint64_t *took;
};

static void must_read(int fd, void *buf, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = read(fd, (char *)buf + got, n - got);
		if (r < 0)
			die_errno("read");
		if (r == 0)
			exit(0);
		got += (size_t)r;
	}
}

static void must_write(int fd, const void *buf, size_t n)
{
	for (size_t put = 0; put < n;) {
		ssize_t r = write(fd, (const char *)buf + put, n - put);
		if (r < 0)
			die_errno("write");
		put += (size_t)r;
	}
}

static void serve_eventfd(int ask, int answer)
{
	uint64_t v;
	for (;;) {
		must_read(ask, &v, sizeof v);
		must_write(answer, &v, sizeof v);
	}
}

static void serve_tcp(int fd)
{
	static char request[REQUEST], answer[ANSWER];
	for (;;) {
		must_read(fd, request, sizeof request);
		must_write(fd, answer, sizeof answer);
	}
}

static int tcp_pair(int *server)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0 || c < 0 || bind(l, (struct sockaddr *)&a, sizeof a) < 0 ||
	    listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &len) < 0 ||
	    connect(c, (struct sockaddr *)&a, sizeof a) < 0)
		die_errno("loopback connection");
	*server = accept(l, NULL, NULL);
	if (*server < 0)
		die_errno("accept");
	close(l);
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(*server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return c;
}

static void start_servers(struct bench *b)
{
	int server;
	b->ask = eventfd(0, EFD_CLOEXEC);
	b->answer = eventfd(0, EFD_CLOEXEC);
	if (b->ask < 0 || b->answer < 0)
		die_errno("eventfd");
	b->tcp = tcp_pair(&server);
	if (fork_child() == 0) {
		pin_cpu(b->server_cpu);
		serve_eventfd(b->ask, b->answer);
	}
	if (fork_child() == 0) {
		close(b->tcp);
		pin_cpu(b->server_cpu);
		serve_tcp(server);
	}
	close(server);
}

static void eventfd_trip(struct bench *b)
{
	uint64_t v = 1;
	must_write(b->ask, &v, sizeof v);
	must_read(b->answer, &v, sizeof v);
}

static void tcp_trip(struct bench *b)
{
	static char request[REQUEST], answer[ANSWER];
	must_write(b->tcp, request, sizeof request);
	must_read(b->tcp, answer, sizeof answer);
}

/* A percentile of two trips in a row is not the sum of the two percentiles:
 * each has its bad moments, but seldom in the same pair. */
static void both_trips(struct bench *b)
{
	eventfd_trip(b);
	tcp_trip(b);
}

static int by_value(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
	return (a > b) - (a < b);
}

static void measure(struct bench *b, const char *kind, long n,
		    void (*trip)(struct bench *))
{
	for (long i = 0; i < n / 10 + 1; i++)
		trip(b);
	for (long i = 0; i < n; i++) {
		uint64_t start = now_ns();
		trip(b);
		b->took[i] = now_ns() - start;
	}
	qsort(b->took, (size_t)n, sizeof *b->took, by_value);
	printf("{\"ref\":\"latency\",\"kind\":\"%s\",\"n\":%ld,\"p50_us\":%.3f,"
	       "\"p99_us\":%.3f,\"client_cpu\":%d,\"server_cpu\":%d}\n",
	       kind, n, (double)b->took[n / 2] / 1e3,
	       (double)b->took[n * 99 / 100] / 1e3, b->client_cpu,
	       b->server_cpu);
	fflush(stdout);
}

static void run(void *ctx, const char *args)
{
	struct bench *b = ctx;
	char kind[16] = "eventfd";
	long n = arg_long(args, "n", b->n);
	arg_text(args, "kind", kind, sizeof kind);
	if (n < 1 || n > MAX_N)
		serve_error("n: %ld is not in 1..%d", n, MAX_N);
	else if (strcmp(kind, "eventfd") == 0)
		measure(b, kind, n, eventfd_trip);
	else if (strcmp(kind, "tcp") == 0)
		measure(b, kind, n, tcp_trip);
	else if (strcmp(kind, "both") == 0)
		measure(b, kind, n, both_trips);
	else
		serve_error("kind: %s is none of eventfd, tcp, both", kind);
}

static const char usage[] =
	"usage: ref-latency [flags]\n"
	"  --client-cpu N    where the client runs (default 0, -1: anywhere)\n"
	"  --server-cpu N    where both servers run (default 1, -1: anywhere)\n"
	"  --n N             round trips a round (default 2000)\n"
	"  --rounds N        rounds of each kind, each one JSON line (default 3)\n"
	"  --serve           take commands from stdin:\n"
	"                    run [kind=eventfd|tcp|both] [n=N]\n"
	"  --help\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"client-cpu", 1, 0, 'c'}, {"server-cpu", 1, 0, 's'},
		{"n", 1, 0, 'n'},	   {"rounds", 1, 0, 'r'},
		{"serve", 0, 0, 'S'},	   {"help", 0, 0, 'h'},
		{0, 0, 0, 0}};
	struct bench b = {.server_cpu = 1, .n = 2000, .rounds = 3};
	bool serve = false;
	int c;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'c': b.client_cpu = atoi(optarg); break;
		case 's': b.server_cpu = atoi(optarg); break;
		case 'n': b.n = (long)parse_size("--n", optarg); break;
		case 'r': b.rounds = parse_size("--rounds", optarg); break;
		case 'S': serve = true; break;
		case 'h': fputs(usage, stdout); return 0;
		default: fputs(usage, stderr); return 2;
		}
	}
	b.took = calloc(MAX_N, sizeof *b.took);
	if (!b.took)
		die("no memory for %d samples", MAX_N);
	start_servers(&b);
	pin_cpu(b.client_cpu);
	if (serve) {
		serve_loop("latency", run, &b);
		return 0;
	}
	for (size_t r = 0; r < b.rounds; r++) {
		run(&b, "kind=eventfd");
		run(&b, "kind=tcp");
		run(&b, "kind=both");
	}
	return 0;
}
