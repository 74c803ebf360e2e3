/* SPDX-License-Identifier: Apache-2.0 */
/* May this memory be adopted? What the kernel says of it (/proc/self/smaps), and whose the bytes at its edges are. */
#include "adopt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A mapping, as the kernel describes it. */
struct vma {
	uintptr_t start, end;
	char perms[5];
	unsigned long inode;
	char name[128];
	char flags[256]; /* two letters each, with spaces around them */
};

static bool has(const struct vma *v, const char *flag)
{
	char word[] = { ' ', flag[0], flag[1], ' ', 0 };

	return strstr(v->flags, word) != NULL;
}

/* Whether the file was made here: the name that memfd_create() was given follows "/memfd:". */
static bool adopted_before(const struct vma *v)
{
	return v->perms[3] == 's' && strncmp(v->name, "/memfd:" KV_ADOPT_NAME " ", sizeof("/memfd:" KV_ADOPT_NAME)) == 0;
}

/* Why the mapping may not be adopted; NULL: it may. */
static const char *reason(const struct vma *v)
{
	if (strcmp(v->name, "[heap]") == 0)
		return "it lies in the brk heap among other allocations: allocate it by itself, with mmap() or malloc() above "
		       "M_MMAP_THRESHOLD (mallopt, MALLOC_MMAP_THRESHOLD_)";
	if (strcmp(v->name, "[stack]") == 0 || has(v, "gd"))
		return "it is a stack: use memory of malloc() or mmap()";
	if (v->perms[0] != 'r' || v->perms[1] != 'w')
		return "it cannot be read and written: make it so with mprotect(), or adopt other memory";
	if (v->perms[2] != '-')
		return "it is executable: take PROT_EXEC away with mprotect(), or adopt other memory";
	if (!adopted_before(v)) {
		if (v->perms[3] != 'p')
			return "it is shared memory: register the memfd behind it with kvpipe_mem_register_fd()";
		if (v->inode != 0)
			return "it is a mapping of a file or of huge pages: only private anonymous memory can be adopted; copy it, or "
			       "use kvpipe_mem_alloc()";
	}
	if (has(v, "lo"))
		return "it is locked in memory (mlock), perhaps for a device: munlock() it first, or use kvpipe_mem_alloc()";
	if (has(v, "io") || has(v, "pf") || has(v, "mm"))
		return "it belongs to a device: use kvpipe_mem_alloc()";
	if (has(v, "um") || has(v, "uw") || has(v, "ui"))
		return "it is watched by a userfaultfd already: end that first";
	if (has(v, "wf"))
		return "it is wiped in forked children (MADV_WIPEONFORK), which shared memory cannot be: use other memory";
	return NULL;
}

/* Reads a number in that base and the character after it, and moves *at behind both. False: they are not there. */
static bool number(char **at, int base, char after, uintptr_t *out)
{
	char *end;

	*out = strtoul(*at, &end, base);
	if (end == *at || *end != after)
		return false;
	*at = end + 1;
	return true;
}

/* The line that begins a mapping's description: 7f00-8000 rw-p 0 fd:01 1234   /name */
static bool parse(char *line, struct vma *v)
{
	uintptr_t offset, major, minor, inode;
	struct vma out = { .start = 0 };

	if (!number(&line, 16, '-', &out.start) || !number(&line, 16, ' ', &out.end) || strlen(line) < 5)
		return false;
	memcpy(out.perms, line, 4);
	line += 5;
	if (!number(&line, 16, ' ', &offset) || !number(&line, 16, ':', &major) || !number(&line, 16, ' ', &minor))
		return false;
	inode = strtoul(line, &line, 10);
	line += strspn(line, " ");
	out.inode = inode;
	snprintf(out.name, sizeof(out.name), "%.*s", (int)strcspn(line, "\n"), line);
	*v = out;
	return true;
}

struct survey {
	uintptr_t reached;   /* everything from first on has been seen up to here */
	uintptr_t low, high; /* the mappings that the memory lies in */
	int err;
};

static void look(struct kv_adopt *a, const struct vma *v, struct survey *s)
{
	const char *why = reason(v);

	if (s->err != 0 || v->end <= a->first || v->start >= a->last)
		return;
	if (v->start > s->reached)
		return; /* a gap; nothing behind it counts */
	if (why != NULL) {
		s->err = kv_err(KVPIPE_E_INVALID, "mem_adopt: addr %#zx: %s", (size_t)a->addr, why);
		return;
	}
	if (s->low == 0)
		s->low = v->start;
	s->high = s->reached = v->end;
	a->ours |= adopted_before(v);
	a->nofork |= has(v, "dc");
	a->nodump |= has(v, "dd");
}

static int survey(struct kv_adopt *a, struct survey *s)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char *line = NULL;
	size_t size = 0;
	struct vma v = { .start = 0 }, next;

	if (f == NULL && kv_no_files(errno))
		return kv_err(KVPIPE_E_QUOTA, "mem_adopt: /proc/self/smaps: %s", kv_why(errno));
	if (f == NULL)
		return kv_err(KVPIPE_E_UNAVAILABLE, "mem_adopt: /proc/self/smaps, which tells memory's kind: %s: mount /proc, or use "
			      "kvpipe_mem_alloc()", strerror(errno));
	while (v.start < a->last && getline(&line, &size, f) > 0) {
		if (parse(line, &next))
			v = next;
		else if (strncmp(line, "VmFlags:", 8) == 0) { /* the last line of each */
			snprintf(v.flags, sizeof(v.flags), "%.*s ", (int)strcspn(line + 8, "\n"), line + 8);
			look(a, &v, s);
		}
	}
	free(line);
	fclose(f);
	return s->err;
}

int kv_adopt_judge(struct kv_adopt *a)
{
	struct survey s = { .reached = a->first };
	int err = survey(a, &s);
	uintptr_t here = (uintptr_t)&s;

	if (err != 0)
		return err;
	if (s.reached < a->last)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: addr %#zx to %#zx: nothing is mapped at %#zx: adopt what malloc() or mmap() gave, "
			      "and no more", (size_t)a->addr, (size_t)a->end, (size_t)s.reached);
	if (a->first <= here && here < a->last)
		return kv_err(KVPIPE_E_INVALID, "mem_adopt: addr %#zx: it is a stack: use memory of malloc() or mmap()",
			      (size_t)a->addr);
	/* Nothing else is in the pages if the memory fills them, if its mappings have just these pages, or if it is one chunk. */
	if ((a->addr != a->first || a->end != a->last) && (s.low != a->first || s.high != a->last) &&
	    !kv_adopt_own_chunk(a, s.low, s.high))
		return kv_err(KVPIPE_E_INVALID,
			      "mem_adopt: addr %#zx to %#zx: its first or last page may hold others' data: adopt an allocation of "
			      "malloc() (above M_MMAP_THRESHOLD) or mmap() as a whole, or memory that begins and ends with a page",
			      (size_t)a->addr, (size_t)a->end);
	uintptr_t cuda = kv_adopt_cuda(a);
	if (cuda != 0)
		return kv_err(KVPIPE_E_INVALID,
			      "mem_adopt: addr %#zx: the page at %#zx is registered with CUDA, which would go on using the old "
			      "page: cuMemHostUnregister() it, adopt the memory, and register it again",
			      (size_t)a->addr, (size_t)cuda);
	return 0;
}
