/* Prometheus text format 0.0.4 writer (spec/sink-status-metrics.md 2). Shared by the broker's and
 * the sink's families, so that escaping and number spelling exist once. */
#ifndef STATUS_METRICS_H
#define STATUS_METRICS_H

#include "base/buf.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* # HELP and # TYPE lines. */
void metrics_family(struct buf *out, const char *name, enum metric_type type, const char *help);

struct metric_label {
    const char *name;
    struct span value; /* escaped: \ " newline */
};

/* One sample; integral values without a decimal point, others shortest. suffix ("_bucket", "_sum",
 * ...) may be NULL. */
void metrics_sample(struct buf *out, const char *name, const char *suffix,
                    const struct metric_label *labels, size_t n, double value);
void metrics_sample_u64(struct buf *out, const char *name, const char *suffix,
                        const struct metric_label *labels, size_t n, uint64_t value);

#define METRICS_BUCKETS_MAX 16

struct metrics_histogram {
    const double *bounds; /* ascending, without +Inf; at most METRICS_BUCKETS_MAX - 1 */
    size_t n_bounds;
    uint64_t buckets[METRICS_BUCKETS_MAX]; /* not cumulative; last is +Inf */
    double sum;
    uint64_t count;
};

void metrics_histogram_observe(struct metrics_histogram *h, double value);
/* Samples of one histogram: cumulative _bucket with `le` last, _sum, _count. */
void metrics_histogram_put(struct buf *out, const char *name, const struct metric_label *labels,
                           size_t n, const struct metrics_histogram *h);

#endif
