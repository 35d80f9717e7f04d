/* Reading the sink's settings at boot (settings.md 1-8).
 *
 * Every value is looked up once, trimmed, and read as its row of the table says; the first one that
 * does not fit ends the reading with the sentence an operator sees. Features that are accepted but
 * not built yet are refused apart, after everything else, so that a wrong value keeps its own
 * sentence (decisions.md 29). Neither key ever gets into a text. */
#include "sink/settings_read.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

#define SINK_NAME_MAX 64 /* bytes */
#define EMBEDDED "QUEEN_S3_EMBEDDED"

/* ---- Per sink ---- */

/* Names with commas between: empty ones dropped, and the second of two alike. */
static void split_queues(struct span left, struct sink_settings *s)
{
    struct map seen = MAP_INIT;
    while (left.len > 0) {
        const uint8_t *comma = memchr(left.ptr, ',', left.len);
        size_t len = comma == NULL ? left.len : (size_t)(comma - left.ptr);
        struct span name = settings_trim(span_sub(left, 0, len));
        if (name.len > 0 && map_get(&seen, name) == NULL) {
            s->queues = mem_grow(s->queues, (s->n_queues + 1) * sizeof(char *));
            s->queues[s->n_queues] = span_dup(name);
            (void)map_put(&seen, name, s->queues[s->n_queues++]); /* it was not there */
        }
        left = span_sub(left, comma == NULL ? len : len + 1, left.len);
    }
    map_deinit(&seen);
}

static enum err read_queues(const struct reading *in, struct sink_settings *s)
{
    char *text = NULL;
    TRY(settings_required(in, S_QUEUES, &text));
    s->all_queues = span_eq(span_str(text), SPAN_LIT("*"));
    if (!s->all_queues)
        split_queues(span_str(text), s);
    mem_free(text);
    if (!s->all_queues && s->n_queues == 0)
        return settings_refuse(in, "%s=" SPAN_FMT " names no queue. It is %s", ROW(S_QUEUES),
                               RAW(settings_value(in, S_QUEUES)), setting_row(S_QUEUES)->what);
    return ERR_OK;
}

static enum err read_sink_name(const struct reading *in, struct sink_settings *s)
{
    struct span value = settings_value(in, S_SINK);
    if (value.len == 0)
        value = span_str(setting_row(S_SINK)->fallback_text);
    if (value.len > SINK_NAME_MAX || !settings_is_name(value))
        return settings_refuse(in, "%s=" SPAN_FMT " is not a sink name. It is %s", ROW(S_SINK),
                               RAW(value), setting_row(S_SINK)->what);
    s->sink = span_dup(value);
    return ERR_OK;
}
static enum err read_enum_into(const struct reading *in, enum setting_id id,
                               struct sink_settings *s)
{
    int value = -1;
    TRY(settings_enum(in, id, &value, NULL));
    if (value < 0)
        return ERR_OK; /* every default is the zero of its enum */
    if (id == S_FORMAT)
        s->format = (enum sink_format)value;
    else if (id == S_COMPRESSION)
        s->compression = (enum sink_compression)value;
    else if (id == S_LAYOUT)
        s->layout = (enum sink_layout)value;
    else if (id == S_ALIGN)
        s->align = (enum sink_align)value;
    else if (id == S_START)
        s->start = (enum sink_start)value;
    return ERR_OK; /* the Parquet codec is only checked until there is Parquet */
}

/* A file:// endpoint needs neither region nor keys, and keeps none. */
static enum err read_s3_text(const struct reading *in, enum setting_id id,
                             const struct sink_settings *s, char **out)
{
    if (s->is_file)
        return ERR_OK;
    TRY(settings_header_text(in, id, settings_value(in, id)));
    return settings_required(in, id, out);
}

static enum err read_key_segment_max(const struct reading *in, struct sink_settings *s)
{
    TRY(settings_int(in, S_KEY_SEGMENT_MAX, &s->key_segment_max));
    struct span endpoint = settings_value(in, S_ENDPOINT);
    if (span_starts_with(endpoint, span_str(FILE_SCHEME)))
        s->key_segment_max = FILE_SEGMENT_MAX;
    return ERR_OK;
}

