/* UUIDs: version 7 minting (RFC 9562 5.7, spec/broker-api.md 1.3) and text form. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include "base/buf.h"

#define UUID_TEXT_LEN 36

struct uuid {
    uint8_t bytes[16];
};

/* State of one minter: 12-bit counter, restarted at 0 in each millisecond. When a millisecond's
 * 4096 ids are used up, or the clock steps back, ids go on from the last millisecond + 1. Caller
 * locks. */
struct uuid_minter {
    int64_t last_ms;
    uint32_t counter;
};

/* random: 8 fresh random bytes (62 bits are used). */
struct uuid uuid_mint(struct uuid_minter *m, int64_t wall_us, const uint8_t random[8]);
/* Version-7 shaped id whose random part is derived from (cluster, index, ordinal) by SHA-256, so
 * every node computes the same one. */
struct uuid uuid_derive(const struct uuid *cluster, uint64_t index, uint32_t ordinal,
                        int64_t now_us);
void buf_put_uuid(struct buf *b, const struct uuid *id); /* lowercase, hyphens */
void uuid_text(const struct uuid *id, uint8_t text[UUID_TEXT_LEN]);
bool uuid_parse(struct span text, struct uuid *out); /* either case */

#endif
