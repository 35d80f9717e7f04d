#include "base/buf.h"

#include "lib/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

TEST(an_empty_buf_needs_no_memory)
{
    struct buf b = BUF_INIT;
    buf_append(&b, NULL, 0);
    buf_put_span(&b, (struct span){NULL, 0});
    CHECK(b.ptr == NULL);
    CHECK_EQ(b.len, 0);
    buf_deinit(&b);
    buf_deinit(NULL);
}

TEST(appends_keep_what_was_there)
{
    struct buf b = BUF_INIT;
    for (unsigned i = 0; i < 10000; i++)
        buf_putc(&b, (uint8_t)(i * 7));
    CHECK_EQ(b.len, 10000);
    CHECK(b.cap >= b.len);
    for (unsigned i = 0; i < 10000; i++)
        CHECK_EQ(b.ptr[i], (uint8_t)(i * 7));
    size_t cap = b.cap;
    buf_reset(&b);
    CHECK_EQ(b.len, 0);
    CHECK_EQ(b.cap, cap);
    buf_deinit(&b);
    CHECK(b.ptr == NULL);
    CHECK_EQ(b.cap, 0);
}

TEST(reserve_makes_room_without_growing_len)
{
    struct buf b = BUF_INIT;
    buf_reserve(&b, 1000);
    CHECK(b.cap >= 1000);
    CHECK_EQ(b.len, 0);
    const uint8_t *before = b.ptr;
    memset(buf_extend(&b, 1000), 'x', 1000);
    CHECK(b.ptr == before);
    CHECK_EQ(b.len, 1000);
    buf_deinit(&b);
}

/* Goal: the limit holds exactly, also where len + n would overflow, and a refusal changes nothing.
 */
TEST(try_append_keeps_its_limit)
{
    struct buf b = BUF_INIT;
    CHECK_EQ(buf_try_append(&b, "abc", 3, 2), ERR_TOO_LARGE);
    CHECK_EQ(buf_try_append(&b, "abc", 3, 3), ERR_OK);
    CHECK_EQ(buf_try_append(&b, "d", 1, 3), ERR_TOO_LARGE);
    CHECK_EQ(buf_try_append(&b, "d", SIZE_MAX, SIZE_MAX), ERR_TOO_LARGE);
    CHECK_EQ(buf_try_append(&b, "d", SIZE_MAX - 3, SIZE_MAX - 2), ERR_TOO_LARGE);
    CHECK_EQ(buf_try_append(&b, NULL, 0, 3), ERR_OK);
    CHECK_TEXT(buf_span(&b), "abc");
    CHECK_EQ(buf_try_append(&b, "de", 2, 5), ERR_OK);
    CHECK_TEXT(buf_span(&b), "abcde");
    CHECK(b.cap <= 5);
    buf_deinit(&b);
}

TEST(decimal_integers)
{
    struct buf b = BUF_INIT;
    buf_put_u64(&b, 0);
    buf_putc(&b, ' ');
    buf_put_u64(&b, UINT64_MAX);
    buf_putc(&b, ' ');
    buf_put_i64(&b, INT64_MIN);
    buf_putc(&b, ' ');
    buf_put_i64(&b, INT64_MAX);
    buf_putc(&b, ' ');
    buf_put_i64(&b, -1);
    CHECK_TEXT(buf_span(&b), "0 18446744073709551615 -9223372036854775808 9223372036854775807 -1");
    buf_deinit(&b);
}

TEST(padding_is_a_minimum)
{
    struct buf b = BUF_INIT;
    buf_put_padded(&b, 0, 0);
    buf_putc(&b, ' ');
    buf_put_padded(&b, 7, 10);
    buf_putc(&b, ' ');
    buf_put_padded(&b, 12345, 3);
    buf_putc(&b, ' ');
    buf_put_padded(&b, UINT64_MAX, 22);
    CHECK_TEXT(buf_span(&b), "0 0000000007 12345 0018446744073709551615");
    buf_deinit(&b);
}

