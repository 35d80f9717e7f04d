#include "base/timefmt.h"

#include "lib/test.h"

#include <time.h>

#define DAY(n) ((n)*US_PER_DAY)

static void check_forms(int64_t us, const char *iso_us, const char *iso_ms, const char *iso_kv)
{
    struct buf b = BUF_INIT;
    buf_put_iso_us(&b, us);
    CHECK_TEXT(buf_span(&b), iso_us);
    buf_reset(&b);
    buf_put_iso_ms(&b, us);
    CHECK_TEXT(buf_span(&b), iso_ms);
    buf_reset(&b);
    buf_put_iso_kv(&b, us);
    CHECK_TEXT(buf_span(&b), iso_kv);
    buf_deinit(&b);
}

TEST(three_forms_of_one_moment)
{
    check_forms(0, "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000Z",
                "1970-01-01T00:00:00+00:00");
    check_forms(1791009457501942, "2026-10-03T06:37:37.501942Z", "2026-10-03T06:37:37.501Z",
                "2026-10-03T06:37:37.501942+00:00");
    check_forms(1791009457500000, "2026-10-03T06:37:37.500000Z", "2026-10-03T06:37:37.500Z",
                "2026-10-03T06:37:37.5+00:00");
    check_forms(1791009457000010, "2026-10-03T06:37:37.000010Z", "2026-10-03T06:37:37.000Z",
                "2026-10-03T06:37:37.00001+00:00");
}

TEST(times_before_1970_round_down)
{
    check_forms(-1, "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z",
                "1969-12-31T23:59:59.999999+00:00");
    check_forms(-US_PER_DAY, "1969-12-31T00:00:00.000000Z", "1969-12-31T00:00:00.000Z",
                "1969-12-31T00:00:00+00:00");
    check_forms(-62167219200 * US_PER_SEC, "0000-01-01T00:00:00.000000Z",
                "0000-01-01T00:00:00.000Z", "0000-01-01T00:00:00+00:00");
    check_forms(-62167219200 * US_PER_SEC - 1, "-0001-12-31T23:59:59.999999Z",
                "-0001-12-31T23:59:59.999Z", "-0001-12-31T23:59:59.999999+00:00");
}

TEST(any_value_has_a_form)
{
    check_forms(INT64_MAX, "294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775Z",
                "294247-01-10T04:00:54.775807+00:00");
    check_forms(INT64_MIN, "-290308-12-21T19:59:05.224192Z", "-290308-12-21T19:59:05.224Z",
                "-290308-12-21T19:59:05.224192+00:00");
}

TEST(date_and_hour_of_keys)
{
    struct buf b = BUF_INIT;
    buf_put_date(&b, 1791009458377855);
    buf_putc(&b, ' ');
    buf_put_hour(&b, 1791009458377855);
    buf_putc(&b, ' ');
    buf_put_date(&b, -1);
    buf_putc(&b, ' ');
    buf_put_hour(&b, -1);
    CHECK_TEXT(buf_span(&b), "2026-10-03 06 1969-12-31 23");
    buf_deinit(&b);
}

/* Goal: the calendar is right on every day. Method: 1600 to 2400 against the C library. */
TEST(every_day_agrees_with_the_c_library)
{
    struct buf b = BUF_INIT;
    for (int64_t day = -135140; day < 157054; day++) {
        time_t seconds = (time_t)(day * 86400);
        struct tm tm;
        char want[32];
        CHECK(gmtime_r(&seconds, &tm) != NULL);
        CHECK(strftime(want, sizeof(want), "%Y-%m-%d", &tm) > 0);
        buf_reset(&b);
        buf_put_date(&b, DAY(day) + US_PER_DAY - 1);
        CHECK_TEXT(buf_span(&b), want);
        int64_t us;
        CHECK(time_parse_iso(buf_span(&b), &us));
        CHECK_EQ(us, DAY(day));
    }
    buf_deinit(&b);
}

static void check_parse(const char *text, int64_t want)
{
    int64_t us;
    CHECK(time_parse_iso(span_str(text), &us));
    CHECK_EQ(us, want);
}

