/* Manifests (objects.md 8): written compactly with the fields in the listed order, read leniently
 * where readers must be (a missing tenant, lost, minTs, maxTs; unknown fields) and strictly
 * elsewhere: the text comes from a bucket that others may write to. */
#include "sink/lake.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "json/json.h"

#define DEPTH_MAX 64 /* a manifest is 3 deep; unknown fields may be deeper */
#define SHA256_TEXT_LEN 64

/* ---- Writing ---- */

static void put_object(struct json_writer *w, const struct lake_manifest_object *o)
{
    json_begin_object(w);
    json_key(w, "key");
    json_str(w, o->key);
    json_key(w, "bytes");
    json_u64(w, o->bytes);
    json_key(w, "records");
    json_u64(w, o->records);
    json_key(w, "sha256");
    json_cstr(w, o->sha256);
    json_end_object(w);
}

static void put_lost(struct json_writer *w, const struct lake_lost *lost)
{
    json_begin_object(w);
    json_key(w, "partition");
    json_str(w, lost->partition);
    json_key(w, "from");
    json_u64(w, lost->from);
    json_key(w, "to");
    json_u64(w, lost->to);
    json_end_object(w);
}

static void put_str(struct json_writer *w, const char *key, struct span value)
{
    json_key(w, key);
    json_str(w, value);
}

static void put_u64(struct json_writer *w, const char *key, uint64_t value)
{
    json_key(w, key);
    json_u64(w, value);
}

static void put_i64(struct json_writer *w, const char *key, int64_t value)
{
    json_key(w, key);
    json_i64(w, value);
}

static void put_committed_at(struct json_writer *w, int64_t wall_us)
{
    struct buf text = BUF_INIT;
    buf_put_iso_us(&text, time_floor(wall_us, 1000));
    put_str(w, "committedAt", buf_span(&text));
    buf_deinit(&text);
}

void lake_manifest_put(struct buf *out, const struct lake_manifest *m)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_begin_object(&w);
    put_str(&w, "sink", m->sink);
    put_str(&w, "tenant", m->tenant);
    put_str(&w, "queue", m->queue);
    put_u64(&w, "k", m->k);
    put_i64(&w, "tStart", m->t_start);
    put_i64(&w, "tEnd", m->t_end);
    put_str(&w, "format", m->format);
    put_str(&w, "compression", m->compression);
    put_str(&w, "layout", m->layout);
    json_key(&w, "objects");
    json_begin_array(&w);
    for (size_t i = 0; i < m->n_objects; i++)
        put_object(&w, &m->objects[i]);
    json_end_array(&w);
    put_u64(&w, "records", m->records);
    put_u64(&w, "bytes", m->bytes);
    put_u64(&w, "partitions", m->partitions);
    if (m->has_ts) {
        put_i64(&w, "minTs", m->min_ts);
        put_i64(&w, "maxTs", m->max_ts);
    }
    json_key(&w, "lost");
    json_begin_array(&w);
    for (size_t i = 0; i < m->n_lost; i++)
        put_lost(&w, &m->lost[i]);
    json_end_array(&w);
    put_str(&w, "writer", m->writer);
    put_committed_at(&w, m->committed_at);
    json_end_object(&w);
}

/* ---- Reading ---- */

enum field_id {
    F_SINK,
    F_TENANT,
    F_QUEUE,
    F_K,
    F_T_START,
    F_T_END,
    F_FORMAT,
    F_COMPRESSION,
    F_LAYOUT,
    F_OBJECTS,
    F_RECORDS,
    F_BYTES,
    F_PARTITIONS,
    F_MIN_TS,
    F_MAX_TS,
    F_LOST,
    F_WRITER,
    F_COMMITTED_AT,
    F_KEY,
    F_SHA256,
    F_PARTITION,
    F_FROM,
    F_TO,
    F_UNKNOWN,
};

#define BIT(id) (UINT32_C(1) << (id))

static const char *const field_names[] = {
    "sink",   "tenant",      "queue",   "k",      "tStart",     "tEnd",  "format", "compression",
    "layout", "objects",     "records", "bytes",  "partitions", "minTs", "maxTs",  "lost",
    "writer", "committedAt", "key",     "sha256", "partition",  "from",  "to",
};

static const uint32_t manifest_required =
    BIT(F_SINK) | BIT(F_QUEUE) | BIT(F_K) | BIT(F_T_START) | BIT(F_T_END) | BIT(F_FORMAT) |
    BIT(F_COMPRESSION) | BIT(F_LAYOUT) | BIT(F_OBJECTS) | BIT(F_RECORDS) | BIT(F_BYTES) |
    BIT(F_PARTITIONS) | BIT(F_WRITER) | BIT(F_COMMITTED_AT);
