#include "json/json.h"

#include "lib/test.h"

#define DEPTH_MAX 500
#define SIZE_LIMIT 65536

static void check_normal(const char *text, const char *want)
{
    struct buf once = BUF_INIT;
    struct buf twice = BUF_INIT;
    struct error error = {.code = ERR_OK};
    buf_puts(&once, "<");
    CHECK_EQ(json_normalise(span_str(text), DEPTH_MAX, SIZE_LIMIT, &once, &error), ERR_OK);
    CHECK_EQ(error.code, ERR_OK);
    struct span got = span_sub(buf_span(&once), 1, once.len);
    CHECK_TEXT(got, want);
    CHECK_EQ(json_normalise(got, DEPTH_MAX, SIZE_LIMIT, &twice, NULL), ERR_OK);
    CHECK_SPAN(buf_span(&twice), got);
    buf_deinit(&once);
    buf_deinit(&twice);
}

TEST(scalars)
{
    check_normal(" null ", "null");
    check_normal("true", "true");
    check_normal("false", "false");
    check_normal("\"\\u0041\\/\\u00e8\\u001F\\u0008\\u000a\\u007f\"",
                 "\"A/\xc3\xa8\\u001f\\b\\n\x7f\"");
    check_normal("\"\\ud83d\\ude00\\\"\\\\\"", "\"\xf0\x9f\x98\x80\\\"\\\\\"");
}

TEST(integers_stay_integers)
{
    check_normal("0", "0");
    check_normal("-0", "0");
    check_normal("-9223372036854775808", "-9223372036854775808");
    check_normal("18446744073709551615", "18446744073709551615");
}

TEST(other_numbers_become_doubles)
{
    check_normal("18446744073709551616", "1.8446744073709552e19");
    check_normal("-9223372036854775809", "-9.223372036854776e18");
    check_normal("1.0", "1.0");
    check_normal("1e2", "100.0");
    check_normal("1E+2", "100.0");
    check_normal("-0.0", "-0.0");
    check_normal("0.10", "0.1");
    check_normal("0.1000000000000000055511151231257827", "0.1");
    check_normal("1e-400", "0.0");
    check_normal("1.7976931348623157e308", "1.7976931348623157e308");
    check_normal("5e-324", "5e-324");
}

TEST(containers_are_compact_and_keys_sorted)
{
    check_normal("[]", "[]");
    check_normal(" { } ", "{}");
    check_normal("[ 1 , [ ] , { } , [ [ 2 ] , 3 ] ]", "[1,[],{},[[2],3]]");
    check_normal("{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}");
    check_normal("{\"b\":{\"d\":[{\"f\":1,\"e\":2}],\"c\":3},\"a\":{}}",
                 "{\"a\":{},\"b\":{\"c\":3,\"d\":[{\"e\":2,\"f\":1}]}}");
    check_normal("[{\"z\":1,\"y\":2},{\"x\":[],\"w\":{}}]",
                 "[{\"y\":2,\"z\":1},{\"w\":{},\"x\":[]}]");
}

/* Goal: order is that of the decoded bytes, not of the spelling. */
TEST(keys_sort_by_their_decoded_form)
{
    check_normal("{\"\\u0062\":1,\"a\":2,\"c\":3}", "{\"a\":2,\"b\":1,\"c\":3}");
    check_normal("{\"\\n\":1,\"\":2,\" \":3}", "{\"\":2,\"\\n\":1,\" \":3}");
    check_normal("{\"ab\":1,\"a\":2,\"a\\u0000\":3}", "{\"a\":2,\"a\\u0000\":3,\"ab\":1}");
    check_normal("{\"\xf0\x9f\x98\x80\":1,\"\xef\xbf\xbd\":2,\"z\":3}",
                 "{\"z\":3,\"\xef\xbf\xbd\":2,\"\xf0\x9f\x98\x80\":1}");
}

TEST(the_last_of_equal_keys_wins)
{
    check_normal("{\"a\":1,\"a\":2}", "{\"a\":2}");
    check_normal("{\"a\":{\"x\":1},\"b\":0,\"\\u0061\":[3],\"a\":{\"y\":2}}",
                 "{\"a\":{\"y\":2},\"b\":0}");
    check_normal("{\"c\":1,\"a\":1,\"c\":2,\"b\":1,\"c\":3,\"a\":2}", "{\"a\":2,\"b\":1,\"c\":3}");
}

