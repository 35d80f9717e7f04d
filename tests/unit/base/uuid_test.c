#include "base/uuid.h"

#include "lib/test.h"

static const uint8_t random_bytes[8] = {0xFF, 0xEE, 0xDD, 0xCC, 0xBB, 0xAA, 0x99, 0x88};

static void check_text(const struct uuid *id, const char *want)
{
    struct buf b = BUF_INIT;
    buf_put_uuid(&b, id);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

TEST(the_counter_restarts_in_each_millisecond)
{
    struct uuid_minter m = {0};
    struct uuid id = uuid_mint(&m, 0x01A1007B855D * INT64_C(1000), random_bytes);
    check_text(&id, "01a1007b-855d-7000-bfee-ddccbbaa9988");
    id = uuid_mint(&m, 0x01A1007B855D * INT64_C(1000) + 999, random_bytes);
    check_text(&id, "01a1007b-855d-7001-bfee-ddccbbaa9988");
    id = uuid_mint(&m, 0x01A1007B855E * INT64_C(1000), random_bytes);
    check_text(&id, "01a1007b-855e-7000-bfee-ddccbbaa9988");
}

/* Goal: ids sort in the order of minting and never repeat, also when a millisecond is used up and
 * when the clock steps back. The random part is fixed, so nothing else keeps them apart. */
TEST(ids_only_grow)
{
    struct uuid_minter m = {0};
    struct uuid last = uuid_mint(&m, 1000000, random_bytes);
    for (unsigned i = 0; i < 20000; i++) {
        int64_t wall_us = i < 10000 ? 1000000 : i < 15000 ? 400000 : i < 17000 ? 1003000 : 9000000;
        struct uuid id = uuid_mint(&m, wall_us, random_bytes);
        CHECK(memcmp(last.bytes, id.bytes, 16) < 0);
        CHECK_EQ(id.bytes[6] >> 4, 7);
        CHECK_EQ(id.bytes[8] >> 6, 2);
        last = id;
    }
    CHECK_EQ(m.last_ms, 9000);
}

TEST(a_used_up_millisecond_borrows_the_next)
{
    struct uuid_minter m = {0};
    for (unsigned i = 0; i < 4096; i++)
        (void)uuid_mint(&m, 5000, random_bytes);
    CHECK_EQ(m.last_ms, 5);
    struct uuid id = uuid_mint(&m, 5000, random_bytes);
    check_text(&id, "00000000-0006-7000-bfee-ddccbbaa9988");
    id = uuid_mint(&m, 5000, random_bytes);
    check_text(&id, "00000000-0006-7001-bfee-ddccbbaa9988");
    id = uuid_mint(&m, 6000, random_bytes);
    check_text(&id, "00000000-0006-7002-bfee-ddccbbaa9988");
}

TEST(a_clock_before_1970_counts_from_zero)
{
    struct uuid_minter m = {0};
    struct uuid id = uuid_mint(&m, -5000000, random_bytes);
    check_text(&id, "00000000-0000-7000-bfee-ddccbbaa9988");
    id = uuid_mint(&m, 0, random_bytes);
    check_text(&id, "00000000-0000-7001-bfee-ddccbbaa9988");
}

/* Goal: derived ids are a fixed function of all their inputs; a changed byte here breaks replicas.
 */
TEST(derived_ids_are_fixed)
{
    struct uuid cluster = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    struct uuid other = cluster;
    other.bytes[15]++;
    struct uuid a = uuid_derive(&cluster, 7, 0, 1791009458377855);
    struct uuid b = uuid_derive(&cluster, 7, 0, 1791009458377855);
    check_text(&a, "01a1007b-88c9-7000-ae4e-5249e526afe0");
    CHECK(memcmp(&a, &b, sizeof(a)) == 0);
    b = uuid_derive(&other, 7, 0, 1791009458377855);
    CHECK(memcmp(a.bytes + 8, b.bytes + 8, 8) != 0);
    b = uuid_derive(&cluster, 8, 0, 1791009458377855);
    CHECK(memcmp(a.bytes + 8, b.bytes + 8, 8) != 0);
    b = uuid_derive(&cluster, 7, 1, 1791009458377855);
    CHECK(memcmp(a.bytes + 8, b.bytes + 8, 8) != 0);
    CHECK(memcmp(a.bytes, b.bytes, 16) < 0);
    b = uuid_derive(&cluster, 7, UINT32_MAX, 1791009458377855);
    CHECK_EQ(b.bytes[6], 0x7F);
    CHECK_EQ(b.bytes[7], 0xFF);
}

TEST(text_round_trips_in_either_case)
{
    struct uuid id;
    CHECK(uuid_parse(SPAN_LIT("01A1007b-855d-7001-BFEE-ddccbbaa9988"), &id));
    check_text(&id, "01a1007b-855d-7001-bfee-ddccbbaa9988");
    CHECK(uuid_parse(SPAN_LIT("00000000-0000-0000-0000-000000000001"), &id));
    CHECK_EQ(id.bytes[15], 1);
}

/* Goal: no damaged text is taken. Method: each byte replaced by ones that do not belong there. */
TEST(damaged_text_is_refused)
{
    static const char good[] = "01a1007b-855d-7001-bfee-ddccbbaa9988";
    for (size_t len = 0; len < UUID_TEXT_LEN; len++) {
        struct uuid id = {{99}};
        CHECK(!uuid_parse(span_make(good, len), &id));
        char text[sizeof(good)];
        memcpy(text, good, sizeof(good));
        for (const char *c = good[len] == '-' ? "0a_ " : "-g/:@G`"; *c != '\0'; c++) {
            text[len] = *c;
            CHECK(!uuid_parse(span_make(text, UUID_TEXT_LEN), &id));
        }
        CHECK_EQ(id.bytes[0], 99);
    }
    struct uuid id;
    CHECK(!uuid_parse(span_make(good, UUID_TEXT_LEN + 1), &id));
    CHECK(!uuid_parse(SPAN_LIT("01a1007b855d7001bfeeddccbbaa9988"), &id));
    CHECK(!uuid_parse(SPAN_LIT("{01a1007b-855d-7001-bfee-ddccbbaa998"), &id));
}

TEST_MAIN()
