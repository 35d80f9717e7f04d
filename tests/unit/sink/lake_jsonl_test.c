#include "sink/lake.h"

#include "unit/sink/lake_fixture.h"

#include "base/utf8.h"
#include "json/json.h"

static const struct lake_record plain = {
    .partition = {(const uint8_t *)"p", 1},
    .offset = 7,
    .transaction_id = {(const uint8_t *)"t", 1},
    .stamp = GUIDE_STAMP,
    .payload = {(const uint8_t *)"1", 1},
};

#define HEAD "{\"partition\":\"p\",\"offset\":7,\"transactionId\":\"t\","
#define TS "\"ts\":\"2026-10-03T06:37:37.501942Z\","

static void check_line(struct lake_record r, bool raw, const char *want, bool want_quoted)
{
    struct buf out = BUF_INIT;
    bool quoted = !want_quoted;
    lake_jsonl_line(&out, &r, raw, &quoted);
    CHECK_TEXT(buf_span(&out), want);
    CHECK(quoted == want_quoted);
    buf_deinit(&out);
}

static void check_payload(struct span payload, const char *want, bool want_quoted)
{
    struct lake_record r = plain;
    char line[8192];
    r.payload = payload;
    (void)snprintf(line, sizeof(line), HEAD TS "\"payload\":%s}\n", want);
    check_line(r, false, line, want_quoted);
}

TEST(the_guides_lines_come_out)
{
    struct buf out = BUF_INIT;
    struct buf want = golden("guide_object.jsonl");
    for (size_t i = 0; i < 3; i++) {
        bool quoted = true;
        lake_jsonl_line(&out,
                        &(struct lake_record){
                            .partition = span_str(guide_records[i].partition),
                            .offset = guide_records[i].offset,
                            .transaction_id = span_str(guide_records[i].transaction_id),
                            .stamp = GUIDE_STAMP,
                            .payload = span_str(guide_records[i].payload),
                        },
                        false, &quoted);
        CHECK(!quoted);
    }
    CHECK_EQ(out.len, 526);
    CHECK_SPAN(buf_span(&out), buf_span(&want));
    buf_deinit(&out);
    buf_deinit(&want);
}

/* Goal: names are escaped as objects.md 4 lists, and not more. */
TEST(names_are_escaped)
{
    struct lake_record r = plain;
    r.partition = SPAN_LIT("\"\\/\b\f\n\r\t\x01\x1f\x7f\xC3\xA8\xE2\x80\xA8");
    r.transaction_id = r.partition;
#define ESCAPED "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xC3\xA8\xE2\x80\xA8\""
    check_line(r, false,
               "{\"partition\":" ESCAPED ",\"offset\":7,\"transactionId\":" ESCAPED "," TS
               "\"payload\":1}\n",
               false);
}

TEST(every_control_byte_of_a_name_is_escaped)
{
    for (unsigned c = 0; c < 0x20; c++) {
        struct buf out = BUF_INIT;
        uint8_t byte = (uint8_t)c;
        struct lake_record r = plain;
        bool quoted;
        r.transaction_id = span_make(&byte, 1);
        lake_jsonl_line(&out, &r, false, &quoted);
        CHECK(json_valid(buf_span(&out), 10, NULL));
        for (size_t i = 0; i + 1 < out.len; i++)
            CHECK(out.ptr[i] >= 0x20);
        buf_deinit(&out);
    }
}

/* The broker takes no such names; a line stays valid all the same. */
TEST(a_name_that_is_not_utf8_is_replaced)
{
    struct lake_record r = plain;
    r.partition = SPAN_LIT("a\xFFz");
    check_line(r, false,
               "{\"partition\":\"a\xEF\xBF\xBDz\",\"offset\":7,\"transactionId\":\"t\"," TS
               "\"payload\":1}\n",
               false);
}

TEST(an_absent_transaction_id_is_an_empty_string)
{
    struct lake_record r = plain;
    r.transaction_id = (struct span){0};
    check_line(r, false,
               "{\"partition\":\"p\",\"offset\":7,\"transactionId\":\"\"," TS "\"payload\":1}\n",
               false);
}

TEST(offsets_and_times_at_their_ends)
{
    struct lake_record r = plain;
    r.offset = UINT64_MAX;
    r.stamp = -1;
    check_line(r, false,
               "{\"partition\":\"p\",\"offset\":18446744073709551615,\"transactionId\":\"t\","
               "\"ts\":\"1969-12-31T23:59:59.999999Z\",\"payload\":1}\n",
               false);
}

