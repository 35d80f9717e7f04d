/* Building the object of a window from the queue's log.
 *
 * Heads of the window's runs are scanned into an index of positions, grouped by partition name
 * (lake_index.h); then the runs are read whole, partition after partition, and their lines go
 * through the compressor (lake_spool.h). Only positions are held, so memory does not grow with the
 * window's bytes.
 *
 * The order inside a partition is the log's: a log is sorted by stamp, and what one push wrote to a
 * partition stands in it in the order of offsets, so rising positions are (stamp, offset), and an
 * older incarnation of the same name comes first (objects.md 3). It is checked while writing. The
 * result is a function of the log's runs, the window and the spec: not of the index's bound, nor of
 * from and to. */
#include "sink/lake_internal.h"

#include "base/mem.h"
#include "sink/lake_index.h"
#include "sink/lake_spool.h"

#include <unistd.h>

#define HEADS_MAX 512             /* of one scan call */
#define LINES_FLUSH (256u * 1024) /* text handed to the compressor at once */

struct build {
    const struct lake_build_options *options;
    struct lake_object object;
    struct lake_build_stats stats;
    uint64_t from, to; /* resolved */
    struct lake_index index;
    struct lake_spool spool;
    struct qlog_run_head *heads;
    struct qlog_run_data data;
    struct lake_line_parts parts;
    struct buf lines;
    struct qlog_run_head last; /* run of the same partition written before, if has_last */
    bool has_last;
};

void lake_object_deinit(struct lake_object *o)
{
    if (o == NULL)
        return;
    buf_deinit(&o->bytes);
    if (o->fd >= 0)
        (void)close(o->fd); /* unlinked */
    o->fd = -1;
}

static bool is_cancelled(const struct build *b)
{
    return b->options->cancel != NULL && atomic_load(b->options->cancel);
}

static enum err stopped(struct error *error)
{
    return error_set(error, ERR_STOPPED, "the build was stopped");
}

/* Calls visit for every run of the window, in the order of the log. */
static enum err scan_window(struct build *b,
                            enum err (*visit)(struct build *b, const struct qlog_run_head *head,
                                              struct error *error),
                            struct error *error)
{
    const struct lake_window *w = b->options->window;
    uint64_t at = b->from;
    while (at < b->to) {
        size_t n;
        uint64_t next;
        if (is_cancelled(b))
            return stopped(error);
        TRY(qlog_scan(b->options->log, at, b->to, b->heads, HEADS_MAX, &n, &next, error));
        for (size_t i = 0; i < n; i++) {
            if (b->heads[i].stamp >= w->t_end)
                return ERR_OK; /* stamps only rise */
            if (b->heads[i].stamp >= w->t_start)
                TRY(visit(b, &b->heads[i], error));
        }
        if (n == 0 || next <= at)
            break;
        at = next;
    }
    return ERR_OK;
}

/* ---- Choosing ---- */

static enum err index_run(struct build *b, const struct qlog_run_head *head, struct error *error)
{
    if (lake_index_add(&b->index, head->partition_id, head->position) != LAKE_INDEX_NEW_ID)
        return ERR_OK;
    if (is_cancelled(b))
        return stopped(error);
    TRY(qlog_read(b->options->log, head->position, &b->data, error));
    lake_index_add_named(&b->index, head->partition_id, b->data.partition, head->position);
    return ERR_OK;
}

/* ---- Writing ---- */

static enum err flush_lines(struct build *b, struct error *error)
{
    enum err err = lake_spool_write(&b->spool, buf_span(&b->lines), error);
    buf_reset(&b->lines);
    return err;
}

static void count_run(struct build *b, const struct qlog_run_head *head)
{
    struct lake_object *o = &b->object;
    if (o->records == 0 || head->stamp < o->min_ts)
        o->min_ts = head->stamp;
    if (o->records == 0 || head->stamp > o->max_ts)
        o->max_ts = head->stamp;
    o->records += head->count;
}

static enum err check_order(const struct build *b, const struct qlog_run_head *head,
                            struct error *error)
{
    if (!b->has_last)
        return ERR_OK;
    bool same = head->partition_id == b->last.partition_id;
    if (head->stamp < b->last.stamp ||
        (same && head->first_offset < b->last.first_offset + b->last.count))
        return error_set(error, ERR_CORRUPT,
                         "queue log: the run at position %llu is out of order behind the one at "
                         "%llu of its partition",
                         (unsigned long long)head->position, (unsigned long long)b->last.position);
    return ERR_OK;
}

