/* Where blocking jobs run: a worker pool in production, inline at the next pump in the simulator.
 */
#ifndef IO_EXECUTOR_H
#define IO_EXECUTOR_H

struct executor {
    /* Runs fn(ctx) later, never inside this call. Any thread, never blocks. */
    void (*submit)(struct executor *e, void (*fn)(void *ctx), void *ctx);
};

static inline void executor_submit(struct executor *e, void (*fn)(void *ctx), void *ctx)
{
    e->submit(e, fn, ctx);
}

#endif
