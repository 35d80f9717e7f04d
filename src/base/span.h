/* A borrowed pointer and length, passed by value. Never NUL-terminated by contract. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const uint8_t *ptr; /* may be NULL when len is 0 */
    size_t len;
};

#define SPAN_LIT(literal) ((struct span){(const uint8_t *)("" literal), sizeof(literal) - 1})
#define SPAN_FMT "%.*s" /* for printf-like calls: SPAN_ARG(span) is the matching argument pair */
#define SPAN_ARG(span) (int)(span).len, (const char *)(span).ptr

static inline struct span span_make(const void *ptr, size_t len)
{
    return (struct span){(const uint8_t *)ptr, len};
}

static inline struct span span_str(const char *text)
{
    return span_make(text, strlen(text));
}

static inline bool span_eq(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Bytewise order, shorter first on a tie. */
static inline int span_cmp(struct span a, struct span b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len == 0 ? 0 : memcmp(a.ptr, b.ptr, len);
    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

static inline bool span_starts_with(struct span s, struct span prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

/* An empty part is in every span. */
static inline bool span_contains(struct span s, struct span part)
{
    return part.len == 0 || (s.len > 0 && memmem(s.ptr, s.len, part.ptr, part.len) != NULL);
}

/* from <= to <= s.len */
static inline struct span span_sub(struct span s, size_t from, size_t to)
{
    return (struct span){to > 0 ? s.ptr + from : s.ptr, to - from}; /* no arithmetic on NULL */
}

/* ASCII case-insensitive equality. */
bool span_eq_nocase(struct span a, struct span b);
/* Without ASCII white space (space, \t \n \v \f \r) at both ends. */
struct span span_trim(struct span s);
/* Unsigned decimal of the whole span; false when empty, not all digits, or above UINT64_MAX. */
bool span_parse_u64(struct span s, uint64_t *out);
/* NUL-terminated copy, released with mem_free(). */
char *span_dup(struct span s);

#endif
