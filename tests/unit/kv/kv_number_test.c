/* Exact addition of JSON numbers (decisions.md 24). */
#include "kv/kv_internal.h"

#include "json/json.h"
#include "lib/prng.h"
#include "lib/test.h"

#include <math.h>
#include <stdlib.h>

__extension__ typedef __int128 wide;

static enum kv_reason add(const char *a, const char *b, struct buf *sum)
{
    buf_reset(sum);
    return kv_number_add(span_str(a), span_str(b), SPAN_LIT(""), SPAN_LIT(""), sum);
}

TEST(sums_are_exact_before_they_are_stored)
{
    static const char *const cases[][3] = {
        {"1", "2", "3"},
        {"0", "0", "0"},
        {"-0", "0", "0"},
        {"5", "-5", "0"},
        {"-5", "3", "-2"},
        {"3", "-5", "-2"},
        {"0.1", "0.2", "0.3"},
        {"1.5", "0.5", "2"},
        {"1.0", "1", "2"},
        {"1e2", "1", "101"},
        {"9223372036854775807", "1", "9223372036854775808"},
        {"18446744073709551615", "0", "18446744073709551615"},
        {"-9223372036854775808", "0", "-9223372036854775808"},
        {"9007199254740993", "0.5", "9007199254740994.0"}, /* exact ...993.5, to the nearest */
        {"999999999999", "0.001", "999999999999.001"},
        {"0.30000000000000004", "-0.3", "4e-17"},
        {"1e-1100", "1e-1100", "0.0"},
        {"1e-1300", "1", "1"}, /* too small to count */
        {"0e99999999999", "7", "7"},
        {"1E+2", "-1e+02", "0"},
    };
    struct buf sum = BUF_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_EQ(add(cases[i][0], cases[i][1], &sum), KV_REASON_NONE);
        CHECK_TEXT(buf_span(&sum), cases[i][2]);
    }
    CHECK_EQ(add("18446744073709551615", "1", &sum), KV_REASON_NONE);
    CHECK(strtod("18446744073709551616", NULL) == 18446744073709551616.0);
    CHECK_EQ(add("1.7976931348623157e308", "1.7976931348623157e308", &sum), KV_REASON_LIMIT);
    CHECK_EQ(add("-1.7976931348623157e308", "-1e308", &sum), KV_REASON_LIMIT);
    buf_deinit(&sum);
}

TEST(only_numbers_add)
{
    static const char *const others[] = {"",   "\"1\"", "null", "true", "[1]", "{}",  "01",   "1.",
                                         ".1", "1e",    "--1",  "+1",   "1 ",  "0x1", "1e400"};
    struct buf sum = BUF_INIT;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK_EQ(add(others[i], "1", &sum), KV_REASON_TYPE);
        CHECK(!kv_number_valid(span_str(others[i])));
    }
    CHECK(kv_number_valid(SPAN_LIT("1.7976931348623157e308")));
    CHECK(!kv_number_valid(SPAN_LIT("1.8e308")));
    CHECK(kv_number_valid(SPAN_LIT("1e-5000")));
    char text[KV_NUMBER_MAX + 1];
    memset(text, '0', sizeof(text));
    text[1] = '.';
    text[KV_NUMBER_MAX - 1] = '1';
    CHECK(kv_number_valid(span_make(text, KV_NUMBER_MAX)));
    CHECK(!kv_number_valid(span_make(text, KV_NUMBER_MAX + 1)));
    buf_deinit(&sum);
}

/* Method: integers against 128-bit arithmetic, and every result is in its own normal form. */
TEST(random_sums_agree_with_wider_integers)
{
    struct prng rng;
    struct buf a = BUF_INIT, b = BUF_INIT, sum = BUF_INIT, normal = BUF_INIT;
    prng_init(&rng, 11);
    for (unsigned i = 0; i < 5000; i++) {
        int64_t x = (int64_t)(prng_u64(&rng) >> prng_below(&rng, 64));
        int64_t y = (int64_t)(prng_u64(&rng) >> prng_below(&rng, 64));
        if (prng_chance(&rng, 50))
            y = y == INT64_MIN ? 0 : -y;
        buf_reset(&a);
        buf_reset(&b);
        buf_reset(&sum);
        buf_reset(&normal);
        buf_put_i64(&a, x);
        buf_put_i64(&b, y);
        CHECK_EQ(kv_number_add(buf_span(&a), buf_span(&b), SPAN_LIT(""), SPAN_LIT(""), &sum),
                 KV_REASON_NONE);
        wide exact = (wide)x + y;
        int64_t got;
        if (exact >= INT64_MIN && exact <= INT64_MAX) {
            CHECK(json_int64(buf_span(&sum), &got));
            CHECK(got == (int64_t)exact);
        }
        CHECK_EQ(json_normalise(buf_span(&sum), 10, 100, &normal, NULL), ERR_OK);
        CHECK_SPAN(buf_span(&sum), buf_span(&normal));
    }
    buf_deinit(&a);
    buf_deinit(&b);
    buf_deinit(&sum);
    buf_deinit(&normal);
}

TEST_MAIN()
