/* The simulator's clock and entropy: moved by hand, drawn from the seed. */
#ifndef TESTS_SIM_CLOCK_H
#define TESTS_SIM_CLOCK_H

#include "io/clock.h"
#include "io/executor.h"
#include "lib/prng.h"

struct sim_clock {
    struct clock base;
    int64_t wall, mono;
};

void sim_clock_init(struct sim_clock *c, int64_t wall_us);
void sim_clock_advance(struct sim_clock *c, int64_t us); /* both */

struct sim_entropy {
    struct entropy base;
    struct prng *prng;
};

void sim_entropy_init(struct sim_entropy *e, struct prng *prng);

/* Jobs wait here until they are pumped, one at a time, in an order drawn from the seed. */
struct sim_executor {
    struct executor base;
    struct prng *prng;
    struct sim_job *jobs;
    size_t n, cap;
};

void sim_executor_init(struct sim_executor *e, struct prng *prng);
void sim_executor_deinit(struct sim_executor *e);
bool sim_executor_pump(struct sim_executor *e); /* runs one job; false when there is none */

#endif
