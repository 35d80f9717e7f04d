/* The bucket of rate.h. In millionths, so that microseconds times a rate per second are whole. */
#include "api/rate.h"

#define UNIT 1000000

void rate_init(struct rate *r, uint64_t per_second, uint64_t burst, int64_t now_us)
{
    *r = (struct rate){
        .per_second = per_second < RATE_MAX ? per_second : RATE_MAX,
        .burst = burst < 1          ? 1
                 : burst < RATE_MAX ? burst
                                    : RATE_MAX,
        .at_us = now_us,
    };
    r->level = (int64_t)r->burst * UNIT;
}

static void fill(struct rate *r, int64_t now_us)
{
    int64_t full = (int64_t)r->burst * UNIT, missing = full - r->level;
    int64_t elapsed = now_us - r->at_us;
    if (elapsed <= 0)
        return;
    r->at_us = now_us;
    if (elapsed > missing / (int64_t)r->per_second)
        r->level = full;
    else
        r->level += elapsed * (int64_t)r->per_second;
}

int64_t rate_wait_us(struct rate *r, uint64_t n, int64_t now_us)
{
    if (r->per_second == 0 || n == 0)
        return 0;
    fill(r, now_us);
    int64_t needed = (int64_t)(n < r->burst ? n : r->burst) * UNIT;
    if (r->level >= needed)
        return 0;
    int64_t rate = (int64_t)r->per_second;
    return (needed - r->level + rate - 1) / rate;
}

void rate_take(struct rate *r, uint64_t n)
{
    if (r->per_second != 0)
        r->level -= (int64_t)(n < RATE_MAX ? n : RATE_MAX) * UNIT;
}

int rate_retry_after(int64_t wait_us)
{
    int64_t seconds = (wait_us + UNIT - 1) / UNIT;
    return seconds < 1 ? 1 : seconds > 3600 ? 3600 : (int)seconds;
}
