/* UTF-8 checks and repair. ASCII, which is most of the text, is skipped eight bytes at a time. */
#include "base/utf8.h"

#define REPLACEMENT 0xFFFD

/* Length of the ASCII run at p. */
static size_t ascii_run(const uint8_t *p, size_t len)
{
    size_t at = 0;
    while (len - at >= 8) {
        uint64_t word;
        memcpy(&word, p + at, 8);
        if (word & 0x8080808080808080u)
            break;
        at += 8;
    }
    while (at < len && p[at] < 0x80)
        at++;
    return at;
}

bool utf8_valid(struct span text)
{
    size_t at = 0;
    while (at < text.len) {
        if (text.ptr[at] < 0x80) {
            at += ascii_run(text.ptr + at, text.len - at);
            continue;
        }
        unsigned len = utf8_sequence(text.ptr + at, text.len - at);
        if (len == 0)
            return false;
        at += len;
    }
    return true;
}

/* Bytes of the longest start of a well-formed sequence at p, at least 1: what WHATWG's decoder
 * turns into one U+FFFD. Called only where utf8_sequence() is 0. */
static size_t invalid_prefix(const uint8_t *p, size_t len)
{
    uint8_t c = p[0];
    if (c < 0xE0 || c > 0xF4 || len < 2) /* two-byte forms fail at their second byte */
        return 1;
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    uint8_t high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high)
        return 1;
    if (c < 0xF0 || len < 3 || (p[2] & 0xC0) != 0x80)
        return 2;
    return 3;
}

void buf_put_utf8_lossy(struct buf *b, struct span text)
{
    size_t at = 0;
    while (at < text.len) {
        const uint8_t *p = text.ptr + at;
        size_t len = text.len - at;
        size_t good = *p < 0x80 ? ascii_run(p, len) : utf8_sequence(p, len);
        if (good > 0) {
            buf_append(b, p, good);
            at += good;
        } else {
            buf_put_codepoint(b, REPLACEMENT);
            at += invalid_prefix(p, len);
        }
    }
}

void buf_put_codepoint(struct buf *b, uint32_t c)
{
    ASSERT(c <= 0x10FFFF);
    ASSERT(c < 0xD800 || c > 0xDFFF);
    if (c < 0x80) {
        buf_putc(b, (uint8_t)c);
    } else if (c < 0x800) {
        buf_putc(b, (uint8_t)(0xC0 | c >> 6));
        buf_putc(b, (uint8_t)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        buf_putc(b, (uint8_t)(0xE0 | c >> 12));
        buf_putc(b, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
        buf_putc(b, (uint8_t)(0x80 | (c & 0x3F)));
    } else {
        buf_putc(b, (uint8_t)(0xF0 | c >> 18));
        buf_putc(b, (uint8_t)(0x80 | (c >> 12 & 0x3F)));
        buf_putc(b, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
        buf_putc(b, (uint8_t)(0x80 | (c & 0x3F)));
    }
}
