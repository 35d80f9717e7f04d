/* A growing byte buffer. Appends abort when memory is short; sizes from outside are limited before
 * or appended with buf_try_append(). */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/err.h"
#include "base/span.h"

#include <stdarg.h>

struct buf {
    uint8_t *ptr; /* readable: [0, len) */
    size_t len;
    size_t cap;
};

#define BUF_INIT ((struct buf){0})

void buf_deinit(struct buf *b); /* frees; leaves an empty buf; NULL is allowed */
void buf_reset(struct buf *b);  /* empties, keeps the capacity */
void buf_reserve(struct buf *b, size_t more);
/* ERR_TOO_LARGE when len + n > max; ERR_NOMEM; otherwise appended. */
ERR_CHECK enum err buf_try_append(struct buf *b, const void *ptr, size_t n, size_t max);
void buf_put_u64(struct buf *b, uint64_t value);                    /* decimal */
void buf_put_i64(struct buf *b, int64_t value);                     /* decimal */
void buf_put_padded(struct buf *b, uint64_t value, unsigned width); /* decimal, zero-padded */
/* Shortest decimal that reads back as the same double, ".0" on integral ones; not finite: NaN, inf.
 */
void buf_put_double(struct buf *b, double value);
/* A JSON string with quotes, escaped as spec/objects.md 4: \" \\ \b \f \n \r \t, other bytes below
 * 0x20 as \u00xx, nothing else. text must be valid UTF-8 (utf8.h). */
void buf_put_json_string(struct buf *b, struct span text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* Little-endian integers, for our own formats. */
void buf_put_le16(struct buf *b, uint16_t value);
void buf_put_le32(struct buf *b, uint32_t value);
void buf_put_le64(struct buf *b, uint64_t value);
/* Big-endian, for keys that must sort. */
void buf_put_be32(struct buf *b, uint32_t value);
void buf_put_be64(struct buf *b, uint64_t value);

/* Answers and lines are put together of many small pieces: these are inline. */

/* Grows len by n and returns the n uninitialised bytes: valid until the next call that grows. */
static inline uint8_t *buf_extend(struct buf *b, size_t n)
{
    if (n > b->cap - b->len)
        buf_reserve(b, n);
    uint8_t *at = b->len > 0 ? b->ptr + b->len : b->ptr; /* no arithmetic on NULL */
    b->len += n;
    return at;
}

static inline void buf_append(struct buf *b, const void *ptr, size_t n)
{
    if (n > 0)
        memcpy(buf_extend(b, n), ptr, n);
}

static inline void buf_put_span(struct buf *b, struct span s)
{
    buf_append(b, s.ptr, s.len);
}

static inline void buf_puts(struct buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

static inline void buf_putc(struct buf *b, uint8_t byte)
{
    *buf_extend(b, 1) = byte;
}

static inline struct span buf_span(const struct buf *b)
{
    return (struct span){b->ptr, b->len};
}

#endif
