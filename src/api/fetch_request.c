/* The bodies of POST /api/v1/fetch and POST /api/v1/partitions/changed (spec/broker-api.md 4, 5).
 *
 * Both are {"entries": [objects], more}. Shape errors are told first, then the number of entries,
 * then what is wrong inside one. Cursors of `changed` are "p1-<queue id>-<partition id>", ids in 16
 * hex digits. */
#include "api/request.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define DEPTH_MAX 64u /* of a body that is two levels deep: unknown fields may be deeper */
#define CURSOR_PREFIX "p1-"
#define CURSOR_LEN (3u + 16u + 1u + 16u)

/* A literal format first: the prefix is part of it. */
#define bad(refusal, ...) refuse((refusal), 400, "bad_body", "bad body: " __VA_ARGS__)

static enum err bad_json(const struct json_reader *in, struct refusal *refusal)
{
    return refuse_json(refusal, "bad_body", "bad body: ", in);
}

/* One field of one object; index SIZE_MAX: the top level. */
typedef enum err (*field_fn)(void *ctx, size_t index, const struct json_raw *key,
                             const struct json_raw *value, struct refusal *refusal);
/* Before the fields of entry `index`. */
typedef void (*entry_fn)(void *ctx, size_t index);

struct walker {
    void *ctx;
    entry_fn begin;
    field_fn field;
    size_t n; /* entries met */
    bool seen;
};

static enum err walk_entry(struct walker *w, struct json_reader *in, struct refusal *refusal)
{
    size_t index = w->n++;
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return bad_json(in, refusal);
    if (type != JSON_OBJECT)
        return bad(refusal, "entry %zu is not an object", index);
    if (json_enter_object(in) != ERR_OK)
        return bad_json(in, refusal);
    if (index < FETCH_ENTRIES_MAX)
        w->begin(w->ctx, index);
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return bad_json(in, refusal);
        if (!more)
            return ERR_OK;
        if (json_take(in, &value) != ERR_OK)
            return bad_json(in, refusal);
        if (index < FETCH_ENTRIES_MAX)
            TRY(w->field(w->ctx, index, &key, &value, refusal));
    }
}

static enum err walk_entries(struct walker *w, struct json_reader *in, struct refusal *refusal)
{
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return bad_json(in, refusal);
    if (type != JSON_ARRAY)
        return bad(refusal, "entries must be an array");
    if (json_enter_array(in) != ERR_OK)
        return bad_json(in, refusal);
    w->seen = true;
    w->n = 0; /* of equal keys the last counts */
    for (;;) {
        bool more;
        if (json_next_element(in, &more) != ERR_OK)
            return bad_json(in, refusal);
        if (!more)
            return ERR_OK;
        TRY(walk_entry(w, in, refusal));
    }
}

static enum err walk(struct walker *w, struct span body, struct refusal *refusal)
{
    struct json_reader in;
    json_reader_init(&in, body, DEPTH_MAX);
    enum json_type type;
    if (json_peek(&in, &type) != ERR_OK)
        return bad_json(&in, refusal);
    if (type != JSON_OBJECT)
        return bad(refusal, "not an object");
    if (json_enter_object(&in) != ERR_OK)
        return bad_json(&in, refusal);
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(&in, &key, &more) != ERR_OK)
            return bad_json(&in, refusal);
        if (!more)
            break;
        if (json_string_is(key.text, SPAN_LIT("entries"))) {
            TRY(walk_entries(w, &in, refusal));
            continue;
        }
        if (json_take(&in, &value) != ERR_OK)
            return bad_json(&in, refusal);
        TRY(w->field(w->ctx, SIZE_MAX, &key, &value, refusal));
    }
    if (json_end(&in) != ERR_OK)
        return bad_json(&in, refusal);
    if (!w->seen)
        return bad(refusal, "entries is missing");
    return w->n <= FETCH_ENTRIES_MAX ? ERR_OK : refuse(refusal, 400, NULL, "too many entries");
}

/* An integer clamped to [min, max]; null leaves *out. */
static enum err take_integer(const struct json_raw *value, const char *name, int64_t min,
                             int64_t max, int64_t *out, struct refusal *refusal)
{
    int64_t got;
    if (value->type == JSON_NULL)
        return ERR_OK;
    if (value->type != JSON_NUMBER || !json_int64(value->text, &got))
        return bad(refusal, "%s must be an integer", name);
    *out = got < min ? min : got > max ? max : got;
    return ERR_OK;
}

