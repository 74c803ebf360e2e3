/* SPDX-License-Identifier: Apache-2.0 */
/* The little that the C tests need of a framework. A failed check ends the program with a message. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) \
	do { \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__); \
		fprintf(stderr, "\n"); \
		abort(); \
	} while (0)

#define CHECK(cond) \
	do { \
		if (!(cond)) \
			FAIL("not true: %s (last error: %s)", #cond, kvpipe_last_error()); \
	} while (0)

#define CHECK_INT(got, want) \
	do { \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		if (got_ != want_) \
			FAIL("%s is %lld, want %lld (last error: %s)", #got, got_, want_, kvpipe_last_error()); \
	} while (0)

/* The call fails with that reason, and its text says so in these words. */
#define CHECK_FAILS(call, reason, words) \
	do { \
		int rc_ = (call); \
		if (rc_ != -(int)(reason)) \
			FAIL("%s gave %d, want %d (last error: %s)", #call, rc_, -(int)(reason), kvpipe_last_error()); \
		if (strstr(kvpipe_last_error(), (words)) == NULL) \
			FAIL("%s: \"%s\" does not say \"%s\"", #call, kvpipe_last_error(), (words)); \
	} while (0)

#define CHECK_HAS(text, words) \
	do { \
		if (strstr((text), (words)) == NULL) \
			FAIL("\"%s\" does not say \"%s\"", (text), (words)); \
	} while (0)

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(f) { #f, f }

static inline int run_tests(const struct test *tests, size_t n, int argc, char **argv)
{
	for (size_t i = 0; i < n; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
			continue;
		fprintf(stderr, "%s\n", tests[i].name);
		tests[i].run();
	}
	return 0;
}

#define RUN(tests) run_tests(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv)

#endif
