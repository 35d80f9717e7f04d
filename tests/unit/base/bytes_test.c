#include "base/bytes.h"

#include "lib/test.h"

TEST(integers_round_trip_at_odd_addresses)
{
    uint8_t bytes[16];
    le16_put(bytes + 1, 0xABCD);
    CHECK_EQ(bytes[1], 0xCD);
    CHECK_EQ(le16_get(bytes + 1), 0xABCD);
    le32_put(bytes + 1, 0x89ABCDEF);
    CHECK_EQ(bytes[1], 0xEF);
    CHECK_EQ(le32_get(bytes + 1), 0x89ABCDEF);
    le64_put(bytes + 1, 0x8123456789ABCDEF);
    CHECK_EQ(bytes[1], 0xEF);
    CHECK_EQ(le64_get(bytes + 1), 0x8123456789ABCDEF);
    be32_put(bytes + 1, 0x89ABCDEF);
    CHECK_EQ(bytes[1], 0x89);
    CHECK_EQ(be32_get(bytes + 1), 0x89ABCDEF);
    be64_put(bytes + 1, 0x8123456789ABCDEF);
    CHECK_EQ(bytes[1], 0x81);
    CHECK_EQ(be64_get(bytes + 1), 0x8123456789ABCDEF);
}

#define SAMPLE_SIZE (1 + 2 + 4 + 8 + 4 + 8 + 3)

/* Decodes one of each; the sum of what was got. */
static uint64_t decode(struct cursor *c)
{
    uint64_t sum = cursor_u8(c);
    sum += cursor_le16(c);
    sum += cursor_le32(c);
    sum += cursor_le64(c);
    sum += cursor_be32(c);
    sum += cursor_be64(c);
    sum += cursor_bytes(c, 3).len;
    return sum;
}

TEST(a_cursor_walks_its_input)
{
    uint8_t bytes[SAMPLE_SIZE] = {0};
    bytes[0] = 1;
    bytes[1] = 2;  /* le16 */
    bytes[3] = 3;  /* le32 */
    bytes[7] = 4;  /* le64 */
    bytes[18] = 5; /* be32 */
    bytes[26] = 6; /* be64 */
    struct cursor c = {.in = span_make(bytes, sizeof(bytes))};
    CHECK_EQ(decode(&c), 1 + 2 + 3 + 4 + 5 + 6 + 3);
    CHECK(!c.bad);
    CHECK_EQ(c.in.len, 0);
    CHECK_EQ(cursor_bytes(&c, 0).len, 0);
    CHECK(!c.bad);
    CHECK_EQ(cursor_u8(&c), 0);
    CHECK(c.bad);
}

/* Goal: input that ends too early is noticed wherever it ends, and stays noticed. */
TEST(every_truncation_turns_bad)
{
    for (size_t len = 0; len < SAMPLE_SIZE; len++) {
        uint8_t bytes[SAMPLE_SIZE];
        memset(bytes, 0xFF, sizeof(bytes));
        struct cursor c = {.in = span_make(bytes, len)};
        (void)decode(&c);
        CHECK(c.bad);
        c.in = span_make(bytes, sizeof(bytes));
        CHECK_EQ(decode(&c), 0);
        CHECK(c.bad);
        CHECK(cursor_bytes(&c, 0).ptr == NULL);
    }
}

TEST(a_length_beyond_the_input_is_bad)
{
    struct cursor c = {.in = SPAN_LIT("abc")};
    CHECK_TEXT(cursor_bytes(&c, 2), "ab");
    CHECK_EQ(cursor_bytes(&c, SIZE_MAX).len, 0);
    CHECK(c.bad);
    struct cursor empty = {.in = {NULL, 0}};
    CHECK_EQ(cursor_bytes(&empty, 0).len, 0);
    CHECK(!empty.bad);
}

TEST(hex_digits)
{
    static const char digits[] = "0123456789abcdef";
    int found = 0;
    for (int c = -1; c < 256; c++) {
        const char *at = c > 0 ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        CHECK_EQ(hex_value(c), at != NULL ? at - digits : -1);
        found += at != NULL;
    }
    CHECK_EQ(found, 22);
}

TEST_MAIN()
