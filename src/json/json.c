/* The JSON reader: a scanner over the text and, around it, the pull interface.
 *
 * The scanner works on offsets. scan_value() walks a whole value with one bit per open container
 * instead of recursion, so hostile depth costs a bit. Strings are where the bytes are: sixteen at a
 * time are skipped while they are ASCII that needs no look.
 *
 * Between calls the reader needs to know only whether a value comes next (`value_next`); at the
 * first member of a container the byte before the position is its bracket, which no finished value
 * ends in. The first error is kept with its position and ends everything. */
#include "json/json.h"

#include "base/bytes.h"
#include "base/utf8.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define END (-1) /* peek() at the end of the text */

/* The scanner's steps are one loop to the compiler, a third faster than calls; what is rare stays
 * out of it. */
#define STEP static inline __attribute__((always_inline))
#define RARE static __attribute__((noinline, cold))

RARE enum err fail_as(struct json_reader *r, size_t at, enum err err, const char *why)
{
    r->at = at;
    r->err = err;
    r->why = why;
    return err;
}

/* Unexpected byte (or end of the text) at `at`. */
RARE enum err fail(struct json_reader *r, size_t at, const char *why)
{
    return fail_as(r, at, ERR_INVALID, at < r->text.len ? why : "the text ends too early");
}

STEP int peek(const struct json_reader *r, size_t at)
{
    return at < r->text.len ? r->text.ptr[at] : END;
}

STEP bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

