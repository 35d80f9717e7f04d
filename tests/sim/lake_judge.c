#include "sim/lake_judge.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/pct.h"
#include "base/timefmt.h"
#include "json/json.h"
#include "sink/lake.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

#define OBJECT_TEXT_MAX (64u << 20)
#define TARGET_WEIGHT (1u << 20) /* QUEEN_S3_TARGET_MB of the worlds */

#define TENANT "00000000-0000-0000-0000-000000000001"

struct judge {
    struct ledger *ledger;
    const struct omap *objects;
    struct lake_verdict *out;
    unsigned queue;
    const char *queue_name;
    const char *const *partition_names;
    int64_t t0; /* of the queue */
};

static void wrong(struct judge *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct judge *j, const char *format, ...)
{
    if (!j->out->ok)
        return;
    va_list args;
    va_start(args, format);
    int at = snprintf(j->out->why, sizeof(j->out->why), "queue %s: ", j->queue_name);
    vsnprintf(j->out->why + at, sizeof(j->out->why) - (size_t)at, format, args);
    va_end(args);
    j->out->ok = false;
}

static bool inflate_zstd(struct span in, struct buf *out)
{
    ZSTD_DCtx *ctx = ZSTD_createDCtx();
    ZSTD_inBuffer from = {in.ptr, in.len, 0};
    size_t left = 1;
    while (left != 0 && out->len < OBJECT_TEXT_MAX) {
        uint8_t chunk[65536];
        ZSTD_outBuffer to = {chunk, sizeof(chunk), 0};
        left = ZSTD_decompressStream(ctx, &to, &from);
        if (ZSTD_isError(left) || (left != 0 && to.pos == 0 && from.pos == from.size))
            break;
        buf_append(out, chunk, to.pos);
    }
    ZSTD_freeDCtx(ctx);
    return left == 0 && from.pos == in.len;
}

static bool inflate_gzip(struct span in, struct buf *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in.ptr, .avail_in = (uInt)in.len};
    if (inflateInit2(&z, 31) != Z_OK)
        return false;
    int result = Z_OK;
    while (result == Z_OK && out->len < OBJECT_TEXT_MAX) {
        uint8_t chunk[65536];
        z.next_out = chunk;
        z.avail_out = sizeof(chunk);
        result = inflate(&z, Z_NO_FLUSH);
        buf_append(out, chunk, sizeof(chunk) - z.avail_out);
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && z.avail_in == 0;
}

static bool object_text(struct judge *j, const struct lake_manifest *m, struct span bytes,
                        struct buf *text)
{
    (void)j;
    if (span_eq(m->compression, SPAN_LIT("zstd")))
        return inflate_zstd(bytes, text);
    if (span_eq(m->compression, SPAN_LIT("gzip")))
        return inflate_gzip(bytes, text);
    buf_put_span(text, bytes);
    return true;
}

struct line {
    struct buf partition, transaction_id, ts;
    uint64_t offset;
    int64_t stamp;
    struct span payload;
};

static bool parse_line(struct span text, struct line *line)
{
    struct json_reader r;
    struct json_raw key, value;
    bool more;
    unsigned field = 0;
    static const char *const names[] = {"partition", "offset", "transactionId", "ts", "payload"};
    json_reader_init(&r, text, 2000);
    if (json_enter_object(&r) != ERR_OK)
        return false;
    while (json_next_key(&r, &key, &more) == ERR_OK && more) {
        if (field >= 5 || !json_string_is(key.text, span_str(names[field])) ||
            json_take(&r, &value) != ERR_OK)
            return false;
        bool good = true;
        if (field == 0)
            good = json_string_decode(value.text, &line->partition) == ERR_OK;
        else if (field == 1)
            good = json_uint64(value.text, &line->offset);
        else if (field == 2)
            good = json_string_decode(value.text, &line->transaction_id) == ERR_OK;
        else if (field == 3)
            good = json_string_decode(value.text, &line->ts) == ERR_OK &&
                   time_parse_iso(buf_span(&line->ts), &line->stamp);
        else
            line->payload = value.text;
        if (!good)
            return false;
        field++;
    }
    return r.err == ERR_OK && field == 5;
}

