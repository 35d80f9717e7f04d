/* The boots of a world and their ends: the node is opened, with the settings of this life, what it
 * recovered is compared with what was promised, the sinks start; and it is closed, or dropped as by
 * a crash. */
#include "sim/world_internal.h"

static enum err open_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    struct world *w = ctx;
    *out = w->db = sim_db_new(w->db_state);
    sim_db_set_meanwhile(w->db, world_meanwhile, w);
    return ERR_OK;
}

static void draw_setup(struct world *w)
{
    static const char *const compressions[] = {"zstd", "gzip", "none"};
    static const char *const aligns[] = {"hour", "none", "day"};
    /* some longer than the lag from which on a drain closes a window */
    w->setup.window_ms =
        500 + (unsigned)prng_below(&w->prng, prng_chance(&w->prng, 25) ? 40000 : 5000);
    w->setup.guard_ms = prng_chance(&w->prng, 20) ? 0 : (unsigned)prng_below(&w->prng, 800);
    w->setup.checkpoint_every = 1 + (unsigned)prng_below(&w->prng, 4);
    w->setup.compression = compressions[prng_below(&w->prng, 3)];
    w->setup.align = aligns[prng_below(&w->prng, 3)];
}

enum err world_try_open_node(struct world *w, struct error *error)
{
    struct node_options o;
    node_options_default(&o);
    o.disk = w->disk;
    o.open_db = open_db;
    o.db_ctx = w;
    o.clock = &w->clock.base;
    o.entropy = &w->entropy.base;
    o.manual = true;
    o.wal_segment_bytes = 64u << 10;
    o.segment_bytes = 16u << 10;
    o.batch_max_commands = w->one_by_one ? 1 : 1 + (uint32_t)prng_below(&w->prng, 8);
    o.log_handles_max = 2;
    o.disk_high_pct = 100.0;
    o.disk_low_pct = 100.0;
    o.ballast_bytes = w->ballast_bytes;
    o.open_behind = w->ballast_bytes > 0 && prng_chance(&w->prng, 50);
    return node_open(&o, &w->node, error);
}

/* A full disk may refuse the boot; then it must work as soon as there is room. */
static bool open_node(struct world *w)
{
    struct error error = {0};
    if (w->full && prng_chance(&w->prng, 50)) /* others took what the crash gave back */
        sim_disk_set_capacity(w->disk, sim_disk_used(w->disk));
    enum err err = world_try_open_node(w, &error);
    if (err == ERR_NO_SPACE && w->full && !sim_disk_down(w->disk)) {
        world_set_full(w, false);
        err = world_try_open_node(w, &error);
    }
    storage_look(w);
    if (err != ERR_OK && !sim_disk_down(w->disk) && !storage_failed(w))
        world_fail(w, "the node does not open: %s", error.text);
    return err == ERR_OK;
}

void world_check_safe_time(struct world *w)
{
    int64_t safe_time = node_safe_time(w->node);
    if (safe_time < w->safe_time && !w->unwatched)
        world_fail(w, "safeTime %lld was published, and now it is %lld", (long long)w->safe_time,
                   (long long)safe_time);
    w->safe_time = safe_time;
}

/* What the log holds did not fit on the disk: nothing is read before there was room for it. */
static void catch_up(struct world *w)
{
    world_trace(w, "behind");
    for (unsigned i = 0; i < 400 && node_is_behind(w->node) && !world_stopped(w); i++) {
        if (i == 100)
            world_set_full(w, false);
        (void)node_pump_log(w->node);
        (void)node_pump_apply(w->node);
        (void)node_pump_checkpoint(w->node);
        sim_clock_advance(&w->clock, 50000);
        node_pump_space(w->node);
    }
    if (node_is_behind(w->node) && !world_stopped(w))
        world_fail(w, "a boot on a full disk stays behind though there is room");
}

int64_t world_applied_end(struct world *w)
{
    struct state *s = node_read_begin(w->node);
    const struct state_meta *meta = state_meta(s);
    int64_t end = meta->last_clock + (meta->last_count > 0 ? (int64_t)meta->last_count - 1 : 0);
    node_read_end(w->node);
    return end;
}

bool world_open_node(struct world *w)
{
    if (!open_node(w))
        return false;
    if (node_is_behind(w->node))
        catch_up(w);
    if (world_stopped(w))
        return true; /* the life ends with its first step */
    w->disturbed_us = w->clock.mono;
    world_trace(w, "boot");
    world_check_safe_time(w);
    watch_look(w, true);
    world_check_log(w);
    kv_model_check(w->kv);
    options_model_check(w->queue_options);
    dedup_model_check(w->repeats);
    return true;
}

bool world_open(struct world *w)
{
    if (!world_open_node(w))
        return false;
    if (!w->options->with_sink)
        return true;
    draw_setup(w);
    for (unsigned i = 0; i < w->n_instances; i++) {
        if (w->calm || w->n_instances == 1 || prng_chance(&w->prng, 75))
            instance_start(w, &w->instances[i]);
    }
    return true;
}

void world_judge(struct world *w, bool complete, struct lake_verdict *out)
{
    int64_t t0[WORLD_QUEUES_MAX];
    for (unsigned i = 0; i < w->queues; i++)
        t0[i] = w->watched[i].has_t0 ? w->watched[i].t0 : INT64_MIN;
    lake_judge(&w->ledger, w->store.objects,
               &(struct lake_names){world_queue_names, w->queues, world_partition_names}, t0,
               complete, out);
    if (!out->ok)
        world_fail(w, "%s", out->why);
}

static void run_out_jobs(struct world *w)
{
    while (sim_executor_pump(&w->executor)) {
        /* jobs only read; run out so that they hold no log */
    }
}

void world_drop(struct world *w)
{
    run_out_jobs(w);
    if (w->node != NULL)
        node_abandon(w->node);
    w->node = NULL;
    instances_abandon(w);
    if (w->outstanding > 0)
        world_fail(w, "%u requests never had an answer", w->outstanding);
}

void world_close(struct world *w)
{
    struct node_status status;
    node_end(w->node);
    run_out_jobs(w);
    node_status(w->node, &status);
    if (status.inflight > 0)
        world_fail(w, "%llu requests never had an answer", (unsigned long long)status.inflight);
    instances_free(w);
    node_close(w->node);
    w->node = NULL;
}

bool world_stopped(struct world *w)
{
    struct node_status status;
    if (sim_disk_down(w->disk) || w->node == NULL)
        return true;
    node_status(w->node, &status);
    if (status.stopped && !storage_failed(w))
        world_fail(w, "the node stopped: %s", status.failure);
    return status.stopped;
}
