/* Closing rules of a window (spec/sink.md 12, decisions.md 12), as tables over what is known of it.
 */
#include "base/span.h"
#include "base/timefmt.h"
#include "lib/test.h"
#include "sink/window.h"

#define HOUR US_PER_HOUR
#define SEC US_PER_SEC
#define T0 (500000 * HOUR) /* a boundary of hour and of day alike: 500,000 h is 20,833 d 8 h */

static const struct window_rules RULES = {
    .align = SINK_ALIGN_HOUR,
    .guard_us = 5 * SEC,
    .window_us = 300 * SEC,
    .gather_us = 2 * SEC,
    .target_weight = 1000,
};

/* A window that starts at t_prev and holds `records` records from first on, all of it scanned up to
 * frontier. */
static struct window make(int64_t t_prev, uint64_t records, int64_t first, int64_t frontier)
{
    struct window w;
    window_init(&w, t_prev);
    w.positioned = true;
    w.position = 100;
    w.records = records;
    w.weight = 10 * records;
    w.first_stamp = first;
    w.frontier = frontier;
    return w;
}

static enum window_verdict judge(struct window *w, const struct window_rules *rules, int64_t safe,
                                 int64_t *start, int64_t *end)
{
    w->frontier = window_cap(w, rules, safe);
    return window_judge(w, rules, safe, start, end);
}

TEST(the_cap_is_the_guarded_clock_or_the_next_boundary)
{
    struct window w = make(T0 + 10 * SEC, 0, 0, T0);
    CHECK_EQ(window_cap(&w, &RULES, T0 + 60 * SEC), T0 + 55 * SEC);
    CHECK_EQ(window_cap(&w, &RULES, T0 + 2 * HOUR), T0 + HOUR);
    w = make(T0, 0, 0, T0); /* strictly above a window's start */
    CHECK_EQ(window_cap(&w, &RULES, T0 + 2 * HOUR), T0 + HOUR);
    struct window_rules none = RULES;
    none.align = SINK_ALIGN_NONE;
    CHECK_EQ(window_cap(&w, &none, T0 + 2 * HOUR), T0 + 2 * HOUR - 5 * SEC);
    struct window_rules day = RULES;
    day.align = SINK_ALIGN_DAY;
    CHECK_EQ(window_cap(&w, &day, T0 + 100 * HOUR), time_floor(T0, US_PER_DAY) + US_PER_DAY);
}

