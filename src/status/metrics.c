/* Prometheus text format 0.0.4: one line per sample, labels in the order given.
 *
 * Numbers: counts come as integers; a double without a fraction is written as an integer while that
 * is exact (below 2^53), others in the shortest form that reads back as the same double. */
#include "status/metrics.h"

#include "base/err.h"

#include <math.h>

#define EXACT_MAX 9007199254740992.0 /* 2^53 */

size_t metric_labels(const struct metric_family *f)
{
    size_t n = 0;
    while (n < METRIC_LABELS_MAX && f->labels[n] != NULL)
        n++;
    return n;
}

void metrics_family(struct buf *out, const struct metric_family *f)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    buf_puts(out, "# HELP ");
    buf_puts(out, f->name);
    buf_putc(out, ' ');
    for (const char *c = f->help; *c != '\0'; c++) { /* help text escapes \ and newline only */
        if (*c == '\\')
            buf_puts(out, "\\\\");
        else if (*c == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, (uint8_t)*c);
    }
    buf_puts(out, "\n# TYPE ");
    buf_puts(out, f->name);
    buf_putc(out, ' ');
    buf_puts(out, types[f->type]);
    buf_putc(out, '\n');
}

static void put_label_value(struct buf *out, struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        switch (value.ptr[i]) {
        case '\\':
            buf_puts(out, "\\\\");
            break;
        case '"':
            buf_puts(out, "\\\"");
            break;
        case '\n':
            buf_puts(out, "\\n");
            break;
        default:
            buf_putc(out, value.ptr[i]);
        }
    }
}

static void put_label(struct buf *out, const char *name, struct span value, bool first)
{
    buf_putc(out, first ? '{' : ',');
    buf_puts(out, name);
    buf_puts(out, "=\"");
    put_label_value(out, value);
    buf_putc(out, '"');
}

static void put_number(struct buf *out, double value)
{
    if (isnan(value))
        buf_puts(out, "NaN");
    else if (isinf(value))
        buf_puts(out, value > 0 ? "+Inf" : "-Inf");
    else if (value == floor(value) && fabs(value) < EXACT_MAX)
        buf_put_i64(out, (int64_t)value);
    else
        buf_put_double(out, value);
}

/* Everything before the value. le (may be empty) is the last label. */
static void put_head(struct buf *out, const struct metric_family *f, const char *suffix,
                     const struct span *values, struct span le)
{
    size_t n = metric_labels(f);
    buf_puts(out, f->name);
    buf_puts(out, suffix);
    for (size_t i = 0; i < n; i++)
        put_label(out, f->labels[i], values[i], i == 0);
    if (le.len > 0)
        put_label(out, "le", le, n == 0);
    if (n > 0 || le.len > 0)
        buf_putc(out, '}');
    buf_putc(out, ' ');
}

static void put_sample(struct buf *out, const struct metric_family *f, const char *suffix,
                       const struct span *values, double value)
{
    put_head(out, f, suffix, values, (struct span){NULL, 0});
    put_number(out, value);
    buf_putc(out, '\n');
}

static void put_sample_u64(struct buf *out, const struct metric_family *f, const char *suffix,
                           const struct span *values, struct span le, uint64_t value)
{
    put_head(out, f, suffix, values, le);
    buf_put_u64(out, value);
    buf_putc(out, '\n');
}

void metrics_sample(struct buf *out, const struct metric_family *f, const struct span *values,
                    double value)
{
    put_sample(out, f, "", values, value);
}

void metrics_sample_u64(struct buf *out, const struct metric_family *f, const struct span *values,
                        uint64_t value)
{
    put_sample_u64(out, f, "", values, (struct span){NULL, 0}, value);
}

void metrics_histogram_observe(struct metrics_histogram *h, double value)
{
    ASSERT(h->n_bounds < METRICS_BUCKETS_MAX);
    size_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->buckets[i]++;
    h->sum += value;
    h->count++;
}

void metrics_histogram_put(struct buf *out, const struct metric_family *f,
                           const struct span *values, const struct metrics_histogram *h)
{
    uint64_t below = 0;
    struct buf le = BUF_INIT;
    for (size_t i = 0; i <= h->n_bounds; i++) {
        below += h->buckets[i];
        buf_reset(&le);
        put_number(&le, i < h->n_bounds ? h->bounds[i] : (double)INFINITY);
        put_sample_u64(out, f, "_bucket", values, buf_span(&le), below);
    }
    buf_deinit(&le);
    put_sample(out, f, "_sum", values, h->sum);
    put_sample_u64(out, f, "_count", values, (struct span){NULL, 0}, h->count);
}
