// Package fakenvml is NVIDIA's management library without NVIDIA: a libnvidia-ml.so.1 of our own, in C, that answers what a small
// text says. It stands behind the same loader as the real one, and its text can change while a program uses it: a GPU is lost, an
// Xid arrives, MIG is split otherwise.
//
//	driver 580.65.06             version of the kernel driver; each word of the text is described in scenario.c
//	cuda 13000
//	gpu 00000000:1B:00.0 GPU-1b NVIDIA H200
//	memory 150754820096
//	xid 79                       the GPU's first error; a second line would be its next
package fakenvml
