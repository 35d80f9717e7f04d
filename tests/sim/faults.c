/* What befalls a world by itself: another process fills the disk, the wall clock is set, the bucket
 * goes away, a sink instance dies, freezes or is stopped. */
#include "sim/world_internal.h"

#include "base/timefmt.h"

#define DISK_BYTES (UINT64_C(1) << 40)
#define CHANCE_PERCENT 12u /* of the steps, as often as time passes */

/* Another process takes the rest of the disk, or gives it back. */
void world_set_full(struct world *w, bool full)
{
    if (full == w->full)
        return;
    uint64_t left = prng_chance(&w->prng, 50) ? 0 : prng_below(&w->prng, 400u << 10);
    w->full = full;
    w->disturbed_us = w->clock.mono;
    w->result->full += full;
    sim_disk_set_capacity(w->disk, full ? sim_disk_used(w->disk) + left : DISK_BYTES);
    world_trace(w, full ? "disk full" : "disk has room");
}

static void set_wall_clock(struct world *w)
{
    /* not hours while a repeat is out: it may come when its dedup window is over */
    bool hours = w->outstanding == 0 && prng_chance(&w->prng, 20);
    bool days = hours && prng_chance(&w->prng, 25);
    int64_t most = days ? 4 * US_PER_DAY : hours ? 5 * US_PER_HOUR : 10 * US_PER_SEC;
    int64_t was = w->clock.wall;
    w->clock.wall += (int64_t)prng_below(&w->prng, 2 * (uint64_t)most) - most;
    w->disturbed_us = w->clock.mono;
    world_trace(w, "wall clock set by %lld ms", (long long)(w->clock.wall - was) / 1000);
}

/* Seconds to ten minutes. */
static void begin_outage(struct world *w)
{
    int64_t seconds = INT64_C(1) << prng_below(&w->prng, 10);
    w->store.outage = (enum sim_outage)(1 + prng_below(&w->prng, OUTAGES - 1));
    w->outage_end_us =
        w->clock.mono + seconds * US_PER_SEC + (int64_t)prng_below(&w->prng, US_PER_SEC);
    w->result->outages++;
    world_trace(w, "bucket down: %s", sim_outage_name(w->store.outage));
}

void world_end_outage(struct world *w)
{
    w->store.outage = OUTAGE_NONE;
    world_trace(w, "bucket back");
}

/* Something befalls one instance alone. */
static void befall(struct world *w)
{
    struct instance *i = &w->instances[prng_below(&w->prng, w->n_instances)];
    int64_t ttl = (int64_t)w->setup.ttl_ms * 1000;
    switch (i->state) {
    case INSTANCE_NONE:
        instance_start(w, i);
        break;
    case INSTANCE_RUNNING:
        if (prng_chance(&w->prng, 33))
            instance_kill(w, i);
        else if (prng_chance(&w->prng, 50))
            instance_drain(w, i);
        else
            instance_freeze(w, i, (int64_t)prng_below(&w->prng, 3 * (uint64_t)ttl));
        break;
    case INSTANCE_FROZEN:
        instance_kill(w, i);
        break;
    case INSTANCE_DRAINING:
        if (prng_chance(&w->prng, 50))
            instance_cut(w, i);
        else
            instance_kill(w, i);
        break;
    case INSTANCE_GONE:
        break;
    }
}

static void befall_any(struct world *w)
{
    if (!prng_chance(&w->prng, CHANCE_PERCENT))
        return;
    if (prng_below(&w->prng, w->full ? 40 : 400) == 0)
        world_set_full(w, !w->full);
    if (prng_below(&w->prng, 2000) == 0)
        set_wall_clock(w);
    if (!w->options->with_sink)
        return;
    if (w->store.outage == OUTAGE_NONE && prng_below(&w->prng, 1500) == 0)
        begin_outage(w);
    if (prng_below(&w->prng, w->n_instances > 1 ? 120 : 600) == 0)
        befall(w);
}

void world_befall(struct world *w)
{
    befall_any(w);
    storage_befall(w);
    if (w->node == NULL || w->calm)
        return;
    if (prng_chance(&w->prng, 3))
        kv_model_act(w->kv);
    if (prng_chance(&w->prng, 1))
        options_model_act(w->queue_options);
    if (prng_chance(&w->prng, 3))
        dedup_model_act(w->repeats);
}
