/* The growing buffer: doubling, so appending n bytes one by one costs O(n).
 *
 * Numbers are written by hand where they are frequent. Doubles take the fewest significant digits
 * that read back as the same value, and then always one spelling of them: plain notation between
 * 1e-5 and 1e16, with ".0" when there is no fraction, else an exponent. */
#include "base/buf.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CAP_MIN 64 /* bytes of the first allocation: most buffers hold a line of text */

void buf_deinit(struct buf *b)
{
    if (b == NULL)
        return;
    mem_free(b->ptr);
    *b = BUF_INIT;
}

void buf_reset(struct buf *b)
{
    b->len = 0;
}

/* Capacity to have when `need` bytes no longer fit. */
static size_t cap_for(const struct buf *b, size_t need)
{
    size_t cap = b->cap < SIZE_MAX / 2 ? 2 * b->cap : SIZE_MAX;
    if (cap < CAP_MIN)
        cap = CAP_MIN;
    return cap > need ? cap : need;
}

void buf_reserve(struct buf *b, size_t more)
{
    ASSERT(more <= SIZE_MAX - b->len);
    size_t need = b->len + more;
    if (need <= b->cap)
        return;
    size_t cap = cap_for(b, need);
    b->ptr = mem_grow(b->ptr, cap);
    b->cap = cap;
}

enum err buf_try_append(struct buf *b, const void *ptr, size_t n, size_t max)
{
    if (n > max || b->len > max - n)
        return ERR_TOO_LARGE;
    size_t need = b->len + n;
    if (need > b->cap) {
        size_t cap = cap_for(b, need);
        if (cap > max)
            cap = max; /* need <= max */
        void *grown = realloc(b->ptr, cap);
        if (grown == NULL)
            return ERR_NOMEM;
        b->ptr = grown;
        b->cap = cap;
    }
    if (n > 0)
        memcpy(b->ptr + b->len, ptr, n);
    b->len = need;
    return ERR_OK;
}

void buf_put_padded(struct buf *b, uint64_t value, unsigned width)
{
    uint8_t digits[20]; /* UINT64_MAX has 20 */
    unsigned count = 0;
    do {
        digits[sizeof(digits) - ++count] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    if (width > count) {
        unsigned zeros = width - count;
        memset(buf_extend(b, zeros), '0', zeros);
    }
    buf_append(b, digits + sizeof(digits) - count, count);
}

void buf_put_u64(struct buf *b, uint64_t value)
{
    buf_put_padded(b, value, 0);
}

void buf_put_i64(struct buf *b, int64_t value)
{
    if (value < 0)
        buf_putc(b, '-');
    buf_put_u64(b, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Shortest digits of a finite value > 0: value = 0.d1d2d3... x 10^*point_out. Returns their count.
 */
static unsigned shortest_digits(double value, char digits[17], int *point_out)
{
    char text[32]; /* d.dddddddddddddddde-308 */
    /* Any 15 digits survive a double, so fewer need no search; subnormals hold less than that. */
    for (int precision = value < DBL_MIN ? 0 : 14; precision <= 16; precision++) {
        (void)snprintf(text, sizeof(text), "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    unsigned count = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (*p != '.')
            digits[count++] = *p;
    }
    while (count > 1 && digits[count - 1] == '0')
        count--;
    *point_out = (int)strtol(p + 1, NULL, 10) + 1;
    return count;
}

void buf_put_double(struct buf *b, double value)
{
    if (isnan(value) || isinf(value)) {
        buf_puts(b, isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf");
        return;
    }
    if (signbit(value))
        buf_putc(b, '-');
    if (value == 0) {
        buf_puts(b, "0.0");
        return;
    }
    char digits[17];
    int point; /* position of the decimal point in the digits */
    unsigned count = shortest_digits(fabs(value), digits, &point);
    if (point > 16 || point <= -5) {
        buf_putc(b, (uint8_t)digits[0]);
        if (count > 1) {
            buf_putc(b, '.');
            buf_append(b, digits + 1, count - 1);
        }
        buf_putc(b, 'e');
        buf_put_i64(b, point - 1);
    } else if (point <= 0) {
        buf_puts(b, "0.");
        for (int zeros = point; zeros < 0; zeros++)
            buf_putc(b, '0');
        buf_append(b, digits, count);
    } else {
        for (int i = 0; i < point; i++)
            buf_putc(b, (unsigned)i < count ? (uint8_t)digits[i] : '0');
        buf_putc(b, '.');
        if (count > (unsigned)point)
            buf_append(b, digits + point, count - (unsigned)point);
        else
            buf_putc(b, '0');
    }
}

void buf_put_json_string(struct buf *b, struct span text)
{
    static const char short_form[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    static const char hex[] = "0123456789abcdef";

    buf_reserve(b, text.len + 2);
    buf_putc(b, '"');
    size_t copied = 0; /* text before this is written */
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_append(b, text.ptr + copied, i - copied);
        copied = i + 1;
        buf_putc(b, '\\');
        if (c >= 0x20) {
            buf_putc(b, c);
        } else if (short_form[c] != 0) {
            buf_putc(b, (uint8_t)short_form[c]);
        } else {
            buf_puts(b, "u00");
            buf_putc(b, (uint8_t)hex[c >> 4]);
            buf_putc(b, (uint8_t)hex[c & 15]);
        }
    }
    if (copied < text.len)
        buf_append(b, text.ptr + copied, text.len - copied);
    buf_putc(b, '"');
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

void buf_vprintf(struct buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    buf_reserve(b, CAP_MIN);
    int len = vsnprintf((char *)b->ptr + b->len, b->cap - b->len, format, args);
    ASSERT(len >= 0);
    if ((size_t)len >= b->cap - b->len) { /* one more for the NUL that vsnprintf insists on */
        buf_reserve(b, (size_t)len + 1);
        len = vsnprintf((char *)b->ptr + b->len, b->cap - b->len, format, again);
        ASSERT(len >= 0);
    }
    va_end(again);
    b->len += (size_t)len;
}

void buf_put_le16(struct buf *b, uint16_t value)
{
    le16_put(buf_extend(b, 2), value);
}

void buf_put_le32(struct buf *b, uint32_t value)
{
    le32_put(buf_extend(b, 4), value);
}

void buf_put_le64(struct buf *b, uint64_t value)
{
    le64_put(buf_extend(b, 8), value);
}

void buf_put_be32(struct buf *b, uint32_t value)
{
    be32_put(buf_extend(b, 4), value);
}

void buf_put_be64(struct buf *b, uint64_t value)
{
    be64_put(buf_extend(b, 8), value);
}