static enum err read_setting(const struct reading *in, enum setting_id id, struct sink_settings *s)
{
    switch (id) {
    case S_QUEUES:
        return read_queues(in, s);
    case S_SINK:
        return read_sink_name(in, s);
    case S_KEY_SEGMENT_MAX:
        return read_key_segment_max(in, s);
    case S_JSONL_QUOTE_UNREADABLE:
        return settings_bool(in, id, &s->quote_unreadable);
    case S_PARTITIONS:
        if (!settings_is_set(in, id))
            return ERR_OK;
        return settings_refuse(
            in,
            "%s=" SPAN_FMT " is not supported. The sink finds partitions by itself: "
            "a window closes against discovery (POST /api/v1/partitions/changed)",
            ROW(id), RAW(settings_value(in, id)));
    case S_ENDPOINT:
        return settings_read_endpoint(in, s);
    case S_REGION:
        return read_s3_text(in, id, s, &s->region);
    case S_BUCKET:
        return settings_read_bucket(in, s);
    case S_PREFIX:
        return settings_read_prefix(in, s);
    case S_ACCESS_KEY:
        return read_s3_text(in, id, s, &s->access_key);
    case S_SECRET_KEY:
        return read_s3_text(in, id, s, &s->secret_key);
    case S_PATH_STYLE:
        return settings_read_path_style(in, s);
    case S_SSE:
        return settings_read_sse(in, s);
    case S_FORMAT:
    case S_COMPRESSION:
    case S_PARQUET_CODEC:
    case S_LAYOUT:
    case S_ALIGN:
    case S_START:
        return read_enum_into(in, id, s);
    case S_TARGET_MB:
        return settings_int(in, id, &s->target_mb);
    case S_MAX_WINDOW_MS:
        return settings_int(in, id, &s->max_window_ms);
    case S_SSE_KMS_KEY_ID: /* read with S_SSE */
    case S_THREADS:        /* node-wide from here on */
    case S_SHUTDOWN_GRACE_MS:
    case S_CHECKPOINT_EVERY:
    case S_MEMORY_MB:
    case S_FETCH_CONCURRENCY:
    case S_DISCOVERY_INTERVAL_MS:
    case S_SAFE_GUARD_MS:
    case S_LEASE_TTL_MS:
    case S_MULTIPART_THRESHOLD_MB:
    case S_INSTANCE:
    case S_CRASH_AT:
    case SETTING_COUNT:
        break;
    }
    ASSERT(false); /* not per sink */
    return ERR_OK;
}

static void note_ignored(const struct reading *in, struct sink_boot_settings *b)
{
    static const char *const names[] = {"QUEEN_S3_LISTEN", "QUEEN_S3_LOG_FORMAT"};
    struct buf text = BUF_INIT;
    for (unsigned i = 0; i < 2; i++) {
        const char *value = in->get(in->ctx, names[i]);
        if (value != NULL && settings_trim(span_str(value)).len > 0)
            buf_printf(&text, "%s%s", text.len > 0 ? ", " : "", names[i]);
    }
    if (text.len > 0)
        b->ignored = span_dup(buf_span(&text));
    buf_deinit(&text);
}

static enum err read_sink(const struct reading *in, struct sink_boot_settings *b)
{
    if (!settings_is_set(in, S_QUEUES)) {
        for (const enum setting_id *id = setting_on_off_order; *id != SETTING_COUNT; id++) {
            if (settings_is_set(in, *id))
                return settings_refuse(in, "%s is set but %s is not: it is %s", ROW(*id),
                                       ROW(S_QUEUES), setting_row(S_QUEUES)->what);
        }
        return ERR_OK;
    }
    for (const enum setting_id *id = setting_check_order; *id != SETTING_COUNT; id++)
        TRY(read_setting(in, *id, &b->sink));
    b->has_sink = true;
    note_ignored(in, b);
    return ERR_OK;
}

/* ---- Node-wide ---- */

static bool ends_with(struct span s, struct span end)
{
    return s.len >= end.len && span_eq(span_sub(s, s.len - end.len, s.len), end);
}

