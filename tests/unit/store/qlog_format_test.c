/* The bytes of a queue log: what is encoded decodes, and fields that do not agree are refused
 * although their checksum is right. */
#include "store/qlog_format.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "lib/test.h"

static void reseal(uint8_t *bytes, size_t size)
{
    le32_put(bytes, crc32c(0, bytes + 4, size - 4));
}

static void sample_run(struct buf *out)
{
    static const struct qlog_record records[] = {
        {.message_id = {{1, 2, 3}}, .transaction_id = {(const uint8_t *)"tx", 2}},
        {.payload = {(const uint8_t *)"{\"a\":1}", 7}},
    };
    const struct qlog_run run = {
        .partition_id = 0x1122334455667788,
        .partition = SPAN_LIT("name"),
        .first_offset = 1000,
        .stamp = -5,
        .records = records,
        .count = 2,
    };
    CHECK_EQ(qlog_run_size(&run), 64 + 4 + 24 + 2 + 24 + 7);
    qlog_run_encode(&run, 4096, out);
    CHECK_EQ(out->len, qlog_run_size(&run));
}

/* Goal: the bytes are those of the table in the header, for ever. */
TEST(a_run_has_the_bytes_of_version_1)
{
    struct buf b = BUF_INIT;
    sample_run(&b);
    const uint8_t *p = b.ptr;
    CHECK_EQ(le32_get(p), crc32c(0, p + 4, 60));
    CHECK_EQ(le32_get(p + 4), crc32c(0, p + 64, b.len - 64));
    CHECK_EQ(le32_get(p + 8), b.len - 64);
    CHECK_EQ(le32_get(p + 12), 2);
    CHECK_EQ(le64_get(p + 16), 4096);
    CHECK_EQ(le64_get(p + 24), 0x1122334455667788);
    CHECK_EQ(le64_get(p + 32), 1000);
    CHECK_EQ((int64_t)le64_get(p + 40), -5);
    CHECK_EQ(le64_get(p + 48), 2 * (64 + 4) + 2 + 7);
    CHECK_EQ(le16_get(p + 56), 4);
    CHECK(memcmp(p + 64, "name\1\2\3\0", 8) == 0);
    CHECK_EQ(le32_get(p + 64 + 4 + 16), 2);
    CHECK_EQ(le32_get(p + 64 + 4 + 20), 0);
    CHECK(memcmp(p + 64 + 4 + 24, "tx\0", 3) == 0);
    CHECK(memcmp(p + b.len - 7, "{\"a\":1}", 7) == 0);
    buf_deinit(&b);
}

TEST(a_run_decodes_to_what_was_encoded)
{
    struct buf b = BUF_INIT;
    struct qlog_run_head head;
    struct qlog_record records[2];
    struct span name;
    uint32_t crc;
    sample_run(&b);
    CHECK_EQ(qlog_run_head_decode(b.ptr, 4096, &head, &crc), ERR_OK);
    CHECK_EQ(head.next_position, 4096 + b.len);
    CHECK_EQ(head.weight, 145);
    struct span body = span_sub(buf_span(&b), 64, b.len);
    CHECK_EQ(qlog_run_body_decode(&head, body, &name, records), ERR_OK);
    CHECK_TEXT(name, "name");
    CHECK_EQ(records[0].message_id.bytes[2], 3);
    CHECK_TEXT(records[0].transaction_id, "tx");
    CHECK_TEXT(records[0].payload, "");
    CHECK_TEXT(records[1].payload, "{\"a\":1}");
    buf_deinit(&b);
}

