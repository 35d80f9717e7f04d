/* The lease of one queue: who holds it, and the handle of our own (spec/sink.md 5).
 *
 * The handle remembers the version of its last applied write of the row; every later write expects
 * it. The queue task has at most one KV batch in flight, which is what serialises the writes of one
 * handle. Pure. */
#ifndef SINK_LEASE_H
#define SINK_LEASE_H

#include "kv/kv.h"
#include "sink/documents.h"

#define LEASE_INCARNATION_LEN 16

struct lease {
    struct span instance;                        /* borrowed for the handle's life */
    char incarnation[LEASE_INCARNATION_LEN + 1]; /* hex digits, new for each handle */
    int64_t since_ms;                            /* wall clock of the claim */
    bool held;
    uint64_t version; /* of our last applied write, or of the row that is to be taken over */
};

enum lease_holder { LEASE_FREE, LEASE_MINE, LEASE_OTHER };

/* A new handle: `random` becomes its incarnation. */
void lease_init(struct lease *l, struct span instance, uint64_t random, int64_t wall_us);
/* Whom the row names. row NULL: there is no live row. holder_out gets the instance when it is
 * another one
 * ("unknown" when the row does not parse). */
enum lease_holder lease_look(const struct lease *l, const struct kv_row *row,
                             struct buf *holder_out);
/* Does the row carry this handle's own incarnation? */
bool lease_is_own(const struct lease *l, struct span value);
/* The row's value for this handle. */
void lease_put(struct buf *out, const struct lease *l);
uint64_t lease_ttl_seconds(uint64_t ttl_ms); /* max(1, floor(ms / 1000)) */

#endif
