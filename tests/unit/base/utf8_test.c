#include "base/utf8.h"

#include "lib/test.h"

#define FFFD "\xef\xbf\xbd"

/* Goal: each code point that is one is valid in its own form and no other value is taken. */
TEST(every_code_point)
{
    struct buf b = BUF_INIT;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c == 0xD800)
            c = 0xE000;
        buf_reset(&b);
        buf_put_codepoint(&b, c);
        CHECK_EQ(b.len, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        CHECK_EQ(utf8_sequence(b.ptr, b.len), b.len);
        if (c % 97 == 0 || c > 0x10FF00) {
            CHECK(utf8_valid(buf_span(&b)));
            for (size_t len = 1; len < b.len; len++)
                CHECK(!utf8_valid(span_make(b.ptr, len)));
        }
    }
    buf_deinit(&b);
}

/* Method: count the valid sequences among all strings of two and three bytes. */
TEST(no_other_sequences)
{
    unsigned two = 0;
    unsigned three = 0;
    for (unsigned a = 0x80; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            uint8_t bytes[3] = {(uint8_t)a, (uint8_t)b, 0};
            two += utf8_sequence(bytes, 2) == 2;
            for (unsigned c = 0; c < 256; c++) {
                bytes[2] = (uint8_t)c;
                three += utf8_sequence(bytes, 3) == 3;
            }
        }
    }
    CHECK_EQ(two, 0x800 - 0x80);
    CHECK_EQ(three, 0x10000 - 0x800 - 0x800);
}

static void check_lossy(struct span text, const char *want)
{
    struct buf b = BUF_INIT;
    buf_put_utf8_lossy(&b, text);
    CHECK_TEXT(buf_span(&b), want);
    CHECK(utf8_valid(buf_span(&b)));
    CHECK_EQ(utf8_valid(text), span_eq(text, span_str(want)));
    buf_deinit(&b);
}

/* As WHATWG's decoder: Unicode 15 section 3.9, "U+FFFD Substitution of Maximal Subparts". */
TEST(each_maximal_invalid_part_is_replaced_once)
{
    check_lossy(SPAN_LIT(""), "");
    check_lossy(SPAN_LIT("plain, long enough for words"), "plain, long enough for words");
    check_lossy(SPAN_LIT("h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80"),
                "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80");
    check_lossy(SPAN_LIT("\x80"), FFFD);
    check_lossy(SPAN_LIT("\xff\xfe"), FFFD FFFD);
    check_lossy(SPAN_LIT("\xc0\xaf"), FFFD FFFD);
    check_lossy(SPAN_LIT("\xe0\x80\xbf"), FFFD FFFD FFFD);
    check_lossy(SPAN_LIT("\xf0\x81\x82\x41"), FFFD FFFD FFFD "A");
    check_lossy(SPAN_LIT("\xed\xa0\x80"), FFFD FFFD FFFD);
    check_lossy(SPAN_LIT("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
                FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    check_lossy(SPAN_LIT("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), FFFD FFFD FFFD FFFD "A");
    check_lossy(SPAN_LIT("\xf0\x9f\x98"), FFFD);
    check_lossy(SPAN_LIT("\xe2\x82"), FFFD);
    check_lossy(SPAN_LIT("\xc3"), FFFD);
    check_lossy(SPAN_LIT("a\xc3"
                         "b"),
                "a" FFFD "b");
}

/* Goal: an invalid byte is found at every distance from a word's start. */
TEST(invalid_bytes_are_found_anywhere)
{
    for (size_t len = 1; len < 40; len++) {
        uint8_t text[40];
        for (size_t bad = 0; bad < len; bad++) {
            memset(text, 'a', sizeof(text));
            CHECK(utf8_valid(span_make(text, len)));
            text[bad] = 0x80;
            CHECK(!utf8_valid(span_make(text, len)));
        }
    }
    CHECK(utf8_valid((struct span){NULL, 0}));
}

TEST_MAIN()
