/* The dedup window of a queue: what configure needs of it. */
#ifndef BROKER_DEDUP_WINDOW_H
#define BROKER_DEDUP_WINDOW_H

#include "store/state.h"

/* Smallest class whose windows reach that far. */
unsigned dedup_class(int32_t window_seconds);

/* Changes the window. A raised one looks back to where the old one began and no further, so results
 * do not depend on what a sweep has removed meanwhile. */
void dedup_window_set(struct state *s, struct queue *q, int32_t window, int64_t now);

#endif
