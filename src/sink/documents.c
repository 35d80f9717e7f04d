/* KV documents of the sink: keys, writing, parsing. The fields stand in documents.h.
 *
 * Parsing walks an object once and hands each value to the document's own field function; strings
 * are decoded into the document's text buffer, which is reserved beforehand so that the spans into
 * it stay valid. */
#include "sink/documents.h"

#include "base/timefmt.h"
#include "json/json.h"

#define DOCUMENT_DEPTH_MAX 16

static void put_key(struct buf *out, struct span sink, struct span queue, const char *what)
{
    buf_puts(out, "s3:");
    buf_put_span(out, sink);
    buf_putc(out, ':');
    lake_kv_name(out, queue);
    buf_putc(out, ':');
    buf_puts(out, what);
}

void sink_key_lease(struct buf *out, struct span sink, struct span queue)
{
    put_key(out, sink, queue, "lease");
}

void sink_key_intent(struct buf *out, struct span sink, struct span queue)
{
    put_key(out, sink, queue, "intent");
}

void sink_key_committed(struct buf *out, struct span sink, struct span queue)
{
    put_key(out, sink, queue, "committed");
}

void sink_key_presence_prefix(struct buf *out, struct span sink)
{
    buf_puts(out, "s3:");
    buf_put_span(out, sink);
    buf_puts(out, ":node=");
}

void sink_key_presence(struct buf *out, struct span sink, struct span instance)
{
    sink_key_presence_prefix(out, sink);
    lake_kv_name(out, instance);
}

/* --- reading --- */

struct document {
    struct buf *text; /* decoded strings */
    uint32_t seen;    /* bit per required field */
};

typedef enum err (*field_fn)(struct document *d, void *out, struct span key,
                             const struct json_raw *value);

static enum err take_string(struct document *d, const struct json_raw *value, struct span *out)
{
    if (value->type != JSON_STRING)
        return ERR_INVALID;
    size_t at = d->text->len;
    if (json_string_decode(value->text, d->text) != ERR_OK)
        return ERR_INVALID;
    *out = span_make(d->text->ptr + at, d->text->len - at);
    return ERR_OK;
}

static enum err take_u64(const struct json_raw *value, uint64_t *out)
{
    return value->type == JSON_NUMBER && json_uint64(value->text, out) ? ERR_OK : ERR_INVALID;
}

static enum err take_i64(const struct json_raw *value, int64_t *out)
{
    return value->type == JSON_NUMBER && json_int64(value->text, out) ? ERR_OK : ERR_INVALID;
}

/* Reads one object; every bit of `required` must have been seen. */
static enum err read_document(struct span value, struct document *d, uint32_t required,
                              field_fn field, void *out)
{
    struct json_reader r;
    struct json_raw raw;
    bool more = false;

    buf_reserve(d->text, value.len); /* decoded text is never longer: spans stay valid */
    json_reader_init(&r, value, DOCUMENT_DEPTH_MAX);
    if (json_enter_object(&r) != ERR_OK)
        return ERR_INVALID;
    for (;;) {
        if (json_next_key(&r, &raw, &more) != ERR_OK)
            return ERR_INVALID;
        if (!more)
            break;
        struct buf key = BUF_INIT;
        enum err err = json_string_decode(raw.text, &key);
        if (err == ERR_OK)
            err = json_take(&r, &raw);
        if (err == ERR_OK)
            err = field(d, out, buf_span(&key), &raw);
        buf_deinit(&key);
        if (err != ERR_OK)
            return ERR_INVALID;
    }
    if (json_end(&r) != ERR_OK || (d->seen & required) != required)
        return ERR_INVALID;
    return ERR_OK;
}

static bool is(struct span key, const char *name)
{
    return span_eq(key, span_str(name));
}

/* --- lease --- */

void sink_lease_put(struct buf *out, const struct sink_lease *lease)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_begin_object(&w);
    json_key(&w, "incarnation");
    json_str(&w, lease->incarnation);
    json_key(&w, "instance");
    json_str(&w, lease->instance);
    json_key(&w, "sinceMs");
    json_i64(&w, lease->since_ms);
    json_end_object(&w);
}

static enum err lease_field(struct document *d, void *out, struct span key,
                            const struct json_raw *value)
{
    struct sink_lease *lease = out;

    if (is(key, "instance")) {
        d->seen |= 1;
        return take_string(d, value, &lease->instance);
    }
    if (is(key, "incarnation")) {
        d->seen |= 2;
        return take_string(d, value, &lease->incarnation);
    }
    if (is(key, "sinceMs"))
        return take_i64(value, &lease->since_ms);
    return ERR_OK;
}

enum err sink_lease_parse(struct span value, struct sink_lease *out)
{
    struct sink_lease lease = {.text = BUF_INIT};
    struct document d = {.text = &lease.text};
    enum err err = read_document(value, &d, 3, lease_field, &lease);