static void judge_line(struct judge *j, const struct lake_manifest *m, const struct line *line)
{
    struct ledger_record *r = ledger_find(j->ledger, buf_span(&line->transaction_id));
    if (r == NULL || r->queue != j->queue) {
        wrong(j, "k=%llu holds a record nobody pushed: " SPAN_FMT, (unsigned long long)m->k,
              SPAN_ARG(buf_span(&line->transaction_id)));
        return;
    }
    if (++r->seen > 1)
        wrong(j, "%s is in the lake twice (k=%llu)", r->transaction_id, (unsigned long long)m->k);
    if (!span_eq(line->payload, r->payload))
        wrong(j, "%s was altered", r->transaction_id);
    if (!span_eq(buf_span(&line->partition), span_str(j->partition_names[r->partition])))
        wrong(j, "%s is in another partition", r->transaction_id);
    if (line->stamp < m->t_start || line->stamp >= m->t_end)
        wrong(j, "%s does not belong into window %llu", r->transaction_id,
              (unsigned long long)m->k);
    if (r->told == TOLD_QUEUED && (line->offset != r->offset || line->stamp != r->stamp))
        wrong(j, "%s has another offset or stamp than was acknowledged", r->transaction_id);
    if (line->stamp < j->t0)
        wrong(j, "%s is older than T0", r->transaction_id);
    if (r->told == TOLD_REFUSED)
        wrong(j, "%s was refused and is in the lake", r->transaction_id);
}

static void line_reset(struct line *line)
{
    buf_reset(&line->partition);
    buf_reset(&line->transaction_id);
    buf_reset(&line->ts);
}

static void judge_order(struct judge *j, const struct line *before, const struct line *line)
{
    int order = span_cmp(buf_span(&before->partition), buf_span(&line->partition));
    if (order > 0 ||
        (order == 0 && (before->stamp > line->stamp ||
                        (before->stamp == line->stamp && before->offset >= line->offset))))
        wrong(j, "lines are out of order at " SPAN_FMT, SPAN_ARG(buf_span(&line->transaction_id)));
}

/* What a manifest says of the records. */
struct counted {
    size_t records, partitions;
    int64_t min_ts, max_ts;
    uint64_t weight, last_weight; /* last: of those stamped max_ts */
};

static void count_line(struct counted *c, const struct line *before, const struct line *line)
{
    uint64_t weight = 64 + line->transaction_id.len + line->partition.len + line->payload.len;
    if (before == NULL || !span_eq(buf_span(&before->partition), buf_span(&line->partition)))
        c->partitions++;
    if (c->records == 0 || line->stamp < c->min_ts)
        c->min_ts = line->stamp;
    if (c->records == 0 || line->stamp > c->max_ts) {
        c->max_ts = line->stamp;
        c->last_weight = 0;
    }
    if (line->stamp == c->max_ts)
        c->last_weight += weight;
    c->weight += weight;
    c->records++;
}

static void judge_counts(struct judge *j, const struct lake_manifest *m, const struct counted *c)
{
    unsigned long long k = m->k;
    if (c->records != m->records || m->objects[0].records != m->records)
        wrong(j, "k=%llu: manifest says %llu records, the object has %zu", k,
              (unsigned long long)m->records, c->records);
    if (c->partitions != m->partitions)
        wrong(j, "k=%llu: manifest says %llu partitions, the object has %zu", k,
              (unsigned long long)m->partitions, c->partitions);
    if (!m->has_ts || m->min_ts != c->min_ts || m->max_ts != c->max_ts)
        wrong(j, "k=%llu: the manifest's first or last stamp is wrong", k);
    if (c->weight - c->last_weight >= TARGET_WEIGHT)
        wrong(j, "k=%llu: the window weighs %llu bytes", k, (unsigned long long)c->weight);
}

