/* Deadlines: one thread and a heap by due time. */
#ifndef API_TIMERS_H
#define API_TIMERS_H

#include "io/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct timers;

struct timer {
    int64_t due_us; /* monotonic */
    /* Called once, on the timer thread with the timers' lock held: must not block nor call
     * timers_*(). */
    void (*fire)(struct timer *t);
    size_t slot; /* internal: place in the heap + 1, 0 when not armed */
};

struct timers *timers_new(struct clock *clock);
void timers_free(struct timers *ts); /* armed ones never fire; NULL is allowed */
void timers_arm(struct timers *ts, struct timer *t, int64_t due_us);
/* True: it was armed and will not fire. False: it has fired (its fire function returned), or was
 * not armed. */
bool timers_disarm(struct timers *ts, struct timer *t);

#endif
