/* The normal form of KV values (spec/kv.md 1).
 *
 * Members of an object are written as they come, each remembered as a slice of the output with its
 * decoded key; at the object's end they are put in order and the last of equal keys stays. Nesting
 * lives in a stack of frames, so depth costs no C stack. The members of all open objects share one
 * list, and their decoded keys one buffer: an object's own are the tails of both.
 *
 * The output limit holds for what is written before repeated keys are dropped, which bounds the
 * memory and the work of sorting whatever the text is. */
#include "json/json.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

struct member {
    size_t key_at; /* in keys */
    size_t key_len;
    size_t text_at; /* in the output: "key":value */
    size_t text_len;
};

struct frame {
    bool object;
    size_t text_at;      /* in the output, behind the bracket */
    size_t keys_at;      /* length of keys when it began */
    size_t member_first; /* index of its first member */
    bool has_element;    /* of an array */
};

struct normaliser {
    struct json_reader reader;
    struct buf *out;
    size_t start; /* of the value in out */
    size_t max;
    struct buf keys;   /* decoded keys of open objects */
    struct buf sorted; /* scratch of one object */
    struct member *members;
    size_t member_count, member_cap;
    struct frame *frames;
    size_t frame_count, frame_cap;
    struct error *error;
};

/* A number to its shortest form, or ERR_INVALID when no double holds it. */
static enum err put_number(struct span raw, struct buf *out)
{
    int64_t integer;
    uint64_t natural;
    if (json_int64(raw, &integer)) {
        buf_put_i64(out, integer);
        return ERR_OK;
    }
    if (json_uint64(raw, &natural)) {
        buf_put_u64(out, natural);
        return ERR_OK;
    }
    char *text = span_dup(raw);
    double value = strtod(text, NULL);
    mem_free(text);
    if (isinf(value))
        return ERR_INVALID;
    buf_put_double(out, value);
    return ERR_OK;
}

static enum err put_string(struct normaliser *n, struct span raw)
{
    size_t at = n->keys.len; /* the tail of keys as scratch */
    if (json_string_decode(raw, &n->keys) != ERR_OK)
        return error_set(n->error, ERR_INVALID, "a string holds an unpaired surrogate escape");
    json_put_string(n->out, span_sub(buf_span(&n->keys), at, n->keys.len));
    n->keys.len = at;
    return ERR_OK;
}

static enum err put_scalar(struct normaliser *n)
{
    struct json_raw raw;
    TRY(json_take(&n->reader, &raw));
    if (raw.type == JSON_STRING)
        return put_string(n, raw.text);
    if (raw.type != JSON_NUMBER) {
        buf_put_span(n->out, raw.text);
        return ERR_OK;
    }
    if (put_number(raw.text, n->out) != ERR_OK)
        return error_set(n->error, ERR_INVALID, "a number is too large for a double");
    return ERR_OK;
}

static void push_frame(struct normaliser *n, bool object)
{
    if (n->frame_count == n->frame_cap) {
        n->frame_cap = n->frame_cap > 0 ? 2 * n->frame_cap : 16;
        n->frames = mem_grow(n->frames, n->frame_cap * sizeof(n->frames[0]));
    }
    n->frames[n->frame_count++] = (struct frame){
        .object = object,
        .text_at = n->out->len,
        .keys_at = n->keys.len,
        .member_first = n->member_count,
    };
}

static struct frame *top_frame(struct normaliser *n)
{
    return n->frame_count > 0 ? &n->frames[n->frame_count - 1] : NULL;
}

/* A scalar whole; of a container the bracket and a frame. */
static enum err put_value(struct normaliser *n)
{
    enum json_type type;
    TRY(json_peek(&n->reader, &type));
    if (type == JSON_OBJECT) {
        TRY(json_enter_object(&n->reader));
        buf_putc(n->out, '{');
        push_frame(n, true);
        return ERR_OK;
    }
    if (type == JSON_ARRAY) {
        TRY(json_enter_array(&n->reader));
        buf_putc(n->out, '[');
        push_frame(n, false);
        return ERR_OK;
    }
    return put_scalar(n);
}

