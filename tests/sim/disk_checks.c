/* A full disk (decisions.md 20): no entry that was acknowledged is lost, writes that grow storage are
 * refused, the deletion that makes room goes through, also behind an entry that does not fit, and
 * the node goes on by itself. */
#include "sim/story.h"

#define MUCH 120u /* pushes of what is deleted */

static bool all_answered(const struct story *s)
{
    return s->w->outstanding == 0;
}

/* A push is tried every second. */
static bool taken_again(const struct story *s)
{
    const struct ledger *l = &s->w->ledger;
    return l->n > 0 && l->records[l->n - 1]->told == TOLD_QUEUED;
}

static void fill_queue(struct story *s)
{
    struct world *w = s->w;
    w->queues = 2;
    story_open(s);
    story_start(s, s->a);
    for (unsigned i = 0; i < MUCH; i++) {
        world_push(w, 0, 5);
        world_push(w, 1, 1);
        story_run_for(s, US_PER_SEC / 10);
    }
    if (!story_run_until(s, 60 * US_PER_SEC, all_answered))
        world_fail(w, "pushes have no answer");
    story_run_for(s, 5 * US_PER_SEC);
}

static void log_all(struct world *w)
{
    while (node_pump_log(w->node)) {
    }
}

/* Committed, and not applied: an entry that appends, a deletion behind it; then others take the
 * rest of the disk. */
static void full_before_deletion(struct story *s)
{
    struct world *w = s->w;
    world_push(w, 1, 60);
    world_delete(w, 0);
    log_all(w);
    w->full = true;
    sim_disk_set_capacity(w->disk, sim_disk_used(w->disk));
    world_trace(w, "disk full");
}

static void expect_refused(struct story *s)
{
    struct world *w = s->w;
    world_push(w, 1, 20);
    if (!story_run_until(s, 30 * US_PER_SEC, all_answered))
        world_fail(w, "a push on a full disk has no answer");
}

static bool second_is_committed(const struct story *s)
{
    return s->w->watched[1].committed_k > s->committed_before;
}

static void expect_goes_on(struct story *s)
{
    struct world *w = s->w;
    int64_t from = w->clock.mono;
    do {
        world_push(w, 1, 1);
        (void)story_run_until(s, US_PER_SEC, taken_again);
        if (w->clock.mono - from > 60 * US_PER_SEC)
            world_fail(w, "pushes are refused a minute after the deletion made room");
    } while (w->result->ok && !taken_again(s));
    story_note(s, " goes on after %.1f s;", (double)(w->clock.mono - from) / 1e6);
    for (unsigned i = 0; i < 4; i++) { /* the clock goes on too: nothing waits for a refresh */
        s->committed_before = w->watched[1].committed_k;
        world_push(w, 1, 1);
        story_expect(s, 6 * US_PER_SEC, second_is_committed, "a lone push after");
    }
    w->full = false;
    story_end(s);
}

static void full_deletion(struct story *s)
{
    struct world *w = s->w;
    fill_queue(s);
    full_before_deletion(s);
    expect_refused(s);
    story_expect(s, 30 * US_PER_SEC, all_answered, "the deletion is answered after");
    if (world_stopped(w))
        world_fail(w, "the node stopped");
    expect_goes_on(s);
}

/* The process is killed there, and starts on the full disk. */
static void full_boot(struct story *s)
{
    struct world *w = s->w;
    fill_queue(s);
    full_before_deletion(s);
    world_drop(w);
    sim_disk_kill(w->disk);
    sim_disk_set_capacity(w->disk, sim_disk_used(w->disk));
    w->full = false; /* it has to open as it is */
    if (!world_open_node(w))
        world_fail(w, "the node does not open on a full disk");
    story_start(s, s->a);
    expect_refused(s);
    expect_goes_on(s);
}

static const struct check checks[] = {
    {"disk-full-deletion", CHECK_LAKE, full_deletion},
    {"disk-full-boot", CHECK_LAKE, full_boot},
};

const struct check_list disk_checks = {checks, sizeof(checks) / sizeof(checks[0])};
