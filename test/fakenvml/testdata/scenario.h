/* What the fake NVML answers, as a text says it. */
#ifndef SCENARIO_H
#define SCENARIO_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>

enum { MAX_GPUS = 16, MAX_PARTS = 8, MAX_LINKS = NVML_NVLINK_MAX_LINKS };

struct part {
	char uuid[96], name[96];
	unsigned gi, ci, slices, compute;
	unsigned long long mib;
};

struct link {
	int there, up;
	unsigned version, mbps, remote;
	unsigned domain, bus, device;
};

struct gpu {
	char uuid[96], name[96], pci[32];
	unsigned domain, bus, device;
	unsigned long long memory, bar1;
	int mig, handle, answer; /* nvmlReturn_t of opening it, and of everything asked of it */
	int numa;                /* -1: no node */
	struct part parts[MAX_PARTS];
	unsigned nparts;
	struct link links[MAX_LINKS];
	int fabric, clique, status;
	unsigned char cluster[16];
	unsigned xids;
	unsigned long long xid[64];
	unsigned xid_gi[64], xid_ci[64];
};

struct scenario {
	char driver[80];
	int cuda, init, wait;
	unsigned fails, fail; /* which call about a GPU fails, from 1, and its nvmlReturn_t; 0: none */
	unsigned claims;      /* how many GPUs it says there are, beside those that there are; 0: it tells the truth */
	unsigned count;
	struct gpu gpus[MAX_GPUS];
};

/* scenario_read reads $KVPIPE_FAKE_NVML into s; a text that is wrong ends the process, so that no test passes by mistake. */
void scenario_read(struct scenario *s);

#endif