static enum err read_instance(const struct reading *in, uint64_t node_id, const char *host,
                              struct sink_node_settings *n)
{
    struct span value = settings_value(in, S_INSTANCE);
    struct buf text = BUF_INIT;
    struct buf suffix = BUF_INIT;
    buf_printf(&suffix, "/node-%llu", (unsigned long long)node_id);
    n->instance_generated = value.len == 0;
    if (n->instance_generated) {
        const char *hostname = in->get(in->ctx, "HOSTNAME");
        struct span name = hostname != NULL ? settings_trim(span_str(hostname)) : (struct span){0};
        if (name.len == 0 && host != NULL)
            name = settings_trim(span_str(host));
        if (name.len == 0)
            name = SPAN_LIT("localhost");
        buf_printf(&text, "node-%llu@" SPAN_FMT, (unsigned long long)node_id, SPAN_ARG(name));
    } else {
        buf_put_span(&text, value);
        if (!ends_with(value, buf_span(&suffix)))
            buf_put_span(&text, buf_span(&suffix));
    }
    enum err err = ERR_OK;
    if (utf8_valid(buf_span(&text)))
        n->instance = span_dup(buf_span(&text));
    else
        err = settings_refuse(in, "%s is not valid UTF-8. It is %s", ROW(S_INSTANCE),
                              setting_row(S_INSTANCE)->what);
    buf_deinit(&text);
    buf_deinit(&suffix);
    return err;
}

static enum err read_node(const struct reading *in, uint64_t node_id, const char *host,
                          unsigned cores, struct sink_node_settings *n)
{
    uint64_t threads = cores / 4 < 1 ? 1 : cores / 4 > 2 ? 2 : cores / 4;
    int crash_at = SINK_CRASH_NEVER;
    TRY(settings_broker_int(in, S_THREADS, threads, &n->threads));
    TRY(settings_broker_int(in, S_SHUTDOWN_GRACE_MS, setting_row(S_SHUTDOWN_GRACE_MS)->fallback,
                            &n->shutdown_grace_ms));
    TRY(settings_int(in, S_CHECKPOINT_EVERY, &n->checkpoint_every));
    TRY(settings_int(in, S_MEMORY_MB, &n->memory_mb));
    TRY(settings_int(in, S_FETCH_CONCURRENCY, &n->fetch_concurrency));
    TRY(settings_int(in, S_DISCOVERY_INTERVAL_MS, &n->discovery_interval_ms));
    TRY(settings_int(in, S_SAFE_GUARD_MS, &n->safe_guard_ms));
    TRY(settings_int(in, S_LEASE_TTL_MS, &n->lease_ttl_ms));
    TRY(settings_int(in, S_MULTIPART_THRESHOLD_MB, &n->multipart_threshold_mb));
    TRY(read_instance(in, node_id, host, n));
    TRY(settings_enum(in, S_CRASH_AT, &crash_at, NULL));
    n->crash_at = (enum sink_crash_point)crash_at;
    return ERR_OK;
}

static enum err read_embedded(const struct reading *in, bool *out)
{
    const char *value = in->get(in->ctx, EMBEDDED);
    struct span text = value == NULL ? (struct span){0} : settings_trim(span_str(value));
    *out = false;
    if (text.len == 0 || settings_parse_bool(text, out))
        return ERR_OK;
    return settings_refuse(in,
                           EMBEDDED "=\"" SPAN_FMT "\" is not a boolean (expected true/false, 1/0, "
                                    "yes/no, on/off)",
                           RAW(text));
}

enum err sink_settings_read(env_get_fn get, void *ctx, uint64_t node_id, const char *host,
                            unsigned cores, struct sink_boot_settings *out, struct error *error)
{
    struct reading in = {.get = get, .ctx = ctx, .error = error};
    struct sink_boot_settings b = {0};
    TRY(read_embedded(&in, &b.node.embedded));
    if (b.node.embedded) {
        enum err err = read_node(&in, node_id, host, cores, &b.node);
        if (err == ERR_OK)
            err = read_sink(&in, &b);
        if (err != ERR_OK) {
            error_wrap(error, EMBEDDED "=true");
            sink_boot_settings_deinit(&b);
            return err;
        }
    }
    *out = b;
    return ERR_OK;
}

static enum err not_built(struct error *error, enum setting_id id, const char *value,
                          const char *accepted)
{
    return error_set(error, ERR_INVALID, EMBEDDED "=true: %s=%s is not built yet; accepted now: %s",
                     ROW(id), value, accepted);
}

enum err sink_settings_check_built(const struct sink_boot_settings *b, struct error *error)
{
    const struct sink_settings *s = &b->sink;
    if (b->has_sink && s->format != SINK_JSONL)
        return not_built(error, S_FORMAT, sink_format_name(s->format), "jsonl");
    if (b->has_sink && s->layout != SINK_MERGED)
        return not_built(error, S_LAYOUT, sink_layout_name(s->layout), "merged");
    return ERR_OK;
}

static void free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    mem_free(text);
}

