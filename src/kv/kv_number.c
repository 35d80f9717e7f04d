/* Exact addition of JSON numbers (decisions.md 24).
 *
 * A number is laid out on a fixed grid of decimal digits, from 10^309 down past the last digit of
 * the longest text: then adding and comparing are school arithmetic and nothing is ever rounded,
 * until the sum is written: as an integer where it is one of 64 bits, else as the nearest double.
 * Numbers below 10^-1200 count as 0: no double holds them. */
#include "kv/kv_internal.h"

#include "base/mem.h"

#include <math.h>

#define WHOLE_DIGITS 310 /* DBL_MAX is below 10^309 */
#define SMALLEST 1200    /* 10^-1200 */
#define FRACTION_DIGITS (SMALLEST + (int)KV_NUMBER_MAX)
#define GRID (WHOLE_DIGITS + FRACTION_DIGITS)
#define EXPONENT_MAX 100000

struct number {
    bool negative;
    uint8_t digit[GRID]; /* least significant first; digit[FRACTION_DIGITS] is the ones */
};

/* --- reading --- */

/* The parts of a number by RFC 8259 6. */
struct spelling {
    bool negative;
    struct span whole, fraction;
    int exponent;
};

static size_t digits_at(struct span text, size_t at)
{
    size_t n = 0;
    while (at + n < text.len && text.ptr[at + n] >= '0' && text.ptr[at + n] <= '9')
        n++;
    return n;
}

static bool spell_exponent(struct span text, size_t *at, int *out)
{
    bool negative = false;
    if (*at < text.len && (text.ptr[*at] == '-' || text.ptr[*at] == '+'))
        negative = text.ptr[(*at)++] == '-';
    size_t n = digits_at(text, *at);
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        if (value < EXPONENT_MAX)
            value = value * 10 + (text.ptr[*at + i] - '0');
    }
    *at += n;
    *out = negative ? -value : value;
    return n != 0;
}

static bool spell(struct span text, struct spelling *out)
{
    size_t at = 0;
    *out = (struct spelling){0};
    if (text.len == 0 || text.len > KV_NUMBER_MAX)
        return false;
    if (text.ptr[0] == '-') {
        out->negative = true;
        at++;
    }
    size_t n = digits_at(text, at);
    if (n == 0 || (n > 1 && text.ptr[at] == '0'))
        return false;
    out->whole = span_sub(text, at, at + n);
    at += n;
    if (at < text.len && text.ptr[at] == '.') {
        n = digits_at(text, at + 1);
        if (n == 0)
            return false;
        out->fraction = span_sub(text, at + 1, at + 1 + n);
        at += 1 + n;
    }
    if (at < text.len && (text.ptr[at] == 'e' || text.ptr[at] == 'E')) {
        at++;
        if (!spell_exponent(text, &at, &out->exponent))
            return false;
    }
    return at == text.len;
}

/* Puts digit characters on the grid, the last one worth 10^power. False beyond its upper end. */
static bool lay(struct number *n, struct span digits, int power)
{
    for (size_t i = 0; i < digits.len; i++) {
        uint8_t digit = (uint8_t)(digits.ptr[digits.len - 1 - i] - '0');
        int64_t at = (int64_t)power + (int64_t)i + FRACTION_DIGITS;
        if (digit == 0 || at < 0)
            continue;
        if (at >= GRID)
            return false;
        n->digit[at] = digit;
    }
    return true;
}

/* Power of the first digit that is not 0; INT_MIN-like when there is none. */
static int64_t magnitude(const struct spelling *s)
{
    for (size_t i = 0; i < s->whole.len; i++) {
        if (s->whole.ptr[i] != '0')
            return s->exponent + (int64_t)(s->whole.len - 1 - i);
    }
    for (size_t i = 0; i < s->fraction.len; i++) {
        if (s->fraction.ptr[i] != '0')
            return s->exponent - 1 - (int64_t)i;
    }
    return -(int64_t)EXPONENT_MAX * 100;
}

static bool number_parse(struct span text, struct number *out)
{
    struct spelling s;
    if (!spell(text, &s))
        return false;
    memset(out, 0, sizeof(*out));
    out->negative = s.negative;
    if (magnitude(&s) < -SMALLEST)
        return true;
    return lay(out, s.whole, s.exponent) && lay(out, s.fraction, s.exponent - (int)s.fraction.len);
}

