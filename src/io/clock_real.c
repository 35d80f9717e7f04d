/* The machine's clocks. */
#include "io/clock.h"

#include "base/err.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec t;
    ASSERT(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t wall_us(struct clock *c)
{
    (void)c;
    return read_us(CLOCK_REALTIME);
}

static int64_t mono_us(struct clock *c)
{
    (void)c;
    return read_us(CLOCK_MONOTONIC) + 1; /* > 0 even right at the machine's start */
}

struct clock *clock_real(void)
{
    static struct clock real = {wall_us, mono_us};
    return &real;
}
