/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h - what the files behind kvpipe_mem_adopt() share: the judge (adopt_judge.c) says whether memory may be adopted,
 * the mover (adopt_move.c) puts a file under it while the program goes on writing.
 */
#ifndef KVPIPE_ADOPT_H
#define KVPIPE_ADOPT_H

#include "internal.h"

/* The memory to adopt, and the whole pages around it; addresses. */
struct kv_adopt {
	uintptr_t addr, end;   /* the caller's bytes */
	uintptr_t first, last; /* their pages; last is the address behind them */
	size_t page;
	bool ours;     /* found by the judge: it is a file of ours already, from a region that has ended */
	bool nofork;   /* found by the judge: the program keeps it out of its children */
	bool nodump;   /* found by the judge: the program keeps it out of core dumps */
	bool quiesced; /* the caller says that nobody writes */
};

#define KV_ADOPT_NAME "kvpipe-adopted"

/* 0, or the caller's error: why this memory may not be adopted, and what to do. */
int kv_adopt_judge(struct kv_adopt *a);
/* An address in it that is registered with CUDA in this process; 0: there is none. */
uintptr_t kv_adopt_cuda(const struct kv_adopt *a);
/* True when the memory is one allocation of malloc(), and what else lies in its pages is malloc()'s own. low, high: the mappings
 * that it lies in. */
bool kv_adopt_own_chunk(const struct kv_adopt *a, uintptr_t low, uintptr_t high);

/* Puts a file under the pages, and gives its descriptor. */
int kv_adopt_move(const struct kv_adopt *a, int *fd);

#endif
