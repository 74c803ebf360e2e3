/* SPDX-License-Identifier: Apache-2.0 */
/* What an item's receiver makes of its description, whoever wrote it: nothing is read past its end, and what comes out lies in the item. */
#include "check.h"
#include "endpoint.h"

#define ROUNDS 100000

/* A copy that ends where its memory ends, so that a sanitizer sees each byte that is read behind it. */
static uint32_t decode(const uint8_t *meta, size_t len, uint64_t bytes, struct kv_member *got, uint32_t max)
{
	uint8_t *exact = malloc(len > 0 ? len : 1);

	CHECK(exact != NULL);
	memcpy(exact, meta, len);
	memset(got, 0xa5, KV_MEMBERS * sizeof(*got));
	uint32_t n = kv_meta_decode(len > 0 ? exact : exact + 1, len, bytes, got, max);
	free(exact);
	CHECK(n <= max);
	return n;
}

/* The bytes of a tensor, by numbers that cannot wrap. */
static uint64_t bytes_of(const struct kv_member *m)
{
	unsigned __int128 n = kvpipe_dtype_size(m->dtype), shown = n;

	CHECK(n > 0 && m->ndim <= KVPIPE_MAX_DIMS);
	for (uint32_t i = 0; i < m->ndim; i++) {
		shown *= m->shape[i] > 0 ? m->shape[i] : 1; /* frameworks compute strides with it */
		CHECK(shown <= INT64_MAX);
		n *= m->shape[i];
	}
	return (uint64_t)n;
}

static void lies_within(const struct kv_member *got, uint32_t n, uint64_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!got[i].present)
			continue;
		CHECK(got[i].offset % KV_ALIGN == 0 && got[i].offset <= bytes && bytes_of(&got[i]) <= bytes - got[i].offset);
	}
}

static unsigned int seed;

static uint32_t below(uint32_t n)
{
	return (uint32_t)rand_r(&seed) % n;
}

/* An item as senders make it. Returns its size. */
static uint64_t any_item(struct kv_member *m, uint32_t n)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < n; i++) {
		m[i] = (struct kv_member){ .present = below(4) > 0, .dtype = 1 + below(KVPIPE_F8_E8M0FNU), .ndim = below(KVPIPE_MAX_DIMS + 1) };
		if (!m[i].present) {
			m[i] = (struct kv_member){ .offset = 0 };
			continue;
		}
		for (uint32_t d = 0; d < m[i].ndim; d++)
			m[i].shape[d] = d < 6 && below(2) == 0 ? below(6) : 1;
		m[i].offset = (end + KV_ALIGN - 1) / KV_ALIGN * KV_ALIGN;
		end = m[i].offset + bytes_of(&m[i]);
	}
	return end;
}

static void what_senders_write(void)
{
	struct kv_member m[KV_MEMBERS], got[KV_MEMBERS];
	uint8_t meta[KVPIPE_MAX_META + 1];

	seed = 1;
	for (int round = 0; round < ROUNDS / 10; round++) {
		uint32_t n = 1 + below(KV_MEMBERS);
		uint64_t bytes = any_item(m, n);
		size_t len = kv_meta_encode(meta, m, n);
		CHECK(len <= KVPIPE_MAX_META);
		CHECK_INT(decode(meta, len, bytes, got, KV_MEMBERS), n);
		for (uint32_t i = 0; i < n; i++) {
			CHECK(got[i].present == m[i].present && got[i].dtype == m[i].dtype && got[i].ndim == m[i].ndim && got[i].offset == m[i].offset);
			CHECK(memcmp(got[i].shape, m[i].shape, m[i].ndim * sizeof(*m[i].shape)) == 0);
		}
		if (n > 1)
			CHECK_INT(decode(meta, len, bytes, got, n - 1), 0); /* more than there is room for */
		if (bytes > 0)
			CHECK_INT(decode(meta, len, bytes - 1, got, KV_MEMBERS), 0); /* the last one sticks out */
		CHECK_INT(decode(meta, below((uint32_t)len), bytes, got, KV_MEMBERS), 0);
		meta[len] = 0;
		CHECK_INT(decode(meta, len + 1, bytes, got, KV_MEMBERS), 0);
	}
}

/* Numbers at which arithmetic of bytes and shapes may go wrong. */
static const uint64_t edges[] = {
	0, 1, 2, 63, 64, 65, UINT32_MAX / 64, UINT32_MAX, 1ull << 32, 1ull << 61, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX,
};

static void damage(uint8_t *meta, size_t len)
{
	size_t at = below((uint32_t)len);
	uint64_t edge = edges[below(KV_COUNT(edges))];
	size_t width = below(2) ? 4 : 8;

	switch (below(4)) {
	case 0:
		meta[at] = (uint8_t)below(256);
		break;
	case 1:
		meta[at] ^= (uint8_t)(1u << below(8));
		break;
	case 2: /* offsets and shapes lie at multiples of 4 */
		at = at / 4 * 4;
		memcpy(meta + at, &edge, len - at < width ? len - at : width);
		break;
	default: /* the head of it, or of a member */
		meta[at / 4 * 4 + below(3)] = (uint8_t)below(KVPIPE_MAX_DIMS + 3);
	}
}