TEST(payloads_are_copied_byte_for_byte)
{
    static const char *const same[] = {
        "null",
        "true",
        "42.00",
        "1E400",
        "-0",
        "1e+05",
        "\"a\\u00e8\\/\"",
        "[1, 2 ,\t3]",
        "{\"b\":1,\"a\":2,\"b\":3}",
        "\"\xC3\xA8\xE2\x80\xA8\"",
        "\"\\ud83d\\ude00\"",
        "123456789012345678901234567890.10",
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        check_payload(span_str(same[i]), same[i], false);
}

TEST(line_breaks_between_tokens_become_spaces)
{
    check_payload(SPAN_LIT("{\n\"a\":\r\n[1,\r2\n]\n}"), "{ \"a\":  [1, 2 ] }", false);
    check_payload(SPAN_LIT("[\n\n\n\r\r\r]"), "[      ]", false);
    check_payload(SPAN_LIT("[\"\\n\\r\"]"), "[\"\\n\\r\"]", false);
}

TEST(white_space_around_the_document_is_trimmed)
{
    check_payload(SPAN_LIT(" \r\n\t{ }\n \t\r"), "{ }", false);
    check_payload(SPAN_LIT("\n1\n"), "1", false);
}

TEST(an_empty_payload_is_null)
{
    check_payload((struct span){0}, "null", false);
    struct lake_record r = plain;
    r.payload = (struct span){0};
    r.undecryptable = true;
    check_line(r, false, HEAD TS "\"payload\":null}\n", false);
}

TEST(what_is_not_json_becomes_a_string)
{
    check_payload(SPAN_LIT("not json"), "\"not json\"", false);
    check_payload(SPAN_LIT(" \n"), "\" \\n\"", false);
    check_payload(SPAN_LIT("{\"a\":1} x"), "\"{\\\"a\\\":1} x\"", false);
    check_payload(SPAN_LIT("\"\xFF\""), "\"\\\"\xEF\xBF\xBD\\\"\"", false);
    check_payload(SPAN_LIT("a\xE2\x82z"), "\"a\xEF\xBF\xBDz\"", false);
    check_payload(SPAN_LIT("\x01\x00\x7f"), "\"\\u0001\\u0000\x7f\"", false);
    check_payload(SPAN_LIT("\xEF\xBB\xBF{}"), "\"\xEF\xBB\xBF{}\"", false);
}

TEST(an_undecryptable_payload_is_a_string_of_what_is_stored)
{
    struct lake_record r = plain;
    r.payload = SPAN_LIT("{\"encrypted\":\"x\"}");
    r.undecryptable = true;
    check_line(r, false, HEAD TS "\"payload\":\"{\\\"encrypted\\\":\\\"x\\\"}\"}\n", false);
    check_line(r, true, HEAD TS "\"payload\":\"{\\\"encrypted\\\":\\\"x\\\"}\"}\n", false);
}

/* decisions.md 1: the whole stored text, nothing replaced, outer white space kept. */
TEST(lone_surrogates_are_quoted)
{
    check_payload(SPAN_LIT("\"\\ud800\""), "\"\\\"\\\\ud800\\\"\"", true);
    check_payload(SPAN_LIT(" {\"\\uDC00\":1}\n"), "\" {\\\"\\\\uDC00\\\":1}\\n\"", true);
    check_payload(SPAN_LIT("[\"\\ud83d\\ude00\",\"\\udeAD\"]"),
                  "\"[\\\"\\\\ud83d\\\\ude00\\\",\\\"\\\\udeAD\\\"]\"", true);
    struct lake_record r = plain;
    r.payload = SPAN_LIT("\"\\ud800\"");
    check_line(r, true, HEAD TS "\"payload\":\"\\ud800\"}\n", false);
}

/* Goal: quoting loses nothing: parsing the string gives the stored text back. */
TEST(a_quoted_payload_reads_back)
{
    struct span stored = SPAN_LIT("{\n \"k\\ud800\" : [ \"\xC3\xA8\\\\\", 1.50 ]\r\n}\t");
    struct lake_record r = plain;
    struct buf out = BUF_INIT;
    struct buf back = BUF_INIT;
    bool quoted;
    r.payload = stored;
    lake_jsonl_line(&out, &r, false, &quoted);
    CHECK(quoted);
    const char *at = memmem(out.ptr, out.len, "\"payload\":", 10);
    CHECK(at != NULL);
    size_t start = (size_t)(at - (const char *)out.ptr) + 10;
    CHECK_EQ(json_string_decode(span_sub(buf_span(&out), start, out.len - 2), &back), ERR_OK);
    CHECK_SPAN(buf_span(&back), stored);
    buf_deinit(&out);
    buf_deinit(&back);
}

static void put_nested(struct buf *b, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++)
        buf_putc(b, '[');
    for (unsigned i = 0; i < depth; i++)
        buf_putc(b, ']');
}

/* 500 levels go as they are; 501 are quoted, up to what the broker can ever hold. */
TEST(deep_payloads_are_quoted)
{
    static const unsigned depths[] = {1, 499, 500, 501, 9999, 10000, 10001};
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        for (int raw = 0; raw < 2; raw++) {
            struct buf payload = BUF_INIT;
            struct buf out = BUF_INIT;
            struct lake_record r = plain;
            bool quoted;
            put_nested(&payload, depths[i]);
            r.payload = buf_span(&payload);
            lake_jsonl_line(&out, &r, raw != 0, &quoted);
            CHECK(quoted == (!raw && depths[i] > 500 && depths[i] <= 10000));
            bool as_string = memmem(out.ptr, out.len, "\"payload\":\"", 11) != NULL;
            CHECK(as_string == (depths[i] > 10000 || (!raw && depths[i] > 500)));
            buf_deinit(&payload);
            buf_deinit(&out);
        }
    }
}

TEST_MAIN()
