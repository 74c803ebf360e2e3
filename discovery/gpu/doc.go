// Package gpu knows the GPUs of this node: what NVML tells of each, and what changes while the daemon runs. A node without a GPU,
// without a driver, with a driver that does not fit its library is none the worse for it: it has an inventory that says so, and why.
//
// NVML is the library that comes with NVIDIA's driver (https://docs.nvidia.com/deploy/nvml-api). It is loaded at run time when it is
// there; nothing here needs CUDA, and no CUDA context is ever made.
package gpu