static void judge_text(struct judge *j, const struct lake_manifest *m, struct span text)
{
    struct line lines[2] = {0};
    struct counted counted = {0};
    size_t count = 0;
    while (text.len > 0) {
        const uint8_t *end = memchr(text.ptr, '\n', text.len);
        if (end == NULL) {
            wrong(j, "k=%llu: the last line does not end", (unsigned long long)m->k);
            break;
        }
        struct line *line = &lines[count % 2];
        line_reset(line);
        if (!parse_line(span_make(text.ptr, (size_t)(end - text.ptr)), line)) {
            wrong(j, "k=%llu: a line does not parse", (unsigned long long)m->k);
            break;
        }
        if (count > 0)
            judge_order(j, &lines[(count - 1) % 2], line);
        count_line(&counted, count == 0 ? NULL : &lines[(count - 1) % 2], line);
        judge_line(j, m, line);
        count++;
        text = span_sub(text, (size_t)(end - text.ptr) + 1, text.len);
    }
    judge_counts(j, m, &counted);
    j->out->records += count;
    for (int i = 0; i < 2; i++) {
        buf_deinit(&lines[i].partition);
        buf_deinit(&lines[i].transaction_id);
        buf_deinit(&lines[i].ts);
    }
}

/* queen/tenant=../queue=<q>/dt=<day>[/hour=<h>]/w-<k>-<tStart>-<tEnd>.<ext>: of the window's start */
static void judge_key(struct judge *j, const struct lake_manifest *m)
{
    struct buf want = BUF_INIT;
    time_t start = (time_t)(m->t_start / US_PER_SEC);
    struct tm day;
    char text[40];
    bool hours = memmem(m->objects[0].key.ptr, m->objects[0].key.len, "/hour=", 6) != NULL;
    gmtime_r(&start, &day);
    strftime(text, sizeof(text), hours ? "%Y-%m-%d/hour=%H" : "%Y-%m-%d", &day);
    buf_puts(&want, "queen/tenant=" TENANT "/queue=");
    buf_put_pct(&want, span_str(j->queue_name));
    buf_printf(&want, "/dt=%s/w-%010llu-%016lld-%016lld.jsonl%s", text, (unsigned long long)m->k,
               (long long)m->t_start, (long long)m->t_end,
               span_eq(m->compression, SPAN_LIT("zstd"))   ? ".zst"
               : span_eq(m->compression, SPAN_LIT("gzip")) ? ".gz"
                                                           : "");
    if (!span_eq(buf_span(&want), m->objects[0].key))
        wrong(j, "k=%llu: the object is under " SPAN_FMT, (unsigned long long)m->k,
              SPAN_ARG(m->objects[0].key));
    buf_deinit(&want);
}

static void judge_manifest(struct judge *j, const struct lake_manifest *m)
{
    if (!span_eq(m->sink, SPAN_LIT("default")) || !span_eq(m->tenant, SPAN_LIT(TENANT)) ||
        !span_eq(m->queue, span_str(j->queue_name)))
        wrong(j, "k=%llu: the manifest names another lake", (unsigned long long)m->k);
    if (!span_eq(m->format, SPAN_LIT("jsonl")) || !span_eq(m->layout, SPAN_LIT("merged")) ||
        m->n_lost != 0)
        wrong(j, "k=%llu: the manifest names another form", (unsigned long long)m->k);
    if (m->objects[0].bytes != m->bytes)
        wrong(j, "k=%llu: the objects' bytes do not add up", (unsigned long long)m->k);
    judge_key(j, m);
}

static void judge_window(struct judge *j, const struct lake_manifest *m)
{
    struct omap_row row;
    if (m->n_objects != 1) {
        wrong(j, "k=%llu: %zu objects", (unsigned long long)m->k, m->n_objects);
        return;
    }
    judge_manifest(j, m);
    if (!omap_get(j->objects, m->objects[0].key, &row)) {
        wrong(j, "k=%llu: the object is missing", (unsigned long long)m->k);
        return;
    }
    uint8_t digest[SHA256_SIZE];
    struct buf hex = BUF_INIT, text = BUF_INIT;
    sha256(row.value, digest);
    buf_put_hex(&hex, span_make(digest, sizeof(digest)));
    if (row.value.len != m->bytes || !span_eq(buf_span(&hex), span_str(m->objects[0].sha256)))
        wrong(j, "k=%llu: size or digest differ", (unsigned long long)m->k);
    if (!object_text(j, m, row.value, &text))
        wrong(j, "k=%llu: the object does not decompress", (unsigned long long)m->k);
    judge_text(j, m, buf_span(&text));
    buf_deinit(&hex);
    buf_deinit(&text);
}