TEST(accepted_spellings)
{
    int64_t minute = DAY(20730) + 6 * US_PER_HOUR + 37 * 60 * US_PER_SEC;
    check_parse("2026-10-04", DAY(20730));
    check_parse("2026-10-04T06:37", minute);
    check_parse("2026-10-04T06:37Z", minute);
    check_parse("2026-10-04T06:37+02:30", minute - 150 * 60 * US_PER_SEC);
    check_parse("2026-10-04T06:37:37", minute + 37 * US_PER_SEC);
    check_parse("2026-10-04T06:37:37-01:00", minute + 37 * US_PER_SEC + US_PER_HOUR);
    check_parse("2026-10-04T06:37:37.5Z", minute + 37 * US_PER_SEC + 500000);
    check_parse("2026-10-04T06:37:37.501942", minute + 37 * US_PER_SEC + 501942);
    check_parse("2026-10-04T06:37:37.5019429999999999999999+00:00",
                minute + 37 * US_PER_SEC + 501942);
    check_parse("2024-02-29", DAY(19782));
    check_parse("2000-02-29T23:59:59.999999Z", DAY(11017) - 1);
    check_parse("0000-01-01T00:00Z", -62167219200 * US_PER_SEC);
    check_parse("9999-12-31T23:59:59Z", 253402300799 * US_PER_SEC);
}

TEST(other_spellings_are_refused)
{
    static const char *const bad[] = {
        "",
        "x",
        "2026",
        "2026-10",
        "2026-1-04",
        "26-10-04",
        "2026-00-04",
        "2026-13-04",
        "2026-10-00",
        "2026-10-32",
        "2026-09-31",
        "2026-02-29",
        "1900-02-29",
        "2100-02-29",
        "2026-10-04 ",
        " 2026-10-04",
        "2026-10-04Z",
        "2026-10-04T",
        "2026-10-04T06",
        "2026-10-04T06Z",
        "2026-10-04T6:37",
        "2026-10-04T24:00",
        "2026-10-04T06:60",
        "2026-10-04T06:37:",
        "2026-10-04T06:37:60",
        "2026-10-04T06:37:3",
        "2026-10-04T06:37.5",
        "2026-10-04T06:37:37.",
        "2026-10-04T06:37:37.Z",
        "2026-10-04T06:37:37,5",
        "2026-10-04T06:37:37ZZ",
        "2026-10-04T06:37:37+",
        "2026-10-04T06:37:37+02",
        "2026-10-04T06:37:37+0200",
        "2026-10-04T06:37:37+24:00",
        "2026-10-04T06:37:37+02:60",
        "2026-10-04T06:37:37+02:00Z",
        "2026/10/04",
        "-001-10-04",
        "12026-10-04",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t us = 99;
        CHECK(!time_parse_iso(span_str(bad[i]), &us));
        CHECK_EQ(us, 99);
    }
    int64_t us = 99;
    CHECK(!time_parse_iso(SPAN_LIT("2026-10-04T06:37\0"), &us));
    CHECK(!time_parse_iso((struct span){NULL, 0}, &us));
}

/* Goal: every form written is read as the same moment. */
TEST(forms_round_trip)
{
    static const int64_t moments[] = {0, 1, -1, 1791009457501942, 1791009457500000, -86400000001};
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        int64_t us;
        buf_reset(&b);
        buf_put_iso_us(&b, moments[i]);
        CHECK(time_parse_iso(buf_span(&b), &us));
        CHECK_EQ(us, moments[i]);
        buf_reset(&b);
        buf_put_iso_kv(&b, moments[i]);
        CHECK(time_parse_iso(buf_span(&b), &us));
        CHECK_EQ(us, moments[i]);
    }
    buf_deinit(&b);
}

TEST(floor_goes_down)
{
    CHECK_EQ(time_floor(0, US_PER_HOUR), 0);
    CHECK_EQ(time_floor(US_PER_HOUR - 1, US_PER_HOUR), 0);
    CHECK_EQ(time_floor(US_PER_HOUR, US_PER_HOUR), US_PER_HOUR);
    CHECK_EQ(time_floor(-1, US_PER_HOUR), -US_PER_HOUR);
    CHECK_EQ(time_floor(-US_PER_HOUR, US_PER_HOUR), -US_PER_HOUR);
    CHECK_EQ(time_floor(-US_PER_HOUR - 1, US_PER_HOUR), -2 * US_PER_HOUR);
    CHECK_EQ(time_floor(1791009458377855, US_PER_DAY), DAY(20729));
}

TEST_MAIN()