/* Goal: many members in a hostile order come out in order. Method: a permutation of 10,000 keys. */
TEST(large_objects_sort)
{
    struct buf text = BUF_INIT;
    struct buf want = BUF_INIT;
    struct buf got = BUF_INIT;
    for (unsigned i = 0; i < 10000; i++) {
        buf_printf(&text, "%s\"%04u\":%u", i == 0 ? "{" : ",", i * 7919 % 10000, i * 7919 % 10000);
        buf_printf(&want, "%s\"%04u\":%u", i == 0 ? "{" : ",", i, i);
    }
    buf_puts(&text, "}");
    buf_puts(&want, "}");
    CHECK_EQ(json_normalise(buf_span(&text), DEPTH_MAX, 1 << 20, &got, NULL), ERR_OK);
    CHECK_SPAN(buf_span(&got), buf_span(&want));
    buf_deinit(&text);
    buf_deinit(&want);
    buf_deinit(&got);
}

static void check_refused(const char *text, enum err want, const char *message)
{
    struct buf b = BUF_INIT;
    struct error error;
    buf_puts(&b, "kept");
    CHECK_EQ(json_normalise(span_str(text), 4, 32, &b, &error), want);
    CHECK_EQ(error.code, want);
    assert_string_equal(error.text, message);
    CHECK_TEXT(buf_span(&b), "kept");
    CHECK_EQ(json_normalise(span_str(text), 4, 32, &b, NULL), want);
    buf_deinit(&b);
}

TEST(refusals_leave_the_output_alone)
{
    check_refused("", ERR_INVALID, "the text ends too early at byte 0");
    check_refused("{\"b\":1,\"a\":[1,]}", ERR_INVALID, "expected a value at byte 14");
    check_refused("[1] 2", ERR_INVALID, "expected the end of the text at byte 4");
    check_refused("[[[[[]]]]]", ERR_TOO_DEEP, "nested too deep at byte 4");
    check_refused("[\"\\ud800\"]", ERR_INVALID, "a string holds an unpaired surrogate escape");
    check_refused("{\"\\ud800\":1}", ERR_INVALID, "a key holds an unpaired surrogate escape");
    check_refused("[1E400]", ERR_INVALID, "a number is too large for a double");
    check_refused("-1E400", ERR_INVALID, "a number is too large for a double");
    check_refused("\"0123456789012345678901234567890\"", ERR_TOO_LARGE,
                  "larger than 32 bytes in compact form");
    check_refused("[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6]", ERR_TOO_LARGE,
                  "larger than 32 bytes in compact form");
}

TEST(the_limit_is_on_the_compact_form)
{
    struct buf b = BUF_INIT;
    CHECK_EQ(json_normalise(SPAN_LIT(" [ 1 , 2 ] "), 4, 5, &b, NULL), ERR_OK);
    CHECK_TEXT(buf_span(&b), "[1,2]");
    CHECK_EQ(json_normalise(SPAN_LIT("[1,2]"), 4, 4, &b, NULL), ERR_TOO_LARGE);
    CHECK_EQ(json_normalise(SPAN_LIT("{\"a\":1,\"b\":2}"), 4, 12, &b, NULL), ERR_TOO_LARGE);
    CHECK_TEXT(buf_span(&b), "[1,2]");
    CHECK_EQ(json_normalise(SPAN_LIT("{\"a\":1,\"b\":2}"), 4, 13, &b, NULL), ERR_OK);
    CHECK_TEXT(buf_span(&b), "[1,2]{\"a\":1,\"b\":2}");
    buf_deinit(&b);
}

TEST(depth_costs_no_stack)
{
    struct buf text = BUF_INIT;
    struct buf got = BUF_INIT;
    for (unsigned i = 0; i < JSON_DEPTH_MAX; i++)
        buf_puts(&text, i % 2 == 0 ? "[" : "{\"\":");
    buf_puts(&text, "0");
    for (unsigned i = JSON_DEPTH_MAX; i > 0; i--)
        buf_puts(&text, i % 2 == 1 ? "]" : "}");
    CHECK_EQ(json_normalise(buf_span(&text), JSON_DEPTH_MAX, 1 << 20, &got, NULL), ERR_OK);
    CHECK_SPAN(buf_span(&got), buf_span(&text));
    buf_deinit(&text);
    buf_deinit(&got);
}

/* Goal: an unfinished document is refused wherever it ends, without a leak. */
TEST(every_truncation_is_refused)
{
    static const char text[] =
        "{\"b\":{\"d\":[{\"f\":1.5,\"e\":\"\\u0041\"}],\"c\":null},\"a\":{}}";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        struct buf b = BUF_INIT;
        CHECK_EQ(json_normalise(span_make(text, len), 8, 1000, &b, NULL), ERR_INVALID);
        CHECK_EQ(b.len, 0);
        buf_deinit(&b);
    }
}

TEST_MAIN()
