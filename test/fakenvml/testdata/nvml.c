/* A libnvidia-ml.so.1 that answers what a scenario says. Handles are places in its list of GPUs. With OLD defined it is one of a
 * driver of 2020, without the functions that came later. */
#include "scenario.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct nvmlDevice_st {
	int gpu, part; /* part -1: the GPU itself */
};

static struct nvmlDevice_st handles[MAX_GPUS][1 + MAX_PARTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scenario now;
static int started;
static unsigned failing, asked; /* the call that is to fail, and how many there were since that is known */

/* The one event set, and how many errors of each GPU were delivered or are too old to be. */
struct nvmlEventSet_st {
	int made;
};
static struct nvmlEventSet_st set;
static unsigned delivered[MAX_GPUS];
static int registered[MAX_GPUS];

static const struct scenario *look(void)
{
	pthread_mutex_lock(&lock);
	scenario_read(&now);
	pthread_mutex_unlock(&lock);
	return &now;
}

/* of finds the GPU of a handle; r is what it answers to everything. */
static const struct gpu *of(nvmlDevice_t d, nvmlReturn_t *r)
{
	const struct scenario *s = look();
	if (!started || !d.handle || (unsigned)d.handle->gpu >= s->count) {
		*r = started ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
		return NULL;
	}
	*r = s->gpus[d.handle->gpu].answer;
	if (s->fails != failing)
		failing = s->fails, asked = 0;
	if (failing && ++asked == failing)
		*r = (nvmlReturn_t)s->fail;
	return &s->gpus[d.handle->gpu];
}

/* GPU makes g the GPU of d, or returns what it answers. */
#define GPU(d)                                                         \
	nvmlReturn_t r;                                                \
	__attribute__((unused)) const struct gpu *g = of(d, &r);       \
	if (r != NVML_SUCCESS)                                         \
	return r

static nvmlReturn_t text(char *to, unsigned size, const char *from)
{
	if (strlen(from) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
	nvmlReturn_t r = look()->init;
	if (r == NVML_SUCCESS)
		started++;
	return r;
}

nvmlReturn_t nvmlShutdown(void)
{
	if (!started)
		return NVML_ERROR_UNINITIALIZED;
	started--;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t r)
{
	switch (r) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_NO_PERMISSION:
		return "Insufficient Permissions";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
		return "Driver/library version mismatch";
	default: /* a library may say what it likes */
		return "Unknown\n\tError\n";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size) { return text(version, size, look()->driver); }

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = look()->cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	const struct scenario *s = look();
	*count = s->claims ? s->claims : s->count;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *d)
{
	const struct scenario *s = look();
	if (index >= s->count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (s->gpus[index].handle)
		return s->gpus[index].handle;
	handles[index][0] = (struct nvmlDevice_st){(int)index, -1};
	d->handle = &handles[index][0];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned size)
{
	GPU(d);
	return text(uuid, size, d.handle->part < 0 ? g->uuid : g->parts[d.handle->part].uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned size)
{
	GPU(d);
	return text(name, size, d.handle->part < 0 ? g->name : g->parts[d.handle->part].name);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	GPU(d);
	memset(pci, 0, sizeof *pci);
	pci->domain = g->domain, pci->bus = g->bus, pci->device = g->device;
	return text(pci->busId, sizeof pci->busId, g->pci);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	GPU(d);
	if (!g->memory)
		return NVML_ERROR_NOT_SUPPORTED; /* as where the GPU has none of its own */
	*m = (nvmlMemory_t){.total = g->memory};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, nvmlBAR1Memory_t *m)
{
	GPU(d);
	if (!g->bar1)
		return NVML_ERROR_NOT_SUPPORTED;
	*m = (nvmlBAR1Memory_t){.bar1Total = g->bar1};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
	memset(registered, 0, sizeof registered);
	set.made = 1;
	out->handle = &set;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s)
{
	s.handle->made = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types)
{
	GPU(d);
	*types = nvmlEventTypeXidCriticalError | nvmlEventTypeClock;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t s)
{
	GPU(d);
	if (types != nvmlEventTypeXidCriticalError || !s.handle->made)
		return NVML_ERROR_INVALID_ARGUMENT;
	registered[d.handle->gpu] = 1;
	delivered[d.handle->gpu] = g->xids; /* what was before is not told */
	return NVML_SUCCESS;
}

/* next gives the next error there is, or tells of a GPU in the set that was lost. */
static nvmlReturn_t next(nvmlEventData_t *out)
{
	const struct scenario *s = look();
	if (s->wait)
		return s->wait;
	for (unsigned i = 0; i < s->count; i++) {
		const struct gpu *g = &s->gpus[i];
		unsigned n = delivered[i];
		if (!registered[i])
			continue;
		if (g->xids > n) {
			delivered[i]++;
			*out = (nvmlEventData_t){{&handles[i][0]}, nvmlEventTypeXidCriticalError, g->xid[n], g->xid_gi[n], g->xid_ci[n]};
			return NVML_SUCCESS;
		}
		if (g->answer == NVML_ERROR_GPU_IS_LOST)
			return NVML_ERROR_GPU_IS_LOST;
	}
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *out, unsigned ms)
{
	if (!s.handle || !s.handle->made)
		return NVML_ERROR_INVALID_ARGUMENT;
	const struct timespec step = {0, 5000000};
	for (unsigned waited = 0;; waited += 5) {
		nvmlReturn_t r = next(out);
		if (r != NVML_ERROR_TIMEOUT || waited >= ms)
			return r;
		nanosleep(&step, NULL);
	}
}

#ifndef OLD
#include "newer.h"
#endif
