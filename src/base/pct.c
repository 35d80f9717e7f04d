/* Percent-encoding. '~' is always encoded in names, so a shortened name never equals a whole one.
 */
#include "base/pct.h"

#include "base/bytes.h"
#include "base/hash.h"

#define SHORT_MIN 32    /* smallest limit of a shortened name: room for some of the name */
#define SHORT_SUFFIX 17 /* '~' and the digits */
#define SHORT_DIGEST 8  /* bytes of SHA-256 that the digits spell */

static bool plain(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static void put_byte(struct buf *b, uint8_t c)
{
    static const char hex[] = "0123456789ABCDEF";
    if (plain(c)) {
        buf_putc(b, c);
        return;
    }
    buf_putc(b, '%');
    buf_putc(b, (uint8_t)hex[c >> 4]);
    buf_putc(b, (uint8_t)hex[c & 15]);
}

void buf_put_pct(struct buf *b, struct span name)
{
    for (size_t i = 0; i < name.len; i++)
        put_byte(b, name.ptr[i]);
}

void buf_put_pct_short(struct buf *b, struct span name, size_t max)
{
    ASSERT(max >= SHORT_MIN);
    size_t start = b->len;
    size_t cut = start; /* end of the last whole encoded byte that fits beside the suffix */
    for (size_t i = 0; i < name.len; i++) {
        put_byte(b, name.ptr[i]);
        size_t len = b->len - start;
        if (len <= max - SHORT_SUFFIX)
            cut = b->len;
        if (len > max) {
            uint8_t digest[SHA256_SIZE];
            sha256(name, digest);
            b->len = cut;
            buf_putc(b, '~');
            buf_put_hex(b, span_make(digest, SHORT_DIGEST));
            return;
        }
    }
}

void buf_put_pct_decoded(struct buf *b, struct span text, bool plus_is_space)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '%' && text.len - i > 2) {
            int high = hex_value(text.ptr[i + 1]);
            int low = hex_value(text.ptr[i + 2]);
            if (high >= 0 && low >= 0) {
                buf_putc(b, (uint8_t)(high << 4 | low));
                i += 2;
                continue;
            }
        }
        buf_putc(b, c == '+' && plus_is_space ? ' ' : c);
    }
}