void sink_boot_settings_deinit(struct sink_boot_settings *b)
{
    if (b == NULL)
        return;
    struct sink_settings *s = &b->sink;
    for (size_t i = 0; i < s->n_queues; i++)
        mem_free(s->queues[i]);
    mem_free(s->queues);
    mem_free(s->endpoint);
    mem_free(s->region);
    mem_free(s->bucket);
    mem_free(s->prefix);
    free_secret(s->access_key);
    free_secret(s->secret_key);
    mem_free(s->sse);
    mem_free(s->sse_kms_key_id);
    mem_free(s->sink);
    mem_free(b->node.instance);
    mem_free(b->ignored);
    *b = (struct sink_boot_settings){0};
}

/* ---- Start line ---- */

static void put_queues(struct log_line *l, const struct sink_settings *s)
{
    struct buf list = BUF_INIT;
    if (s->all_queues)
        buf_putc(&list, '*');
    for (size_t i = 0; i < s->n_queues; i++)
        buf_printf(&list, "%s%s", i > 0 ? "," : "", s->queues[i]);
    log_str(l, "queues", buf_span(&list));
    buf_deinit(&list);
}

/* Where s ends a KMS key id: its last four characters. */
static const char *last_four(const char *s)
{
    const char *at = s + strlen(s);
    for (unsigned n = 0; at > s && n < 4; n++) {
        at--;
        while (at > s && ((unsigned char)*at & 0xC0) == 0x80) /* inside a character */
            at--;
    }
    return at;
}

static void put_sse(struct log_line *l, const struct sink_settings *s)
{
    struct buf text = BUF_INIT;
    buf_puts(&text, s->sse != NULL ? s->sse : "off");
    if (s->sse_kms_key_id != NULL)
        buf_printf(&text, "(\xE2\x80\xA6%s)", last_four(s->sse_kms_key_id));
    log_str(l, "sse", buf_span(&text));
    buf_deinit(&text);
}

static void put_instance(struct log_line *l, const struct sink_node_settings *n)
{
    struct buf text = BUF_INIT;
    buf_printf(&text, "%s%s", n->instance, n->instance_generated ? "(generated)" : "");
    log_str(l, "instance", buf_span(&text));
    buf_deinit(&text);
}

static void put_place(struct log_line *l, const struct sink_settings *s)
{
    log_str(l, "s3", span_str(s->endpoint));
    log_str(l, "bucket", span_str(s->bucket));
    log_str(l, "prefix", span_str(s->prefix));
    log_str(l, "region", span_str(s->region != NULL ? s->region : "-"));
    log_str(l, "addressing",
            span_str(s->is_file      ? "file"
                     : s->path_style ? "path-style"
                                     : "virtual-host"));
    put_sse(l, s);
}

static void put_node(struct log_line *l, const struct sink_node_settings *n)
{
    log_u64(l, "checkpoint_every", n->checkpoint_every);
    log_u64(l, "memory_mb", n->memory_mb);
    log_u64(l, "fetch_concurrency", n->fetch_concurrency);
    log_u64(l, "discovery_interval_ms", n->discovery_interval_ms);
    log_u64(l, "safe_guard_ms", n->safe_guard_ms);
    log_u64(l, "lease_ttl_ms", n->lease_ttl_ms);
    log_u64(l, "multipart_threshold_mb", n->multipart_threshold_mb);
    log_str(l, "crash_at", span_str(sink_crash_point_name(n->crash_at)));
}

void sink_settings_log(const struct sink_settings *s, const struct sink_node_settings *n,
                       struct span tenant)
{
    struct log_line l;
    log_begin(&l, LOG_INFO, "queen-s3", "queen-s3 " SINK_VERSION);
    log_str(&l, "tenant", tenant);
    log_str(&l, "sink", span_str(s->sink));
    log_u64(&l, "key_segment_max", s->key_segment_max);
    log_bool(&l, "jsonl_quote_unreadable", s->quote_unreadable);
    put_instance(&l, n);
    put_queues(&l, s);
    log_str(&l, "partitions", SPAN_LIT("discovery"));
    put_place(&l, s);
    log_str(&l, "format", span_str(sink_format_name(s->format)));
    log_str(&l, "compression", span_str(sink_compression_name(s->compression)));
    log_str(&l, "layout", span_str(sink_layout_name(s->layout)));
    log_str(&l, "align", span_str(sink_align_name(s->align)));
    log_u64(&l, "target_mb", s->target_mb);
    log_u64(&l, "max_window_ms", s->max_window_ms);
    log_str(&l, "start", span_str(sink_start_name(s->start)));
    put_node(&l, n);
    log_end(&l);
}
