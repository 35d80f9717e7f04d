/* Goal: what is put is got, and no damaged record is accepted. Method: round trips, every bit flip.
 */
#include "wal/format.h"

#include "base/buf.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "lib/test.h"
#include "wal/wal.h"

static const struct wal_hard hard = {.log_id = 77, .term = 5, .vote = 2, .synced_through = 99};
static const struct wal_segment_header segment = {
    .log_id = 77,
    .n = 3,
    .salt = UINT64_C(0x123456789abcdef0),
    .size = 8 * WAL_BLOCK,
    .first_write = 12,
    .first_index = 100,
    .prev_chain = 0xdeadbeef,
};
static struct wal_write_header write_header = {
    .salt = UINT64_C(0x123456789abcdef0),
    .number = 12,
    .synced_through = 99,
    .first_index = 100,
    .length = 60,
    .prev_chain = 0xdeadbeef,
    .entries = 2,
};

TEST(hard_state_comes_back)
{
    uint8_t bytes[WAL_HARD_SIZE];
    struct wal_hard got = {0};
    wal_hard_put(&hard, bytes);
    CHECK_EQ(wal_hard_get(bytes, &got), ERR_OK);
    CHECK(got.log_id == 77 && got.term == 5 && got.vote == 2 && got.synced_through == 99);
}

