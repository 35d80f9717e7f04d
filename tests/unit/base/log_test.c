#include "base/log.h"

#include "lib/test.h"

#define NOW_US 1791009457501942
#define STAMP "2026-10-03T06:37:37.501942Z "
#define JSON_STAMP "{\"timestamp\":\"2026-10-03T06:37:37.501942Z\","

static struct buf lines; /* everything written since the last check */

static void keep_line(void *ctx, struct span line)
{
    CHECK(ctx == &lines);
    CHECK(line.len > 0);
    CHECK_EQ(line.ptr[line.len - 1], '\n');
    CHECK(memchr(line.ptr, '\n', line.len) == line.ptr + line.len - 1);
    buf_put_span(&lines, line);
}

static int64_t fixed_clock(void *ctx)
{
    CHECK(ctx == &lines);
    return NOW_US;
}

static void install(bool json)
{
    log_install(keep_line, fixed_clock, &lines, json);
    CHECK(log_set_filter(SPAN_LIT("info")));
}

static void check_lines(const char *want)
{
    CHECK_TEXT(buf_span(&lines), want);
    buf_deinit(&lines);
}

TEST(without_a_writer_lines_are_dropped)
{
    log_install(NULL, NULL, NULL, false);
    log_msg(LOG_ERROR, "boot", "nobody hears %s", "this");
    struct log_line l;
    log_begin(&l, LOG_ERROR, "boot", "nobody");
    CHECK(!l.enabled);
    log_u64(&l, "k", 1);
    log_end(&l);
    check_lines("");
}

TEST(a_line_of_every_kind_of_field)
{
    install(false);
    struct log_line l;
    log_begin(&l, LOG_INFO, "queen-s3", "window committed");
    log_str(&l, "queue", SPAN_LIT("orders"));
    log_u64(&l, "k", UINT64_MAX);
    log_i64(&l, "delta", -5);
    log_f64(&l, "lag_seconds", 0);
    log_f64(&l, "ratio", 0.25);
    log_bool(&l, "redo", true);
    log_bool(&l, "odd", false);
    log_quoted(&l, "why", SPAN_LIT("bare"));
    log_end(&l);
    check_lines(STAMP "INFO queen-s3: window committed queue=orders k=18446744073709551615 "
                      "delta=-5 lag_seconds=0.0 ratio=0.25 redo=true odd=false why=\"bare\"\n");
}

TEST(a_message_has_its_level_and_target)
{
    install(false);
    log_msg(LOG_ERROR, "boot", "FATAL: %s=%d is outside %d..=%d", "QUEEN_X", 50, 100, 200);
    log_msg(LOG_WARN, "node", "careful");
    log_event(LOG_INFO, "queen-s3", "sink stopped", NULL, 0);
    check_lines(STAMP "ERROR boot: FATAL: QUEEN_X=50 is outside 100..=200\n" STAMP
                      "WARN node: careful\n" STAMP "INFO queen-s3: sink stopped\n");
}

TEST(values_are_quoted_when_they_must_be)
{
    install(false);
    const struct log_field fields[] = {
        {"plain", SPAN_LIT("a/b=c\\d~\xc3\xa9"), false},
        {"empty", SPAN_LIT(""), false},
        {"null", {NULL, 0}, false},
        {"blank", SPAN_LIT("a b"), false},
        {"quote", SPAN_LIT("a\"b\\c"), false},
        {"line", SPAN_LIT("a\nb"), false},
        {"control", SPAN_LIT("\t\r\x1b[0m\x7f"), false},
        {"error", SPAN_LIT("x"), true},
    };
    log_event(LOG_WARN, "t", "m", fields, sizeof(fields) / sizeof(fields[0]));
    check_lines(STAMP "WARN t: m plain=a/b=c\\d~\xc3\xa9 empty=\"\" null=\"\" blank=\"a b\" "
                      "quote=\"a\\\"b\\\\c\" line=\"a\\nb\" control=\"\\x09\\x0d\\x1b[0m\\x7f\" "
                      "error=\"x\"\n");
}

/* Goal: no text from outside can start a line of its own or reach a terminal as a command. */
TEST(a_message_stays_on_its_line)
{
    install(false);
    log_msg(LOG_ERROR, "boot", "bad name %s", "a\nERROR boot: forged\x1b");
    check_lines(STAMP "ERROR boot: bad name a\\nERROR boot: forged\\x1b\n");
}

