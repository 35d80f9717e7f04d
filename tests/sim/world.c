/* The world: a seed decides every action, answer, delay and crash.
 *
 * A life is one boot: actions are drawn by weight (a client pushes, repeats or deletes; the log
 * writer, apply, the checkpoint, a sink, a worker or the bucket does one step; time passes) until
 * the life ends by a power cut, a kill, or a drain as on SIGTERM. Between them things befall the
 * world (faults.c). After each boot every acknowledged record is read back from the queue logs.
 * After the last life faults are switched off, the sinks are given time to ship everything, and the
 * lake is judged.
 *
 * Decisions are numbered: two for each step (an action; what befalls) and two for each life (a
 * power cut in the middle of a disk operation; how it ends). What one draws depends on the seed and
 * its number alone, so any of them can be left out and the others stay what they were (shrink.c). */
#include "sim/world_internal.h"

#include "base/timefmt.h"

#include <stdio.h>

#define QUIESCE_STEPS_MAX 400000u
#define QUIET_LIVES_MAX 8u
#define BALLAST_BYTES (256u << 10)

/* --- decisions --- */

static uint64_t decisions_per_life(const struct world_options *o)
{
    return 2 + 2 * (uint64_t)o->steps_per_life;
}

uint64_t world_decisions(const struct world_options *o)
{
    return o->lives * decisions_per_life(o);
}

/* The first of this life. */
static uint64_t decision_of_life(const struct world *w)
{
    return (w->life - 1) * decisions_per_life(w->options);
}

/* From here on the draws are those of the decision; false when it is left out. */
static bool begin_decision(struct world *w, uint64_t number)
{
    const uint8_t *skip = w->options->skip;
    prng_init(&w->prng, w->options->seed * UINT64_C(0x9e3779b97f4a7c15) + number);
    w->moved = false;
    w->changes = sim_disk_changes(w->disk);
    return skip == NULL || number >= world_decisions(w->options) || !skip[number];
}

/* Tells whether it moved anything. */
static void end_decision(struct world *w, uint64_t number)
{
    if (w->options->moved_out != NULL)
        w->options->moved_out[number] = w->moved || sim_disk_changes(w->disk) != w->changes;
}

/* --- the end of a life --- */

static bool all_drained(const struct world *w)
{
    for (unsigned i = 0; i < w->n_instances; i++) {
        if (instance_alive(&w->instances[i]))
            return false;
    }
    return true;
}

static void begin_drain(struct world *w)
{
    world_trace(w, "SIGTERM");
    w->result->drains++;
    for (unsigned n = 0; n < w->n_instances; n++) {
        struct instance *i = &w->instances[n];
        i->left_a_window = false;
        if (i->state == INSTANCE_FROZEN)
            instance_thaw(w, i);
        if (i->state == INSTANCE_RUNNING)
            instance_drain(w, i);
    }
}

/* False when it was cut short, or left a window open. */
static bool drain(struct world *w)
{
    bool calm = w->calm, left = false;
    begin_drain(w);
    w->calm = true; /* no new pushes while draining */
    if (w->store.outage != OUTAGE_NONE)
        world_end_outage(w);
    for (unsigned i = 0; i < QUIESCE_STEPS_MAX && !all_drained(w) && w->result->ok; i++) {
        world_step(w);
        if (world_stopped(w))
            break;
    }
    w->calm = calm;
    if (world_stopped(w) || !w->result->ok)
        return false;
    if (!all_drained(w)) {
        world_fail(w, "the drain does not end");
        return false; /* its operations are still out */
    }
    for (unsigned i = 0; i < w->n_instances; i++)
        left = left || w->instances[i].left_a_window;
    world_close(w);
    return !left;
}

static void end_life(struct world *w)
{
    unsigned how = (unsigned)prng_below(&w->prng, 3);
    struct lake_verdict verdict;
    if (w->options->with_sink && w->result->ok)
        world_judge(w, false, &verdict);
    if (w->options->with_sink && w->result->ok && w->node != NULL)
        watch_check_complete(w);
    if (how == 0 && world_stopped(w))
        how = 2;
    if (how == 0)
        world_set_full(w, false); /* a drain needs room for what it commits */
    if (how == 0 && w->options->with_sink && !world_stopped(w))
        (void)drain(w); /* the next life finishes what it left */
    world_drop(w);
    if (sim_disk_down(w->disk) || how == 1) {
        world_trace(w, "power cut");
        w->result->crashes++;
        sim_disk_crash(w->disk, &w->prng);
    } else {
        world_trace(w, "killed");
        w->result->kills++;
        sim_disk_kill(w->disk);
    }
    storage_heal(w);
}

