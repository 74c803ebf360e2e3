/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h - what the files behind kvpipe_mem_adopt() share: the judge (adopt_judge.c) says whether memory may be adopted,
 * the mover (adopt_move.c) puts a file under it while the program goes on writing.
 */
#ifndef KVPIPE_ADOPT_H
#define KVPIPE_ADOPT_H

#include "internal.h"

/* What is adopted, and the whole pages around it. Addresses. */
struct kv_adopt {
	uintptr_t addr, end;   /* the caller's bytes */
	uintptr_t first, last; /* of their pages; last is behind them */
	size_t page;
	bool ours;     /* the judge's finding: it is a file of ours already, of a region that has ended */
	bool nofork;   /* likewise: the program keeps it out of its children */
	bool quiesced; /* the caller says that nobody writes */
};

#define KV_ADOPT_NAME "kvpipe-adopted"

/* 0, or the caller's error: why this memory may not be adopted, and what to do. */
int kv_adopt_judge(struct kv_adopt *a);
/* Is it registered with CUDA in this process? */
bool kv_adopt_cuda(const struct kv_adopt *a);
/* True when the bytes before and after the caller's in its pages are malloc()'s own: those of one allocation. */
bool kv_adopt_own_chunk(const struct kv_adopt *a, uintptr_t low, uintptr_t high);

/* Puts a file under the pages, and gives its descriptor. */
int kv_adopt_move(const struct kv_adopt *a, int *fd);

#endif