STEP size_t skip_blanks(const struct json_reader *r, size_t at)
{
    while (at < r->text.len) {
        uint8_t c = r->text.ptr[at];
        if (c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t'))
            break;
        at++;
    }
    return at;
}

void json_reader_init(struct json_reader *r, struct span text, unsigned depth_max)
{
    *r = (struct json_reader){
        .text = text,
        .depth_max = depth_max < JSON_DEPTH_MAX ? depth_max : JSON_DEPTH_MAX,
        .value_next = true,
    };
}

/* First byte at or after `at` that is not plain: a quote, a backslash, below 0x20 or above 0x7E. */
STEP size_t skip_plain(const struct json_reader *r, size_t at)
{
    const uint8_t *p = r->text.ptr;
    size_t len = r->text.len;
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    const __m128i blank = _mm_set1_epi8(' ');
    while (len - at >= 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
        /* Signed: bytes from 0x80 are negative, so "below a blank" holds for them too. */
        __m128i stop = _mm_or_si128(
            _mm_cmplt_epi8(chunk, blank),
            _mm_or_si128(_mm_cmpeq_epi8(chunk, quote), _mm_cmpeq_epi8(chunk, backslash)));
        unsigned mask = (unsigned)_mm_movemask_epi8(stop);
        if (mask != 0)
            return at + (unsigned)__builtin_ctz(mask);
        at += 16;
    }
#endif
    while (at < len && p[at] >= ' ' && p[at] < 0x80 && p[at] != '"' && p[at] != '\\')
        at++;
    return at;
}

/* The four hex digits at p, or -1. */
static int hex4(const uint8_t *p)
{
    int value = 0;
    for (unsigned i = 0; i < 4; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static bool is_high_surrogate(int unit)
{
    return unit >= 0xD800 && unit <= 0xDBFF;
}

static bool is_low_surrogate(int unit)
{
    return unit >= 0xDC00 && unit <= 0xDFFF;
}

/* The \u escape at p, of which `len` bytes are there (well-formed as far as it goes). Returns its
 * code point, or a lone surrogate as it is; *size_out is 6 or, for a pair, 12. */
static int unicode_escape(const uint8_t *p, size_t len, size_t *size_out)
{
    int unit = hex4(p + 2);
    *size_out = 6;
    if (!is_high_surrogate(unit) || len < 12 || p[6] != '\\' || p[7] != 'u')
        return unit;
    int low = hex4(p + 8);
    if (!is_low_surrogate(low))
        return unit;
    *size_out = 12;
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
}

static bool is_surrogate(int codepoint)
{
    return codepoint >= 0xD800 && codepoint <= 0xDFFF;
}

/* *at stands on a backslash. */
static enum err scan_escape(struct json_reader *r, size_t *at, bool *lone)
{
    size_t start = *at;
    size_t size = 2;
    switch (peek(r, start + 1)) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        break;
    case 'u':
        for (size_t i = start + 2; i < start + 6; i++) {
            if (hex_value(peek(r, i)) < 0)
                return fail(r, i, "expected a hex digit");
        }
        if (is_surrogate(unicode_escape(r->text.ptr + start, r->text.len - start, &size)))
            *lone = true;
        break;
    default:
        return fail(r, start + 1, "unknown escape");
    }
    *at = start + size;
    return ERR_OK;
}

/* `at` is in a string, on what is not plain and not its end. Returns what is behind it, 0 for an
 * error: by value, so that the scanner's place can stay in a register. */
static size_t scan_special(struct json_reader *r, size_t at, bool *lone)
{
    int c = peek(r, at);
    if (c == '\\')
        return scan_escape(r, &at, lone) == ERR_OK ? at : 0;
    unsigned size = c >= 0x80 ? utf8_sequence(r->text.ptr + at, r->text.len - at) : 0;
    if (size == 0)
        (void)fail(r, at, c >= 0x80 ? "invalid UTF-8" : "control character in a string");
    return size == 0 ? 0 : at + size;
}

/* *at stands on the opening quote; left behind the closing one. Sets *lone, never clears it. */
STEP enum err scan_string(struct json_reader *r, size_t *at, bool *lone)
{
    size_t i = *at + 1;
    for (;;) {
        i = skip_plain(r, i);
        if (peek(r, i) == '"') {
            *at = i + 1;
            return ERR_OK;
        }
        i = scan_special(r, i, lone);
        if (i == 0)
            return r->err;
    }
}

STEP size_t skip_digits(const struct json_reader *r, size_t at)
{
    while (is_digit(peek(r, at)))
        at++;
    return at;
}

/* *at stands on '-' or a digit. */
STEP enum err scan_number(struct json_reader *r, size_t *at)
{
    size_t i = *at;
    if (peek(r, i) == '-')
        i++;
    if (!is_digit(peek(r, i)))
        return fail(r, i, "expected a digit");
    i = peek(r, i) == '0' ? i + 1 : skip_digits(r, i);
    if (peek(r, i) == '.') {
        i++;
        if (!is_digit(peek(r, i)))
            return fail(r, i, "expected a digit");
        i = skip_digits(r, i);
    }
    if (peek(r, i) == 'e' || peek(r, i) == 'E') {
        i++;
        if (peek(r, i) == '+' || peek(r, i) == '-')
            i++;
        if (!is_digit(peek(r, i)))
            return fail(r, i, "expected a digit");
        i = skip_digits(r, i);
    }
    *at = i;
    return ERR_OK;
}

STEP enum err scan_word(struct json_reader *r, size_t *at, const char *word)
{
    size_t i = *at;
    for (; *word != '\0'; word++, i++) {
        if (peek(r, i) != *word)
            return fail(r, i, "expected a value");
    }
    *at = i;
    return ERR_OK;
}

/* Type of the value that starts with the byte at `at`. */
static enum err type_at(struct json_reader *r, size_t at, enum json_type *type_out)
{
    switch (peek(r, at)) {
    case '{':
        *type_out = JSON_OBJECT;
        return ERR_OK;
    case '[':
        *type_out = JSON_ARRAY;
        return ERR_OK;
    case '"':
        *type_out = JSON_STRING;
        return ERR_OK;
    case 't':
        *type_out = JSON_TRUE;
        return ERR_OK;
    case 'f':
        *type_out = JSON_FALSE;
        return ERR_OK;
    case 'n':
        *type_out = JSON_NULL;
        return ERR_OK;
    default:
        if (peek(r, at) == '-' || is_digit(peek(r, at))) {
            *type_out = JSON_NUMBER;
            return ERR_OK;
        }
        return fail(r, at, peek(r, at) == 0xEF ? "byte order mark" : "expected a value");
    }
}

/* One bit per open container, set for objects. */
struct nesting {
    uint64_t objects[JSON_DEPTH_MAX / 64 + 1]; /* only bits below depth are meaningful */
    unsigned depth;
    unsigned deepest;
};

STEP void nesting_push(struct nesting *n, bool object)
{
    uint64_t bit = UINT64_C(1) << (n->depth % 64);
    uint64_t *word = &n->objects[n->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    n->depth++;
    if (n->depth > n->deepest)
        n->deepest = n->depth;
}

STEP bool nesting_in_object(const struct nesting *n)
{
    return n->objects[(n->depth - 1) / 64] >> ((n->depth - 1) % 64) & 1;
}

/* *at stands where a key should: left at the value. */
STEP enum err scan_key(struct json_reader *r, size_t *at, size_t *key_end_out, bool *lone)
{
    if (peek(r, *at) != '"')
        return fail(r, *at, "expected a key");
    TRY(scan_string(r, at, lone));
    *key_end_out = *at;
    *at = skip_blanks(r, *at);
    if (peek(r, *at) != ':')
        return fail(r, *at, "expected ':'");
    *at = skip_blanks(r, *at + 1);
    return ERR_OK;
}

/* Enters the container whose bracket is at *at. *more_out: it has a member, which *at stands on. */
STEP enum err scan_enter(struct json_reader *r, size_t *at, bool object, struct nesting *n,
                         bool *more_out)
{
    if (r->depth + n->depth >= r->depth_max)
        return fail_as(r, *at, ERR_TOO_DEEP, "nested too deep");
    nesting_push(n, object);
    *at = skip_blanks(r, *at + 1);
    *more_out = peek(r, *at) != (object ? '}' : ']');
    if (!*more_out) {
        n->depth--;
        ++*at;
    }
    return ERR_OK;
}

/* A scalar whole, or the start of a container up to its first member, if it has one. */
STEP enum err scan_start(struct json_reader *r, size_t *at, struct nesting *n, bool *lone,
                         bool *more_out)
{
    int c = peek(r, *at);
    *more_out = false;
    switch (c) {
    case '"':
        return scan_string(r, at, lone);
    case '{':
    case '[':
        return scan_enter(r, at, c == '{', n, more_out);
    case 't':
        return scan_word(r, at, "true");
    case 'f':
        return scan_word(r, at, "false");
    case 'n':
        return scan_word(r, at, "null");
    default:
        if (c == '-' || is_digit(c))
            return scan_number(r, at);
        enum json_type none;
        return type_at(r, *at, &none); /* says what is wrong */
    }
}

/* Behind a value: brackets that close, up to the comma before the next member (*more_out) or the end
 * of the outermost value. */
STEP enum err scan_after(struct json_reader *r, size_t *at, struct nesting *n, bool *more_out)
{
    *more_out = false;
    while (n->depth > 0) {
        size_t i = skip_blanks(r, *at);
        bool object = nesting_in_object(n);
        int c = peek(r, i);
        if (c == ',') {
            *at = skip_blanks(r, i + 1);
            *more_out = true;
            break;
        }
        if (c != (object ? '}' : ']'))
            return fail(r, i, object ? "expected ',' or '}'" : "expected ',' or ']'");
        n->depth--;
        *at = i + 1;
    }
    return ERR_OK;
}

/* *at_io stands on the first byte of a value; left behind its last. */
static enum err scan_value(struct json_reader *r, size_t *at_io, unsigned *depth_out, bool *lone)
{
    struct nesting n;
    n.objects[0] = 0;
    n.depth = n.deepest = 0;
    size_t at = *at_io, key_end;
    for (bool more = true; more;) {
        if (n.depth > 0 && nesting_in_object(&n))
            TRY(scan_key(r, &at, &key_end, lone));
        TRY(scan_start(r, &at, &n, lone, &more));
        if (!more)
            TRY(scan_after(r, &at, &n, &more));
    }
    *at_io = at;
    *depth_out = n.deepest;
    return ERR_OK;
}

enum err json_peek(struct json_reader *r, enum json_type *type_out)
{
    if (r->err != ERR_OK)
        return r->err;
    ASSERT(r->value_next);
    r->at = skip_blanks(r, r->at);
    return type_at(r, r->at, type_out);
}

enum err json_take(struct json_reader *r, struct json_raw *raw_out)
{
    struct json_raw raw = {0};
    TRY(json_peek(r, &raw.type));
    size_t start = r->at;
    size_t end = start;
    TRY(scan_value(r, &end, &raw.depth, &raw.lone_surrogate));
    r->at = end;
    r->value_next = false;
    raw.text = span_sub(r->text, start, end);
    *raw_out = raw;
    return ERR_OK;
}

static enum err enter(struct json_reader *r, enum json_type type, const char *why)
{
    enum json_type found;
    TRY(json_peek(r, &found));
    if (found != type)
        return fail(r, r->at, why);
    if (r->depth >= r->depth_max)
        return fail_as(r, r->at, ERR_TOO_DEEP, "nested too deep");
    r->depth++;
    r->at++;
    r->value_next = false;
    return ERR_OK;
}

enum err json_enter_object(struct json_reader *r)
{
    return enter(r, JSON_OBJECT, "expected an object");
}

enum err json_enter_array(struct json_reader *r)
{
    return enter(r, JSON_ARRAY, "expected an array");
}

/* Before the next member, or the end, of the container with these brackets. Without an error
 * *at_out is behind the comma, or behind the closing bracket when *more_out is false. */
static enum err next(struct json_reader *r, int open, int close, size_t *at_out, bool *more_out)
{
    if (r->err != ERR_OK)
        return r->err;
    ASSERT(!r->value_next);
    ASSERT(r->depth > 0);
    bool first = peek(r, r->at - 1) == open;
    size_t at = skip_blanks(r, r->at);
    int c = peek(r, at);
    if (c == close) {
        *at_out = at + 1;
        *more_out = false;
        return ERR_OK;
    }
    if (!first) {
        if (c != ',')
            return fail(r, at, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        at++;
    }
    *at_out = skip_blanks(r, at);
    *more_out = true;
    return ERR_OK;
}

static void leave(struct json_reader *r, size_t at)
{
    r->at = at;
    r->depth--;
}

enum err json_next_key(struct json_reader *r, struct json_raw *key_out, bool *more_out)
{
    size_t at;
    bool more;
    TRY(next(r, '{', '}', &at, &more));
    if (more) {
        struct json_raw key = {.type = JSON_STRING};
        size_t start = at;
        size_t end = at;
        TRY(scan_key(r, &at, &end, &key.lone_surrogate));
        key.text = span_sub(r->text, start, end);
        r->at = at;
        r->value_next = true;
        *key_out = key;
    } else {
        leave(r, at);
    }
    *more_out = more;
    return ERR_OK;
}

enum err json_next_element(struct json_reader *r, bool *more_out)
{
    size_t at;
    bool more;
    TRY(next(r, '[', ']', &at, &more));
    if (more) {
        r->at = at;
        r->value_next = true;
    } else {
        leave(r, at);
    }
    *more_out = more;
    return ERR_OK;
}

enum err json_end(struct json_reader *r)
{
    if (r->err != ERR_OK)
        return r->err;
    ASSERT(!r->value_next);
    ASSERT(r->depth == 0);
    r->at = skip_blanks(r, r->at);
    return r->at == r->text.len ? ERR_OK : fail(r, r->at, "expected the end of the text");
}

bool json_valid(struct span text, unsigned depth_max, struct json_raw *raw_out)
{
    struct json_reader r;
    struct json_raw raw;
    json_reader_init(&r, text, depth_max);
    if (json_take(&r, &raw) != ERR_OK || json_end(&r) != ERR_OK)
        return false;
    if (raw_out != NULL)
        *raw_out = raw;
    return true;
}

/* Decodes the escape at the front of *rest (checked by the reader) and moves past it. */
static int take_escape(struct span *rest)
{
    static const char short_form[128] = {
        ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    size_t size = 2;
    int codepoint = rest->ptr[1];
    if (codepoint == 'u')
        codepoint = unicode_escape(rest->ptr, rest->len, &size);
    else if (short_form[codepoint & 127] != 0)
        codepoint = short_form[codepoint & 127];
    *rest = span_sub(*rest, size, rest->len);
    return codepoint;
}

/* Takes what stands before the first backslash. */
static struct span take_plain(struct span *rest)
{
    const uint8_t *backslash = rest->len > 0 ? memchr(rest->ptr, '\\', rest->len) : NULL;
    size_t len = backslash != NULL ? (size_t)(backslash - rest->ptr) : rest->len;
    struct span plain = span_sub(*rest, 0, len);
    *rest = span_sub(*rest, len, rest->len);
    return plain;
}

/* Without its quotes. */
static struct span inside(struct span raw)
{
    ASSERT(raw.len >= 2);
    return span_sub(raw, 1, raw.len - 1);
}

enum err json_string_decode(struct span raw, struct buf *out)
{
    struct span rest = inside(raw);
    size_t start = out->len;
    for (;;) {
        buf_put_span(out, take_plain(&rest));
        if (rest.len == 0)
            return ERR_OK;
        int codepoint = take_escape(&rest);
        if (is_surrogate(codepoint)) {
            out->len = start;
            return ERR_INVALID;
        }
        buf_put_codepoint(out, (uint32_t)codepoint);
    }
}

bool json_string_is(struct span raw, struct span text)
{
    struct span rest = inside(raw);
    if (rest.len < text.len) /* no escape is shorter than what it stands for */
        return false;
    struct span plain = take_plain(&rest);
    if (rest.len == 0)
        return span_eq(plain, text);
    if (!span_starts_with(text, plain))
        return false;
    struct buf decoded = BUF_INIT;
    bool same = json_string_decode(raw, &decoded) == ERR_OK && span_eq(buf_span(&decoded), text);
    buf_deinit(&decoded);
    return same;
}

bool json_uint64(struct span raw, uint64_t *out)
{
    return span_parse_u64(raw, out);
}

bool json_int64(struct span raw, int64_t *out)
{
    bool negative = raw.len > 0 && raw.ptr[0] == '-';
    uint64_t value;
    if (!span_parse_u64(negative ? span_sub(raw, 1, raw.len) : raw, &value))
        return false;
    if (value > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}
