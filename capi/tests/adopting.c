/* SPDX-License-Identifier: Apache-2.0 */
#include "adopting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct got got;
kvpipe_t *kv;
static struct fake *fake;

static bool request(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd)
{
	struct stat st;

	if (head->type != KVPIPE_CTL_REGISTER)
		return false;
	memcpy(&got.reg, body, sizeof(got.reg));
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_blocks * 512 >= st.st_size);
	got.seals = fcntl(fd, F_GET_SEALS);
	if (got.map != NULL)
		munmap(got.map, got.size);
	got.size = (size_t)st.st_size;
	got.map = mmap(NULL, got.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(got.map != MAP_FAILED);
	if (got.answer != 0)
		fake_ack(f, head->seq, got.answer, 0, "this daemon will not");
	return got.answer != 0;
}

struct fake_conf adopting = { .request = request };

void begin_as(uint32_t role)
{
	memset(&got.reg, 0, sizeof(got.reg));
	got.answer = 0;
	fake = fake_start(&adopting);
	kv = fake_connect_as(fake, role);
	/* It has closed the descriptors that it sent by then: some tests know which are free. */
	fake_await_requests(fake, KVPIPE_CTL_HELLO, 1);
}

void begin(void)
{
	begin_as(KVPIPE_ROLE_WORKER);
}

void end(void)
{
	kvpipe_close(kv);
	fake_stop(fake);
	if (got.map != NULL)
		munmap(got.map, got.size);
	got.map = NULL;
}

int adopt(void *addr, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region)
{
	struct kvpipe_adopt_opts o = KVPIPE_OPTS(kvpipe_adopt_opts, .addr = addr, .nbytes = nbytes, .flags = flags);

	return kvpipe_mem_adopt(kv, &o, region);
}

uint8_t *pages(size_t len)
{
	uint8_t *p = mmap(NULL, len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && mprotect(p + PAGE, len, PROT_READ | PROT_WRITE) == 0);
	return p + PAGE;
}

void unmap(uint8_t *p, size_t len)
{
	CHECK(munmap(p - PAGE, len + 2 * PAGE) == 0);
}

char flag_of(const void *p, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512], word[8];
	size_t from = 0, to = 0;
	char found = '?';

	CHECK(f != NULL);
	snprintf(word, sizeof(word), " %s", flag);
	while (found == '?' && fgets(line, sizeof(line), f) != NULL) {
		size_t a, b;
		if (sscanf(line, "%zx-%zx ", &a, &b) == 2) {
			from = a;
			to = b;
		}
		if (strncmp(line, "VmFlags:", 8) == 0 && from <= (size_t)p && (size_t)p < to)
			found = strstr(line, word) != NULL ? 'y' : 'n';
	}
	fclose(f);
	return found;
}

void pattern(uint8_t *p, size_t len, unsigned int salt)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + i / PAGE + salt);
}

void check_pattern(const uint8_t *p, size_t len, unsigned int salt)
{
	for (size_t i = 0; i < len; i++)
		CHECK_INT(p[i], (uint8_t)(i * 7 + i / PAGE + salt));
}

uint8_t *chunk(size_t at, size_t len, size_t out, size_t *whole)
{
	*whole = (at + len + out + PAGE - 1) / PAGE * PAGE;
	uint8_t *p = mmap(NULL, *whole + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	size_t words[2] = { at - 16, (*whole - out - (at - 16)) | 2 };
	memcpy(p + at - 16, words, sizeof(words));
	return p + at;
}
