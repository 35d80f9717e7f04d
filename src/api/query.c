/* Query strings (spec/broker-api.md 1.1): '+' is a space, %XX is decoded once, unknown parameters
 * are ignored, of equal names the last counts. */
#include "api/request.h"

#include "base/pct.h"

/* Takes the part up to the next `end` (or all of it) off *rest. */
static struct span take_until(struct span *rest, uint8_t end)
{
    const uint8_t *at = rest->len == 0 ? NULL : memchr(rest->ptr, end, rest->len);
    size_t len = at == NULL ? rest->len : (size_t)(at - rest->ptr);
    struct span part = span_sub(*rest, 0, len);
    *rest = span_sub(*rest, at == NULL ? len : len + 1, rest->len);
    return part;
}

static bool is_called(struct span raw, const char *name)
{
    struct buf text = BUF_INIT;
    buf_put_pct_decoded(&text, raw, true);
    bool same = span_eq(buf_span(&text), span_str(name));
    buf_deinit(&text);
    return same;
}

bool query_text(struct span query, const char *name, struct buf *out)
{
    bool found = false;
    while (query.len > 0) {
        struct span value = take_until(&query, '&');
        if (!is_called(take_until(&value, '='), name))
            continue;
        found = true;
        buf_reset(out);
        buf_put_pct_decoded(out, value, true);
    }
    return found;
}

static bool parse_integer(struct span text, int64_t *out)
{
    uint64_t digits;
    bool negative = text.len > 0 && text.ptr[0] == '-';
    if (!span_parse_u64(negative ? span_sub(text, 1, text.len) : text, &digits) ||
        digits > INT64_MAX)
        return false;
    *out = negative ? -(int64_t)digits : (int64_t)digits;
    return true;
}

enum err query_integer(struct span query, const char *name, int64_t min, int64_t max, int64_t *out,
                       struct refusal *refusal)
{
    struct buf text = BUF_INIT;
    int64_t got = *out;
    enum err err = ERR_OK;
    if (query_text(query, name, &text) && !parse_integer(buf_span(&text), &got))
        err = refuse(refusal, 400, NULL, "the query parameter %s must be an integer", name);
    buf_deinit(&text);
    if (err == ERR_OK)
        *out = got < min ? min : got > max ? max : got;
    return err;
}