static const uint32_t object_required = BIT(F_KEY) | BIT(F_BYTES) | BIT(F_RECORDS) | BIT(F_SHA256);
static const uint32_t lost_required = BIT(F_PARTITION) | BIT(F_FROM) | BIT(F_TO);

/* Any error of the reader is the same to our callers. */
#define TRY_READ(expression)                                                                       \
    do {                                                                                           \
        if ((expression) != ERR_OK)                                                                \
            return ERR_INVALID;                                                                    \
    } while (0)

static enum field_id field_of(struct span key)
{
    for (unsigned i = 0; i < F_UNKNOWN; i++) {
        if (json_string_is(key, span_str(field_names[i])))
            return (enum field_id)i;
    }
    return F_UNKNOWN;
}

/* The next field of an object: its id, and F_UNKNOWN (value already taken) for what is not ours or
 * null. A field given twice is refused. */
static enum err next_field(struct json_reader *r, uint32_t *seen, enum field_id *id_out,
                           bool *more_out)
{
    struct json_raw key, skipped;
    TRY_READ(json_next_key(r, &key, more_out));
    *id_out = F_UNKNOWN;
    if (!*more_out)
        return ERR_OK;
    enum field_id id = field_of(key.text);
    enum json_type type;
    TRY_READ(json_peek(r, &type));
    if (id == F_UNKNOWN || type == JSON_NULL) {
        TRY_READ(json_take(r, &skipped));
        return ERR_OK;
    }
    if ((*seen & BIT(id)) != 0)
        return ERR_INVALID;
    *seen |= BIT(id);
    *id_out = id;
    return ERR_OK;
}

/* Appends to `text`, which was reserved so that it never moves. */
static enum err read_text(struct json_reader *r, struct buf *text, struct span *out)
{
    struct json_raw raw;
    TRY_READ(json_take(r, &raw));
    if (raw.type != JSON_STRING)
        return ERR_INVALID;
    size_t start = text->len;
    TRY_READ(json_string_decode(raw.text, text));
    *out = span_make(text->ptr + start, text->len - start);
    return ERR_OK;
}

static enum err read_u64(struct json_reader *r, uint64_t *out)
{
    struct json_raw raw;
    TRY_READ(json_take(r, &raw));
    return raw.type == JSON_NUMBER && json_uint64(raw.text, out) ? ERR_OK : ERR_INVALID;
}

static enum err read_i64(struct json_reader *r, int64_t *out)
{
    struct json_raw raw;
    TRY_READ(json_take(r, &raw));
    return raw.type == JSON_NUMBER && json_int64(raw.text, out) ? ERR_OK : ERR_INVALID;
}

static enum err read_sha256(struct json_reader *r, struct buf *text, char out[65])
{
    struct span hex;
    TRY(read_text(r, text, &hex));
    if (hex.len != SHA256_TEXT_LEN)
        return ERR_INVALID;
    for (size_t i = 0; i < hex.len; i++) {
        if (!((hex.ptr[i] >= '0' && hex.ptr[i] <= '9') || (hex.ptr[i] >= 'a' && hex.ptr[i] <= 'f')))
            return ERR_INVALID;
    }
    memcpy(out, hex.ptr, SHA256_TEXT_LEN);
    out[SHA256_TEXT_LEN] = '\0';
    return ERR_OK;
}

static enum err skip(struct json_reader *r)
{
    struct json_raw raw;
    TRY_READ(json_take(r, &raw));
    return ERR_OK;
}

static enum err read_object(struct json_reader *r, struct buf *text,
                            struct lake_manifest_object *out)
{
    uint32_t seen = 0;
    enum field_id id;
    bool more;
    TRY_READ(json_enter_object(r));
    for (;;) {
        TRY(next_field(r, &seen, &id, &more));
        if (!more)
            return (seen & object_required) == object_required ? ERR_OK : ERR_INVALID;
        if (id == F_KEY)
            TRY(read_text(r, text, &out->key));
        else if (id == F_BYTES)
            TRY(read_u64(r, &out->bytes));
        else if (id == F_RECORDS)
            TRY(read_u64(r, &out->records));
        else if (id == F_SHA256)
            TRY(read_sha256(r, text, out->sha256));
        else if (id != F_UNKNOWN)
            TRY(skip(r));
    }
}

static enum err read_lost(struct json_reader *r, struct buf *text, struct lake_lost *out)
{
    uint32_t seen = 0;
    enum field_id id;
    bool more;
    TRY_READ(json_enter_object(r));
    for (;;) {
        TRY(next_field(r, &seen, &id, &more));
        if (!more)
            return (seen & lost_required) == lost_required ? ERR_OK : ERR_INVALID;
        if (id == F_PARTITION)
            TRY(read_text(r, text, &out->partition));
        else if (id == F_FROM)
            TRY(read_u64(r, &out->from));
        else if (id == F_TO)
            TRY(read_u64(r, &out->to));
        else if (id != F_UNKNOWN)
            TRY(skip(r));
    }
}

