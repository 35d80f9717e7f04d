/* Named stories of the clock: the boundary of an hour, a day, a leap day and a year is passed under
 * traffic, and the wall clock is set by days, forwards and back.
 *
 * No window lies over a boundary (watch.c), the one before a boundary ends at it, and what a jump
 * of days leaves to do does not depend on how many hours it skips. */
#include "sim/clock_checks.h"

#include "base/timefmt.h"
#include "sim/world_internal.h"

#include <stdio.h>

#define NEW_YEAR INT64_C(1798761600000000)  /* 2027-01-01T00:00:00Z */
#define LEAP_DAY INT64_C(1835395200000000)  /* 2028-02-29T00:00:00Z */
#define SOME_DAY INT64_C(1791072000000000)  /* 2026-10-04T00:00:00Z */
#define SOME_HOUR INT64_C(1791007200000000) /* 2026-10-03T06:00:00Z */
#define TTL_MS 3000u
#define PUSH_EVERY_US (US_PER_SEC / 2)
/* A jump ends leases, which takes some TTLs; behind one back the log's clock goes at half the speed. */
#define CATCH_UP_US (60 * US_PER_SEC)
#define JUMP_DAYS 3000 /* more days than an idle minute may need extra steps */

static const struct clock_story {
    const char *name, *align;
    int64_t boundary;
} stories[] = {
    {"clock-hour", "hour", SOME_HOUR},   {"clock-hour-of-day", "hour", SOME_DAY},
    {"clock-day", "day", SOME_DAY},      {"clock-day-not-hour", "day", SOME_HOUR},
    {"clock-leap-day", "day", LEAP_DAY}, {"clock-year", "hour", NEW_YEAR},
    {"clock-year-day", "day", NEW_YEAR}, {"clock-year-none", "none", NEW_YEAR},
};

static void run_for(struct world *w, int64_t us, bool traffic)
{
    int64_t until = w->clock.mono + us, push_at = w->clock.mono;
    while (w->clock.mono < until && w->result->ok) {
        if (traffic && w->clock.mono >= push_at) {
            world_push_mixed(w, 1 + prng_below(&w->prng, 6));
            push_at = w->clock.mono + PUSH_EVERY_US;
        }
        world_do_next(w, US_PER_SEC / 10);
    }
}

static uint64_t idle_minute(struct world *w)
{
    uint64_t before = w->result->steps;
    run_for(w, 60 * US_PER_SEC, false);
    return w->result->steps - before;
}

static void jump(struct world *w, int64_t us)
{
    world_trace(w, "the wall clock is set by %lld s", (long long)(us / US_PER_SEC));
    w->clock.wall += us;
    w->disturbed_us = w->clock.mono;
}

static void expect_shipped(struct world *w, const char *when)
{
    struct lake_verdict verdict = {.missing = 1};
    for (int64_t from = w->clock.mono;
         w->clock.mono - from < CATCH_UP_US && w->result->ok && verdict.missing > 0;) {
        run_for(w, US_PER_SEC, false);
        world_judge(w, false, &verdict);
    }
    if (verdict.missing > 0)
        world_fail(w, "%zu records are not in the lake %s", verdict.missing, when);
}

/* What a jump does once (leases end, queues are taken again) takes some hundred steps. It skips thousands of days: one
 * step for each day, or hour, of a single queue is too many. */
static void expect_no_more(struct world *w, uint64_t usual, uint64_t steps, const char *when)
{
    int64_t unit = watch_align_unit(w) != 0 ? watch_align_unit(w) : US_PER_DAY;
    uint64_t skipped = (uint64_t)(JUMP_DAYS * US_PER_DAY / unit);
    if (steps >= usual + skipped)
        world_fail(w, "an idle minute takes %llu steps, %llu behind a jump %s",
                   (unsigned long long)usual, (unsigned long long)steps, when);
}

/* An aligned window ends where its interval does. */
static void expect_boundary(struct world *w, int64_t boundary)
{
    if (watch_window_ends(w, boundary) == 0)
        world_fail(w, "no window ends at the boundary");
}

static void play(struct world *w, const struct clock_story *s)
{
    if (!world_open_node(w))
        world_fail(w, "the node does not open");
    for (unsigned i = 0; w->result->ok && i < w->n_instances; i++)
        instance_start(w, &w->instances[i]);
    run_for(w, 30 * US_PER_SEC, true);
    expect_shipped(w, "behind the boundary");
    int64_t unit = watch_align_unit(w);
    if (unit != 0 && s->boundary % unit == 0)
        expect_boundary(w, s->boundary);
    uint64_t usual = idle_minute(w);
    jump(w, JUMP_DAYS * US_PER_DAY);
    uint64_t forwards = idle_minute(w);
    run_for(w, 20 * US_PER_SEC, true);
    expect_shipped(w, "behind a jump forwards");
    jump(w, -JUMP_DAYS * US_PER_DAY);
    uint64_t back = idle_minute(w);
    run_for(w, 20 * US_PER_SEC, true);
    expect_shipped(w, "behind a jump back");
    expect_no_more(w, usual, forwards, "forwards");
    expect_no_more(w, usual, back, "back");
    snprintf(w->result->note, sizeof(w->result->note), " an idle minute %llu steps, %llu, %llu;",
             (unsigned long long)usual, (unsigned long long)forwards, (unsigned long long)back);
}

size_t clock_check_count(void)
{
    return sizeof(stories) / sizeof(stories[0]);
}

const char *clock_check_name(size_t check)
{
    return stories[check].name;
}

void clock_check_run(size_t check, const struct world_options *options, struct world_result *out)
{
    struct world w;
    struct world_options ours = *options;
    ours.instances = 2;
    world_init(&w, &ours, out);
    w.calm = w.one_by_one = w.store.prompt = true;
    w.clock.wall = stories[check].boundary - 10 * US_PER_SEC;
    w.setup = (struct sink_setup){.ttl_ms = TTL_MS,
                                  .window_ms = 4000,
                                  .guard_ms = 100,
                                  .checkpoint_every = 4,
                                  .compression = "zstd",
                                  .align = stories[check].align,
                                  .http = true};
    int64_t start = w.clock.mono;
    play(&w, &stories[check]);
    out->virtual_us = w.clock.mono - start;
    world_drop(&w);
    world_deinit(&w);
}
