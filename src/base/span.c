/* The span functions that are not worth inlining. All pure. */
#include "base/span.h"

#include "base/mem.h"

static uint8_t ascii_lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool ascii_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool span_eq_nocase(struct span a, struct span b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i]))
            return false;
    }
    return true;
}

struct span span_trim(struct span s)
{
    size_t from = 0;
    size_t to = s.len;
    while (from < to && ascii_blank(s.ptr[from]))
        from++;
    while (to > from && ascii_blank(s.ptr[to - 1]))
        to--;
    return from < to ? span_sub(s, from, to) : (struct span){s.ptr, 0};
}

bool span_parse_u64(struct span s, uint64_t *out)
{
    uint64_t value = 0;
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

char *span_dup(struct span s)
{
    char *text = mem_new(s.len + 1);
    if (s.len > 0)
        memcpy(text, s.ptr, s.len);
    return text;
}
