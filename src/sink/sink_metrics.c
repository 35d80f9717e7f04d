/* The sink's part of the table in status/families.h: what it counts, and its samples. */
#include "sink/sink_internal.h"

#include "base/mem.h"
#include "status/families.h"

#include <stdio.h>

static const double RECORD_BOUNDS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
static const double BYTE_BOUNDS[] = {1048576,   4194304,   16777216,  67108864,
                                     134217728, 268435456, 536870912, 1073741824};

void sink_counters_init(struct sink_counters *c)
{
    c->window_records = (struct metrics_histogram){
        .bounds = RECORD_BOUNDS, .n_bounds = sizeof(RECORD_BOUNDS) / sizeof(RECORD_BOUNDS[0])};
    c->window_bytes = (struct metrics_histogram){
        .bounds = BYTE_BOUNDS, .n_bounds = sizeof(BYTE_BOUNDS) / sizeof(BYTE_BOUNDS[0])};
}

void sink_counters_deinit(struct sink_counters *c)
{
    mem_free(c->requests);
}

static int request_order(const struct request_count *a, const char *op, unsigned code)
{
    char code_a[16], code_b[16];
    int order = strcmp(a->op, op);

    if (order != 0)
        return order;
    (void)snprintf(code_a, sizeof(code_a), "%u", a->code); /* fits */
    (void)snprintf(code_b, sizeof(code_b), "%u", code);
    return strcmp(code_a, code_b);
}

void sink_counters_request(struct sink_counters *c, const char *op, unsigned code)
{
    size_t at = 0;

    while (at < c->n_requests && request_order(&c->requests[at], op, code) < 0)
        at++;
    if (at == c->n_requests || request_order(&c->requests[at], op, code) != 0) {
        c->requests = mem_grow(c->requests, (c->n_requests + 1) * sizeof(*c->requests));
        memmove(&c->requests[at + 1], &c->requests[at],
                (c->n_requests - at) * sizeof(*c->requests));
        c->requests[at] = (struct request_count){.op = op, .code = code};
        c->n_requests++;
    }
    c->requests[at].count++;
}

/* --- per-queue families --- */

/* The value of one family for one queue; false: no sample. */
typedef bool (*queue_value_fn)(const struct slot *slot, double *out);

static bool value_lag(const struct slot *slot, double *out)
{
    const struct sink_row *row = sink_task_row(slot->task);
    int64_t lag;

    if (!row->owned_here || !sink_row_lag(row, &lag))
        return false;
    *out = (double)lag / 1e6;
    return true;
}

static bool value_windows(const struct slot *slot, double *out)
{
    *out = (double)sink_task_row(slot->task)->windows;
    return slot->ever_owned;
}

static bool value_records(const struct slot *slot, double *out)
{
    *out = (double)sink_task_row(slot->task)->records;
    return slot->ever_owned;
}

static bool value_bytes(const struct slot *slot, double *out)
{
    *out = (double)sink_task_row(slot->task)->bytes;
    return slot->ever_owned;
}

static bool value_lost(const struct slot *slot, double *out)
{
    *out = 0; /* retention is not built yet, so nothing is lost */
    return slot->ever_owned;
}

static bool value_fetch_ok(const struct slot *slot, double *out)
{
    *out = (double)slot->fetch_ok;
    return slot->fetch_ok > 0;
}

static bool value_fetch_error(const struct slot *slot, double *out)
{
    *out = (double)slot->fetch_error;
    return slot->fetch_error > 0;
}

static bool value_partitions(const struct slot *slot, double *out)
{
    const struct sink_row *row = sink_task_row(slot->task);

    *out = (double)row->partitions;
    return row->owned_here && row->has_discovery;
}

static bool value_checkpoint_age(const struct slot *slot, double *out)
{
    const struct sink_row *row = sink_task_row(slot->task);

    *out = (double)(row->k - (row->k < row->checkpoint_k ? row->k : row->checkpoint_k));
    return row->owned_here && row->has_checkpoint;
}

static bool value_quoted(const struct slot *slot, double *out)
{
    *out = (double)slot->quoted;
    return slot->quoted > 0;
}

