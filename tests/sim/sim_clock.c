#include "sim/sim_clock.h"

#include "base/mem.h"

struct sim_job {
    void (*fn)(void *ctx);
    void *ctx;
};

static int64_t sim_wall(struct clock *c)
{
    return ((struct sim_clock *)c)->wall;
}

static int64_t sim_mono(struct clock *c)
{
    return ((struct sim_clock *)c)->mono;
}

void sim_clock_init(struct sim_clock *c, int64_t wall_us)
{
    *c = (struct sim_clock){{sim_wall, sim_mono}, wall_us, 1000000};
}

void sim_clock_advance(struct sim_clock *c, int64_t us)
{
    c->wall += us;
    c->mono += us;
}

static void sim_fill(struct entropy *e, void *out, size_t len)
{
    uint8_t *to = out;
    for (size_t i = 0; i < len; i++)
        to[i] = (uint8_t)prng_u64(((struct sim_entropy *)e)->prng);
}

void sim_entropy_init(struct sim_entropy *e, struct prng *prng)
{
    *e = (struct sim_entropy){{sim_fill}, prng};
}

static void sim_submit(struct executor *base, void (*fn)(void *ctx), void *ctx)
{
    struct sim_executor *e = (struct sim_executor *)base;
    if (e->n == e->cap) {
        e->cap = e->cap == 0 ? 16 : 2 * e->cap;
        e->jobs = mem_grow(e->jobs, e->cap * sizeof(*e->jobs));
    }
    e->jobs[e->n++] = (struct sim_job){fn, ctx};
}

void sim_executor_init(struct sim_executor *e, struct prng *prng)
{
    *e = (struct sim_executor){.base = {sim_submit}, .prng = prng};
}

void sim_executor_deinit(struct sim_executor *e)
{
    mem_free(e->jobs);
    *e = (struct sim_executor){0};
}

bool sim_executor_pump(struct sim_executor *e)
{
    if (e->n == 0)
        return false;
    size_t at = (size_t)prng_below(e->prng, e->n);
    struct sim_job job = e->jobs[at];
    e->jobs[at] = e->jobs[--e->n];
    job.fn(job.ctx);
    return true;
}
