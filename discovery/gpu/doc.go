// Package gpu knows the GPUs of this node: what NVML tells of each, and what changes while the daemon runs. A node
// without a GPU or a driver, or with a driver that does not fit its library, works as well: its inventory says so,
// and why.
//
// NVML is the library that comes with NVIDIA's driver (https://docs.nvidia.com/deploy/nvml-api). It is loaded at run
// time if it is there. Nothing here needs CUDA, and no CUDA context is ever made.
package gpu