/* Does the power go in the middle of one of the next operations of the disk? */
static void arm_power_cut(struct world *w, uint64_t number)
{
    if (begin_decision(w, number) && prng_chance(&w->prng, 50)) {
        uint64_t after = prng_below(&w->prng, w->n_instances > 1 ? 2000 : 400);
        world_detail(w, "the power goes at the %lluth change of the disk",
                     (unsigned long long)after);
        sim_disk_crash_after(w->disk, after);
    }
    if (w->node == NULL)
        storage_befall_boot(w);
    end_decision(w, number);
}

static void run_steps(struct world *w, uint64_t number)
{
    for (unsigned i = 0; i < w->options->steps_per_life && w->result->ok && !world_stopped(w);
         i++, number += 2) {
        w->result->steps++;
        instances_tend(w);
        if (begin_decision(w, number))
            world_act(w);
        storage_look(w);
        end_decision(w, number);
        if (begin_decision(w, number + 1))
            world_befall(w);
        end_decision(w, number + 1);
    }
}

/* When its end is left out the next one goes on with the same boot. */
static void run_life(struct world *w)
{
    uint64_t number = decision_of_life(w);
    arm_power_cut(w, number);
    (void)begin_decision(w, number + 1); /* the boot's draws, and the end's */
    if (w->node != NULL || world_open(w))
        run_steps(w, number + 2);
    bool failed = !w->result->ok;
    bool ends = begin_decision(w, number + 1) || w->life == w->options->lives;
    if (ends || world_stopped(w))
        end_life(w);
    w->moved = ends && !failed;
    end_decision(w, number + 1);
}

/* --- the last life --- */

/* Nothing keeps the node from taking a push any more, though the disk had been full: within the
 * seconds that it needs to see that. */
static void check_goes_on(struct world *w)
{
    int64_t until = w->clock.mono + 10 * US_PER_SEC, at = w->clock.mono;
    uint64_t enough = w->result->steps + 2000; /* of them, for one push: time may pass in leaps */
    const struct ledger_record *last = NULL;
    while (w->result->ok && (last == NULL || last->told != TOLD_QUEUED)) {
        if ((w->clock.mono > until && w->result->steps > enough) || world_stopped(w)) {
            world_fail(w, "pushes are refused though nothing is wrong any more");
        } else if (w->clock.mono >= at && (last == NULL || last->told == TOLD_REFUSED)) {
            world_push(w, 0, 1);
            last = w->ledger.records[w->ledger.n - 1];
            at = w->clock.mono + US_PER_SEC;
        }
        world_step(w);
    }
}

/* Behind a checkpoint of everything only the log's last segment is left. */
static void check_log_is_short(struct world *w)
{
    struct disk_list list = {0};
    unsigned segments = 0;
    while (node_pump_log(w->node) || world_pump_apply(w)) {
    }
    (void)node_pump_checkpoint(w->node);
    if (disk_list(w->disk, "wal", &list, NULL) != ERR_OK)
        world_fail(w, "the log's folder cannot be listed");
    for (size_t i = 0; i < list.count; i++)
        segments += strncmp(list.entries[i].name, "seg-", 4) == 0;
    disk_list_deinit(&list);
    if (segments != 1)
        world_fail(w, "the log has %u segments behind a checkpoint of everything", segments);
}

/* One life without faults, until everything acknowledged is in the lake, and a drain: a window of
 * records that nobody waits for may be on its way. False when it has to be lived again. */
static bool quiet_life(struct world *w)
{
    struct lake_verdict verdict = {0};
    int64_t next;
    if (!world_open(w))
        return true;
    check_goes_on(w);
    bool complete = !w->options->with_sink;
    for (unsigned i = 0; i < QUIESCE_STEPS_MAX && w->result->ok && !complete && !world_stopped(w);
         i++) {
        world_step(w);
        if (i % 2000 == 1999) {
            world_judge(w, false, &verdict);
            complete = verdict.missing == 0 || !verdict.ok;
            watch_check_complete(w);
        }
    }
    if (w->result->ok && !world_stopped(w))
        check_log_is_short(w);
    if (!w->options->with_sink || !w->result->ok)
        return true;
    if (!drain(w) && w->result->ok)
        return false;
    sim_bucket_store_pump(&w->store, INT64_MAX, &next); /* what was on its way lands */
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
    world_judge(w, true, &verdict);
    w->result->windows = verdict.windows;
    return true;
}

