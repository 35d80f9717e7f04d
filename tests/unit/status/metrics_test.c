/* The metrics writer: escaping, spelling of numbers, histograms. */
#include "status/metrics.h"

#include "lib/test.h"

#include <math.h>

static void check_text(struct buf *got, const char *want)
{
    CHECK_TEXT(buf_span(got), want);
    buf_deinit(got);
}

TEST(a_family_has_help_and_type)
{
    struct buf out = BUF_INIT;
    metrics_family(&out, &(struct metric_family){.name = "a_total",
                                                 .type = METRIC_COUNTER,
                                                 .help = "One \\ two\nthree."});
    metrics_family(&out, &(struct metric_family){.name = "b", .type = METRIC_GAUGE, .help = ""});
    metrics_family(&out,
                   &(struct metric_family){.name = "c", .type = METRIC_HISTOGRAM, .help = "x"});
    check_text(&out, "# HELP a_total One \\\\ two\\nthree.\n# TYPE a_total counter\n"
                     "# HELP b \n# TYPE b gauge\n# HELP c x\n# TYPE c histogram\n");
}

TEST(label_values_are_escaped)
{
    struct buf out = BUF_INIT;
    const struct metric_family f = {.name = "m", .labels = {"tenant", "queue"}};
    struct span values[] = {SPAN_LIT("t"), SPAN_LIT("a\"b\\c\nd")};
    metrics_sample_u64(&out, &f, values, UINT64_MAX);
    check_text(&out, "m{tenant=\"t\",queue=\"a\\\"b\\\\c\\nd\"} 18446744073709551615\n");
}

TEST(integral_values_have_no_point_and_others_are_shortest)
{
    const struct metric_family f = {.name = "m"};
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"},
        {-3, "-3"},
        {6.366447, "6.366447"},
        {0.1, "0.1"},
        {1e15, "1000000000000000"},
        {9007199254740992.0, "9007199254740992.0"},
        {(double)INFINITY, "+Inf"},
        {-(double)INFINITY, "-Inf"},
        {(double)NAN, "NaN"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT, want = BUF_INIT;
        metrics_sample(&out, &f, NULL, rows[i].value);
        buf_printf(&want, "m %s\n", rows[i].text);
        CHECK_SPAN(buf_span(&out), buf_span(&want));
        buf_deinit(&out);
        buf_deinit(&want);
    }
}

TEST(a_histogram_counts_up_to_infinity)
{
    static const double bounds[] = {0.5, 1, 10};
    struct metrics_histogram h = {.bounds = bounds, .n_bounds = 3};
    const struct metric_family with = {.name = "h", .labels = {"queue"}}, without = {.name = "g"};
    struct span queue = SPAN_LIT("q");
    struct buf out = BUF_INIT;
    metrics_histogram_observe(&h, 0.5); /* a bound belongs to its bucket */
    metrics_histogram_observe(&h, 0.75);
    metrics_histogram_observe(&h, 11);
    metrics_histogram_put(&out, &with, &queue, &h);
    metrics_histogram_put(&out, &without, NULL, &(struct metrics_histogram){0});
    check_text(&out, "h_bucket{queue=\"q\",le=\"0.5\"} 1\nh_bucket{queue=\"q\",le=\"1\"} 2\n"
                     "h_bucket{queue=\"q\",le=\"10\"} 2\nh_bucket{queue=\"q\",le=\"+Inf\"} 3\n"
                     "h_sum{queue=\"q\"} 12.25\nh_count{queue=\"q\"} 3\n"
                     "g_bucket{le=\"+Inf\"} 0\ng_sum 0\ng_count 0\n");
}

TEST_MAIN()
