/* Percent-encoding of names in object keys and KV keys (spec/objects.md 1), shortening of long
 * segments (spec/decisions.md 2), and decoding of URL parts. */
#ifndef BASE_PCT_H
#define BASE_PCT_H

#include "base/buf.h"

/* Keeps A-Z a-z 0-9 . _ -, everything else %XX with uppercase hex. */
void buf_put_pct(struct buf *b, struct span name);
/* Like buf_put_pct, but at most `max` bytes (max >= 32): a longer form is cut to max - 17 bytes or
 * less, on a whole %XX, then '~' and 16 lowercase hex digits of SHA-256(raw name). */
void buf_put_pct_short(struct buf *b, struct span name, size_t max);
/* Decodes %XX once; invalid escapes are kept literally; plus_is_space for query strings. */
void buf_put_pct_decoded(struct buf *b, struct span text, bool plus_is_space);

#endif
