/* One event at every step of a window: a deletion with re-creation, SIGTERM, a kill, a power cut, a
 * deletion (with or without re-creation) with a power cut right behind it; with two sink instances,
 * the one that holds the queue dies, freezes or is stopped, and the other takes over.
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
#include "base/timefmt.h"

#define SWEEP_STEPS_MAX 300u
#define PEACE_STEPS_MAX 60000u

const char *sweep_event_name(enum sweep_event event)
{
    static const char *const names[SWEEP_EVENTS] = {"delete",     "sigterm",      "kill",
                                                    "power-cut",  "delete-kill",  "gone-kill",
                                                    "owner-kill", "owner-freeze", "owner-stop"};
    return names[event];
}

static void do_one(struct world *w)
{
    world_do_next(w, US_PER_SEC);
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

static bool any_alive(const struct world *w)
{
    return instance_alive(&w->instances[0]) || instance_alive(&w->instances[1]);
}

static void sigterm(struct world *w)
{
    instance_drain(w, &w->instances[0]);
    for (unsigned i = 0; i < PEACE_STEPS_MAX && any_alive(w); i++)
        do_one(w);
    if (any_alive(w)) {
        world_fail(w, "the drain does not end");
        return;
    }
    world_close(w);
    sim_disk_kill(w->disk);
    if (!world_open(w))
        world_fail(w, "does not open");
}

static void delete_and_make_again(struct world *w)
{
    world_delete(w, 0);
    world_push(w, 0, 3);
    while (node_pump_log(w->node) || world_pump_apply(w)) {
    }
}

/* Who holds the queue, or is about to. */
static struct instance *owner(struct world *w)
{
    return watch_held(w, &w->instances[1]) > 0 ? &w->instances[1] : &w->instances[0];
}

/* Some of it is pushed while nobody looks after the queue, some when it is over. */
static void strike_owner(struct world *w, enum sweep_event event)
{
    struct instance *i = owner(w);
    uint64_t ttl = (uint64_t)w->setup.ttl_ms * 1000;
    int64_t until = w->clock.mono + (int64_t)(ttl / 2 + prng_below(&w->prng, 4 * ttl));
    if (event == SWEEP_OWNER_KILL)
        instance_kill(w, i);
    else if (event == SWEEP_OWNER_FREEZE)
        instance_freeze(w, i, until - w->clock.mono);
    else
        instance_drain(w, i);
    world_push(w, 0, 3);
    while (w->clock.mono < until && w->result->ok)
        do_one(w);
    if (i->state == INSTANCE_NONE)
        instance_start(w, i);
    world_push(w, 0, 2);
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
        while (node_pump_log(w->node) || world_pump_apply(w)) {
        }
        reboot(w, true);
        break;
    case SWEEP_OWNER_KILL:
    case SWEEP_OWNER_FREEZE:
    case SWEEP_OWNER_STOP:
        strike_owner(w, event);
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
        do_one(w);
        if (i % 500 == 499)
            world_judge(w, false, &verdict);
    }
    for (unsigned i = 0; i < 2000 && w->result->ok; i++)
        do_one(w);
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
    struct world_options ours = *options;
    ours.instances = event >= SWEEP_OWNER_KILL ? 2 : 1;
    world_init(&w, &ours, out);
    w.calm = true;
    w.store.prompt = true; /* a minute's wait has hundreds of steps */
    w.one_by_one = ours.instances == 2;
    w.setup.latest = ours.instances == 2 && options->seed % 2 == 0;
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
        } else if (w.watched[0].committed_k > 0) {
            break;
        } else {
            if (w.setup.latest && w.watched[0].has_t0 && w.ledger.n == 5)
                world_push(&w, 0, 5); /* the first ones may be older than T0 */
            do_one(&w);
        }
    }
    if (out->ok && struck)
        peace(&w);
    for (size_t i = 0; i < before && pinned > 0 && out->ok; i++) {
        const struct ledger_record *r = w.ledger.records[i];
        bool wanted = !w.watched[0].has_t0 || r->stamp >= w.watched[0].t0;
        if (r->told == TOLD_QUEUED && wanted && r->seen != 1)
            world_fail(&w, "%s was pinned and is not in the lake", r->transaction_id);
    }
    out->virtual_us = w.clock.mono - w.start_us;
    if (opened)
        world_drop(&w);
    world_deinit(&w);
    return struck;
}
