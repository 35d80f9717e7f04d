/* Object keys and names (objects.md 1, decisions.md 2).
 *
 * A key is put together twice when it is too long: first with the names cut to their path segment,
 * then, if the key is longer than KEY_MAX, with the queue's name cut by the excess. Both are
 * functions of the names and the setting alone, so a redo and a takeover find the same key. The
 * folder of checkpoints is cut as the key of a checkpoint whose k has ten digits, so that a listing
 * by it finds them. */
#include "sink/lake.h"

#include "base/pct.h"
#include "base/timefmt.h"

#define KEY_MAX 1024     /* bytes: the limit of S3 */
#define KV_NAME_MAX 300  /* bytes: decisions.md 2, room for the rest of a KV key of 511 */
#define NAME_SHORTEST 32 /* bytes a name is not cut below: buf_put_pct_short() */
#define K_WIDTH 10
#define TIME_WIDTH 16

/* Which key of a queue, and what it is made of. */
struct key_parts {
    const struct lake_spec *spec;
    const char *folder;               /* "" for objects, "windows/", "checkpoint/" */
    const struct lake_window *window; /* objects */
    uint64_t k;
    const char *suffix; /* behind k */
    bool sidecar;
};

static size_t name_max(const struct lake_spec *s, size_t label_len)
{
    ASSERT(s->segment_max >= label_len + NAME_SHORTEST);
    return s->segment_max - label_len;
}

static uint64_t not_negative(int64_t us)
{
    return us < 0 ? 0 : (uint64_t)us;
}

static const char *extension(const struct lake_spec *s)
{
    if (s->format == SINK_PARQUET)
        return ".parquet";
    switch (s->compression) {
    case SINK_ZSTD:
        return ".jsonl.zst";
    case SINK_GZIP:
        return ".jsonl.gz";
    case SINK_NONE:
        break;
    }
    return ".jsonl";
}

static void put_object_name(struct buf *out, const struct lake_window *w)
{
    buf_puts(out, "dt=");
    buf_put_date(out, w->t_start);
    if (w->spec.align != SINK_ALIGN_DAY) {
        buf_puts(out, "/hour=");
        buf_put_hour(out, w->t_start);
    }
    buf_puts(out, "/w-");
    buf_put_padded(out, w->k, K_WIDTH);
    buf_putc(out, '-');
    buf_put_padded(out, not_negative(w->t_start), TIME_WIDTH);
    buf_putc(out, '-');
    buf_put_padded(out, not_negative(w->t_end), TIME_WIDTH);
    buf_puts(out, extension(&w->spec));
}

static void put_key_with(struct buf *out, const struct key_parts *p, size_t queue_max)
{
    const struct lake_spec *s = p->spec;
    buf_put_span(out, s->prefix);
    buf_puts(out, p->sidecar ? "/_queen/tenant=" : "/tenant=");
    buf_put_pct_short(out, s->tenant, name_max(s, strlen("tenant=")));
    buf_puts(out, "/queue=");
    buf_put_pct_short(out, s->queue, queue_max);
    buf_putc(out, '/');
    if (p->window != NULL) {
        put_object_name(out, p->window);
        return;
    }
    buf_puts(out, p->folder);
    buf_put_padded(out, p->k, K_WIDTH);
    buf_puts(out, p->suffix);
}

static void put_key(struct buf *out, const struct key_parts *p)
{
    size_t start = out->len;
    size_t queue_max = name_max(p->spec, strlen("queue="));
    put_key_with(out, p, queue_max);
    size_t len = out->len - start;
    if (len <= KEY_MAX)
        return;
    struct buf name = BUF_INIT;
    buf_put_pct_short(&name, p->spec->queue, queue_max);
    size_t excess = len - KEY_MAX;
    size_t cut = name.len > excess + NAME_SHORTEST ? name.len - excess : NAME_SHORTEST;
    buf_deinit(&name);
    out->len = start;
    put_key_with(out, p, cut);
}

void lake_key_object(struct buf *out, const struct lake_window *w)
{
    ASSERT(w->spec.layout == SINK_MERGED); /* per-partition is not built yet */
    put_key(out, &(struct key_parts){.spec = &w->spec, .window = w});
}

void lake_key_manifest(struct buf *out, const struct lake_spec *s, uint64_t k)
{
    put_key(out, &(struct key_parts){
                     .spec = s, .folder = "windows/", .k = k, .suffix = ".json", .sidecar = true});
}

static struct key_parts checkpoint_parts(const struct lake_spec *s, uint64_t k)
{
    return (struct key_parts){
        .spec = s, .folder = "checkpoint/", .k = k, .suffix = ".json.zst", .sidecar = true};
}

void lake_key_checkpoint(struct buf *out, const struct lake_spec *s, uint64_t k)
{
    struct key_parts parts = checkpoint_parts(s, k);
    put_key(out, &parts);
}

void lake_key_checkpoint_prefix(struct buf *out, const struct lake_spec *s)
{
    struct key_parts parts = checkpoint_parts(s, 0);
    put_key(out, &parts);
    out->len -= K_WIDTH + strlen(parts.suffix);
}

bool lake_key_checkpoint_parse(struct span key, uint64_t *k_out)
{
    static const char folder[] = "/checkpoint/";
    struct span suffix = SPAN_LIT(".json.zst");
    struct span name = {0};
    for (size_t i = key.len; i >= strlen(folder); i--) {
        if (memcmp(key.ptr + i - strlen(folder), folder, strlen(folder)) == 0) {
            name = span_sub(key, i, key.len);
            break;
        }
    }
    if (name.len <= suffix.len || !span_eq(span_sub(name, name.len - suffix.len, name.len), suffix))
        return false;
    return span_parse_u64(span_sub(name, 0, name.len - suffix.len), k_out);
}

void lake_kv_name(struct buf *out, struct span queue)
{
    buf_put_pct_short(out, queue, KV_NAME_MAX);
}
