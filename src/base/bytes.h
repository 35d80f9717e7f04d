/* Little- and big-endian integers at any address, and a bounds-checked cursor for decoding. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include "base/span.h"

static inline uint16_t le16_get(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t le32_get(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t le64_get(const uint8_t *p)
{
    return (uint64_t)le32_get(p) | (uint64_t)le32_get(p + 4) << 32;
}

static inline void le16_put(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void le32_put(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline void le64_put(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t be32_get(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static inline uint64_t be64_get(const uint8_t *p)
{
    return (uint64_t)be32_get(p) << 32 | be32_get(p + 4);
}

static inline void be32_put(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * (3 - i)));
}

static inline void be64_put(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * (7 - i)));
}

/* Value of a hex digit of either case, -1 when c is none. */
static inline int hex_value(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decoding cursor: every get checks the bounds; after the first failure `bad` stays true and every
 * further get returns zero or an empty span, so a decoder may check once at its end. */
struct cursor {
    struct span in; /* what is left */
    bool bad;
};

uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_le16(struct cursor *c);
uint32_t cursor_le32(struct cursor *c);
uint64_t cursor_le64(struct cursor *c);
uint32_t cursor_be32(struct cursor *c);
uint64_t cursor_be64(struct cursor *c);
struct span cursor_bytes(struct cursor *c, size_t len); /* borrows from the input */

#endif
