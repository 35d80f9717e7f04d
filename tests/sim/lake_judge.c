#include "sim/lake_judge.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/pct.h"
#include "base/timefmt.h"
#include "json/json.h"
#include "sink/lake.h"

#include <stdarg.h>
#include <stdio.h>
#include <zlib.h>
#include <zstd.h>

#define OBJECT_TEXT_MAX (64u << 20)

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

static void judge_text(struct judge *j, const struct lake_manifest *m, struct span text)
{
    struct line lines[2] = {0};
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
        judge_line(j, m, line);
        count++;
        text = span_sub(text, (size_t)(end - text.ptr) + 1, text.len);
    }
    if (count != m->records)
        wrong(j, "k=%llu: manifest says %llu records, the object has %zu", (unsigned long long)m->k,
              (unsigned long long)m->records, count);
    j->out->records += count;
    for (int i = 0; i < 2; i++) {
        buf_deinit(&lines[i].partition);
        buf_deinit(&lines[i].transaction_id);
        buf_deinit(&lines[i].ts);
    }
}

static void judge_window(struct judge *j, const struct lake_manifest *m)
{
    struct omap_row row;
    if (m->n_objects != 1) {
        wrong(j, "k=%llu: %zu objects", (unsigned long long)m->k, m->n_objects);
        return;
    }
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
    buf_puts(&prefix, "queen/_queen/tenant=00000000-0000-0000-0000-000000000001/queue=");
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
