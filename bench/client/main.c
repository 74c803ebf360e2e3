/* bench-client: flags and main. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "serve.h"
#include "util.h"

static const char usage[] =
	"usage: bench-client [flags]\n"
	"  --socket PATH     of the daemon (default: where the library looks)\n"
	"  --engine ID       engine id (default bench)\n"
	"  --block BYTES     bytes a block (default 64K)\n"
	"  --blocks N        blocks in list and region (default 16384)\n"
	"  --tokens N        tokens a block (default 16)\n"
	"  --seed N          of the lists, see list.h (default 1)\n"
	"  --sequential      list 0, 1, 2, ... instead of a random one\n"
	"  --cpu N           where this process runs (default -1: anywhere)\n"
	"  --completions N   room in the completion ring (default: the library's)\n"
	"  --help\n"
	"Then, a line each on stdin:\n"
	"  run do=offer key=K              offer the whole list\n"
	"  run do=take key=K [peer=NODE]   take it\n"
	"  run do=offers key=K n=N         offer one block, N times\n"
	"  run do=takes key=K n=N [peer=NODE] [spin=1] [settle=M]   take these, one by one, M untimed\n"
	"  run do=regions n=N              N further regions of a block\n"
	"  run do=back                     until a restarted daemon has all back\n"
	"  run do=wait                     until all offers are consumed\n"
	"  run do=fill salt=S              a pattern into the source list\n"
	"  run do=check salt=S [sent=1]    is it in the destination list, or where it was sent from?\n"
	"  run do=source key=K             the sending end of pipe K\n"
	"  run do=sink key=K [peer=NODE]   the receiving end\n"
	"  run do=send n=N size=BYTES      N tensors, until they are received\n"
	"  run do=recv n=N size=BYTES      these\n"
	"  run do=keep n=N size=BYTES      these, each where the sender has it\n"
	"  run do=insert key=K n=N         both ends of lookup buffer K, N entries\n"
	"  run do=selects n=N              select N, one by one, and insert as many\n"
	"  run do=close                    ends of pipe and buffer\n"
	"  quit\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"socket", 1, 0, 's'}, {"engine", 1, 0, 'e'},
		{"block", 1, 0, 'b'},  {"blocks", 1, 0, 'n'},
		{"tokens", 1, 0, 't'}, {"seed", 1, 0, 'S'},
		{"cpu", 1, 0, 'c'},    {"sequential", 0, 0, 'q'},
		{"completions", 1, 0, 'C'},
		{"help", 0, 0, 'h'},   {0, 0, 0, 0}};
	static struct client c = {.engine = "bench", .block = 65536,
				  .blocks = 16384, .tokens = 16, .seed = 1};
	int o;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 's': c.socket = optarg; break;
		case 'e': c.engine = optarg; break;
		case 'b': c.block = parse_size("--block", optarg); break;
		case 'n': c.blocks = parse_size("--blocks", optarg); break;
		case 't': c.tokens = parse_size("--tokens", optarg); break;
		case 'S': c.seed = parse_size("--seed", optarg); break;
		case 'c': pin_cpu(atoi(optarg)); break;
		case 'C':
			c.completions =
				(uint32_t)parse_size("--completions", optarg);
			break;
		case 'q': c.sequential = true; break;
		case 'h': fputs(usage, stdout); return 0;
		default: fputs(usage, stderr); return 2;
		}
	}
	if (!c.tokens || c.block % c.tokens || c.block % 8)
		die("--block: %zu is not a multiple of 8 and of --tokens, %zu",
		    c.block, c.tokens);
	c.took = calloc(MAX_SMALL, sizeof *c.took);
	if (!c.took)
		die("no memory for %d samples", MAX_SMALL);
	client_open(&c);
	serve_loop("client", client_run, &c);
	pipes_close(&c);
	kvpipe_close(c.kv);
	return 0;
}
