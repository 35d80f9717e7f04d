/* UTF-8 (RFC 3629: no surrogates, no overlong forms, at most U+10FFFF). */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/buf.h"

/* Bytes of the well-formed sequence that starts at p (1..4), 0 when there is none; len > 0. */
static inline unsigned utf8_sequence(const uint8_t *p, size_t len)
{
    uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4 || len < 2)
        return 0;
    if (c < 0xE0)
        return (p[1] & 0xC0) == 0x80 ? 2 : 0;
    /* Second byte: no overlong form (E0, F0), no surrogate (ED), at most U+10FFFF (F4). */
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    uint8_t high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high || len < 3 || (p[2] & 0xC0) != 0x80)
        return 0;
    if (c < 0xF0)
        return 3;
    return len >= 4 && (p[3] & 0xC0) == 0x80 ? 4 : 0;
}

bool utf8_valid(struct span text);
/* Appends text, each maximal invalid sequence replaced by U+FFFD (as in WHATWG's decoder). */
void buf_put_utf8_lossy(struct buf *b, struct span text);
void buf_put_codepoint(struct buf *b, uint32_t codepoint);

#endif