TEST(hard_state_refuses_every_bit_flip)
{
    for (size_t bit = 0; bit < 8 * WAL_HARD_SIZE; bit++) {
        uint8_t bytes[WAL_HARD_SIZE];
        struct wal_hard got = {.term = 1234};
        wal_hard_put(&hard, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_EQ(wal_hard_get(bytes, &got), ERR_CORRUPT);
        CHECK_EQ(got.term, 1234);
    }
}

TEST(unknown_versions_are_told_from_damage)
{
    uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
    struct wal_hard got_hard;
    struct wal_segment_header got_segment;
    wal_hard_put(&hard, bytes);
    le32_put(bytes + 12, WAL_VERSION + 1);
    le32_put(bytes + 8, crc32c(0, bytes + 12, WAL_HARD_SIZE - 12));
    CHECK_EQ(wal_hard_get(bytes, &got_hard), ERR_VERSION);
    wal_segment_header_put(&segment, bytes);
    le32_put(bytes + 12, WAL_VERSION + 1);
    le32_put(bytes + 8, crc32c(0, bytes + 12, WAL_SEGMENT_HEADER_SIZE - 12));
    CHECK_EQ(wal_segment_header_get(bytes, &got_segment), ERR_VERSION);
}

TEST(segment_header_comes_back)
{
    uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
    struct wal_segment_header got = {0};
    wal_segment_header_put(&segment, bytes);
    CHECK_EQ(wal_segment_header_get(bytes, &got), ERR_OK);
    CHECK(got.log_id == segment.log_id && got.n == segment.n && got.salt == segment.salt);
    CHECK(got.size == segment.size && got.first_write == segment.first_write);
    CHECK(got.first_index == segment.first_index && got.prev_chain == segment.prev_chain);
}

TEST(segment_header_refuses_every_bit_flip)
{
    for (size_t bit = 0; bit < 8 * WAL_SEGMENT_HEADER_SIZE; bit++) {
        uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
        struct wal_segment_header got = {.n = 1234};
        wal_segment_header_put(&segment, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_EQ(wal_segment_header_get(bytes, &got), ERR_CORRUPT);
        CHECK_EQ(got.n, 1234);
    }
}

TEST(segment_header_fields_out_of_range_are_refused)
{
    struct wal_segment_header bad[] = {segment, segment, segment, segment, segment, segment};
    bad[0].n = 0;
    bad[1].salt = 0;
    bad[2].size = WAL_BLOCK;
    bad[3].size = 2 * WAL_BLOCK + 1;
    bad[4].first_write = 0;
    bad[5].first_index = UINT64_MAX;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
        struct wal_segment_header got;
        wal_segment_header_put(&bad[i], bytes);
        CHECK_EQ(wal_segment_header_get(bytes, &got), ERR_CORRUPT);
    }
}

TEST(write_header_comes_back)
{
    uint8_t bytes[WAL_WRITE_HEADER_SIZE];
    struct wal_write_header got = {0};
    wal_write_header_put(&write_header, bytes);
    CHECK(wal_write_header_get(bytes, &got));
    CHECK_EQ(got.salt, write_header.salt);
    CHECK_EQ(got.number, 12);
    CHECK_EQ(got.synced_through, 99);
    CHECK_EQ(got.first_index, 100);
    CHECK_EQ(got.length, 60);
    CHECK_EQ(got.prev_chain, 0xdeadbeef);
    CHECK_EQ(got.entries, 2);
    CHECK_EQ(got.crc, write_header.crc);
}

TEST(write_header_refuses_every_bit_flip)
{
    for (size_t bit = 0; bit < 8 * WAL_WRITE_HEADER_SIZE; bit++) {
        uint8_t bytes[WAL_WRITE_HEADER_SIZE];
        struct wal_write_header got = {.number = 1234};
        wal_write_header_put(&write_header, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(!wal_write_header_get(bytes, &got));
        CHECK_EQ(got.number, 1234);
    }
}

TEST(write_header_fields_out_of_range_are_refused)
{
    struct wal_write_header bad[6];
    for (size_t i = 0; i < 6; i++)
        bad[i] = write_header;
    bad[0].number = 0;
    bad[1].first_index = 0;
    bad[2].synced_through = 100; /* its own entries are not durable yet */
    bad[3].length = WAL_BODY_MAX + 1;
    bad[4].entries = 0;
    bad[5].entries = 3; /* more than 60 bytes hold */
    for (size_t i = 0; i < 6; i++) {
        uint8_t bytes[WAL_WRITE_HEADER_SIZE];
        struct wal_write_header got;
        wal_write_header_put(&bad[i], bytes);
        CHECK(!wal_write_header_get(bytes, &got));
    }
}

#define SEED 0x1234u
#define PAYLOAD "payload"

static size_t put_entry(uint8_t *out)
{
    struct wal_entry_header h = {.len = sizeof(PAYLOAD), .index = 100, .term = 5};
    wal_entry_header_put(&h, out);
    memcpy(out + WAL_ENTRY_HEADER_SIZE, PAYLOAD, sizeof(PAYLOAD));
    le32_put(out, crc32c(SEED, out + 4, WAL_ENTRY_HEADER_SIZE - 4 + sizeof(PAYLOAD)));
    return WAL_ENTRY_HEADER_SIZE + sizeof(PAYLOAD);
}

TEST(entry_comes_back)
{
    uint8_t bytes[64];
    struct span body = span_make(bytes, put_entry(bytes)), payload;
    struct wal_entry_header got;
    CHECK(wal_entry_get(&body, SEED, &got, &payload));
    CHECK_EQ(body.len, 0);
    CHECK(got.index == 100 && got.term == 5 && got.len == sizeof(PAYLOAD));
    CHECK(span_eq(payload, span_make(PAYLOAD, sizeof(PAYLOAD))));
}

TEST(entry_refuses_every_bit_flip_and_another_chain)
{
    uint8_t bytes[64];
    struct wal_entry_header got;
    struct span payload;
    size_t size = put_entry(bytes);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct span body = span_make(bytes, size);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(!wal_entry_get(&body, SEED, &got, &payload));
        CHECK_EQ(body.len, size);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(!wal_entry_get(&body, SEED ^ (1u << bit % 32), &got, &payload));
    }
}

TEST(entry_refuses_every_truncation)
{
    uint8_t bytes[64];
    size_t size = put_entry(bytes);
    for (size_t len = 0; len < size; len++) {
        struct wal_entry_header got;
        struct span body = span_make(bytes, len), payload;
        CHECK(!wal_entry_get(&body, SEED, &got, &payload));
    }
}

TEST(entry_longer_than_the_limit_is_refused)
{
    uint8_t bytes[64];
    struct wal_entry_header got;
    struct span body = span_make(bytes, put_entry(bytes)), payload;
    body.len = (size_t)WAL_ENTRY_MAX + 1000; /* never read that far */
    le32_put(bytes + 4, WAL_ENTRY_MAX + 1);
    CHECK(!wal_entry_get(&body, SEED, &got, &payload));
}

TEST_MAIN()
