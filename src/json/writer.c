/* The JSON writer: commas and colons from one bit per depth. Misuse (a value without its key, an
 * end without its beginning) is a mistake of ours and is asserted. */
#include "json/json.h"

#include <math.h>

#define WRITER_DEPTH_MAX 31 /* bits of has_member, without the top level's */

void json_put_string(struct buf *b, struct span text)
{
    buf_put_json_string(b, text);
}

/* JSON has no word for what is not finite: null, as JavaScript writes it. */
void json_put_double(struct buf *b, double value)
{
    if (isfinite(value))
        buf_put_double(b, value);
    else
        buf_puts(b, "null");
}

void json_writer_init(struct json_writer *w, struct buf *out)
{
    *w = (struct json_writer){.out = out};
}

/* A comma unless this is the first member of its container. */
static void separate(struct json_writer *w)
{
    uint32_t bit = UINT32_C(1) << w->depth;
    if (w->depth > 0 && (w->has_member & bit) != 0)
        buf_putc(w->out, ',');
    w->has_member |= bit;
}

static struct buf *begin_value(struct json_writer *w)
{
    if (!w->after_key)
        separate(w);
    w->after_key = false;
    return w->out;
}

static void begin(struct json_writer *w, uint8_t bracket)
{
    buf_putc(begin_value(w), bracket);
    ASSERT(w->depth < WRITER_DEPTH_MAX);
    w->depth++;
    w->has_member &= ~(UINT32_C(1) << w->depth);
}

static void end(struct json_writer *w, uint8_t bracket)
{
    ASSERT(w->depth > 0);
    ASSERT(!w->after_key);
    w->depth--;
    buf_putc(w->out, bracket);
}

void json_begin_object(struct json_writer *w)
{
    begin(w, '{');
}

void json_end_object(struct json_writer *w)
{
    end(w, '}');
}

void json_begin_array(struct json_writer *w)
{
    begin(w, '[');
}

void json_end_array(struct json_writer *w)
{
    end(w, ']');
}

void json_key(struct json_writer *w, const char *key)
{
    json_key_span(w, span_str(key));
}

void json_key_span(struct json_writer *w, struct span key)
{
    ASSERT(w->depth > 0);
    ASSERT(!w->after_key);
    separate(w);
    json_put_string(w->out, key);
    buf_putc(w->out, ':');
    w->after_key = true;
}

void json_str(struct json_writer *w, struct span value)
{
    json_put_string(begin_value(w), value);
}

void json_cstr(struct json_writer *w, const char *value)
{
    if (value != NULL)
        json_str(w, span_str(value));
    else
        json_null(w);
}

void json_i64(struct json_writer *w, int64_t value)
{
    buf_put_i64(begin_value(w), value);
}

void json_u64(struct json_writer *w, uint64_t value)
{
    buf_put_u64(begin_value(w), value);
}

void json_f64(struct json_writer *w, double value)
{
    json_put_double(begin_value(w), value);
}

void json_bool(struct json_writer *w, bool value)
{
    buf_puts(begin_value(w), value ? "true" : "false");
}

void json_null(struct json_writer *w)
{
    buf_puts(begin_value(w), "null");
}

void json_splice(struct json_writer *w, struct span raw)
{
    buf_put_span(begin_value(w), raw);
}