/* Faults off: everything acknowledged must reach the lake. */
static void quiesce(struct world *w)
{
    bool done = false;
    (void)begin_decision(w, world_decisions(w->options));
    world_trace(w, "quiet: no faults any more");
    w->calm = true;
    w->store.outage = OUTAGE_NONE;
    world_set_full(w, false);
    for (unsigned i = 0; i < QUIET_LIVES_MAX && !done; i++) {
        done = quiet_life(w);
        world_drop(w);
    }
    if (!done)
        world_fail(w, "every drain leaves a window open");
}

/* --- a world --- */

static void init_sinks(struct world *w)
{
    static const unsigned weights[] = {13, 6, 2};
    uint64_t by_seed = prng_below(&w->prng, WORLD_INSTANCES_MAX);
    w->n_instances = w->options->instances == 0 ? 1 + (unsigned)by_seed : w->options->instances;
    w->one_by_one = prng_chance(&w->prng, 50);
    w->push_weight = weights[prng_below(&w->prng, 3)];
    w->setup.ttl_ms = 3000;
    w->setup.latest = prng_chance(&w->prng, 25);
    w->setup.http = prng_chance(&w->prng, 50);
    w->store.accounted = watch_accounts;
    w->store.ctx = w;
    for (unsigned i = 0; i < WORLD_INSTANCES_MAX; i++) {
        struct instance *it = &w->instances[i];
        it->world = w;
        it->number = i + 1;
        snprintf(it->name, sizeof(it->name), "sim-%u/node-%u", it->number, it->number);
    }
    watch_init(w);
}

/* Worlds begin shortly before an hour, a day, a leap day or a year, so that boundaries are met. */
static int64_t draw_boundary(uint64_t seed)
{
    static const int64_t boundaries[] = {INT64_C(1791007200000000), INT64_C(1791007200000000),
                                         INT64_C(1791072000000000), INT64_C(1835395200000000),
                                         INT64_C(1798761600000000)};
    struct prng prng;
    prng_init(&prng, seed ^ UINT64_C(0xb0d4));
    return boundaries[prng_below(&prng, sizeof(boundaries) / sizeof(boundaries[0]))];
}

void world_init(struct world *w, const struct world_options *options, struct world_result *result)
{
    *w = (struct world){.options = options,
                        .result = result,
                        .queues = WORLD_QUEUES,
                        .ballast_bytes = BALLAST_BYTES};
    if (options->queues != 0)
        w->queues = options->queues;
    *result = (struct world_result){.ok = true, .trace_hash = UINT64_C(0xcbf29ce484222325)};
    prng_init(&w->prng, options->seed);
    sim_clock_init(&w->clock, draw_boundary(options->seed) -
                                  (int64_t)prng_below(&w->prng, 2 * 60 * US_PER_SEC));
    sim_entropy_init(&w->entropy, &w->prng);
    sim_executor_init(&w->executor, &w->prng);
    w->start_us = w->clock.mono;
    w->disk = sim_disk_new(prng_u64(&w->prng));
    w->db_state = sim_db_state_new();
    sim_disk_set_meanwhile(w->disk, world_meanwhile, w);
    storage_init(w);
    w->push_weight = 13;
    w->delete_percent = prng_chance(&w->prng, 20) ? 90 : 15;
    sim_bucket_store_init(&w->store);
    ledger_init(&w->ledger);
    w->kv = kv_model_new(w);
    w->queue_options = options_model_new(w);
    w->repeats = dedup_model_new(w);
    if (options->with_sink)
        init_sinks(w);
    world_log_of(w);
}

void world_deinit(struct world *w)
{
    world_log_of(NULL);
    w->result->records = w->ledger.n;
    w->result->late = w->store.landed_late;
    w->result->statuses = w->store.statuses;
    w->result->redone = w->store.redone;
    w->result->multiparts = w->store.multiparts;
    w->result->stranded = sim_bucket_store_stranded(&w->store);
    watch_deinit(w);
    kv_model_free(w->kv);
    options_model_free(w->queue_options);
    dedup_model_free(w->repeats);
    ledger_deinit(&w->ledger);
    sim_bucket_store_deinit(&w->store);
    sim_db_state_free(w->db_state);
    sim_disk_free(w->disk);
    sim_executor_deinit(&w->executor);
}

void world_run(const struct world_options *options, struct world_result *out)
{
    struct world w;
    world_init(&w, options, out);
    unsigned last = options->last_life == 0 ? options->lives : options->last_life;
    for (w.life = 1; w.life <= last && out->ok; w.life++) {
        run_life(&w);
        if (!out->ok)
            out->life = (unsigned)w.life;
    }
    if (out->ok && options->last_life == 0)
        quiesce(&w);
    if (w.node != NULL) /* it failed in a life whose end was left out */
        world_drop(&w);
    out->virtual_us = w.clock.mono - w.start_us;
    world_deinit(&w);
}