/* Where the last window ends: what is older is in the lake or never will be. */
static int64_t judge_queue(struct judge *j)
{
    struct buf prefix = BUF_INIT;
    buf_puts(&prefix, "queen/_queen/tenant=" TENANT "/queue=");
    buf_put_pct(&prefix, span_str(j->queue_name));
    buf_puts(&prefix, "/windows/");
    struct omap_row row;
    struct buf from = BUF_INIT;
    buf_put_span(&from, buf_span(&prefix));
    uint64_t k = 0;
    int64_t t_end = INT64_MIN;
    bool strict = false;
    while (omap_seek(j->objects, buf_span(&from), strict, &row) &&
           span_starts_with(row.key, buf_span(&prefix))) {
        struct lake_manifest m;
        strict = true;
        buf_reset(&from);
        buf_put_span(&from, row.key);
        if (lake_manifest_parse(row.value, &m) != ERR_OK) {
            wrong(j, "a manifest does not parse");
            break;
        }
        if (m.k != ++k)
            wrong(j, "window %llu is missing", (unsigned long long)k);
        if (m.t_start < t_end)
            wrong(j, "window %llu starts before the one before ends", (unsigned long long)m.k);
        else if (k > 1 && m.t_start != t_end && m.t_start % US_PER_HOUR != 0)
            wrong(j, "window %llu starts neither at the end of the one before nor at an hour's",
                  (unsigned long long)m.k);
        t_end = m.t_end;
        judge_window(j, &m);
        j->out->windows++;
        lake_manifest_deinit(&m);
    }
    buf_deinit(&from);
    buf_deinit(&prefix);
    return t_end;
}

static void judge_missing(struct judge *j, const struct ledger_record *r, bool late)
{
    j->out->missing++;
    if (late)
        wrong(j, "%s (offset %llu of %s) was acknowledged and is not in the lake",
              r->transaction_id, (unsigned long long)r->offset, j->partition_names[r->partition]);
}

static size_t data_objects(const struct omap *objects)
{
    struct span prefix = SPAN_LIT("queen/tenant=");
    struct omap_row row;
    size_t n = 0;
    bool any = omap_seek(objects, prefix, false, &row);
    while (any && span_starts_with(row.key, prefix)) {
        n++;
        any = omap_seek(objects, row.key, true, &row);
    }
    return n;
}

void lake_judge(struct ledger *l, const struct omap *objects, const struct lake_names *names,
                const int64_t *t0, bool complete, struct lake_verdict *out)
{
    *out = (struct lake_verdict){.ok = true};
    struct judge j = {
        .ledger = l, .objects = objects, .out = out, .partition_names = names->partitions};
    for (size_t i = 0; i < l->n; i++)
        l->records[i]->seen = 0;
    int64_t *t_ends = MEM_ARRAY(int64_t, names->n_queues + 1);
    for (j.queue = 0; j.queue < names->n_queues; j.queue++) {
        j.queue_name = names->queues[j.queue];
        j.t0 = t0[j.queue];
        t_ends[j.queue] = judge_queue(&j);
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct ledger_record *r = l->records[i];
        j.queue_name = names->queues[r->queue];
        if (r->seen == 0 && !ledger_optional(l, r) && r->stamp >= t0[r->queue])
            judge_missing(&j, r, complete || r->stamp < t_ends[r->queue]);
    }
    mem_free(t_ends);
    j.queue_name = "*";
    size_t data = data_objects(objects);
    if (complete && data != out->windows)
        wrong(&j, "%zu data objects for %zu manifests", data, out->windows);
}
