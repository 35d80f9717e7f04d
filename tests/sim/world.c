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

#include "base/log.h"
#include "base/timefmt.h"

#include <stdarg.h>
#include <stdio.h>

#define QUIESCE_STEPS_MAX 400000u
#define QUIET_LIVES_MAX 8u
#define LOG_WIDTH 160u /* of a log line in a story */
#define BUSY_STEPS 200000u
#define BALLAST_BYTES (256u << 10)

void world_fail(struct world *w, const char *format, ...)
{
    if (!w->result->ok)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->result->why, sizeof(w->result->why), format, args);
    va_end(args);
    w->result->why[strcspn(w->result->why, "\n")] = '\0'; /* a log line ends in one */
    w->result->ok = false;
}

static void trace(struct world *w, bool shown, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
static void trace(struct world *w, bool shown, const char *format, va_list args)
{
    char text[300];
    int len = vsnprintf(text, sizeof(text), format, args);
    double virtual_s = (double)(w->clock.mono - w->start_us) / 1e6;
    w->moved = true;
    for (int i = 0; i < len && i < (int)sizeof(text) - 1; i++) /* FNV-1a */
        w->result->trace_hash = (w->result->trace_hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    w->result->trace_hash = (w->result->trace_hash ^ (uint64_t)w->clock.mono) * 0x100000001b3u;
    w->result->trace_hash = (w->result->trace_hash ^ (uint64_t)w->clock.wall) * 0x100000001b3u;
    if (shown)
        printf("%6llu %11.6f s  %s\n", (unsigned long long)w->result->steps, virtual_s, text);
}

void world_trace(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    trace(w, w->options->trace != TRACE_NONE, format, args);
    va_end(args);
}

void world_detail(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    trace(w, w->options->trace == TRACE_ALL, format, args);
    va_end(args);
}

/* --- log --- */

static struct {
    struct world *world; /* whose sinks write */
    enum world_trace trace;
} log_lines;

static void log_line(void *ctx, struct span line)
{
    (void)ctx;
    if (log_lines.trace != TRACE_NONE) {
        struct span text = line; /* less its own time, which is the wall clock's */
        const uint8_t *space = memchr(line.ptr, ' ', line.len);
        if (space != NULL)
            text = span_sub(line, (size_t)(space - line.ptr) + 1, line.len);
        bool acting = log_lines.world != NULL && log_lines.world->acting != NULL;
        text.len -= text.len > 0 && text.ptr[text.len - 1] == '\n';
        printf("%24s  | " SPAN_FMT "\n", acting ? log_lines.world->acting->name : "",
               SPAN_ARG(span_sub(text, 0, text.len < LOG_WIDTH ? text.len : LOG_WIDTH)));
    }
    if (log_lines.world != NULL)
        instance_log_line(log_lines.world, line);
}

static int64_t log_clock(void *ctx)
{
    (void)ctx;
    return log_lines.world == NULL ? 0 : log_lines.world->clock.wall;
}

void world_log_install(enum world_trace trace)
{
    log_lines.trace = trace;
    log_install(log_line, log_clock, NULL, false);
}

/* --- lives --- */

static enum err open_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    struct world *w = ctx;
    *out = w->db = sim_db_new(w->db_state);
    return ERR_OK;
}

static void draw_setup(struct world *w)
{
    static const char *const compressions[] = {"zstd", "gzip", "none"};
    static const char *const aligns[] = {"hour", "none", "day"};
    /* some longer than the lag from which on a drain closes a window */
    w->setup.window_ms =
        500 + (unsigned)prng_below(&w->prng, prng_chance(&w->prng, 25) ? 40000 : 5000);
    w->setup.guard_ms = (unsigned)prng_below(&w->prng, 800);
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
    return node_open(&o, &w->node, error);
}

/* A full disk may refuse the boot; then it must work as soon as there is room. */
static bool open_node(struct world *w)
{
    struct error error = {0};
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

/* What was published holds, over restarts too: every later record is stamped above it. */
static void check_safe_time(struct world *w)
{
    int64_t safe_time = node_safe_time(w->node);
    if (safe_time < w->safe_time)
        world_fail(w, "safeTime %lld was published, and now it is %lld", (long long)w->safe_time,
                   (long long)safe_time);
    w->safe_time = safe_time;
}

bool world_open_node(struct world *w)
{
    if (!open_node(w))
        return false;
    w->disturbed_us = w->clock.mono;
    world_trace(w, "boot");
    check_safe_time(w);
    watch_look(w, true);
    world_check_log(w);
    kv_model_check(w->kv);
    options_model_check(w->queue_options);
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
}

void world_close(struct world *w)
{
    node_end(w->node);
    run_out_jobs(w);
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
    /* Without threads nobody can wait for room inside an entry. */
    bool no_room = w->full && strstr(status.failure, err_text(ERR_NO_SPACE)) != NULL;
    if (status.stopped && !no_room && !storage_failed(w))
        world_fail(w, "the node stopped: %s", status.failure);
    return status.stopped;
}

bool world_pump_apply(struct world *w)
{
    if (!node_pump_apply(w->node))
        return false;
    check_safe_time(w);
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

static struct instance *any_instance(struct world *w)
{
    return &w->instances[prng_below(&w->prng, w->n_instances)];
}

static void pump(struct world *w, bool did, const char *what)
{
    if (did)
        world_detail(w, "%s", what);
}

/* Now and then the power goes in the middle of it. */
static void make_checkpoint(struct world *w)
{
    if (!w->calm && prng_chance(&w->prng, 1))
        sim_disk_crash_after(w->disk, prng_below(&w->prng, 4));
    pump(w, node_pump_checkpoint(w->node), "checkpoint");
}

/* One action. */
static void act(struct world *w)
{
    int64_t next;
    unsigned roll = (unsigned)prng_below(&w->prng, 100);
    if ((roll < 13 && roll >= w->push_weight) || (w->calm && roll < 14))
        roll = 99;
    if (roll < 13)
        world_push_any(w);
    else if (roll < 14 && prng_chance(&w->prng, 15))
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
        pump(w, sim_executor_pump(&w->executor), "a job runs");
    else if (roll < 88 && w->options->with_sink)
        pump(w, instance_pump_bucket(any_instance(w), &next), "a request ends");
    else
        pass_time(w);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
}

static void step(struct world *w)
{
    w->result->steps++;
    instances_tend(w);
    act(w);
    storage_look(w);
}

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
    return skip == NULL || number >= world_decisions(w->options) || !skip[number];
}

/* Tells whether it moved anything. */
static void end_decision(struct world *w, uint64_t number)
{
    if (w->options->moved_out != NULL)
        w->options->moved_out[number] = w->moved;
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
        step(w);
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
            act(w);
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

/* One life without faults, until everything acknowledged is in the lake, and a drain: a window of
 * records that nobody waits for may be on its way. False when it has to be lived again. */
static bool quiet_life(struct world *w)
{
    struct lake_verdict verdict = {0};
    int64_t next;
    if (!world_open(w))
        return true;
    bool complete = !w->options->with_sink;
    for (unsigned i = 0; i < QUIESCE_STEPS_MAX && w->result->ok && !complete && !world_stopped(w);
         i++) {
        step(w);
        if (i % 2000 == 1999) {
            world_judge(w, false, &verdict);
            complete = verdict.missing == 0 || !verdict.ok;
        }
    }
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
    storage_init(w);
    w->push_weight = 13;
    sim_bucket_store_init(&w->store);
    ledger_init(&w->ledger);
    w->kv = kv_model_new(w);
    w->queue_options = options_model_new(w);
    if (options->with_sink)
        init_sinks(w);
    log_lines.world = w;
}

void world_deinit(struct world *w)
{
    log_lines.world = NULL;
    w->result->records = w->ledger.n;
    w->result->late = w->store.landed_late;
    w->result->statuses = w->store.statuses;
    w->result->multiparts = w->store.multiparts;
    w->result->stranded = sim_bucket_store_stranded(&w->store);
    watch_deinit(w);
    kv_model_free(w->kv);
    options_model_free(w->queue_options);
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
    for (w.life = 1; w.life <= options->lives && out->ok; w.life++)
        run_life(&w);
    if (out->ok)
        quiesce(&w);
    if (w.node != NULL) /* it failed in a life whose end was left out */
        world_drop(&w);
    out->virtual_us = w.clock.mono - w.start_us;
    world_deinit(&w);
}
