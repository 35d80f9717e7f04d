/* A rate with a burst: a bucket that fills by `rate` a second, up to `burst`. Pure: time comes in,
 * monotonic microseconds. Not synchronised. */
#ifndef API_RATE_H
#define API_RATE_H

#include <stdint.h>

#define RATE_MAX 1000000u /* of both */

struct rate {
    uint64_t per_second; /* 0: no limit */
    uint64_t burst;
    int64_t level; /* millionths of an operation; below 0 after one take larger than the burst */
    int64_t at_us; /* when the level was that */
};

/* Begins full. */
void rate_init(struct rate *r, uint64_t per_second, uint64_t burst, int64_t now_us);
/* How long until n may be taken; 0: now. More than the burst may be taken from a full bucket, which
 * owes the rest: a large call is slow to be repeated, but never impossible. */
int64_t rate_wait_us(struct rate *r, uint64_t n, int64_t now_us);
/* Takes n, whatever is there: after rate_wait_us() said 0. */
void rate_take(struct rate *r, uint64_t n);
/* Whole seconds to say in Retry-After. */
int rate_retry_after(int64_t wait_us);

#endif
