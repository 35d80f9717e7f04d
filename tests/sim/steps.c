/* The steps of a world: each does one thing, drawn by weight in a random life (world_act), or the
 * first that is to be done in a story (world_do_next). */
#include "sim/world_internal.h"

#include "base/timefmt.h"

#define BUSY_STEPS 200000u

bool world_pump_apply(struct world *w)
{
    if (!node_pump_apply(w->node))
        return false;
    world_check_safe_time(w);
    world_detail(w, "applied, safe time %lld", (long long)w->safe_time);
    watch_look(w, false);
    return true;
}

/* Something to do at every moment: time hardly passes. */
static void check_busy(struct world *w)
{
    if (w->result->steps - w->busy.steps < BUSY_STEPS)
        return;
    if (w->clock.mono - w->busy.mono_us < US_PER_SEC)
        world_fail(w, "%u steps in less than a second", BUSY_STEPS);
    w->busy.steps = w->result->steps;
    w->busy.mono_us = w->clock.mono;
}

void world_do_next(struct world *w, int64_t most_us)
{
    int64_t next = INT64_MAX;
    w->result->steps++;
    check_busy(w);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
    if (node_pump_log(w->node) || world_pump_apply(w) || instances_pump(w, &next) ||
        sim_executor_pump(&w->executor))
        return;
    if (w->result->steps % 7 == 0 && node_pump_checkpoint(w->node))
        return;
    int64_t by = next == INT64_MAX ? 100000 : next - w->clock.mono;
    sim_clock_advance(&w->clock, by < 1 ? 1 : by > most_us ? most_us : by);
    node_pump_space(w->node);
}

static bool node_is_idle(struct world *w)
{
    struct node_status status;
    node_status(w->node, &status);
    return status.inflight == 0;
}

static void pass_time(struct world *w)
{
    int64_t next = INT64_MAX, by = (int64_t)prng_below(&w->prng, 20000);
    if (!w->options->with_sink && prng_chance(&w->prng, 10))
        by *= 100; /* nothing else makes the time pass */
    bool busy = w->options->with_sink && instances_pump(w, &next);
    if (!busy && next != INT64_MAX && next > w->clock.mono && prng_chance(&w->prng, 70))
        by = next - w->clock.mono;
    if (by > 5 * US_PER_SEC)
        by = 5 * US_PER_SEC;
    sim_clock_advance(&w->clock, by);
    if (by > US_PER_SEC / 10 && !node_is_idle(w))
        w->disturbed_us = w->clock.mono; /* a refresh may have waited for all of it */
    node_pump_space(w->node);
    if (w->full)
        w->disturbed_us = w->clock.mono;
    if (w->store.outage != OUTAGE_NONE && !w->calm && w->clock.mono >= w->outage_end_us)
        world_end_outage(w);
    world_detail(w, "%lld us pass", (long long)by);
}

/* The end of an hour, of a row's life: what happens at that very moment? */
static void to_the_moment(struct world *w)
{
    int64_t wall = w->clock.wall;
    int64_t hour = time_floor(wall, US_PER_HOUR) + US_PER_HOUR;
    int64_t row = kv_model_next_end(w->kv, wall);
    int64_t moment = row < hour ? row : hour;
    if (moment - wall > 5 * US_PER_SEC)
        return;
    sim_clock_advance(&w->clock, moment - wall);
    world_detail(w, "%lld us pass, to the moment", (long long)(moment - wall));
    if (moment == row)
        kv_model_act(w->kv);
    else if (!w->calm)
        world_push_any(w);
    (void)node_pump_log(w->node);
}

static struct instance *any_instance(struct world *w)
{
    return &w->instances[prng_below(&w->prng, w->n_instances)];
}

static void pump(struct world *w, bool did, const char *what)
{
    if (did)
        world_detail(w, "%s", what);
}

/* Entries are logged and applied while a checkpoint is made; while a job reads, one may be made. */
void world_meanwhile(void *world)
{
    struct world *w = world;
    enum waiting waits = w->waits;
    if (waits == WAITS_NONE || !prng_chance(&w->prng, waits == WAITS_JOB ? 10 : 50))
        return;
    w->waits = WAITS_NONE; /* not within itself */
    for (uint64_t n = prng_below(&w->prng, 6); n > 0 && w->result->ok; n--) {
        if (prng_chance(&w->prng, 50))
            pump(w, node_pump_log(w->node), "log write, meanwhile");
        else
            (void)world_pump_apply(w);
    }
    if (waits == WAITS_JOB && prng_chance(&w->prng, 20))
        pump(w, node_pump_checkpoint(w->node), "checkpoint, meanwhile");
    w->waits = waits;
}

/* Now and then the power goes in the middle of it. */
static void make_checkpoint(struct world *w)
{
    if (!w->calm && prng_chance(&w->prng, 1)) {
        world_detail(w, "the power goes with the checkpoint");
        sim_disk_crash_after(w->disk, prng_below(&w->prng, 4));
    }
    w->waits = WAITS_CHECKPOINT;
    pump(w, node_pump_checkpoint(w->node), "checkpoint");
    w->waits = WAITS_NONE;
}

static void run_job(struct world *w)
{
    w->waits = WAITS_JOB;
    pump(w, sim_executor_pump(&w->executor), "a job runs");
    w->waits = WAITS_NONE;
}

void world_act(struct world *w)
{
    int64_t next;
    unsigned roll = (unsigned)prng_below(&w->prng, 100);
    if ((roll < 13 && roll >= w->push_weight) || (w->calm && roll < 14))
        roll = 99;
    if (roll < 13)
        world_push_any(w);
    else if (roll < 14 && prng_chance(&w->prng, w->delete_percent))
        world_delete(w, (unsigned)prng_below(&w->prng, w->queues));
    else if (roll < 32)
        pump(w, node_pump_log(w->node), "log write");
    else if (roll < 50)
        (void)world_pump_apply(w);
    else if (roll < 53)
        make_checkpoint(w);
    else if (roll < 70 && w->options->with_sink)
        pump(w, instance_pump_sink(w, any_instance(w), &next), "a sink works");
    else if (roll < 80)
        run_job(w);
    else if (roll < 88 && w->options->with_sink)
        pump(w, instance_pump_bucket(any_instance(w), &next), "a request ends");
    else if (prng_chance(&w->prng, 5))
        to_the_moment(w);
    else
        pass_time(w);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
}

void world_step(struct world *w)
{
    w->result->steps++;
    instances_tend(w);
    world_act(w);
    storage_look(w);
}
