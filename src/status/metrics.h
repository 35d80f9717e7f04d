/* Prometheus text format 0.0.4 writer (spec/sink-status-metrics.md 2). What there is to write is in
 * one table, families.h; escaping and number spelling exist once, here. */
#ifndef STATUS_METRICS_H
#define STATUS_METRICS_H

#include "base/buf.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

#define METRIC_LABELS_MAX 2

struct metric_family {
    const char *name;
    enum metric_type type;
    const char *labels[METRIC_LABELS_MAX + 1]; /* in their order, NULL behind the last; not `le` */
    const char *help;
    const char *note; /* for docs/metrics.md only, whole sentences; NULL */
};

size_t metric_labels(const struct metric_family *f); /* how many */

/* # HELP and # TYPE lines. */
void metrics_family(struct buf *out, const struct metric_family *f);

/* One sample. values: one for each label of the family, escaped here (\ " newline); NULL when it
 * has none. Integral values come without a decimal point, others shortest. */
void metrics_sample(struct buf *out, const struct metric_family *f, const struct span *values,
                    double value);
void metrics_sample_u64(struct buf *out, const struct metric_family *f, const struct span *values,
                        uint64_t value);

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
void metrics_histogram_put(struct buf *out, const struct metric_family *f,
                           const struct span *values, const struct metrics_histogram *h);

#endif