TEST(an_aged_window_closes_at_the_cap)
{
    int64_t start = 0, end = 0;
    struct window w = make(T0, 3, T0 + SEC, T0);
    CHECK_EQ(judge(&w, &RULES, T0 + 300 * SEC - 1, &start, &end), WINDOW_WAIT);
    CHECK_EQ(judge(&w, &RULES, T0 + 300 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(start, T0);
    CHECK_EQ(end, T0 + 295 * SEC);
}

TEST(a_window_closes_at_the_boundary)
{
    int64_t start = 0, end = 0;
    struct window w = make(T0 + HOUR - 100 * SEC, 3, T0 + HOUR - 50 * SEC, T0);
    CHECK_EQ(judge(&w, &RULES, T0 + HOUR + 5 * SEC - 1, &start, &end), WINDOW_WAIT);
    CHECK_EQ(judge(&w, &RULES, T0 + HOUR + 5 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(end, T0 + HOUR);
}

TEST(a_size_close_comes_before_every_other)
{
    int64_t start = 0, end = 0;
    struct window w = make(T0, 150, T0 + SEC, 0);
    w.size_reached = true;
    w.frontier = T0 + 20 * SEC; /* the next record's stamp */
    CHECK_EQ(window_judge(&w, &RULES, T0 + 400 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(end, T0 + 20 * SEC);
    CHECK(!window_scan_due(&w, window_cap(&w, &RULES, T0 + 400 * SEC), 1000));
}

TEST(a_forced_window_closes_when_it_holds_something)
{
    int64_t start = 0, end = 0;
    struct window w = make(T0, 0, 0, T0);
    w.forced = true;
    CHECK_EQ(judge(&w, &RULES, T0 + 60 * SEC, &start, &end), WINDOW_WAIT);
    w = make(T0, 1, T0 + SEC, T0);
    w.forced = true;
    CHECK_EQ(judge(&w, &RULES, T0 + 60 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(end, T0 + 55 * SEC);
    w.frontier = T0 + 30 * SEC; /* a drain does not read on: what was looked at is the limit */
    CHECK_EQ(window_judge(&w, &RULES, T0 + 60 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(end, T0 + 30 * SEC);
}

TEST(empty_intervals_are_skipped_up_to_the_next_record)
{
    int64_t start = 0, end = 0;
    struct window w = make(T0 + 10 * SEC, 0, 0, T0);
    CHECK_EQ(judge(&w, &RULES, T0 + HOUR + 5 * SEC, &start, &end), WINDOW_SKIP);
    CHECK_EQ(w.t_prev, T0 + HOUR);
    CHECK_EQ(judge(&w, &RULES, T0 + HOUR + 6 * SEC, &start, &end), WINDOW_WAIT);

    w = make(T0, 0, 0, T0); /* a month of nothing in one step */
    CHECK_EQ(judge(&w, &RULES, T0 + 720 * HOUR + 9 * SEC, &start, &end), WINDOW_SKIP);
    CHECK_EQ(w.t_prev, T0 + 720 * HOUR);

    w = make(T0, 0, 0, T0); /* not past a record that lies further on */
    w.next_known = true;
    w.next_stamp = T0 + 5 * HOUR + SEC;
    CHECK_EQ(judge(&w, &RULES, T0 + 720 * HOUR, &start, &end), WINDOW_SKIP);
    CHECK_EQ(w.t_prev, T0 + 5 * HOUR);
}

TEST(without_alignment_nothing_is_skipped)
{
    struct window_rules none = RULES;
    int64_t start = 0, end = 0;
    none.align = SINK_ALIGN_NONE;
    struct window w = make(T0, 0, 0, T0);
    CHECK_EQ(judge(&w, &none, T0 + 100 * HOUR, &start, &end), WINDOW_WAIT);
    CHECK_EQ(w.t_prev, T0);
    w = make(T0, 1, T0 + 99 * HOUR, T0);
    CHECK_EQ(judge(&w, &none, T0 + 100 * HOUR, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(start, T0);
}

/* start=earliest: the first window starts at the floor of its first record, and closes at once. */
TEST(the_first_window_of_earliest)
{
    int64_t start = 0, end = 0;
    struct window w;
    window_init(&w, WINDOW_NO_START);
    w.positioned = true;
    CHECK_EQ(window_scan_limit(&w, T0), WINDOW_NO_START); /* the first record must be seen first */
    w.next_known = true;
    w.next_stamp = T0 + 10 * SEC;
    CHECK_EQ(window_cap(&w, &RULES, T0 + 2 * HOUR), T0 + HOUR);
    CHECK_EQ(window_scan_limit(&w, T0 + HOUR), T0 + HOUR);
    w.next_known = false;
    w.records = 1;
    w.first_stamp = T0 + 10 * SEC;
    CHECK_EQ(judge(&w, &RULES, T0 + 20 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(start, T0);
    CHECK_EQ(end, T0 + 15 * SEC);

    struct window_rules none = RULES;
    none.align = SINK_ALIGN_NONE;
    CHECK_EQ(judge(&w, &none, T0 + 20 * SEC, &start, &end), WINDOW_CLOSE);
    CHECK_EQ(start, T0 + 10 * SEC);

    window_init(&w, WINDOW_NO_START); /* an empty queue waits, and never skips */
    w.positioned = true;
    CHECK_EQ(judge(&w, &RULES, T0 + 20 * HOUR, &start, &end), WINDOW_WAIT);
    CHECK_EQ(w.t_prev, WINDOW_NO_START);
}

TEST(nothing_closes_at_or_below_the_start)
{
    int64_t start = 7, end = 7;
    struct window w = make(T0, 1, T0, T0);
    w.forced = true;
    CHECK_EQ(judge(&w, &RULES, T0 + 5 * SEC, &start, &end), WINDOW_WAIT); /* cap == t_prev */
    CHECK_EQ(judge(&w, &RULES, T0, &start, &end), WINDOW_WAIT);
    CHECK_EQ(start, 7);
    CHECK_EQ(end, 7);
}

TEST(a_scan_is_due_only_where_something_may_lie)
{
    struct window w = make(T0, 0, 0, T0);
    CHECK(!window_scan_due(&w, T0 + SEC, 100)); /* the log ends at our position */
    CHECK_EQ(w.frontier, T0 + SEC);             /* so it was looked at */
    CHECK(window_scan_due(&w, T0 + 2 * SEC, 101));
    w.next_known = true;
    w.next_stamp = T0 + 10 * SEC;
    CHECK(!window_scan_due(&w, T0 + 10 * SEC, 101));
    CHECK(window_scan_due(&w, T0 + 10 * SEC + 1, 101));
    CHECK(!window_scan_due(&w, w.frontier, 101));
    w.positioned = false;
    CHECK(window_scan_due(&w, T0 + 11 * SEC, 0)); /* after a restart the position must be found */
}

/* The moment a clock entry is worth asking for. */
TEST(the_due_moment_follows_the_rules)
{
    struct window w = make(T0, 0, 0, T0);
    CHECK_EQ(window_due(&w, &RULES), WINDOW_NEVER); /* holds nothing */

    w = make(T0, 1, T0 + SEC, T0); /* ages first */
    CHECK_EQ(window_due(&w, &RULES), T0 + 300 * SEC);
    w = make(T0, 1, T0 + 400 * SEC, T0); /* old already: its record and a little company */
    CHECK_EQ(window_due(&w, &RULES), T0 + 407 * SEC + 1);
    w = make(T0 + HOUR - 100 * SEC, 1, T0 + HOUR - 50 * SEC, T0); /* the boundary comes first */
    CHECK_EQ(window_due(&w, &RULES), T0 + HOUR + 5 * SEC);
    w = make(T0, 0, 0, T0); /* hours later: empty ones are skipped by then */
    w.next_known = true;
    w.next_stamp = T0 + 3 * HOUR + 10 * SEC;
    CHECK_EQ(window_due(&w, &RULES), T0 + 3 * HOUR + 300 * SEC);
    window_init(&w, WINDOW_NO_START);
    w.next_known = true;
    w.next_stamp = T0 + 10 * SEC;
    CHECK_EQ(window_due(&w, &RULES), T0 + 17 * SEC + 1);
}

TEST(the_window_after_one_goes_on_where_it_ended)
{
    struct window w = make(T0, 5, T0 + SEC, T0 + 10 * SEC);
    w.forced = w.size_reached = true;
    w.next_known = true;
    w.next_stamp = T0 + 10 * SEC;
    window_next(&w, T0 + 10 * SEC);
    CHECK_EQ(w.t_prev, T0 + 10 * SEC);
    CHECK_EQ(w.from, 100);
    CHECK_EQ(w.position, 100);
    CHECK_EQ(w.records, 0);
    CHECK_EQ(w.weight, 0);
    CHECK(!w.forced && !w.size_reached);
    CHECK(w.next_known);
}

TEST_MAIN()
