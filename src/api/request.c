/* What the parsers of request bodies share. */
#include "api/request.h"

#include <stdarg.h>
#include <stdio.h>

enum err refuse(struct refusal *refusal, unsigned status, const char *code, const char *format, ...)
{
    va_list args;
    refusal->status = status;
    refusal->code = code;
    refusal->reason = NULL;
    va_start(args, format);
    (void)vsnprintf(refusal->text, sizeof(refusal->text), format, args); /* cut to fit */
    va_end(args);
    return ERR_INVALID;
}

enum err refuse_json(struct refusal *refusal, const char *code, const char *prefix,
                     const struct json_reader *in)
{
    return refuse(refusal, 400, code, "%s%s at byte %zu", prefix,
                  in->why == NULL ? "not JSON" : in->why, in->at);
}

enum err names_check(struct span queue, struct span other, const char *other_field,
                     struct refusal *refusal)
{
    size_t room = NAME_BYTES_MAX - TENANT_TEXT_LEN;
    if (queue.len <= room && other.len <= room - queue.len)
        return ERR_OK;
    bool longer = other.len > queue.len;
    return refuse(refusal, 413, "name_too_long",
                  "%s name is %zu bytes; tenant (%u) + queue (%zu) + %s (%zu) may be %u at most",
                  longer ? other_field : "queue", longer ? other.len : queue.len, TENANT_TEXT_LEN,
                  queue.len, other_field, other.len, NAME_BYTES_MAX);
}

bool string_text(const struct json_raw *raw, struct arena *arena, struct span *out)
{
    struct span inner = span_sub(raw->text, 1, raw->text.len - 1);
    if (raw->lone_surrogate)
        return false;
    if (inner.len == 0 || memchr(inner.ptr, '\\', inner.len) == NULL) {
        *out = inner;
        return true;
    }
    struct buf text = BUF_INIT;
    bool ok = json_string_decode(raw->text, &text) == ERR_OK;
    if (ok)
        *out = arena_copy(arena, buf_span(&text));
    buf_deinit(&text);
    return ok;
}
