/* Ordered map of bytes to bytes (bytewise order of the keys), with tombstones: the overlay of state
 * rows that changed since the last checkpoint, and the simulator's model of the state database.
 * Not synchronised: the owner locks. */
#ifndef BASE_OMAP_H
#define BASE_OMAP_H

#include "base/span.h"

struct omap; /* opaque */

struct omap_row {
    struct span key;
    struct span value; /* empty when deleted */
    bool deleted;      /* a tombstone: hides the key in the layers below */
};

struct omap *omap_new(void);
void omap_free(struct omap *m); /* NULL is allowed */
size_t omap_count(const struct omap *m);
size_t omap_bytes(const struct omap *m); /* keys, values and overhead, for memory bounds */
/* Copies both. Replaces a row or a tombstone. */
void omap_put(struct omap *m, struct span key, struct span value);
void omap_put_tombstone(struct omap *m, struct span key);
void omap_erase(struct omap *m, struct span key); /* removes the row itself, no tombstone */
/* row_out borrows from the map: valid until the next change of the map. */
bool omap_get(const struct omap *m, struct span key, struct omap_row *row_out);
/* First row with key >= from (strict: > from). Same lifetime as omap_get. */
bool omap_seek(const struct omap *m, struct span from, bool strict, struct omap_row *row_out);
/* Every row in order; the map must not change meanwhile. */
void omap_each(const struct omap *m, void (*visit)(void *ctx, const struct omap_row *row),
               void *ctx);

#endif