TEST(a_run_header_out_of_range_is_refused)
{
    static const struct {
        size_t at, size;
        uint64_t value;
    } bad[] = {
        {8, 4, 4 + 2 * 24 - 1}, /* no room for the records */
        {12, 4, 0},
        {12, 4, QLOG_RUN_RECORDS_MAX + 1},
        {16, 8, 4097},
        {32, 8, UINT64_MAX - 1},
        {56, 2, 36},
        {58, 2, 1},
        {63, 1, 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct buf b = BUF_INIT;
        struct qlog_run_head head = {.position = 99};
        uint32_t crc = 99;
        sample_run(&b);
        for (size_t byte = 0; byte < bad[i].size; byte++)
            b.ptr[bad[i].at + byte] = (uint8_t)(bad[i].value >> (8 * byte));
        reseal(b.ptr, 64);
        CHECK_EQ(qlog_run_head_decode(b.ptr, 4096, &head, &crc), ERR_CORRUPT);
        CHECK(head.position == 99 && crc == 99);
        buf_deinit(&b);
    }
}

/* Goal: lengths inside a body that do not add up never reach outside of it. */
TEST(a_body_that_does_not_add_up_is_refused)
{
    struct buf b = BUF_INIT;
    struct qlog_run_head head;
    uint32_t crc;
    sample_run(&b);
    CHECK_EQ(qlog_run_head_decode(b.ptr, 4096, &head, &crc), ERR_OK);
    const size_t lengths[] = {64 + 4 + 16, 64 + 4 + 20, 64 + 4 + 24 + 2 + 16, 64 + 4 + 24 + 2 + 20};
    for (size_t i = 0; i < 4; i++) {
        for (uint64_t value = 0; value < 80; value++) {
            struct qlog_record records[2];
            struct span name;
            uint32_t old = le32_get(b.ptr + lengths[i]);
            if (value == old)
                continue;
            le32_put(b.ptr + lengths[i], value == 79 ? UINT32_MAX : (uint32_t)value);
            struct span body = span_sub(buf_span(&b), 64, b.len);
            CHECK_EQ(qlog_run_body_decode(&head, body, &name, records), ERR_CORRUPT);
            le32_put(b.ptr + lengths[i], old);
        }
    }
    head.weight++;
    struct qlog_record records[2];
    struct span name;
    struct span body = span_sub(buf_span(&b), 64, b.len);
    CHECK_EQ(qlog_run_body_decode(&head, body, &name, records), ERR_CORRUPT);
    buf_deinit(&b);
}

TEST(a_segment_header_comes_back_or_is_refused)
{
    const struct qlog_segment_header h = {.queue_id = 7, .first = 123456, .first_stamp = -9};
    struct qlog_segment_header got = {0};
    uint8_t bytes[QLOG_SEGMENT_HEADER_SIZE];
    qlog_segment_header_encode(&h, bytes);
    CHECK(memcmp(bytes + 4, "QLGS\1\0\0\0\0\0\0\0\7", 13) == 0);
    CHECK_EQ(qlog_segment_header_decode(bytes, &got), ERR_OK);
    CHECK(got.queue_id == 7 && got.first == 123456 && got.first_stamp == -9);
    bytes[4] = 'X';
    reseal(bytes, sizeof(bytes));
    CHECK_EQ(qlog_segment_header_decode(bytes, &got), ERR_CORRUPT);
    qlog_segment_header_encode(&h, bytes);
    bytes[8] = 2;
    reseal(bytes, sizeof(bytes));
    CHECK_EQ(qlog_segment_header_decode(bytes, &got), ERR_VERSION);
    qlog_segment_header_encode(&h, bytes);
    bytes[63] = 1;
    reseal(bytes, sizeof(bytes));
    CHECK_EQ(qlog_segment_header_decode(bytes, &got), ERR_CORRUPT);
}

TEST(an_index_block_comes_back_or_is_refused)
{
    struct qlog_entry entries[QLOG_BLOCK_ENTRIES];
    uint8_t bytes[QLOG_BLOCK_SIZE];
    struct qlog_block block;
    for (size_t i = 0; i < QLOG_BLOCK_ENTRIES; i++)
        entries[i] = (struct qlog_entry){i / 10, i, 1000 + i, -(int64_t)i};
    qlog_block_encode(500, 3, 1, entries, QLOG_BLOCK_ENTRIES, bytes);
    CHECK_EQ(qlog_block_decode(bytes, 500, 3, &block), ERR_OK);
    CHECK(block.number == 3 && block.level == 1 && block.count == QLOG_BLOCK_ENTRIES);
    for (size_t i = 0; i < QLOG_BLOCK_ENTRIES; i++) {
        struct qlog_entry e = qlog_block_entry(&block, i);
        CHECK(e.partition_id == i / 10 && e.first_offset == i && e.position == 1000 + i &&
              e.stamp == -(int64_t)i);
    }
    CHECK_EQ(qlog_block_decode(bytes, 501, 3, &block), ERR_CORRUPT);
    CHECK_EQ(qlog_block_decode(bytes, 500, 2, &block), ERR_CORRUPT);
    for (unsigned count = 0; count < 300; count++) {
        le16_put(bytes + 16, (uint16_t)count);
        reseal(bytes, sizeof(bytes));
        enum err want = count > 0 && count <= QLOG_BLOCK_ENTRIES ? ERR_OK : ERR_CORRUPT;
        CHECK_EQ(qlog_block_decode(bytes, 500, 3, &block), want);
    }
}

TEST(a_footer_comes_back_or_is_refused)
{
    const struct qlog_footer f = {.first = 100,
                                  .run_bytes = 300 * 100,
                                  .runs = 300,
                                  .first_stamp = -5,
                                  .last_stamp = 7,
                                  .partition_min = 1,
                                  .partition_max = 9,
                                  .leaves = 3,
                                  .blocks = 4,
                                  .marks = 1,
                                  .marks_crc = 77};
    uint8_t bytes[QLOG_FOOTER_SIZE];
    struct qlog_footer got = {0};
    qlog_footer_encode(&f, bytes);
    CHECK_EQ(qlog_footer_decode(bytes, &got), ERR_OK);
    CHECK(memcmp(&got, &f, sizeof(f)) == 0);
    CHECK_EQ(qlog_footer_file_size(&f), 64 + 30000 + 4 * 4096 + 16 + 96);
    static const struct {
        size_t at;
        uint64_t value;
    } bad[] = {
        {8, UINT64_MAX - 100}, /* first: the end would wrap */
        {16, 300 * 64 - 1},    /* run bytes: too few for the runs */
        {16, UINT64_C(1) << 40},
        {24, 0},
        {24, 128},                          /* runs: another number of leaves */
        {40, UINT64_C(0x8000000000000000)}, /* last stamp below the first */
        {48, 10},                           /* least partition above the greatest */
        {64, 3 | UINT64_C(5) << 32},
        {64, 2 | UINT64_C(4) << 32},
        {72, 0},
        {72, 2},
        {80, 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        qlog_footer_encode(&f, bytes);
        le64_put(bytes + bad[i].at, bad[i].value);
        reseal(bytes, sizeof(bytes));
        CHECK_EQ(qlog_footer_decode(bytes, &got), ERR_CORRUPT);
    }
}

TEST(blocks_over_leaves_are_those_of_all_levels)
{
    CHECK_EQ(qlog_blocks_over(1), 1);
    CHECK_EQ(qlog_blocks_over(2), 3);
    CHECK_EQ(qlog_blocks_over(127), 128);
    CHECK_EQ(qlog_blocks_over(128), 128 + 2 + 1);
    CHECK_EQ(qlog_blocks_over(127 * 127 + 1), 127 * 127 + 1 + 128 + 2 + 1);
}

TEST_MAIN()
