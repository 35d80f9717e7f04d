#include "base/pct.h"

#include "base/hash.h"
#include "lib/test.h"

static void check_pct(struct span name, const char *want)
{
    struct buf b = BUF_INIT;
    buf_put_pct(&b, name);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

/* The examples of spec/objects.md 1. */
TEST(names_keep_their_plain_bytes)
{
    check_pct(SPAN_LIT("orders"), "orders");
    check_pct(SPAN_LIT("A-Z_a.z-09"), "A-Z_a.z-09");
    check_pct(SPAN_LIT("~/ =%:"), "%7E%2F%20%3D%25%3A");
    check_pct(SPAN_LIT("\xc3\xa8"), "%C3%A8");
    check_pct(SPAN_LIT(".."), "..");
    check_pct(SPAN_LIT("\0\n\x7f\xff+"), "%00%0A%7F%FF%2B");
    check_pct((struct span){NULL, 0}, "");
}

TEST(every_byte_decodes_to_itself)
{
    for (unsigned c = 0; c < 256; c++) {
        uint8_t byte = (uint8_t)c;
        struct buf b = BUF_INIT;
        struct buf back = BUF_INIT;
        buf_put_pct(&b, span_make(&byte, 1));
        CHECK(b.len == 1 || b.len == 3);
        buf_put_pct_decoded(&back, buf_span(&b), true);
        CHECK_SPAN(buf_span(&back), span_make(&byte, 1));
        buf_deinit(&b);
        buf_deinit(&back);
    }
}

/* Goal: short forms fit, end in the digest of the whole name, cut no escape, and are only used when
 * needed. Method: names of plain, escaped and mixed bytes, at every length around every limit. */
TEST(short_names_fit)
{
    for (unsigned kind = 0; kind < 3; kind++) {
        for (size_t max = 32; max < 40; max++) {
            for (size_t len = 0; len < 60; len++) {
                uint8_t name[60];
                for (size_t i = 0; i < len; i++)
                    name[i] = kind == 0 || (kind == 1 && i % 2 == 0) ? 'a' : ' ';
                struct buf whole = BUF_INIT;
                struct buf cut = BUF_INIT;
                buf_puts(&cut, "prefix/");
                buf_put_pct(&whole, span_make(name, len));
                buf_put_pct_short(&cut, span_make(name, len), max);
                struct span got = span_sub(buf_span(&cut), 7, cut.len);
                if (whole.len <= max) {
                    CHECK_SPAN(got, buf_span(&whole));
                } else {
                    CHECK(got.len <= max);
                    CHECK(got.len + 2 >= max);
                    size_t kept = got.len - 17;
                    CHECK_EQ(got.ptr[kept], '~');
                    CHECK(memcmp(got.ptr, whole.ptr, kept) == 0);
                    CHECK(whole.ptr[kept] == '%' || whole.ptr[kept] == 'a');
                    uint8_t digest[SHA256_SIZE];
                    sha256(span_make(name, len), digest);
                    struct buf hex = BUF_INIT;
                    buf_put_hex(&hex, span_make(digest, 8));
                    CHECK_SPAN(span_sub(got, kept + 1, got.len), buf_span(&hex));
                    buf_deinit(&hex);
                }
                buf_deinit(&whole);
                buf_deinit(&cut);
            }
        }
    }
}

/* A fixed value: objects in lakes are found again by it. */
TEST(short_names_are_fixed)
{
    struct buf b = BUF_INIT;
    buf_put_pct_short(&b, SPAN_LIT("a name that is longer than the limit allows"), 32);
    CHECK_TEXT(buf_span(&b), "a%20name%20that~57b7b4c01912944f");
    buf_deinit(&b);
}

static void check_decoded(struct span text, bool plus_is_space, struct span want)
{
    struct buf b = BUF_INIT;
    buf_put_pct_decoded(&b, text, plus_is_space);
    CHECK_SPAN(buf_span(&b), want);
    buf_deinit(&b);
}

TEST(decoding_is_done_once_and_keeps_invalid_escapes)
{
    check_decoded(SPAN_LIT("a%2Fb%2fc"), false, SPAN_LIT("a/b/c"));
    check_decoded(SPAN_LIT("%252F"), false, SPAN_LIT("%2F"));
    check_decoded(SPAN_LIT("a+b"), false, SPAN_LIT("a+b"));
    check_decoded(SPAN_LIT("a+b%2B"), true, SPAN_LIT("a b+"));
    check_decoded(SPAN_LIT("%00"), false, SPAN_LIT("\0"));
    check_decoded(SPAN_LIT("%"), false, SPAN_LIT("%"));
    check_decoded(SPAN_LIT("%4"), false, SPAN_LIT("%4"));
    check_decoded(SPAN_LIT("%g1%1g%%41"), false, SPAN_LIT("%g1%1g%A"));
    check_decoded((struct span){NULL, 0}, true, SPAN_LIT(""));
}

TEST_MAIN()