static enum err read_objects(struct json_reader *r, struct lake_manifest *m)
{
    size_t cap = 0;
    bool more;
    TRY_READ(json_enter_array(r));
    for (;;) {
        TRY_READ(json_next_element(r, &more));
        if (!more)
            return ERR_OK;
        if (m->n_objects == cap) {
            cap = cap == 0 ? 4 : 2 * cap;
            m->objects = mem_grow(m->objects, cap * sizeof(*m->objects));
        }
        struct lake_manifest_object object = {0};
        TRY(read_object(r, &m->text, &object));
        m->objects[m->n_objects++] = object;
    }
}

static enum err read_lost_ranges(struct json_reader *r, struct lake_manifest *m)
{
    size_t cap = 0;
    bool more;
    TRY_READ(json_enter_array(r));
    for (;;) {
        TRY_READ(json_next_element(r, &more));
        if (!more)
            return ERR_OK;
        if (m->n_lost == cap) {
            cap = cap == 0 ? 4 : 2 * cap;
            m->lost = mem_grow(m->lost, cap * sizeof(*m->lost));
        }
        struct lake_lost lost = {0};
        TRY(read_lost(r, &m->text, &lost));
        m->lost[m->n_lost++] = lost;
    }
}

static enum err read_committed_at(struct json_reader *r, struct lake_manifest *m)
{
    struct span text;
    TRY(read_text(r, &m->text, &text));
    return time_parse_iso(text, &m->committed_at) ? ERR_OK : ERR_INVALID;
}

static enum err read_field(struct json_reader *r, enum field_id id, struct lake_manifest *m)
{
    switch (id) {
    case F_SINK:
        return read_text(r, &m->text, &m->sink);
    case F_TENANT:
        return read_text(r, &m->text, &m->tenant);
    case F_QUEUE:
        return read_text(r, &m->text, &m->queue);
    case F_K:
        return read_u64(r, &m->k);
    case F_T_START:
        return read_i64(r, &m->t_start);
    case F_T_END:
        return read_i64(r, &m->t_end);
    case F_FORMAT:
        return read_text(r, &m->text, &m->format);
    case F_COMPRESSION:
        return read_text(r, &m->text, &m->compression);
    case F_LAYOUT:
        return read_text(r, &m->text, &m->layout);
    case F_OBJECTS:
        return read_objects(r, m);
    case F_RECORDS:
        return read_u64(r, &m->records);
    case F_BYTES:
        return read_u64(r, &m->bytes);
    case F_PARTITIONS:
        return read_u64(r, &m->partitions);
    case F_MIN_TS:
        return read_i64(r, &m->min_ts);
    case F_MAX_TS:
        return read_i64(r, &m->max_ts);
    case F_LOST:
        return read_lost_ranges(r, m);
    case F_WRITER:
        return read_text(r, &m->text, &m->writer);
    case F_COMMITTED_AT:
        return read_committed_at(r, m);
    case F_KEY: /* fields of the inner objects mean nothing out here */
    case F_SHA256:
    case F_PARTITION:
    case F_FROM:
    case F_TO:
        return skip(r);
    case F_UNKNOWN:
        break; /* taken already */
    }
    return ERR_OK;
}

static enum err read_manifest(struct json_reader *r, struct lake_manifest *m)
{
    uint32_t seen = 0;
    enum field_id id;
    bool more;
    TRY_READ(json_enter_object(r));
    for (;;) {
        TRY(next_field(r, &seen, &id, &more));
        if (!more)
            break;
        TRY(read_field(r, id, m));
    }
    TRY_READ(json_end(r));
    m->has_ts = (seen & BIT(F_MIN_TS)) != 0 && (seen & BIT(F_MAX_TS)) != 0;
    return (seen & manifest_required) == manifest_required ? ERR_OK : ERR_INVALID;
}

enum err lake_manifest_parse(struct span text, struct lake_manifest *out)
{
    struct lake_manifest m = {0};
    buf_reserve(&m.text, text.len + 1); /* decoding never makes a string longer */
    struct json_reader r;
    json_reader_init(&r, text, DEPTH_MAX);
    enum err err = read_manifest(&r, &m);
    if (err != ERR_OK) {
        lake_manifest_deinit(&m);
        return err;
    }
    *out = m;
    return ERR_OK;
}

void lake_manifest_deinit(struct lake_manifest *m)
{
    if (m == NULL)
        return;
    mem_free(m->objects);
    mem_free(m->lost);
    buf_deinit(&m->text);
    *m = (struct lake_manifest){0};
}