static enum err take_name(struct arena *arena, const struct json_raw *value, size_t index,
                          const char *name, struct span *out, struct refusal *refusal)
{
    if (value->type != JSON_STRING)
        return bad(refusal, "entry %zu: %s must be a string", index, name);
    if (!string_text(value, arena, out))
        return bad(refusal, "entry %zu: %s has an unpaired surrogate escape", index, name);
    return ERR_OK;
}

static enum err check_queue(struct span queue, size_t index, struct refusal *refusal)
{
    if (queue.ptr == NULL)
        return bad(refusal, "entry %zu: queue is missing", index);
    return queue.len > 0 ? ERR_OK : bad(refusal, "entry %zu: queue is empty", index);
}

/* --- fetch --------------------------------------------------------------------------------------
 */

struct fetch_parse {
    struct fetch_request *request;
    bool has_offset[FETCH_ENTRIES_MAX];
    bool negative;
};

static void fetch_begin(void *ctx, size_t index)
{
    struct fetch_parse *p = ctx;
    p->request->entries[index] =
        (struct fetch_entry){.partition = SPAN_LIT("Default"), .max_bytes = FETCH_BYTES_DEFAULT};
    p->has_offset[index] = false;
}

static enum err fetch_top_field(struct fetch_request *r, const struct json_raw *key,
                                const struct json_raw *value, struct refusal *refusal)
{
    int64_t number;
    if (json_string_is(key->text, SPAN_LIT("maxWaitMs")))
        return take_integer(value, "maxWaitMs", 0, FETCH_WAIT_MS_MAX, &r->max_wait_ms, refusal);
    if (json_string_is(key->text, SPAN_LIT("minBytes"))) {
        number = (int64_t)r->min_bytes;
        TRY(take_integer(value, "minBytes", 0, INT64_MAX, &number, refusal));
        r->min_bytes = (uint64_t)number;
    } else if (json_string_is(key->text, SPAN_LIT("maxBytes"))) {
        number = (int64_t)r->total_max;
        TRY(take_integer(value, "maxBytes", 1, FETCH_TOTAL_BYTES_MAX, &number, refusal));
        r->total_max = (uint64_t)number;
    }
    return ERR_OK;
}

static enum err take_offset(struct fetch_parse *p, size_t index, const struct json_raw *value,
                            struct refusal *refusal)
{
    int64_t offset;
    if (value->type != JSON_NUMBER || !json_int64(value->text, &offset))
        return bad(refusal, "entry %zu: offset must be an integer", index);
    p->has_offset[index] = true;
    p->negative = p->negative || offset < 0;
    p->request->entries[index].offset = offset < 0 ? 0 : (uint64_t)offset;
    return ERR_OK;
}

static enum err fetch_field(void *ctx, size_t index, const struct json_raw *key,
                            const struct json_raw *value, struct refusal *refusal)
{
    struct fetch_parse *p = ctx;
    if (index == SIZE_MAX)
        return fetch_top_field(p->request, key, value, refusal);
    struct fetch_entry *e = &p->request->entries[index];
    if (json_string_is(key->text, SPAN_LIT("queue")))
        return take_name(&p->request->arena, value, index, "queue", &e->queue, refusal);
    if (json_string_is(key->text, SPAN_LIT("partition"))) {
        if (value->type == JSON_NUMBER)
            e->partition = value->text;
        else if (value->type != JSON_NULL)
            return take_name(&p->request->arena, value, index, "partition", &e->partition, refusal);
        return ERR_OK;
    }
    if (json_string_is(key->text, SPAN_LIT("offset")))
        return take_offset(p, index, value, refusal);
    if (json_string_is(key->text, SPAN_LIT("maxBytes"))) {
        int64_t number = e->max_bytes;
        TRY(take_integer(value, "maxBytes", 1, FETCH_BYTES_MAX, &number, refusal));
        e->max_bytes = (uint32_t)number;
    }
    return ERR_OK;
}

enum err fetch_request_parse(struct span body, struct fetch_request *out, struct refusal *refusal)
{
    *out = (struct fetch_request){.min_bytes = 1, .total_max = FETCH_TOTAL_BYTES_MAX};
    out->entries = MEM_ARRAY(struct fetch_entry, FETCH_ENTRIES_MAX);
    struct fetch_parse p = {.request = out};
    struct walker w = {.ctx = &p, .begin = fetch_begin, .field = fetch_field};
    TRY(walk(&w, body, refusal));
    out->n = w.n;
    for (size_t i = 0; i < out->n; i++) {
        TRY(check_queue(out->entries[i].queue, i, refusal));
        if (!p.has_offset[i])
            return bad(refusal, "entry %zu: offset is missing", i);
        if (out->entries[i].partition.len == 0)
            out->entries[i].partition = SPAN_LIT("Default");
    }
    return p.negative ? refuse(refusal, 400, NULL, "offset must be non-negative") : ERR_OK;
}

