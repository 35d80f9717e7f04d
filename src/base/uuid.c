/* UUID version 7 (RFC 9562 5.7): 48 bits of milliseconds, version, a 12-bit counter, variant, 62
 * more bits. The time and the randomness come from the caller.
 *
 * The minter never goes back: while the clock stands behind its last millisecond, because it was
 * stepped or because 4096 ids of one millisecond were not enough, it goes on counting from there.
 */
#include "base/uuid.h"

#include "base/bytes.h"
#include "base/hash.h"

#define COUNTER_MAX 4095 /* 12 bits */

/* bytes[8..15] are set already; puts everything else. */
static void set_head(struct uuid *id, int64_t ms, uint32_t counter)
{
    for (unsigned i = 0; i < 6; i++)
        id->bytes[i] = (uint8_t)((uint64_t)ms >> (40 - 8 * i));
    id->bytes[6] = (uint8_t)(0x70 | counter >> 8);
    id->bytes[7] = (uint8_t)counter;
    id->bytes[8] = (uint8_t)(0x80 | (id->bytes[8] & 0x3F));
}

static int64_t ms_of(int64_t us)
{
    return us > 0 ? us / 1000 : 0;
}

struct uuid uuid_mint(struct uuid_minter *m, int64_t wall_us, const uint8_t random[8])
{
    int64_t ms = ms_of(wall_us);
    if (ms > m->last_ms) {
        m->last_ms = ms;
        m->counter = 0;
    } else if (m->counter > COUNTER_MAX) {
        m->last_ms++;
        m->counter = 0;
    }
    struct uuid id;
    memcpy(id.bytes + 8, random, 8);
    set_head(&id, m->last_ms, m->counter++);
    return id;
}

struct uuid uuid_derive(const struct uuid *cluster, uint64_t index, uint32_t ordinal,
                        int64_t now_us)
{
    uint8_t seed[28];
    uint8_t digest[SHA256_SIZE];
    memcpy(seed, cluster->bytes, 16);
    le64_put(seed + 16, index);
    le32_put(seed + 24, ordinal);
    sha256(span_make(seed, sizeof(seed)), digest);

    struct uuid id;
    memcpy(id.bytes + 8, digest, 8);
    /* The ordinal as the counter: ids derived from one entry sort in their order. */
    set_head(&id, ms_of(now_us), ordinal < COUNTER_MAX ? ordinal : COUNTER_MAX);
    return id;
}

static bool hyphen_before(size_t byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void uuid_text(const struct uuid *id, uint8_t text[UUID_TEXT_LEN])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        if (hyphen_before(i))
            *text++ = '-';
        *text++ = (uint8_t)digits[id->bytes[i] >> 4];
        *text++ = (uint8_t)digits[id->bytes[i] & 15];
    }
}

void buf_put_uuid(struct buf *b, const struct uuid *id)
{
    uuid_text(id, buf_extend(b, UUID_TEXT_LEN));
}

bool uuid_parse(struct span text, struct uuid *out)
{
    if (text.len != UUID_TEXT_LEN)
        return false;
    struct uuid id;
    const uint8_t *p = text.ptr;
    for (size_t i = 0; i < sizeof(id.bytes); i++) {
        if (hyphen_before(i) && *p++ != '-')
            return false;
        int high = hex_value(*p++);
        int low = hex_value(*p++);
        if (high < 0 || low < 0)
            return false;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *out = id;
    return true;
}
