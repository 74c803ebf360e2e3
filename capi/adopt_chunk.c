/* SPDX-License-Identifier: Apache-2.0 */
/* Whose memory is it? The marks that glibc's malloc() and CUDA leave on it. */
#include "adopt.h"

#include <dlfcn.h>

/*
 * glibc gives a large allocation a mapping of its own. Two words lie before the caller's bytes: the distance from the mapping's
 * start to the words, and the distance from the words to its end, with 2 in the low bits. From glibc 2.43 on the second word is
 * smaller by the size of the two words; which of the two it is shows in where a page ends. Other data there would have to point
 * to the start and the end of a page by chance.
 */
__attribute__((no_sanitize("address", "thread"))) bool kv_adopt_own_chunk(const struct kv_adopt *a, uintptr_t low,
									    uintptr_t high)
{
	const size_t head = 2 * sizeof(size_t);

	/* Not malloc()'s, or at the very beginning of a mapping. */
	if (a->addr % head != 0 || a->addr - head < low)
		return false;
	const volatile size_t *words = (const volatile size_t *)(a->addr - head);
	size_t before = words[0], size = words[1];
	uintptr_t chunk = a->addr - head;

	if ((size & 7) != 2 || before > chunk - low || size - 2 > high - chunk)
		return false;
	uintptr_t start = chunk - before, end = chunk + (size - 2);
	if (end % a->page != 0 && head <= high - end)
		end += head;
	return start % a->page == 0 && end % a->page == 0 && start <= a->first && a->end <= end;
}

/* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, and what cuPointerGetAttribute() returns before cuInit(). For memory that CUDA does
 * not know it returns another error. It needs no context. */
enum { MEMORY_TYPE = 2, NOT_INITIALIZED = 3 };

uintptr_t kv_adopt_cuda(const struct kv_adopt *a)
{
	/* Only if the program has loaded CUDA: otherwise it cannot have registered anything. */
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	uintptr_t found = 0;

	if (cuda == NULL)
		return 0;
	int (*attribute)(void *, int, unsigned long long) = NULL;
	void *symbol = dlsym(cuda, "cuPointerGetAttribute");
	__builtin_memcpy(&attribute, &symbol, sizeof(symbol));
	/* Each page is asked about, for any may be registered alone. A question takes a microsecond, a third of what it takes to
	 * move the page. */
	for (uintptr_t at = a->addr; attribute != NULL && found == 0 && at < a->end; at = (at | (a->page - 1)) + 1) {
		unsigned int kind = 0;
		int err = attribute(&kind, MEMORY_TYPE, at);
		if (err == NOT_INITIALIZED)
			break;
		if (err == 0 && kind != 0)
			found = at;
	}
	dlclose(cuda);
	return found;
}
