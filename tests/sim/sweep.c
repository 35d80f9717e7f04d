/* One event at every step of a window: a deletion with re-creation, SIGTERM, a kill, a power cut, or a
 * deletion (with or without re-creation) with a power cut right behind it.
 *
 * The same short story is told again and again from one seed: records are pushed, the sink takes
 * the queue, fills, closes, uploads and commits window 1. In run i the event strikes before step i
 * (a step is one thing done by the log writer, apply, the sink, a worker or the bucket, or time
 * that passes). Afterwards the world is left in peace, and the lake must be exact: no record of
 * either queue lost, doubled or orphaned. A record that an intent had pinned when its queue was
 * deleted must be in the lake (storage rule 8). The sweep ends when the story is over before step
 * i. */
#include "sim/world_internal.h"

#include "base/mem.h"

#define SWEEP_STEPS_MAX 3000u
#define PEACE_STEPS_MAX 60000u

const char *sweep_event_name(enum sweep_event event)
{
    static const char *const names[SWEEP_EVENTS] = {"delete",    "sigterm",     "kill",
                                                    "power-cut", "delete-kill", "gone-kill"};
    return names[event];
}

/* Does one thing; time passes only when nothing else is to be done. */
static void one_step(struct world *w)
{
    int64_t next_sink = INT64_MAX, next_bucket = INT64_MAX;
    w->result->steps++;
    if (node_pump_log(w->node) || node_pump_apply(w->node) ||
        (w->sink != NULL && sink_pump(w->sink, &next_sink)) || sim_executor_pump(&w->executor) ||
        (w->bucket != NULL && sim_bucket_pump(w->bucket, &next_bucket)))
        return;
    if (w->result->steps % 7 == 0 && node_pump_checkpoint(w->node))
        return;
    int64_t next = next_sink < next_bucket ? next_sink : next_bucket;
    int64_t by = next == INT64_MAX ? 100000 : next - w->clock.mono;
    sim_clock_advance(&w->clock, by < 1 ? 1 : by > 1000000 ? 1000000 : by);
}

static uint64_t committed_windows(struct world *w)
{
    struct tenant_id tenant = TENANT_DEFAULT;
    struct kv_result result = {0};
    struct error error;
    bool due;
    struct kv_op op = {
        .type = KV_GET, .ns = SPAN_LIT("queen-s3"), .key = SPAN_LIT("s3:default:orders:committed")};
    struct state *s = node_read_begin(w->node);
    int64_t now = node_safe_time(w->node);
    enum err err = kv_read(s, &tenant, &op, 1, now, now, &result, &due, &error);
    node_read_end(w->node);
    uint64_t found = err == ERR_OK && result.n == 1 && result.ops[0].found;
    kv_result_deinit(&result);
    return found;
}

static size_t pins(struct world *w)
{
    const struct pin **list = NULL;
    struct state *s = node_read_begin(w->node);
    size_t n = state_pin_list(s, &list);
    node_read_end(w->node);
    mem_free(list);
    return n;
}

static void reboot(struct world *w, bool power_cut)
{
    world_drop(w);
    if (power_cut)
        sim_disk_crash(w->disk, &w->prng);
    else
        sim_disk_kill(w->disk);
    if (!world_open(w))
        world_fail(w, "does not open");
}

static void sigterm(struct world *w)
{
    sink_drain(w->sink);
    for (unsigned i = 0; i < PEACE_STEPS_MAX && !sink_drained(w->sink); i++)
        one_step(w);
    if (!sink_drained(w->sink))
        world_fail(w, "the drain does not end");
    sink_free(w->sink);
    w->sink = NULL;
    w->bucket = NULL;
    sink_boot_settings_deinit(&w->settings);
    w->settings = (struct sink_boot_settings){0};
    node_close(w->node);
    w->node = NULL;
    sim_disk_kill(w->disk);
    if (!world_open(w))
        world_fail(w, "does not open");
}

static void delete_and_make_again(struct world *w)
{
    world_delete(w, 0);
    world_push(w, 0, 3);
    while (node_pump_log(w->node) || node_pump_apply(w->node)) {
    }
}

static void strike(struct world *w, enum sweep_event event)
{
    switch (event) {
    case SWEEP_DELETE:
        delete_and_make_again(w);
        break;
    case SWEEP_SIGTERM:
        sigterm(w);
        break;
    case SWEEP_KILL:
        reboot(w, false);
        break;
    case SWEEP_POWER_CUT:
        reboot(w, true);
        break;
    case SWEEP_DELETE_KILL:
        delete_and_make_again(w);
        reboot(w, true);
        break;
    case SWEEP_GONE_KILL:
        world_delete(w, 0);
        while (node_pump_log(w->node) || node_pump_apply(w->node)) {
        }
        reboot(w, true);
        break;
    case SWEEP_EVENTS:
        break;
    }
}

/* Until the lake holds everything and a while longer. */
static void peace(struct world *w)
{
    struct lake_verdict verdict = {.missing = 1};
    for (unsigned i = 0; i < PEACE_STEPS_MAX && w->result->ok && verdict.missing > 0; i++) {
        one_step(w);
        if (i % 500 == 499)
            world_judge(w, false, &verdict);
    }
    for (unsigned i = 0; i < 2000 && w->result->ok; i++)
        one_step(w);
    if (w->result->ok)
        world_judge(w, true, &verdict);
    if (w->result->ok && pins(w) != 0)
        world_fail(w, "a pin is left over");
    w->result->windows = verdict.windows;
}

bool sweep_run(const struct world_options *options, enum sweep_event event, unsigned at,
               struct world_result *out)
{
    struct world w;
    world_init(&w, options, out);
    w.calm = true;
    bool opened = world_open(&w);
    bool struck = false;
    size_t before = 0, pinned = 0;
    if (!opened)
        world_fail(&w, "does not open");
    else
        world_push(&w, 0, 5);
    for (unsigned i = 0; opened && out->ok && i < SWEEP_STEPS_MAX && !struck; i++) {
        if (i == at) {
            struck = true;
            before = w.ledger.n;
            pinned = pins(&w);
            strike(&w, event);
        } else if (committed_windows(&w) > 0) {
            break;
        } else {
            one_step(&w);
        }
    }
    if (out->ok && struck)
        peace(&w);
    for (size_t i = 0; i < before && pinned > 0 && out->ok; i++) {
        if (w.ledger.records[i]->told == TOLD_QUEUED && w.ledger.records[i]->seen != 1)
            world_fail(&w, "%s was pinned and is not in the lake",
                       w.ledger.records[i]->transaction_id);
    }
    if (opened)
        world_drop(&w);
    world_deinit(&w);
    return struck;
}
