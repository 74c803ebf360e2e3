/* SPDX-License-Identifier: Apache-2.0 */
/* The golden file of the ABI, compiled into assertions. Whether it is complete, capi/internal/abicheck tells. */
#include "check.h"

#include <kvpipe.h>
#include <kvpipe/ring.h>

#define ABI_ASSERT(c) _Static_assert(c, #c);
#define SIZE(t, n) ABI_ASSERT(sizeof(struct t) == (n))
#define FIELD(t, f, at, n) ABI_ASSERT(offsetof(struct t, f) == (at) && sizeof(((struct t *)0)->f) == (n))
#define VALUE(v, n) ABI_ASSERT((long long)(v) == (n))
#define SYMBOL(name, version)
#include "../internal/abicheck/testdata/abi.golden"
#undef SIZE
#undef FIELD
#undef VALUE
#undef SYMBOL

/* Every symbol exists, under the type that the header gives it. */
#define SIZE(t, n)
#define FIELD(t, f, at, n)
#define VALUE(v, n)
#define SYMBOL(name, version) { #name, (void (*)(void))name },
static const struct {
	const char *name;
	void (*function)(void);
} symbols[] = {
#include "../internal/abicheck/testdata/abi.golden"
};

static void functions(void)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		CHECK(symbols[i].function != NULL);
	CHECK(sizeof(symbols) / sizeof(symbols[0]) >= 31);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(functions) };
	return RUN(tests);
}
