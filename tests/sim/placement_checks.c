/* What placement promises (spec/sink.md 6), and that a quiet broker's window is not late. */
#include "sim/story.h"

#define SHARE_SETTLES (8 * TTL) /* several hand-offs, one after the other */

static bool held(const struct story *s, unsigned a, unsigned b, unsigned c)
{
    return watch_held(s->w, s->a) == a && watch_held(s->w, s->b) == b &&
           watch_held(s->w, s->c) == c;
}

static bool held_600(const struct story *s)
{
    return held(s, 6, 0, 0);
}

static bool held_330(const struct story *s)
{
    return held(s, 3, 3, 0);
}

static bool held_222(const struct story *s)
{
    return held(s, 2, 2, 2);
}

static bool b_has_its_share(const struct story *s)
{
    return watch_held(s->w, s->b) == 2;
}

static bool all_held_without_b(const struct story *s)
{
    return watch_held(s->w, s->b) == 0 && watch_free_queues(s->w) == 0;
}

static uint64_t given_back(struct instance *i)
{
    if (i->state != INSTANCE_RUNNING)
        return 0;
    return instance_metric(i, "queen_s3_queues_given_back_total");
}

/* Six queues, the first instance has them all. */
static void open_placement(struct story *s)
{
    struct world *w = s->w;
    story_open(s);
    for (unsigned q = 0; q < w->queues; q++)
        world_push(w, q, 2);
    s->push_every_us = 5 * US_PER_SEC;
    story_start(s, s->a);
    story_expect(s, TTL, held_600, "first has all after");
    s->free_most = 1;
}

static void open_balanced(struct story *s)
{
    open_placement(s);
    story_start(s, s->b);
    story_start(s, s->c);
    story_expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
}

static void expect_no_move(struct story *s, int64_t us, const char *what)
{
    unsigned before = watch_moves(s->w);
    story_run_for(s, us);
    if (watch_moves(s->w) != before)
        story_tell_held(s, what);
}

static void placement_alone(struct story *s)
{
    open_placement(s);
    s->free_most = 0;
    expect_no_move(s, 20 * TTL, "one instance moves queues");
    if (given_back(s->a) != 0)
        story_tell_held(s, "one instance gives queues back");
}

static void expect_given_back(struct story *s, uint64_t a, uint64_t b, uint64_t c)
{
    if (given_back(s->a) != a || given_back(s->b) != b || given_back(s->c) != c)
        world_fail(s->w, "%llu, %llu and %llu given back", (unsigned long long)given_back(s->a),
                   (unsigned long long)given_back(s->b), (unsigned long long)given_back(s->c));
}

/* The others come before anything has moved: all moves are the first one's. */
static void placement_staggered(struct story *s)
{
    open_placement(s);
    story_run_for(s, 10 * US_PER_SEC);
    story_start(s, s->b);
    story_run_for(s, 10 * US_PER_SEC);
    story_start(s, s->c);
    story_expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
    expect_no_move(s, 20 * TTL, "queues move at 2/2/2");
    expect_given_back(s, 4, 0, 0);
}

/* The third comes when two have shared: each of them gives one back, perhaps at the same time. */
static void placement_one_by_one(struct story *s)
{
    open_placement(s);
    story_run_for(s, TTL);
    story_start(s, s->b);
    story_expect(s, SHARE_SETTLES, held_330, "3/3 after");
    story_run_for(s, TTL);
    s->free_most = 2;
    story_start(s, s->c);
    story_expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
    expect_no_move(s, 20 * TTL, "queues move at 2/2/2");
    expect_given_back(s, 4, 1, 0);
}

static void placement_together(struct story *s)
{
    open_balanced(s);
    expect_no_move(s, 20 * TTL, "queues move at 2/2/2");
    expect_given_back(s, 4, 0, 0);
}

static void placement_blip(struct story *s)
{
    open_placement(s);
    s->free_most = 0;
    story_start(s, s->b);
    story_run_for(s, 5 * US_PER_SEC);
    story_kill(s, s->b); /* its row stays for a TTL */
    expect_no_move(s, 4 * TTL, "an instance that died after 5 s moves queues");
    story_start(s, s->b);
    story_run_for(s, TTL / 2);
    story_drain(s, s->b);
    expect_no_move(s, 4 * TTL, "an instance that was there for seconds moves queues");
}

static bool one_is_free(const struct story *s)
{
    return watch_free_queues(s->w) == 1;
}

/* Who was to have a queue stands still: no second one is given back behind it, and the first takes
 * it again, but not before its cooldown is over. */
static void placement_untaken(struct story *s)
{
    open_placement(s);
    story_start(s, s->b);
    story_expect(s, 3 * TTL, one_is_free, "given back after");
    story_freeze(s, s->b, 4 * TTL);
    int64_t took = story_expect(s, 4 * TTL, held_600, "nobody took it, taken again after");
    if (took < 2 * TTL - US_PER_SEC || given_back(s->a) != 1)
        world_fail(s->w, "taken again after %.1f s, %llu given back", (double)took / 1e6,
                   (unsigned long long)given_back(s->a));
    story_expect(s, SHARE_SETTLES, held_330, "3/3 after");
}

static void placement_death(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    story_kill(s, s->b);
    int64_t took = story_expect(s, 6 * TTL, all_held_without_b, "a dead one's queues taken after");
    if (took > 3 * TTL)
        world_fail(s->w, "the queues of a dead instance wait for %.1f s", (double)took / 1e6);
}