/* Goal: formatted text of any length is whole, whatever room was left. */
TEST(printf_grows_to_fit)
{
    char text[300];
    for (int len = 0; len < 299; len++) {
        memset(text, 'a' + len % 26, sizeof(text));
        struct buf b = BUF_INIT;
        buf_puts(&b, "<");
        buf_printf(&b, "%.*s", len, text);
        buf_puts(&b, ">");
        CHECK_EQ(b.len, len + 2);
        CHECK(memcmp(b.ptr + 1, text, (size_t)len) == 0);
        CHECK_EQ(b.ptr[len + 1], '>');
        buf_deinit(&b);
    }
}

TEST(binary_integers_have_their_order)
{
    static const uint8_t want[] = {0x02, 0x01, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2,
                                   1,    1,    2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8};
    struct buf b = BUF_INIT;
    buf_put_le16(&b, 0x0102);
    buf_put_le32(&b, 0x01020304);
    buf_put_le64(&b, 0x0102030405060708);
    buf_put_be32(&b, 0x01020304);
    buf_put_be64(&b, 0x0102030405060708);
    CHECK_SPAN(buf_span(&b), span_make(want, sizeof(want)));
    buf_deinit(&b);
}

static void check_double(double value, const char *want)
{
    struct buf b = BUF_INIT;
    buf_put_double(&b, value);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

TEST(doubles_are_short_and_show_they_are_doubles)
{
    check_double(0, "0.0");
    check_double(-0.0, "-0.0");
    check_double(1, "1.0");
    check_double(-100, "-100.0");
    check_double(0.1, "0.1");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(2.5, "2.5");
    check_double(123456.789, "123456.789");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(0.0001, "0.0001");
    check_double(0.00001, "0.00001");
    check_double(0.000001, "1e-6");
    check_double(1.25e-7, "1.25e-7");
    check_double(1e15, "1000000000000000.0");
    check_double(1e16, "1e16");
    check_double(12345678901234567890.0, "1.2345678901234567e19");
    check_double(9007199254740993.0, "9007199254740992.0");
    check_double(DBL_MAX, "1.7976931348623157e308");
    check_double(-DBL_MIN, "-2.2250738585072014e-308");
    check_double(5e-324, "5e-324");
    check_double((double)INFINITY, "inf");
    check_double(-(double)INFINITY, "-inf");
    check_double((double)NAN, "NaN");
}

/* Goal: every double reads back as itself. Method: random bit patterns of a fixed generator. */
TEST(doubles_round_trip)
{
    uint64_t bits = 88172645463325252u;
    struct buf b = BUF_INIT;
    for (unsigned i = 0; i < 200000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        buf_reset(&b);
        buf_put_double(&b, value);
        buf_putc(&b, '\0');
        double again = strtod((const char *)b.ptr, NULL);
        CHECK(memcmp(&again, &value, sizeof(value)) == 0);
        CHECK(strpbrk((const char *)b.ptr, ".e") != NULL);
    }
    buf_deinit(&b);
}

TEST(json_strings_escape_what_must_be_and_nothing_else)
{
    struct buf b = BUF_INIT;
    buf_put_json_string(&b, SPAN_LIT("a\"b\\c/d\b\f\n\r\t\x01\x1f\x7f\xc3\xa8"));
    CHECK_TEXT(buf_span(&b), "\"a\\\"b\\\\c/d\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa8\"");
    buf_reset(&b);
    buf_put_json_string(&b, (struct span){NULL, 0});
    CHECK_TEXT(buf_span(&b), "\"\"");
    buf_reset(&b);
    buf_put_json_string(&b, SPAN_LIT("\0"));
    CHECK_TEXT(buf_span(&b), "\"\\u0000\"");
    buf_reset(&b);
    buf_put_json_string(&b, SPAN_LIT("\n\n"));
    CHECK_TEXT(buf_span(&b), "\"\\n\\n\"");
    buf_deinit(&b);
}

TEST_MAIN()