    if (err != ERR_OK) {
        buf_deinit(&lease.text);
        return err;
    }
    *out = lease;
    return ERR_OK;
}

void sink_lease_deinit(struct sink_lease *lease)
{
    buf_deinit(&lease->text);
}

/* --- intent --- */

void sink_intent_put(struct buf *out, const struct sink_intent *intent)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_begin_object(&w);
    json_key(&w, "align");
    json_cstr(&w, sink_align_name(intent->align));
    json_key(&w, "bucket");
    json_str(&w, intent->bucket);
    json_key(&w, "compression");
    json_cstr(&w, sink_compression_name(intent->compression));
    json_key(&w, "endpoint");
    json_str(&w, intent->endpoint);
    json_key(&w, "format");
    json_cstr(&w, sink_format_name(intent->format));
    json_key(&w, "k");
    json_u64(&w, intent->k);
    json_key(&w, "layout");
    json_cstr(&w, sink_layout_name(intent->layout));
    if (intent->lost_only) {
        json_key(&w, "lostOnly");
        json_bool(&w, true);
    }
    json_key(&w, "prefix");
    json_str(&w, intent->prefix);
    json_key(&w, "queueId");
    json_u64(&w, intent->queue_id);
    json_key(&w, "segmentMax");
    json_u64(&w, intent->segment_max);
    json_key(&w, "tEnd");
    json_i64(&w, intent->t_end);
    json_key(&w, "tStart");
    json_i64(&w, intent->t_start);
    json_key(&w, "writer");
    json_str(&w, intent->writer);
    json_end_object(&w);
}

/* One of `count` canonical names, as its number. A string that is none of them is a newer
 * version's. */
static enum err take_name(const struct json_raw *value, const char *(*name_of)(unsigned),
                          unsigned count, unsigned *out, bool *unknown)
{
    if (value->type != JSON_STRING)
        return ERR_INVALID;
    for (unsigned i = 0; i < count; i++) {
        if (json_string_is(value->text, span_str(name_of(i)))) {
            *out = i;
            return ERR_OK;
        }
    }
    *unknown = true;
    return ERR_OK;
}

static const char *format_at(unsigned i)
{
    return sink_format_name((enum sink_format)i);
}

static const char *compression_at(unsigned i)
{
    return sink_compression_name((enum sink_compression)i);
}

static const char *layout_at(unsigned i)
{
    return sink_layout_name((enum sink_layout)i);
}

static const char *align_at(unsigned i)
{
    return sink_align_name((enum sink_align)i);
}

enum {
    INTENT_K = 1,
    INTENT_T_START = 2,
    INTENT_T_END = 4,
    INTENT_FORMAT = 8,
    INTENT_COMPRESSION = 16,
    INTENT_LAYOUT = 32,
    INTENT_ALIGN = 64,
    INTENT_WRITER = 128,
    INTENT_ENDPOINT = 256,
    INTENT_BUCKET = 512,
    INTENT_PREFIX = 1024,
    INTENT_SEGMENT_MAX = 2048,
    INTENT_QUEUE_ID = 4096,
    INTENT_ALL = 8191,
};

static enum err intent_number(struct document *d, struct sink_intent *intent, struct span key,
                              const struct json_raw *value)
{
    if (is(key, "k")) {
        d->seen |= INTENT_K;
        return take_u64(value, &intent->k);
    }
    if (is(key, "tStart")) {
        d->seen |= INTENT_T_START;
        return take_i64(value, &intent->t_start);
    }
    if (is(key, "tEnd")) {
        d->seen |= INTENT_T_END;
        return take_i64(value, &intent->t_end);
    }
    if (is(key, "queueId")) {
        d->seen |= INTENT_QUEUE_ID;
        return take_u64(value, &intent->queue_id);
    }
    if (is(key, "segmentMax")) {
        uint64_t max = 0;
        d->seen |= INTENT_SEGMENT_MAX;
        if (take_u64(value, &max) != ERR_OK || max > UINT32_MAX)
            return ERR_INVALID;
        intent->segment_max = (uint32_t)max;
        return ERR_OK;
    }
    if (is(key, "lostOnly")) {
        intent->lost_only = value->type == JSON_TRUE;
        return value->type == JSON_TRUE || value->type == JSON_FALSE ? ERR_OK : ERR_INVALID;
    }
    return ERR_OK;
}

