/* Stories run without random faults, on a fixed course. Times are virtual; a bound is what the rules
 * add up to, at least, and what was measured is told (world_result.note). A request takes up to 0.2 s:
 * one that hangs for a minute, as in worlds, would make any bound a matter of luck. */
#include "sim/story.h"

#include <stdarg.h>
#include <stdio.h>

/* --- telling --- */

void story_note(struct story *s, const char *format, ...)
{
    char *text = s->w->result->note;
    size_t at = strlen(text), left = sizeof(s->w->result->note) - at;
    va_list args;
    va_start(args, format);
    vsnprintf(text + at, left, format, args);
    va_end(args);
}

void story_tell_held(const struct story *s, const char *what)
{
    world_fail(s->w, "%s: %u/%u/%u queues held", what, watch_held(s->w, s->a),
               watch_held(s->w, s->b), watch_held(s->w, s->c));
}

/* --- time --- */

static void traffic(struct story *s)
{
    struct world *w = s->w;
    if (s->push_every_us == 0 || w->clock.mono < s->push_at_us)
        return;
    s->answered_late = s->answered_late || w->outstanding > 0;
    world_push(w, (unsigned)prng_below(&w->prng, w->queues),
               1 + prng_below(&w->prng, s->push_most));
    s->push_at_us = w->clock.mono + s->push_every_us;
}

bool story_run_until(struct story *s, int64_t us, reached_fn reached)
{
    struct world *w = s->w;
    int64_t until = w->clock.mono + us;
    while (w->clock.mono < until && w->result->ok) {
        if (reached != NULL && reached(s))
            return true;
        traffic(s);
        int64_t left = until - w->clock.mono;
        world_do_next(w, left < US_PER_SEC / 2 ? left : US_PER_SEC / 2);
        if (watch_free_queues(w) > s->free_most)
            world_fail(w, "%u queues are free at a time", watch_free_queues(w));
    }
    return reached != NULL && reached(s);
}

void story_run_for(struct story *s, int64_t us)
{
    (void)story_run_until(s, us, NULL);
}

int64_t story_expect(struct story *s, int64_t us, reached_fn reached, const char *what)
{
    int64_t from = s->w->clock.mono;
    if (!story_run_until(s, us, reached))
        story_tell_held(s, what);
    int64_t took = s->w->clock.mono - from;
    story_note(s, " %s %.1f s;", what, (double)took / 1e6);
    return took;
}

bool story_shipped(const struct story *s)
{
    struct lake_verdict verdict;
    if (s->w->result->steps % 500 != 0)
        return false;
    world_judge(s->w, false, &verdict);
    return verdict.missing == 0;
}

/* --- what befalls the instances; nothing any more when something was wrong --- */

void story_start(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_start(s->w, i);
}

void story_kill(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_kill(s->w, i);
}

void story_drain(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_drain(s->w, i);
}

void story_freeze(struct story *s, struct instance *i, int64_t us)
{
    if (s->w->result->ok)
        instance_freeze(s->w, i, us);
}

void story_open(struct story *s)
{
    if (!world_open_node(s->w))
        world_fail(s->w, "the node does not open");
}

static bool all_ended(const struct story *s)
{
    return !instance_alive(s->a) && !instance_alive(s->b) && !instance_alive(s->c);
}

void story_end(struct story *s)
{
    struct world *w = s->w;
    struct lake_verdict verdict = {0};
    int64_t next;
    s->push_every_us = 0;
    s->free_most = WORLD_QUEUES_MAX;
    if (!story_run_until(s, CATCH_UP, story_shipped))
        world_fail(w, "not everything is shipped");
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        if (w->instances[n].state == INSTANCE_RUNNING)
            story_drain(s, &w->instances[n]);
    }
    if (!story_run_until(s, REQUEST_MOST, all_ended))
        world_fail(w, "the drain does not end");
    sim_bucket_store_pump(&w->store, INT64_MAX, &next);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
    if (w->result->ok)
        world_judge(w, true, &verdict);
    w->result->windows = verdict.windows;
}