void fetch_request_deinit(struct fetch_request *r)
{
    mem_free(r->entries);
    arena_deinit(&r->arena);
}

/* --- partitions/changed -------------------------------------------------------------------------
 */

static void changed_begin(void *ctx, size_t index)
{
    struct changed_request *r = ctx;
    r->entries[index] = (struct changed_entry){.limit = CHANGED_LIMIT_MAX};
}

static enum err take_since(struct changed_request *r, size_t index, const struct json_raw *value,
                           struct refusal *refusal)
{
    struct changed_entry *e = &r->entries[index];
    struct span text;
    e->has_since = false;
    if (value->type == JSON_NULL)
        return ERR_OK;
    if (value->type != JSON_STRING || !string_text(value, &r->arena, &text) ||
        !time_parse_iso(text, &e->since))
        return refuse(refusal, 400, NULL, "bad body: entry %zu: since is not a timestamp: %.*s",
                      index, value->text.len > 200 ? 200 : (int)value->text.len,
                      (const char *)value->text.ptr);
    e->has_since = true;
    return ERR_OK;
}

static bool take_hex64(const uint8_t *p, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 16; i++) {
        uint8_t c = p[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

static bool cursor_parse(struct span text, struct changed_entry *e)
{
    return text.len == CURSOR_LEN && span_starts_with(text, SPAN_LIT(CURSOR_PREFIX)) &&
           take_hex64(text.ptr + 3, &e->cursor_queue) && text.ptr[19] == '-' &&
           take_hex64(text.ptr + 20, &e->cursor_partition);
}

static void take_cursor(struct changed_request *r, size_t index, const struct json_raw *value)
{
    struct changed_entry *e = &r->entries[index];
    struct span text = {NULL, 0};
    if (value->type == JSON_NULL)
        e->cursor = CURSOR_START;
    else if (value->type != JSON_STRING || !string_text(value, &r->arena, &text))
        e->cursor = CURSOR_BAD;
    else if (text.len == 0)
        e->cursor = CURSOR_START;
    else
        e->cursor = cursor_parse(text, e) ? CURSOR_AFTER : CURSOR_BAD;
}

static enum err changed_field(void *ctx, size_t index, const struct json_raw *key,
                              const struct json_raw *value, struct refusal *refusal)
{
    struct changed_request *r = ctx;
    if (index == SIZE_MAX)
        return ERR_OK;
    struct changed_entry *e = &r->entries[index];
    if (json_string_is(key->text, SPAN_LIT("queue")))
        return take_name(&r->arena, value, index, "queue", &e->queue, refusal);
    if (json_string_is(key->text, SPAN_LIT("since")))
        return take_since(r, index, value, refusal);
    if (json_string_is(key->text, SPAN_LIT("after"))) {
        take_cursor(r, index, value);
    } else if (json_string_is(key->text, SPAN_LIT("limit"))) {
        int64_t limit = e->limit;
        TRY(take_integer(value, "limit", 1, CHANGED_LIMIT_MAX, &limit, refusal));
        e->limit = (uint32_t)limit;
    }
    return ERR_OK;
}

enum err changed_request_parse(struct span body, struct changed_request *out,
                               struct refusal *refusal)
{
    *out = (struct changed_request){0};
    out->entries = MEM_ARRAY(struct changed_entry, FETCH_ENTRIES_MAX);
    struct walker w = {.ctx = out, .begin = changed_begin, .field = changed_field};
    TRY(walk(&w, body, refusal));
    out->n = w.n;
    for (size_t i = 0; i < out->n; i++) {
        TRY(check_queue(out->entries[i].queue, i, refusal));
    }
    return ERR_OK;
}

void changed_request_deinit(struct changed_request *r)
{
    mem_free(r->entries);
    arena_deinit(&r->arena);
}

void changed_cursor_put(struct buf *out, uint64_t queue_id, uint64_t partition_id)
{
    buf_printf(out, CURSOR_PREFIX "%016llx-%016llx", (unsigned long long)queue_id,
               (unsigned long long)partition_id);
}
