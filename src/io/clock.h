/* Time and randomness behind interfaces, so that the simulator owns both. Any thread. */
#ifndef IO_CLOCK_H
#define IO_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock {
    int64_t (*wall_us)(struct clock *c); /* microseconds since the epoch */
    int64_t (*mono_us)(struct clock *c); /* monotonic, any origin, > 0 */
};

static inline int64_t clock_wall_us(struct clock *c)
{
    return c->wall_us(c);
}

static inline int64_t clock_mono_us(struct clock *c)
{
    return c->mono_us(c);
}

struct clock *clock_real(void); /* CLOCK_REALTIME and CLOCK_MONOTONIC; static, never freed */

struct entropy {
    void (*fill)(struct entropy *e, void *out, size_t len);
};

static inline void entropy_fill(struct entropy *e, void *out, size_t len)
{
    e->fill(e, out, len);
}

static inline uint64_t entropy_u64(struct entropy *e)
{
    uint64_t v;
    e->fill(e, &v, sizeof(v));
    return v;
}

struct entropy *entropy_real(void); /* getrandom(), buffered per thread; static */

#endif