/* One sample a queue; `label`: the value of the family's second label, if it has one. */
static void put_queues(const struct sink *s, struct buf *out, enum metric_id id,
                       queue_value_fn value, const char *label)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        double v;
        struct span labels[] = {buf_span(&s->slots[i]->name), span_str(label)};
        if (value(s->slots[i], &v))
            metrics_sample(out, metric_family(id), labels, v);
    }
}

/* Two results of one queue stand together: sorted by queue, then result. */
static void put_fetches(const struct sink *s, struct buf *out)
{
    static const struct {
        const char *result;
        queue_value_fn value;
    } results[] = {{"error", value_fetch_error}, {"ok", value_fetch_ok}};

    for (size_t i = 0; i < s->n_slots; i++) {
        for (size_t r = 0; r < 2; r++) {
            double v;
            struct span labels[] = {buf_span(&s->slots[i]->name), span_str(results[r].result)};
            if (results[r].value(s->slots[i], &v))
                metrics_sample(out, metric_family(FAMILY_SINK_FETCHES), labels, v);
        }
    }
}

static void put_requests(const struct sink *s, struct buf *out)
{
    for (size_t i = 0; i < s->counters.n_requests; i++) {
        const struct request_count *r = &s->counters.requests[i];
        char code[16];
        (void)snprintf(code, sizeof(code), "%u", r->code); /* fits */
        struct span labels[] = {span_str(r->op), span_str(code)};
        metrics_sample_u64(out, metric_family(FAMILY_SINK_REQUESTS), labels, r->count);
    }
}

/* --- every family --- */

static void put_histogram(struct buf *out, enum metric_id id, const struct metrics_histogram *h)
{
    metrics_histogram_put(out, metric_family(id), NULL, h);
}

static void put_count(struct buf *out, enum metric_id id, uint64_t value)
{
    metrics_sample_u64(out, metric_family(id), NULL, value);
}

static void put_samples(const struct sink *s, struct buf *out, enum metric_id id,
                        int64_t safe_lag_us)
{
    static const queue_value_fn values[FAMILY_COUNT] = {
        [FAMILY_SINK_LAG] = value_lag,
        [FAMILY_SINK_WINDOWS] = value_windows,
        [FAMILY_SINK_RECORDS] = value_records,
        [FAMILY_SINK_BYTES] = value_bytes,
        [FAMILY_SINK_LOST] = value_lost,
        [FAMILY_SINK_PARTITIONS] = value_partitions,
        [FAMILY_SINK_CHECKPOINT_AGE] = value_checkpoint_age,
        [FAMILY_SINK_QUOTED] = value_quoted,
    };
    const struct sink_counters *c = &s->counters;

    if (values[id] != NULL && s->settings != NULL)
        put_queues(s, out, id, values[id], sink_format_name(s->settings->format));
    else if (id == FAMILY_SINK_SAFE_LAG && s->held > 0)
        metrics_sample(out, metric_family(id), NULL, (double)safe_lag_us / 1e6);
    else if (id == FAMILY_SINK_WINDOW_RECORDS)
        put_histogram(out, id, &c->window_records);
    else if (id == FAMILY_SINK_WINDOW_BYTES)
        put_histogram(out, id, &c->window_bytes);
    else if (id == FAMILY_SINK_BUFFER)
        put_count(out, id, s->buffered);
    else if (id == FAMILY_SINK_FETCHES)
        put_fetches(s, out);
    else if (id == FAMILY_SINK_REQUESTS)
        put_requests(s, out);
    else if (id == FAMILY_SINK_PRECONDITION_LOST)
        put_count(out, id, c->precondition_lost);
    else if (id == FAMILY_SINK_GIVEN_BACK)
        put_count(out, id, c->given_back);
}

void sink_metrics_put(struct sink *s, struct buf *out)
{
    int64_t safe_lag = clock_wall_us(s->options.clock) - node_safe_time(s->options.node);

    if (safe_lag < 0)
        safe_lag = 0;
    pthread_mutex_lock(&s->lock);
    for (enum metric_id id = FAMILY_SINK_FIRST; id < FAMILY_COUNT; id++) {
        metrics_family(out, metric_family(id));
        put_samples(s, out, id, safe_lag);
    }
    pthread_mutex_unlock(&s->lock);
}