static enum err intent_field(struct document *d, void *out, struct span key,
                             const struct json_raw *value)
{
    struct sink_intent *intent = out;
    unsigned at = 0;
    enum err err;

    if (is(key, "format")) {
        d->seen |= INTENT_FORMAT;
        err = take_name(value, format_at, SINK_PARQUET + 1, &at, &intent->unknown);
        intent->format = (enum sink_format)at;
        return err;
    }
    if (is(key, "compression")) {
        d->seen |= INTENT_COMPRESSION;
        err = take_name(value, compression_at, SINK_NONE + 1, &at, &intent->unknown);
        intent->compression = (enum sink_compression)at;
        return err;
    }
    if (is(key, "layout")) {
        d->seen |= INTENT_LAYOUT;
        err = take_name(value, layout_at, SINK_PER_PARTITION + 1, &at, &intent->unknown);
        intent->layout = (enum sink_layout)at;
        return err;
    }
    if (is(key, "align")) {
        d->seen |= INTENT_ALIGN;
        err = take_name(value, align_at, SINK_ALIGN_NONE + 1, &at, &intent->unknown);
        intent->align = (enum sink_align)at;
        return err;
    }
    if (is(key, "writer")) {
        d->seen |= INTENT_WRITER;
        return take_string(d, value, &intent->writer);
    }
    if (is(key, "endpoint")) {
        d->seen |= INTENT_ENDPOINT;
        return take_string(d, value, &intent->endpoint);
    }
    if (is(key, "bucket")) {
        d->seen |= INTENT_BUCKET;
        return take_string(d, value, &intent->bucket);
    }
    if (is(key, "prefix")) {
        d->seen |= INTENT_PREFIX;
        return take_string(d, value, &intent->prefix);
    }
    return intent_number(d, intent, key, value);
}

enum err sink_intent_parse(struct span value, struct sink_intent *out)
{
    struct sink_intent intent = {.text = BUF_INIT};
    struct document d = {.text = &intent.text};
    enum err err = read_document(value, &d, INTENT_ALL, intent_field, &intent);

    if (err == ERR_OK && intent.t_end < intent.t_start)
        err = ERR_INVALID;
    if (err != ERR_OK) {
        buf_deinit(&intent.text);
        return err;
    }
    *out = intent;
    return ERR_OK;
}

void sink_intent_deinit(struct sink_intent *intent)
{
    buf_deinit(&intent->text);
}

bool sink_intent_raw(const struct sink_intent *intent)
{
    struct span end = SPAN_LIT(" raw");
    struct span writer = intent->writer;

    return writer.len >= end.len &&
           span_eq(span_sub(writer, writer.len - end.len, writer.len), end);
}

/* --- committed --- */

void sink_committed_put(struct buf *out, const struct sink_committed *committed)
{
    struct json_writer w;
    struct buf iso = BUF_INIT;

    buf_put_iso_us(&iso, committed->t_end);
    json_writer_init(&w, out);
    json_begin_object(&w);
    json_key(&w, "bytes");
    json_u64(&w, committed->bytes);
    json_key(&w, "committedAtMs");
    json_i64(&w, committed->committed_at_ms);
    json_key(&w, "k");
    json_u64(&w, committed->k);
    json_key(&w, "manifest");
    json_str(&w, committed->manifest);
    json_key(&w, "records");
    json_u64(&w, committed->records);
    json_key(&w, "tEnd");
    json_str(&w, buf_span(&iso));
    json_end_object(&w);
    buf_deinit(&iso);
}

static enum err take_time(struct document *d, const struct json_raw *value, int64_t *out)
{
    struct span text = {0};

    if (value->type == JSON_NUMBER)
        return take_i64(value, out);
    if (take_string(d, value, &text) != ERR_OK || !time_parse_iso(text, out))
        return ERR_INVALID;
    return ERR_OK;
}

static enum err committed_field(struct document *d, void *out, struct span key,
                                const struct json_raw *value)
{
    struct sink_committed *committed = out;

    if (is(key, "k")) {
        d->seen |= 1;
        return take_u64(value, &committed->k);
    }
    if (is(key, "tEnd")) {
        d->seen |= 2;
        return take_time(d, value, &committed->t_end);
    }
    if (is(key, "manifest"))
        return take_string(d, value, &committed->manifest);
    if (is(key, "records"))
        return take_u64(value, &committed->records);
    if (is(key, "bytes"))
        return take_u64(value, &committed->bytes);
    if (is(key, "committedAtMs"))
        return take_i64(value, &committed->committed_at_ms);
    return ERR_OK;
}

enum err sink_committed_parse(struct span value, struct sink_committed *out)
{
    struct sink_committed committed = {.text = BUF_INIT};
    struct document d = {.text = &committed.text};
    enum err err = read_document(value, &d, 3, committed_field, &committed);

    if (err == ERR_OK && committed.k == 0)
        err = ERR_INVALID;
    if (err != ERR_OK) {
        buf_deinit(&committed.text);
        return err;
    }
    *out = committed;
    return ERR_OK;
}

void sink_committed_deinit(struct sink_committed *committed)
{
    buf_deinit(&committed->text);
}
