/* Time formats of spec/broker-api.md 1.2 and spec/objects.md. All times are microseconds since the
 * epoch, UTC, proleptic Gregorian; negative values round towards minus infinity. */
#ifndef BASE_TIMEFMT_H
#define BASE_TIMEFMT_H

#include "base/buf.h"

#define US_PER_SEC 1000000LL
#define US_PER_HOUR (3600 * US_PER_SEC)
#define US_PER_DAY (24 * US_PER_HOUR)

void buf_put_iso_us(struct buf *b, int64_t us); /* 2026-10-03T06:37:37.501942Z, always six digits */
void buf_put_iso_ms(struct buf *b, int64_t us); /* 2026-10-03T06:37:37.501Z */
void buf_put_iso_kv(struct buf *b, int64_t us); /* 2026-10-03T06:37:37.5+00:00, trimmed fraction */
void buf_put_date(struct buf *b, int64_t us);   /* 2026-10-03 */
void buf_put_hour(struct buf *b, int64_t us);   /* 06 */
/* Accepted: YYYY-MM-DD, optionally THH:MM, :SS, a fraction (cut to microseconds), and Z or +HH:MM
 * or -HH:MM; no zone means UTC. Real dates only. */
bool time_parse_iso(struct span text, int64_t *us_out);
/* Largest multiple of unit_us at or below us (also for negative us). */
int64_t time_floor(int64_t us, int64_t unit_us);

#endif
