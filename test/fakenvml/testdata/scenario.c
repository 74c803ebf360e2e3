#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wrong(const char *line)
{
	fprintf(stderr, "fake NVML: this line of $KVPIPE_FAKE_NVML is not understood: %s\n", line);
	abort();
}

static void hex16(const char *text, unsigned char out[16])
{
	for (int i = 0; i < 16; i++)
		if (sscanf(text + 2 * i, "%2hhx", &out[i]) != 1)
			wrong(text);
}

/* links FIRST-LAST up|down VERSION MBPS gpu|switch|unknown DOMAIN:BUS:DEVICE */
static void links(struct gpu *g, const char *line)
{
	unsigned first, last;
	char up[16], remote[16];
	struct link k = {.there = 1};
	if (sscanf(line, "links %u-%u %15s %u %u %15s %x:%x:%x", &first, &last, up, &k.version, &k.mbps, remote, &k.domain, &k.bus, &k.device) != 9 ||
	    last >= MAX_LINKS)
		wrong(line);
	k.up = strcmp(up, "up") == 0;
	k.remote = strcmp(remote, "gpu") == 0      ? NVML_NVLINK_DEVICE_TYPE_GPU
	           : strcmp(remote, "switch") == 0 ? NVML_NVLINK_DEVICE_TYPE_SWITCH
	                                           : NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
	for (; first <= last; first++)
		g->links[first] = k;
}

/* What a line after a gpu's says of it. */
static void of_gpu(struct gpu *g, const char *line)
{
	struct part *p = &g->parts[g->nparts];
	char cluster[40];
	if (sscanf(line, "memory %llu", &g->memory) == 1 || sscanf(line, "bar1 %llu", &g->bar1) == 1 ||
	    sscanf(line, "mig %d", &g->mig) == 1 ||       /* 0, 1; without the line MIG is not supported */
	    sscanf(line, "numa %d", &g->numa) == 1 ||     /* the node that its memory is */
	    sscanf(line, "handle %d", &g->handle) == 1 || /* nvmlReturn_t of opening it */
	    sscanf(line, "answer %d", &g->answer) == 1)   /* nvmlReturn_t of everything: 15 is a lost GPU */
		return;
	if (strncmp(line, "links ", 6) == 0) {
		links(g, line);
		return;
	}
	/* instance UUID GI CI SLICES COMPUTE-SLICES MIB NAME */
	if (strncmp(line, "instance ", 9) == 0 && g->nparts < MAX_PARTS &&
	    sscanf(line, "instance %95s %u %u %u %u %llu %95[^\n]", p->uuid, &p->gi, &p->ci, &p->slices, &p->compute, &p->mib, p->name) == 7) {
		g->nparts++;
		return;
	}
	/* fabric STATE STATUS CLIQUE CLUSTER, numbers as NVML has them */
	if (sscanf(line, "fabric %d %d %d %39s", &g->fabric, &g->status, &g->clique, cluster) == 4) {
		hex16(cluster, g->cluster);
		return;
	}
	/* xid CODE [GI CI] */
	unsigned n = g->xids;
	if (n < 64) {
		g->xid_gi[n] = g->xid_ci[n] = 0xFFFFFFFF;
		int got = sscanf(line, "xid %llu %u %u", &g->xid[n], &g->xid_gi[n], &g->xid_ci[n]);
		if (got == 1 || got == 3) {
			g->xids++;
			return;
		}
	}
	wrong(line);
}

/* parse reads one line. */
static void parse(struct scenario *s, const char *line)
{
	/* init, wait: nvmlReturn_t of starting, of waiting for events */
	if (sscanf(line, "driver %79s", s->driver) == 1 || sscanf(line, "cuda %d", &s->cuda) == 1 || sscanf(line, "init %d", &s->init) == 1 ||
	    sscanf(line, "wait %d", &s->wait) == 1 || sscanf(line, "fail %u %u", &s->fails, &s->fail) == 2 || sscanf(line, "claim %u", &s->claims) == 1)
		return;
	/* gpu PCI UUID NAME */
	if (strncmp(line, "gpu ", 4) == 0 && s->count < MAX_GPUS) {
		struct gpu *g = &s->gpus[s->count++];
		g->mig = -1, g->numa = -1;
		if (sscanf(line, "gpu %31s %95s %95[^\n]", g->pci, g->uuid, g->name) != 3 || sscanf(g->pci, "%x:%x:%x", &g->domain, &g->bus, &g->device) != 3)
			wrong(line);
		return;
	}
	if (s->count == 0)
		wrong(line);
	of_gpu(&s->gpus[s->count - 1], line);
}

void scenario_read(struct scenario *s)
{
	const char *path = getenv("KVPIPE_FAKE_NVML");
	FILE *f = path ? fopen(path, "r") : NULL;
	if (!f) {
		fprintf(stderr, "fake NVML: $KVPIPE_FAKE_NVML names no file that can be read: %s\n", path ? path : "(not set)");
		abort();
	}
	memset(s, 0, sizeof *s);
	char line[512];
	while (fgets(line, sizeof line, f)) {
		const char *text = line + strspn(line, " \t");
		if (*text != '\n' && *text != '#' && *text != 0)
			parse(s, text);
	}
	fclose(f);
}