static enum err begin_member(struct normaliser *n, struct span raw_key)
{
    if (n->member_count == n->member_cap) {
        n->member_cap = n->member_cap > 0 ? 2 * n->member_cap : 16;
        n->members = mem_grow(n->members, n->member_cap * sizeof(n->members[0]));
    }
    struct member member = {.key_at = n->keys.len, .text_at = n->out->len};
    if (json_string_decode(raw_key, &n->keys) != ERR_OK)
        return error_set(n->error, ERR_INVALID, "a key holds an unpaired surrogate escape");
    member.key_len = n->keys.len - member.key_at;
    json_put_string(n->out, span_sub(buf_span(&n->keys), member.key_at, n->keys.len));
    buf_putc(n->out, ':');
    n->members[n->member_count++] = member;
    return ERR_OK;
}

static struct span member_key(const struct buf *keys, const struct member *m)
{
    return span_sub(buf_span(keys), m->key_at, m->key_at + m->key_len);
}

/* By key, and in the order of the text where keys are equal. */
static int member_cmp(const void *a, const void *b, void *keys)
{
    const struct member *x = a;
    const struct member *y = b;
    int order = span_cmp(member_key(keys, x), member_key(keys, y));
    if (order != 0)
        return order;
    return x->text_at < y->text_at ? -1 : 1;
}

static bool in_order(const struct buf *keys, const struct member *members, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (span_cmp(member_key(keys, &members[i - 1]), member_key(keys, &members[i])) >= 0)
            return false;
    }
    return true;
}

/* Members were written back to back without commas: put them in order, with commas. */
static void end_object(struct normaliser *n, const struct frame *f)
{
    const struct buf *keys = &n->keys;
    size_t count = n->member_count - f->member_first;
    struct member *members = count > 0 ? &n->members[f->member_first] : NULL;
    if (!in_order(keys, members, count))
        qsort_r(members, count, sizeof(members[0]), member_cmp, &n->keys);
    buf_reset(&n->sorted);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count &&
            span_eq(member_key(keys, &members[i]), member_key(keys, &members[i + 1])))
            continue; /* the last one wins */
        if (n->sorted.len > 0)
            buf_putc(&n->sorted, ',');
        buf_append(&n->sorted, n->out->ptr + members[i].text_at, members[i].text_len);
    }
    n->out->len = f->text_at;
    buf_put_span(n->out, buf_span(&n->sorted));
    buf_putc(n->out, '}');
    n->member_count = f->member_first;
    n->keys.len = f->keys_at;
}

/* The value that was begun last is whole: its member's extent is known now. */
static void end_value(struct normaliser *n)
{
    const struct frame *f = top_frame(n);
    if (f != NULL && f->object && n->member_count > f->member_first) {
        struct member *m = &n->members[n->member_count - 1];
        m->text_len = n->out->len - m->text_at;
    }
}

/* One step inside the innermost container: its next member or its end. */
static enum err step(struct normaliser *n)
{
    struct frame *f = top_frame(n);
    bool more;
    if (f->object) {
        struct json_raw key;
        TRY(json_next_key(&n->reader, &key, &more));
        if (more) {
            TRY(begin_member(n, key.text));
            return put_value(n);
        }
        n->frame_count--;
        end_object(n, f);
        return ERR_OK;
    }
    TRY(json_next_element(&n->reader, &more));
    if (more) {
        if (f->has_element)
            buf_putc(n->out, ',');
        f->has_element = true;
        return put_value(n);
    }
    n->frame_count--;
    buf_putc(n->out, ']');
    return ERR_OK;
}

static enum err run(struct normaliser *n)
{
    TRY(put_value(n));
    for (;;) {
        if (n->out->len - n->start > n->max)
            return error_set(n->error, ERR_TOO_LARGE, "larger than %zu bytes in compact form",
                             n->max);
        end_value(n);
        if (n->frame_count == 0)
            return json_end(&n->reader);
        TRY(step(n));
    }
}

enum err json_normalise(struct span text, unsigned depth_max, size_t max, struct buf *out,
                        struct error *error)
{
    struct normaliser n = {.out = out, .start = out->len, .max = max, .error = error};
    json_reader_init(&n.reader, text, depth_max);
    enum err err = run(&n);
    if (n.reader.err != ERR_OK)
        (void)error_set(error, err, "%s at byte %zu", n.reader.why, n.reader.at);
    if (err != ERR_OK)
        out->len = n.start;
    buf_deinit(&n.keys);
    buf_deinit(&n.sorted);
    mem_free(n.members);
    mem_free(n.frames);
    return err;
}