static void what_others_write(void)
{
	struct kv_member m[KV_MEMBERS], got[KV_MEMBERS];
	uint8_t meta[KVPIPE_MAX_META + 8];
	uint32_t accepted = 0, refused = 0;

	seed = 2;
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t n = 1 + below(KV_MEMBERS);
		uint64_t bytes = any_item(m, n);
		size_t len = kv_meta_encode(meta, m, n);
		for (uint32_t k = below(4); k > 0; k--)
			damage(meta, len);
		switch (below(8)) {
		case 0:
			len = below((uint32_t)len + 1);
			break;
		case 1:
			memset(meta + len, (int)below(2), 8);
			len += below(9);
			break;
		case 2:
			bytes = below(2) ? below((uint32_t)bytes + 1) : edges[below(KV_COUNT(edges))];
			break;
		default:
			break;
		}
		uint32_t max = below(4) > 0 ? KV_MEMBERS : 1 + below(KV_MEMBERS);
		uint32_t count = decode(meta, len, bytes, got, max);
		lies_within(got, count, bytes);
		accepted += count > 0;
		refused += count == 0;
	}
	CHECK(accepted > ROUNDS / 10 && refused > ROUNDS / 10);
}

static void what_makes_no_sense(void)
{
	struct kv_member got[KV_MEMBERS];
	uint8_t meta[KVPIPE_MAX_META];

	seed = 3;
	for (int round = 0; round < ROUNDS; round++) {
		size_t len = below(below(2) ? 64 : sizeof(meta) + 1);
		for (size_t i = 0; i < len; i++)
			meta[i] = (uint8_t)(below(2) ? below(256) : below(2));
		if (len >= 4 && below(8) > 0)
			memcpy(meta, (const uint8_t[]){ 1, (uint8_t)(1 + below(KV_MEMBERS)), 0, 0 }, 4);
		uint64_t bytes = edges[below(KV_COUNT(edges))];
		lies_within(got, decode(meta, len, bytes, got, KV_MEMBERS), bytes);
	}
}

/* A tensor without bytes has a shape too, and not any. */
static void shapes_that_no_framework_has(void)
{
	struct kv_member got[KV_MEMBERS], empty = { .present = true, .dtype = KVPIPE_F32, .ndim = 2, .shape = { 0, (1ull << 61) - 1 } };
	uint8_t meta[KVPIPE_MAX_META];
	size_t len = kv_meta_encode(meta, &empty, 1);

	CHECK_INT(decode(meta, len, 0, got, KV_MEMBERS), 1);
	empty.shape[1]++;
	len = kv_meta_encode(meta, &empty, 1);
	CHECK_INT(decode(meta, len, 0, got, KV_MEMBERS), 0);
}

/* The meta of docs/protocol.md, which other versions of the library have to write and to read; test/house compares it with the page. */
static const uint8_t golden[] = {
	0x01, 0x05, 0x00, 0x00,
	0x01, 0x09, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x01, 0x0b, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x01, 0x0e, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x01, 0x0c, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
};

static const struct kv_member entry[] = {
	{ .present = true, .dtype = KVPIPE_I64, .ndim = 1, .shape = { 3 }, .offset = 0 },
	{ .present = false },
	{ .present = true, .dtype = KVPIPE_BF16, .ndim = 2, .shape = { 2, 4 }, .offset = 64 },
	{ .present = true, .dtype = KVPIPE_F8_E4M3FN, .ndim = 2, .shape = { 0, 8 }, .offset = 0 },
	{ .present = true, .dtype = KVPIPE_F32, .ndim = 0, .offset = 128 },
};

#define ENTRY_BYTES 132

static void the_protocols_example(void)
{
	struct kv_member got[KV_MEMBERS];
	uint8_t meta[KVPIPE_MAX_META];

	CHECK_INT(kv_meta_encode(meta, entry, KV_COUNT(entry)), sizeof(golden));
	for (size_t i = 0; i < sizeof(golden); i++) {
		if (meta[i] != golden[i])
			FAIL("byte %zu is %02x, want %02x", i, meta[i], golden[i]);
	}
	CHECK_INT(decode(golden, sizeof(golden), ENTRY_BYTES, got, KV_MEMBERS), KV_COUNT(entry));
	for (size_t i = 0; i < KV_COUNT(entry); i++) {
		CHECK(got[i].present == entry[i].present && got[i].dtype == entry[i].dtype && got[i].ndim == entry[i].ndim);
		CHECK(got[i].offset == entry[i].offset && memcmp(got[i].shape, entry[i].shape, entry[i].ndim * sizeof(*entry[i].shape)) == 0);
	}
	CHECK_INT(decode(golden, sizeof(golden), ENTRY_BYTES - 1, got, KV_MEMBERS), 0);
	for (size_t len = 0; len < sizeof(golden); len++)
		CHECK_INT(decode(golden, len, ENTRY_BYTES, got, KV_MEMBERS), 0);
	memcpy(meta, golden, sizeof(golden));
	for (uint8_t version = 0; version < 4; version++) {
		meta[0] = version;
		CHECK_INT(decode(meta, sizeof(golden), ENTRY_BYTES, got, KV_MEMBERS), version == 1 ? (int)KV_COUNT(entry) : 0);
	}
	memcpy(meta, golden, sizeof(golden));
	static const size_t zeros[] = { 2, 3, 7, 23, 31, 55, 79 }; /* what is reserved, of the whole and of each member */
	for (size_t i = 0; i < KV_COUNT(zeros); i++) {
		meta[zeros[i]] = 1;
		CHECK_INT(decode(meta, sizeof(golden), ENTRY_BYTES, got, KV_MEMBERS), 0);
		meta[zeros[i]] = 0;
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(what_senders_write), TEST(what_others_write), TEST(what_makes_no_sense), TEST(shapes_that_no_framework_has),
		TEST(the_protocols_example),
	};
	return RUN(tests);
}