static enum err write_run(struct build *b, uint64_t position, struct span name, struct error *error)
{
    if (is_cancelled(b))
        return stopped(error);
    struct qlog_run_data *d = &b->data;
    TRY(qlog_read(b->options->log, position, d, error));
    if (!span_eq(d->partition, name))
        return error_set(error, ERR_CORRUPT, "queue log: partition %llu has two names",
                         (unsigned long long)d->head.partition_id);
    TRY(check_order(b, &d->head, error));
    b->last = d->head;
    b->has_last = true;
    count_run(b, &d->head);
    lake_line_parts_set(&b->parts, name, d->head.stamp);
    for (uint32_t i = 0; i < d->head.count; i++) {
        struct lake_record r = {
            .partition = name,
            .offset = d->head.first_offset + i,
            .transaction_id = d->records[i].transaction_id,
            .stamp = d->head.stamp,
            .payload = d->records[i].payload,
        };
        bool quoted;
        lake_line_put(&b->lines, &b->parts, &r, b->options->window->spec.raw, &quoted);
        b->object.quoted += quoted;
        if (b->lines.len >= LINES_FLUSH)
            TRY(flush_lines(b, error));
    }
    return ERR_OK;
}

/* Visits for a name too large for the index: writes it in the order of the log. */
static enum err write_if_streamed(struct build *b, const struct qlog_run_head *head,
                                  struct error *error)
{
    const struct lake_part *p = lake_index_part(&b->index, head->partition_id);
    if (p == NULL || !p->streamed)
        return ERR_OK;
    return write_run(b, head->position, lake_part_name(p), error);
}

/* parts: n of one name, as a rule one. Merged by position. */
static enum err write_merged(struct build *b, struct lake_part **parts, size_t n,
                             struct error *error)
{
    for (;;) {
        struct lake_part *first = NULL;
        uint64_t position = 0;
        for (size_t i = 0; i < n; i++) {
            if (parts[i]->at == LAKE_INDEX_NONE)
                continue;
            uint64_t candidate = lake_index_position(&b->index, parts[i]->at);
            if (first == NULL || candidate < position) {
                first = parts[i];
                position = candidate;
            }
        }
        if (first == NULL)
            return ERR_OK;
        TRY(write_run(b, position, lake_part_name(first), error));
        first->at = lake_index_next(&b->index, first->at);
    }
}

/* Writes what the pass collected. */
static enum err write_collected(struct build *b, struct error *error)
{
    struct lake_index *ix = &b->index;
    size_t end;
    for (size_t i = 0; i < ix->count; i = end) {
        struct span name = lake_part_name(ix->parts[i]);
        for (end = i + 1; end < ix->count && span_eq(lake_part_name(ix->parts[end]), name);)
            end++;
        b->has_last = false;
        b->object.partitions++;
        if (ix->parts[i]->streamed) {
            b->stats.streamed++;
            TRY(scan_window(b, write_if_streamed, error));
        } else {
            TRY(write_merged(b, ix->parts + i, end - i, error));
        }
    }
    return ERR_OK;
}

/* ---- The build ---- */

static enum err resolve_range(struct build *b, struct error *error)
{
    const struct lake_build_options *o = b->options;
    uint64_t end = qlog_end(o->log);
    b->to = o->to != 0 && o->to < end ? o->to : end;
    b->from = o->from;
    if (o->to == 0)
        TRY(qlog_seek_stamp_near(o->log, o->window->t_start, o->near, &b->from, error));
    uint64_t start = qlog_start(o->log);
    if (b->from < start)
        b->from = start; /* retention was faster */
    return ERR_OK;
}

static enum err run_build(struct build *b, struct error *error)
{
    TRY(resolve_range(b, error));
    do {
        lake_index_begin(&b->index);
        TRY(scan_window(b, index_run, error));
        lake_index_sort(&b->index);
        b->stats.passes++;
        TRY(write_collected(b, error));
    } while (b->index.has_upper);
    TRY(flush_lines(b, error));
    return lake_spool_finish(&b->spool, &b->object, error);
}

enum err lake_build_counted(const struct lake_build_options *options, struct lake_object *out,
                            struct lake_build_stats *stats_out, struct error *error)
{
    const struct lake_spec *spec = &options->window->spec;
    ASSERT(spec->format == SINK_JSONL && spec->layout == SINK_MERGED); /* all that is built */
    struct build *b = mem_new(sizeof(*b));
    b->options = options;
    b->object.fd = -1;
    b->heads = MEM_ARRAY(struct qlog_run_head, HEADS_MAX);
    lake_index_init(&b->index, options->index_bytes_max);
    lake_spool_init(&b->spool, spec->compression, options->memory_max, options->spool_dir);

    enum err err = run_build(b, error);
    if (err == ERR_OK) {
        *out = b->object;
        b->stats.index_bytes_max = b->index.bytes_peak;
        *stats_out = b->stats;
    } else {
        lake_object_deinit(&b->object);
    }
    lake_spool_deinit(&b->spool);
    lake_index_deinit(&b->index);
    lake_line_parts_deinit(&b->parts);
    buf_deinit(&b->lines);
    qlog_run_data_deinit(&b->data);
    mem_free(b->heads);
    mem_free(b);
    return err;
}

enum err lake_build(const struct lake_build_options *options, struct lake_object *out,
                    struct error *error)
{
    struct lake_build_stats stats;
    return lake_build_counted(options, out, &stats, error);
}