/* One that died and was missed comes back; then one that nobody missed. */
static void placement_return(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    story_kill(s, s->b);
    story_expect(s, 6 * TTL, all_held_without_b, "taken after");
    story_run_for(s, TTL);
    story_start(s, s->b);
    int64_t took = story_expect(s, 6 * TTL, b_has_its_share, "back in its share after");
    if (took > 2 * TTL)
        world_fail(s->w, "a returning instance has its share after %.1f s", (double)took / 1e6);
    story_run_for(s, TTL);
    unsigned moves = watch_moves(s->w);
    story_kill(s, s->b);
    story_run_for(s, US_PER_SEC);
    story_start(s, s->b);
    story_run_for(s, 10 * TTL);
    if (watch_moves(s->w) != moves || !held_222(s))
        story_tell_held(s, "an instance that restarted at once");
}

static void placement_leave(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    story_drain(s, s->b);
    int64_t took =
        story_expect(s, 6 * TTL, all_held_without_b, "a leaving one's queues taken after");
    if (took > 3 * TTL)
        world_fail(s->w, "the queues of a drained instance wait for %.1f s", (double)took / 1e6);
}

static void placement_frozen(struct story *s)
{
    open_balanced(s);
    uint64_t before = s->w->result->fences;
    s->free_most = 2;
    story_freeze(s, s->b, 4 * TTL);
    story_expect(s, 4 * TTL, all_held_without_b, "a frozen one's queues taken after");
    story_expect(s, SHARE_SETTLES, held_222, "2/2/2 again after");
    if (s->w->result->fences - before != 2)
        world_fail(s->w, "%llu fences instead of one for each of two queues",
                   (unsigned long long)(s->w->result->fences - before));
}

static void placement_steady(struct story *s)
{
    open_balanced(s);
    s->free_most = 0;
    story_run_for(s, 3 * TTL);
    expect_no_move(s, 3600 * US_PER_SEC, "queues move in a steady hour");
}

static bool held_221(const struct story *s)
{
    unsigned a = watch_held(s->w, s->a), b = watch_held(s->w, s->b), c = watch_held(s->w, s->c);
    return a + b + c == 5 && a <= 2 && b <= 2 && c <= 2;
}

static bool held_500(const struct story *s)
{
    return held(s, 5, 0, 0);
}

/* A share is rounded up: two of five for each of three, and then nothing moves. */
static void placement_uneven(struct story *s)
{
    s->w->queues = 5;
    story_open(s);
    for (unsigned q = 0; q < s->w->queues; q++)
        world_push(s->w, q, 2);
    s->push_every_us = 5 * US_PER_SEC;
    story_start(s, s->a);
    story_expect(s, TTL, held_500, "first has all after");
    story_start(s, s->b);
    story_start(s, s->c);
    story_expect(s, SHARE_SETTLES, held_221, "2/2/1 after");
    story_run_for(s, 3 * TTL);
    expect_no_move(s, 20 * TTL, "queues move at 2/2/1");
}

/* --- a quiet broker --- */

static bool next_is_committed(const struct story *s)
{
    const struct watched_queue *q = &s->w->watched[0];
    return q->committed_k > s->committed_before;
}

/* Nothing else moves the log's clock: the sink must ask for that (decisions.md 12). */
static void lone_push(struct story *s)
{
    struct world *w = s->w;
    int64_t most = ((int64_t)w->setup.window_ms + w->setup.guard_ms) * 1000 + 3 * US_PER_SEC;
    w->queues = 1;
    w->setup.ttl_ms = 10 * TTL_MS; /* refreshes of the lease are far apart */
    story_open(s);
    s->push_every_us = 0;
    s->free_most = WORLD_QUEUES_MAX;
    world_push(w, 0, 1);
    story_start(s, s->a);
    story_run_for(s, 10 * TTL);
    for (unsigned i = 0; i < 5 && w->result->ok; i++) {
        s->committed_before = w->watched[0].committed_k;
        world_push(w, 0, 1);
        int64_t took = story_expect(s, 10 * TTL, next_is_committed, "a lone push committed after");
        if (took > most)
            world_fail(w, "a lone push is in the lake after %.1f s", (double)took / 1e6);
        story_run_for(s, TTL + i * US_PER_SEC);
    }
}

/* What is pushed wakes the sink: it does not have to look. */
static void lone_push_told(struct story *s)
{
    s->w->setup.discovery_ms = 60000;
    lone_push(s);
}

/* --- the table --- */

static const struct check checks[] = {
    {"placement-alone", CHECK_PLACEMENT, placement_alone},
    {"placement-staggered", CHECK_PLACEMENT, placement_staggered},
    {"placement-one-by-one", CHECK_PLACEMENT, placement_one_by_one},
    {"placement-together", CHECK_PLACEMENT, placement_together},
    {"placement-blip", CHECK_PLACEMENT, placement_blip},
    {"placement-untaken", CHECK_PLACEMENT, placement_untaken},
    {"placement-death", CHECK_PLACEMENT, placement_death},
    {"placement-return", CHECK_PLACEMENT, placement_return},
    {"placement-leave", CHECK_PLACEMENT, placement_leave},
    {"placement-frozen", CHECK_PLACEMENT, placement_frozen},
    {"placement-steady", CHECK_PLACEMENT, placement_steady},
    {"placement-uneven", CHECK_PLACEMENT, placement_uneven},
    {"lone-push", CHECK_PLACEMENT, lone_push},
    {"lone-push-told", CHECK_PLACEMENT, lone_push_told},
};

const struct check_list placement_checks = {checks, sizeof(checks) / sizeof(checks[0])};