/* --- arithmetic --- */

static int compare_size(const struct number *a, const struct number *b)
{
    for (size_t i = GRID; i-- > 0;) {
        if (a->digit[i] != b->digit[i])
            return a->digit[i] < b->digit[i] ? -1 : 1;
    }
    return 0;
}

static bool is_zero(const struct number *n)
{
    for (size_t i = 0; i < GRID; i++) {
        if (n->digit[i] != 0)
            return false;
    }
    return true;
}

static int compare(const struct number *a, const struct number *b)
{
    if (a->negative != b->negative && !(is_zero(a) && is_zero(b)))
        return a->negative ? -1 : 1;
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

/* False when the sum leaves the grid. */
static bool add_sizes(const struct number *a, const struct number *b, struct number *sum)
{
    unsigned carry = 0;
    for (size_t i = 0; i < GRID; i++) {
        unsigned digit = (unsigned)a->digit[i] + b->digit[i] + carry;
        carry = digit >= 10;
        sum->digit[i] = (uint8_t)(digit - 10 * carry);
    }
    return carry == 0;
}

/* a is not smaller than b. */
static void subtract_sizes(const struct number *a, const struct number *b, struct number *out)
{
    int borrow = 0;
    for (size_t i = 0; i < GRID; i++) {
        int digit = a->digit[i] - b->digit[i] - borrow;
        borrow = digit < 0;
        out->digit[i] = (uint8_t)(digit + 10 * borrow);
    }
}

static bool add(const struct number *a, const struct number *b, struct number *sum)
{
    if (a->negative == b->negative) {
        sum->negative = a->negative;
        return add_sizes(a, b, sum);
    }
    if (compare_size(a, b) >= 0) {
        sum->negative = a->negative;
        subtract_sizes(a, b, sum);
    } else {
        sum->negative = b->negative;
        subtract_sizes(b, a, sum);
    }
    return true;
}

/* --- writing --- */

/* True where it is an integer of 64 bits: below 2^63 in size, or an unsigned one below 2^64. */
static bool put_integer(const struct number *n, struct buf *out)
{
    for (size_t i = 0; i < FRACTION_DIGITS; i++) {
        if (n->digit[i] != 0)
            return false;
    }
    uint64_t value = 0;
    for (size_t i = GRID; i-- > FRACTION_DIGITS;) {
        if (value > (UINT64_MAX - n->digit[i]) / 10)
            return false;
        value = value * 10 + n->digit[i];
    }
    if (n->negative && value > (uint64_t)INT64_MAX + 1)
        return false;
    if (n->negative && value != 0)
        buf_putc(out, '-');
    buf_put_u64(out, value);
    return true;
}

/* Without a decimal point, whose character is the locale's affair; glibc rounds any length right.
 */
static double to_double(const struct number *n)
{
    char text[GRID + 16];
    size_t len = 0, top = GRID;
    if (n->negative)
        text[len++] = '-';
    while (top > 1 && n->digit[top - 1] == 0)
        top--;
    while (top-- > 0)
        text[len++] = (char)('0' + n->digit[top]);
    (void)snprintf(text + len, sizeof(text) - len, "e-%d", FRACTION_DIGITS); /* fits: GRID + 16 */
    return strtod(text, NULL);
}

bool kv_number_valid(struct span text)
{
    struct number n;
    return number_parse(text, &n) && !isinf(to_double(&n));
}

enum kv_reason kv_number_add(struct span current, struct span delta, struct span min,
                             struct span max, struct buf *out)
{
    struct number a, b, sum, bound;
    if (!number_parse(current, &a))
        return KV_REASON_TYPE;
    bool known = number_parse(delta, &b);
    ASSERT(known); /* the decoder checked it */
    if (!add(&a, &b, &sum))
        return KV_REASON_LIMIT;
    if (min.len != 0 && number_parse(min, &bound) && compare(&sum, &bound) < 0)
        return KV_REASON_LIMIT;
    if (max.len != 0 && number_parse(max, &bound) && compare(&sum, &bound) > 0)
        return KV_REASON_LIMIT;
    if (put_integer(&sum, out))
        return KV_REASON_NONE;
    double value = to_double(&sum);
    if (isinf(value))
        return KV_REASON_LIMIT;
    buf_put_double(out, value);
    return KV_REASON_NONE;
}
