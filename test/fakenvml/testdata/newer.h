/* What a driver of 2020 lacks; a part of nvml.c. */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending)
{
	GPU(d);
	if (g->mig < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = (unsigned)g->mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *count)
{
	GPU(d);
	*count = g->mig < 0 ? 0 : MAX_PARTS;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index, nvmlDevice_t *part)
{
	GPU(d);
	if (index >= g->nparts)
		return NVML_ERROR_NOT_FOUND;
	handles[d.handle->gpu][1 + index] = (struct nvmlDevice_st){d.handle->gpu, (int)index};
	part->handle = &handles[d.handle->gpu][1 + index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *id)
{
	GPU(d);
	if (d.handle->part < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = g->parts[d.handle->part].gi;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *id)
{
	GPU(d);
	if (d.handle->part < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = g->parts[d.handle->part].ci;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	GPU(d);
	if (d.handle->part < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	const struct part *p = &g->parts[d.handle->part];
	*a = (nvmlDeviceAttributes_t){.gpuInstanceSliceCount = p->slices, .computeInstanceSliceCount = p->compute, .memorySizeMB = p->mib};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned n, nvmlEnableState_t *state)
{
	GPU(d);
	if (n >= MAX_LINKS || !g->links[n].there)
		return NVML_ERROR_INVALID_ARGUMENT;
	*state = g->links[n].up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, unsigned n, unsigned *version)
{
	GPU(d);
	*version = g->links[n].version;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned n, nvmlIntNvLinkDeviceType_t *type)
{
	GPU(d);
	*type = g->links[n].remote;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned n, nvmlPciInfo_t *pci)
{
	GPU(d);
	const struct link *k = &g->links[n];
	memset(pci, 0, sizeof *pci);
	pci->domain = k->domain, pci->bus = k->bus, pci->device = k->device;
	(void)snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", k->domain, k->bus, k->device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *values)
{
	GPU(d);
	for (int i = 0; i < count; i++) {
		nvmlFieldValue_t *v = &values[i];
		v->nvmlReturn = v->fieldId == NVML_FI_DEV_NVLINK_GET_SPEED && v->scopeId < MAX_LINKS ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		if (v->nvmlReturn != NVML_SUCCESS)
			continue;
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->value.uiVal = g->links[v->scopeId].mbps;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *f)
{
	GPU(d);
	if (f->version != nvmlGpuFabricInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!g->fabric)
		return NVML_ERROR_NOT_SUPPORTED;
	memcpy(f->clusterUuid, g->cluster, sizeof f->clusterUuid);
	f->status = (nvmlReturn_t)g->status, f->cliqueId = (unsigned)g->clique, f->state = (unsigned char)g->fabric;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t d, unsigned *node)
{
	GPU(d);
	if (g->numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*node = (unsigned)g->numa;
	return NVML_SUCCESS;
}
