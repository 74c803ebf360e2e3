/* SPDX-License-Identifier: Apache-2.0 */
/* The little that the C tests need of a framework. A failed check ends the program with a message. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <poll.h>
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

/* A call whose time passes. A caller that stood still meanwhile may be told so in other words. */
#define CHECK_LATE(call, words, others) \
	do { \
		int rc_ = (call); \
		if (rc_ != -(int)KVPIPE_E_TIMEOUT) \
			FAIL("%s gave %d, want %d (last error: %s)", #call, rc_, -(int)KVPIPE_E_TIMEOUT, kvpipe_last_error()); \
		if (strstr(kvpipe_last_error(), (words)) == NULL && strstr(kvpipe_last_error(), (others)) == NULL) \
			FAIL("%s: \"%s\" does not say \"%s\"", #call, kvpipe_last_error(), (words)); \
	} while (0)

/* Skips the rest of a test, which needs what is not here. scripts/ctest.py shows why. */
#define SKIP(why) \
	do { \
		fprintf(stderr, "skip: %s: %s\n", __func__, (why)); \
		return; \
	} while (0)

/* p was allocated, and is freed. Only AddressSanitizer knows, also in a forked child. */
#ifdef __SANITIZE_ADDRESS__
extern int is_allocation(const volatile void *p) __asm__("__sanitizer_get_ownership");
#define CHECK_FREED(p) CHECK(!is_allocation(p))
#else
#define CHECK_FREED(p) ((void)(p))
#endif

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(f) { #f, f }

/* What a process can leave behind: open descriptors, and mappings of memfds. */
struct held {
	int descriptors, mappings;
};

static inline struct held held_now(void)
{
	struct held h = { 0, 0 };
	char line[512];
	DIR *dir = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "re");

	if (dir == NULL || maps == NULL)
		FAIL("no /proc");
	while (readdir(dir) != NULL)
		h.descriptors++;
	while (fgets(line, sizeof(line), maps) != NULL)
		h.mappings += strstr(line, "memfd:") != NULL;
	closedir(dir);
	fclose(maps);
	return h;
}

/* What is about to end by itself, such as a thread of a fake daemon, may take a moment; nothing announces that it has. */
static inline void check_left(const char *name, struct held before)
{
	struct held now = held_now();

	for (int i = 0; i < 4000 && (now.descriptors > before.descriptors || now.mappings > before.mappings); i++) {
		poll(NULL, 0, 5);
		now = held_now();
	}
	if (now.descriptors > before.descriptors || now.mappings > before.mappings)
		FAIL("%s left behind %d descriptors and %d mappings of memfds", name, now.descriptors - before.descriptors,
		     now.mappings - before.mappings);
}

static inline int run_tests(const struct test *tests, size_t n, int argc, char **argv)
{
	for (size_t i = 0; i < n; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
			continue;
		fprintf(stderr, "%s\n", tests[i].name);
		struct held before = held_now();
		tests[i].run();
		check_left(tests[i].name, before);
	}
	return 0;
}

#define RUN(tests) run_tests(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv)

#endif
