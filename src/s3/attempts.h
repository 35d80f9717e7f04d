/* What every kind of bucket does between two attempts (objects.md 10 Retries): how often, how long
 * to wait, and the list of what waits. Pure; the callers bring clock, randomness and locks. */
#ifndef S3_ATTEMPTS_H
#define S3_ATTEMPTS_H

#include "s3/bucket.h"

#define ATTEMPTS_MAX 6
#define ATTEMPTS_STEP_US INT64_C(1000000) /* doubles with every attempt */
#define ATTEMPTS_STEP_MAX_US INT64_C(60000000)
#define ATTEMPTS_WAIT_MAX_US INT64_C(60000000) /* Retry-After included */

/* Microseconds to wait after `made` (>= 1) attempts: full jitter, uniform in [step/10, step], never
 * less than retry_after_us (-1 = none), at most ATTEMPTS_WAIT_MAX_US. step_us: the first step. */
int64_t attempts_wait_us(struct entropy *entropy, int64_t step_us, unsigned made,
                         int64_t retry_after_us);

/* Clears what a request is answered with, before its first attempt. */
void attempts_begin(struct bucket_request *r);

/* Something that waits: embedded first in its owner. */
struct wait {
    int64_t due_us; /* on the monotonic clock */
    struct wait *next;
};

void wait_add(struct wait **list, struct wait *w, int64_t due_us);
/* Takes those that are due at now_us (all: every one) off the list. *nearest_out: when the next one
 * is, INT64_MAX when none is left. */
struct wait *wait_take_due(struct wait **list, int64_t now_us, bool all, int64_t *nearest_out);

#endif