TEST(the_json_form)
{
    install(true);
    struct log_line l;
    log_begin(&l, LOG_INFO, "queen-s3", "window \"committed\"");
    log_str(&l, "queue", SPAN_LIT("a b\n\xff"));
    log_u64(&l, "k", 7);
    log_i64(&l, "delta", -5);
    log_f64(&l, "lag_seconds", 1.5);
    log_f64(&l, "nan", (double)__builtin_nanf(""));
    log_bool(&l, "redo", false);
    log_quoted(&l, "why", SPAN_LIT("x"));
    log_end(&l);
    check_lines(JSON_STAMP
                "\"level\":\"INFO\",\"target\":\"queen-s3\","
                "\"message\":\"window \\\"committed\\\"\",\"queue\":\"a b\\n\xef\xbf\xbd\""
                ",\"k\":7,\"delta\":-5,\"lag_seconds\":1.5,\"nan\":null,\"redo\":false,"
                "\"why\":\"x\"}\n");
    log_msg(LOG_ERROR, "boot", "FATAL: %s", "x");
    check_lines(JSON_STAMP "\"level\":\"ERROR\",\"target\":\"boot\",\"message\":\"FATAL: x\"}\n");
}

/* The highest level shown for a target, or -1. */
static int shown(const char *target)
{
    int level = -1;
    for (int l = LOG_ERROR; l <= LOG_TRACE; l++) {
        if (log_enabled((enum log_level)l, target)) {
            CHECK_EQ(level, l - 1); /* levels are cumulative */
            level = l;
        }
    }
    return level;
}

TEST(filters)
{
    CHECK(log_set_filter(SPAN_LIT("info,queen-s3=debug")));
    CHECK_EQ(shown("boot"), LOG_INFO);
    CHECK_EQ(shown("queen-s3"), LOG_DEBUG);
    CHECK_EQ(shown("queen-s3.client"), LOG_DEBUG);
    CHECK_EQ(shown("queen"), LOG_INFO);

    CHECK(log_set_filter(SPAN_LIT(" WARN , node = Trace ,, node.raft=off, ")));
    CHECK_EQ(shown("boot"), LOG_WARN);
    CHECK_EQ(shown("node"), LOG_TRACE);
    CHECK_EQ(shown("node.raft"), -1);
    CHECK_EQ(shown("node.apply"), LOG_TRACE);

    CHECK(log_set_filter(SPAN_LIT("off")));
    CHECK_EQ(shown("boot"), -1);
    CHECK(log_set_filter(SPAN_LIT("3,boot=0")));
    CHECK_EQ(shown("node"), LOG_INFO);
    CHECK_EQ(shown("boot"), -1);
    CHECK(log_set_filter(SPAN_LIT("")));
    CHECK_EQ(shown("boot"), LOG_INFO);
    CHECK(log_set_filter(SPAN_LIT(" , ")));
    CHECK_EQ(shown("boot"), LOG_INFO);
}

TEST(targets_that_no_directive_names_still_show_errors)
{
    CHECK(log_set_filter(SPAN_LIT("queen-s3=debug,node")));
    CHECK_EQ(shown("queen-s3"), LOG_DEBUG);
    CHECK_EQ(shown("node"), LOG_TRACE);
    CHECK_EQ(shown("boot"), LOG_ERROR);
}

TEST(the_last_of_equal_directives_wins)
{
    CHECK(log_set_filter(SPAN_LIT("debug,warn,node=debug,node=error")));
    CHECK_EQ(shown("boot"), LOG_WARN);
    CHECK_EQ(shown("node"), LOG_ERROR);
}

TEST(filters_that_do_not_parse_fall_back_to_info)
{
    static const char *const bad[] = {"info,queen-s3=loud", "=info",      "a=",    "a b",
                                      "node[span]=info",    "info,a=b=c", "in/fo", "6=info=x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK(log_set_filter(SPAN_LIT("trace")));
        CHECK(!log_set_filter(span_str(bad[i])));
        CHECK_EQ(shown("boot"), LOG_INFO);
    }
    char long_name[200];
    memset(long_name, 'a', sizeof(long_name));
    CHECK(!log_set_filter(span_make(long_name, sizeof(long_name))));
    char many[300];
    for (size_t i = 0; i < sizeof(many); i++)
        many[i] = i % 2 == 0 ? 'a' : ',';
    CHECK(!log_set_filter(span_make(many, sizeof(many))));
}

TEST(lines_below_the_filter_are_not_written)
{
    install(false);
    log_msg(LOG_DEBUG, "node", "hidden");
    struct log_line l;
    log_begin(&l, LOG_DEBUG, "node", "hidden");
    log_str(&l, "k", SPAN_LIT("v"));
    log_f64(&l, "f", 1);
    log_end(&l);
    check_lines("");
    CHECK(log_set_filter(SPAN_LIT("node=debug")));
    log_msg(LOG_DEBUG, "node", "shown");
    check_lines(STAMP "DEBUG node: shown\n");
}

TEST_MAIN()
