#include "base/span.h"

#include "base/mem.h"
#include "lib/test.h"

TEST(equality_and_order)
{
    struct span none = {NULL, 0};
    CHECK(span_eq(none, SPAN_LIT("")));
    CHECK(span_eq(SPAN_LIT("a\0b"), SPAN_LIT("a\0b")));
    CHECK(!span_eq(SPAN_LIT("a\0b"), SPAN_LIT("a\0c")));
    CHECK(!span_eq(SPAN_LIT("a"), SPAN_LIT("ab")));
    CHECK(span_cmp(none, none) == 0);
    CHECK(span_cmp(none, SPAN_LIT("a")) < 0);
    CHECK(span_cmp(SPAN_LIT("a"), none) > 0);
    CHECK(span_cmp(SPAN_LIT("a"), SPAN_LIT("ab")) < 0);
    CHECK(span_cmp(SPAN_LIT("b"), SPAN_LIT("ab")) > 0);
    CHECK(span_cmp(SPAN_LIT("\x7f"), SPAN_LIT("\x80")) < 0);
    CHECK(span_starts_with(SPAN_LIT("abc"), SPAN_LIT("ab")));
    CHECK(span_starts_with(none, none));
    CHECK(!span_starts_with(SPAN_LIT("a"), SPAN_LIT("ab")));
    CHECK(span_contains(SPAN_LIT("abc"), SPAN_LIT("bc")));
    CHECK(span_contains(none, none));
    CHECK(!span_contains(none, SPAN_LIT("a")));
    CHECK(!span_contains(SPAN_LIT("abc"), SPAN_LIT("ac")));
}

TEST(case_is_ascii_only)
{
    CHECK(span_eq_nocase(SPAN_LIT("Content-TYPE"), SPAN_LIT("content-type")));
    CHECK(span_eq_nocase((struct span){NULL, 0}, SPAN_LIT("")));
    CHECK(!span_eq_nocase(SPAN_LIT("a"), SPAN_LIT("ab")));
    CHECK(!span_eq_nocase(SPAN_LIT("["), SPAN_LIT("{")));
    CHECK(!span_eq_nocase(SPAN_LIT("@"), SPAN_LIT("`")));
    CHECK(!span_eq_nocase(SPAN_LIT("\xc0"), SPAN_LIT("\xe0")));
}

TEST(trim_takes_ascii_blanks_of_both_ends)
{
    CHECK_TEXT(span_trim(SPAN_LIT(" \t\n\v\f\ra b\r\n ")), "a b");
    CHECK_TEXT(span_trim(SPAN_LIT("a")), "a");
    CHECK_TEXT(span_trim(SPAN_LIT(" \t ")), "");
    CHECK_TEXT(span_trim(SPAN_LIT("")), "");
    CHECK_TEXT(span_trim((struct span){NULL, 0}), "");
    CHECK_TEXT(span_trim(SPAN_LIT("\xc2\xa0z")), "\xc2\xa0z");
}

TEST(unsigned_numbers)
{
    uint64_t value = 99;
    CHECK(span_parse_u64(SPAN_LIT("0"), &value));
    CHECK_EQ(value, 0);
    CHECK(span_parse_u64(SPAN_LIT("000000000000000000000000042"), &value));
    CHECK_EQ(value, 42);
    CHECK(span_parse_u64(SPAN_LIT("18446744073709551615"), &value));
    CHECK_EQ(value, UINT64_MAX);
}

/* Goal: what is not a number of that range is refused and leaves the output alone. */
TEST(other_numbers_are_refused)
{
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "a",
                                      "1a",
                                      "0x1",
                                      "18446744073709551616",
                                      "18446744073709551625",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t value = 99;
        CHECK(!span_parse_u64(span_str(bad[i]), &value));
        CHECK_EQ(value, 99);
    }
}

TEST(dup_ends_in_nul)
{
    char *text = span_dup(span_sub(SPAN_LIT("hello world"), 0, 5));
    assert_string_equal(text, "hello");
    mem_free(text);
    text = span_dup((struct span){NULL, 0});
    assert_string_equal(text, "");
    mem_free(text);
}

TEST_MAIN()
