/* The decoding cursor. Every get goes through take(), the only place that looks at the bounds. */
#include "base/bytes.h"

/* The next len bytes, or NULL and `bad` for ever after. */
static const uint8_t *take(struct cursor *c, size_t len)
{
    if (c->bad || c->in.len < len) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *p = c->in.ptr;
    if (len > 0) /* an empty input may have a null pointer */
        c->in.ptr += len;
    c->in.len -= len;
    return p;
}

uint8_t cursor_u8(struct cursor *c)
{
    const uint8_t *p = take(c, 1);
    return p != NULL ? *p : 0;
}

uint16_t cursor_le16(struct cursor *c)
{
    const uint8_t *p = take(c, 2);
    return p != NULL ? le16_get(p) : 0;
}

uint32_t cursor_le32(struct cursor *c)
{
    const uint8_t *p = take(c, 4);
    return p != NULL ? le32_get(p) : 0;
}

uint64_t cursor_le64(struct cursor *c)
{
    const uint8_t *p = take(c, 8);
    return p != NULL ? le64_get(p) : 0;
}

uint32_t cursor_be32(struct cursor *c)
{
    const uint8_t *p = take(c, 4);
    return p != NULL ? be32_get(p) : 0;
}

uint64_t cursor_be64(struct cursor *c)
{
    const uint8_t *p = take(c, 8);
    return p != NULL ? be64_get(p) : 0;
}

struct span cursor_bytes(struct cursor *c, size_t len)
{
    const uint8_t *p = take(c, len);
    return c->bad ? (struct span){NULL, 0} : (struct span){p, len};
}
