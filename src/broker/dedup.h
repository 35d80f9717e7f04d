/* Deduplication rows (decisions.md 23): exact within a queue's window, per partition.
 *
 * Row key:   'D' | class u8 | bucket be32 | partition id be64 | first 16 bytes of
 * SHA-256(transactionId) Row value: offset le64 | message id 16 | stamp le64 class c: windows of up
 * to 2^c seconds (at least 2^10); bucket width 2^c / 8 seconds, so a lookup probes at most 9
 * buckets per class the queue ever used, and rows go as whole buckets (a range delete), never one
 * by one. Lookups compare stamps (>= now - window, >= queue.dedup_floor), whatever a sweep has
 * done. */
#ifndef BROKER_DEDUP_H
#define BROKER_DEDUP_H

#include "store/state.h"

struct dedup_hit {
    uint64_t offset;
    struct uuid message_id;
    int64_t stamp;
};

/* ERR_NOT_FOUND when there is none within the window. */
ERR_CHECK enum err dedup_find(struct state *s, const struct partition *p,
                              struct span transaction_id, int64_t now, struct dedup_hit *out,
                              struct error *error);
void dedup_put(struct state *s, struct partition *p, struct span transaction_id,
               const struct dedup_hit *row);
/* Drops whole buckets that no window can reach any more at `now`, the clock of something applied;
 * *last is when that was done last, 0 at first: not more often than makes sense. Changes nothing
 * that can be seen; local housekeeping (checkpoint thread). Takes the state's locks itself. */
void dedup_sweep(struct state *s, int64_t *last, int64_t now);

#endif
