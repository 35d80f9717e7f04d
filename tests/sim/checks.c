/* Named stories with a fixed course, over sinks without random faults: what placement promises
 * (spec/sink.md 6), and a bucket that is away for ten minutes or hours.
 *
 * Times are virtual. A bound is what the rules add up to, at least; what was measured is told
 * (world_result.note), and docs/testing.md has the usual figures. */
#include "sim/world_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "sim/clock_checks.h"

#include <stdarg.h>
#include <stdio.h>

#define TTL_MS 30000u
#define TTL (INT64_C(1000) * TTL_MS)
#define SHARE_SETTLES (8 * TTL)       /* several hand-offs, one after the other */
#define CATCH_UP (150 * US_PER_SEC)   /* the longest backoff of a step, and the steps behind it */
#define PUSH_BYTES_MOST (20u * 20200) /* 20 records of the largest payload */
#define REQUEST_MOST                                                                               \
    (SIM_BUCKET_HANG_US + 60 * US_PER_SEC) /* under way before, and the one behind */

struct story {
    struct world *w;
    struct instance *a, *b, *c;
    int64_t push_every_us, push_at_us; /* one push to a random queue; 0 = none */
    unsigned push_most;                /* records in a push */
    unsigned free_most;                /* queues that may be free at a time */
    uint64_t buffered_most;            /* bytes, over all instances */
    uint64_t committed_before;         /* k of the first queue */
    bool answered_late;                /* a push was still unanswered a second later */
};

typedef bool (*reached_fn)(const struct story *s);

/* --- telling --- */

static void note(struct story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct story *s, const char *format, ...)
{
    char *text = s->w->result->note;
    size_t at = strlen(text), left = sizeof(s->w->result->note) - at;
    va_list args;
    va_start(args, format);
    vsnprintf(text + at, left, format, args);
    va_end(args);
}

static void tell_held(const struct story *s, const char *what)
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

/* True as soon as it is reached; false when that takes longer. reached NULL: lets the time pass. */
static bool run_until(struct story *s, int64_t us, reached_fn reached)
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

static void run_for(struct story *s, int64_t us)
{
    (void)run_until(s, us, NULL);
}

/* How long it took. */
static int64_t expect(struct story *s, int64_t us, reached_fn reached, const char *what)
{
    int64_t from = s->w->clock.mono;
    if (!run_until(s, us, reached))
        tell_held(s, what);
    int64_t took = s->w->clock.mono - from;
    note(s, " %s %.1f s;", what, (double)took / 1e6);
    return took;
}

static bool everything_shipped(const struct story *s)
{
    struct lake_verdict verdict;
    if (s->w->result->steps % 500 != 0)
        return false;
    world_judge(s->w, false, &verdict);
    return verdict.missing == 0;
}

/* --- what befalls the instances; nothing any more when something was wrong --- */

static void start(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_start(s->w, i);
}

static void kill(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_kill(s->w, i);
}

static void drain(struct story *s, struct instance *i)
{
    if (s->w->result->ok)
        instance_drain(s->w, i);
}

static void freeze(struct story *s, struct instance *i, int64_t us)
{
    if (s->w->result->ok)
        instance_freeze(s->w, i, us);
}

static void open_node(struct story *s)
{
    if (!world_open_node(s->w))
        world_fail(s->w, "the node does not open");
}

/* --- placement --- */

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
    open_node(s);
    for (unsigned q = 0; q < w->queues; q++)
        world_push(w, q, 2);
    s->push_every_us = 5 * US_PER_SEC;
    start(s, s->a);
    expect(s, TTL, held_600, "first has all after");
    s->free_most = 1;
}

static void open_balanced(struct story *s)
{
    open_placement(s);
    start(s, s->b);
    start(s, s->c);
    expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
}

static void expect_no_move(struct story *s, int64_t us, const char *what)
{
    unsigned before = watch_moves(s->w);
    run_for(s, us);
    if (watch_moves(s->w) != before)
        tell_held(s, what);
}

static void placement_alone(struct story *s)
{
    open_placement(s);
    s->free_most = 0;
    expect_no_move(s, 20 * TTL, "one instance moves queues");
    if (given_back(s->a) != 0)
        tell_held(s, "one instance gives queues back");
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
    run_for(s, 10 * US_PER_SEC);
    start(s, s->b);
    run_for(s, 10 * US_PER_SEC);
    start(s, s->c);
    expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
    expect_no_move(s, 20 * TTL, "queues move at 2/2/2");
    expect_given_back(s, 4, 0, 0);
}

/* The third comes when two have shared: each of them gives one back, perhaps at the same time. */
static void placement_one_by_one(struct story *s)
{
    open_placement(s);
    run_for(s, TTL);
    start(s, s->b);
    expect(s, SHARE_SETTLES, held_330, "3/3 after");
    run_for(s, TTL);
    s->free_most = 2;
    start(s, s->c);
    expect(s, SHARE_SETTLES, held_222, "2/2/2 after");
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
    start(s, s->b);
    run_for(s, 5 * US_PER_SEC);
    kill(s, s->b); /* its row stays for a TTL */
    expect_no_move(s, 4 * TTL, "an instance that died after 5 s moves queues");
    start(s, s->b);
    run_for(s, TTL / 2);
    drain(s, s->b);
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
    start(s, s->b);
    expect(s, 3 * TTL, one_is_free, "given back after");
    freeze(s, s->b, 4 * TTL);
    int64_t took = expect(s, 4 * TTL, held_600, "nobody took it, taken again after");
    if (took < 2 * TTL - US_PER_SEC || given_back(s->a) != 1)
        world_fail(s->w, "taken again after %.1f s, %llu given back", (double)took / 1e6,
                   (unsigned long long)given_back(s->a));
    expect(s, SHARE_SETTLES, held_330, "3/3 after");
}

static void placement_death(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    kill(s, s->b);
    int64_t took = expect(s, 6 * TTL, all_held_without_b, "a dead one's queues taken after");
    if (took > 3 * TTL)
        world_fail(s->w, "the queues of a dead instance wait for %.1f s", (double)took / 1e6);
}

/* One that died and was missed comes back; then one that nobody missed. */
static void placement_return(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    kill(s, s->b);
    expect(s, 6 * TTL, all_held_without_b, "taken after");
    run_for(s, TTL);
    start(s, s->b);
    int64_t took = expect(s, 6 * TTL, b_has_its_share, "back in its share after");
    if (took > 2 * TTL)
        world_fail(s->w, "a returning instance has its share after %.1f s", (double)took / 1e6);
    run_for(s, TTL);
    unsigned moves = watch_moves(s->w);
    kill(s, s->b);
    run_for(s, US_PER_SEC);
    start(s, s->b);
    run_for(s, 10 * TTL);
    if (watch_moves(s->w) != moves || !held_222(s))
        tell_held(s, "an instance that restarted at once");
}

static void placement_leave(struct story *s)
{
    open_balanced(s);
    s->free_most = 2;
    drain(s, s->b);
    int64_t took = expect(s, 6 * TTL, all_held_without_b, "a leaving one's queues taken after");
    if (took > 3 * TTL)
        world_fail(s->w, "the queues of a drained instance wait for %.1f s", (double)took / 1e6);
}

static void placement_frozen(struct story *s)
{
    open_balanced(s);
    uint64_t before = s->w->result->fences;
    s->free_most = 2;
    freeze(s, s->b, 4 * TTL);
    expect(s, 4 * TTL, all_held_without_b, "a frozen one's queues taken after");
    expect(s, SHARE_SETTLES, held_222, "2/2/2 again after");
    if (s->w->result->fences - before != 2)
        world_fail(s->w, "%llu fences instead of one for each of two queues",
                   (unsigned long long)(s->w->result->fences - before));
}

static void placement_steady(struct story *s)
{
    open_balanced(s);
    s->free_most = 0;
    run_for(s, 3 * TTL);
    expect_no_move(s, 3600 * US_PER_SEC, "queues move in a steady hour");
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
    w->store.prompt = true;
    w->setup.ttl_ms = 10 * TTL_MS; /* refreshes of the lease are far apart */
    open_node(s);
    s->push_every_us = 0;
    s->free_most = WORLD_QUEUES_MAX;
    world_push(w, 0, 1);
    start(s, s->a);
    run_for(s, 10 * TTL);
    for (unsigned i = 0; i < 5 && w->result->ok; i++) {
        s->committed_before = w->watched[0].committed_k;
        world_push(w, 0, 1);
        int64_t took = expect(s, 10 * TTL, next_is_committed, "a lone push committed after");
        if (took > most)
            world_fail(w, "a lone push is in the lake after %.1f s", (double)took / 1e6);
        run_for(s, TTL + i * US_PER_SEC);
    }
}

/* --- outages --- */

static bool told_apart(enum sim_outage outage)
{
    return outage != OUTAGE_503 && outage != OUTAGE_429;
}

/* A window that cannot be uploaded stays as it was begun and nothing is buffered behind it: the rest
 * waits in the log. */
static void check_buffers(struct story *s)
{
    uint64_t most = (uint64_t)s->w->queues * ((1u << 20) + PUSH_BYTES_MOST), sum = 0;
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        if (instance_alive(&s->w->instances[n]))
            sum += instance_status_number(&s->w->instances[n], "bufferedBytes");
    }
    if (sum > most)
        world_fail(s->w, "%llu bytes are buffered", (unsigned long long)sum);
    if (sum > s->buffered_most)
        s->buffered_most = sum;
}

/* What /status says while it is away. */
static void check_away(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    if (!w->result->ok)
        return;
    bool down = instance_status_has(s->a, "\"reachable\":false");
    if (down != told_apart(outage))
        world_fail(w, "%s: reachable=%s", sim_outage_name(outage), down ? "false" : "true");
    if (instance_status_has(s->a, "\"error\":null,\"name\":\"lake\""))
        world_fail(w, "%s: the bucket's error is not shown", sim_outage_name(outage));
    check_buffers(s);
}

static bool all_ended(const struct story *s)
{
    return !instance_alive(s->a) && !instance_alive(s->b) && !instance_alive(s->c);
}

static void end_story(struct story *s)
{
    struct world *w = s->w;
    struct lake_verdict verdict = {0};
    int64_t next;
    s->push_every_us = 0;
    s->free_most = WORLD_QUEUES_MAX;
    if (!run_until(s, CATCH_UP, everything_shipped))
        world_fail(w, "not everything is shipped");
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        if (w->instances[n].state == INSTANCE_RUNNING)
            drain(s, &w->instances[n]);
    }
    if (!run_until(s, REQUEST_MOST, all_ended))
        world_fail(w, "the drain does not end");
    sim_bucket_store_pump(&w->store, INT64_MAX, &next);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
    if (w->result->ok)
        world_judge(w, true, &verdict);
    w->result->windows = verdict.windows;
}

static void come_back(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    if (s->answered_late)
        world_fail(w, "pushes wait while the bucket is away");
    w->store.outage = OUTAGE_NONE;
    s->push_every_us = 0;
    int64_t from = w->clock.mono;
    int64_t limit = CATCH_UP + (outage == OUTAGE_HANG ? SIM_BUCKET_HANG_US : 0);
    if (!run_until(s, limit, everything_shipped))
        world_fail(w, "not everything is shipped %.0f s after the bucket is back",
                   (double)limit / 1e6);
    note(s, " %zu records, %llu KiB buffered at most, caught up after %.1f s;", w->ledger.n,
         (unsigned long long)s->buffered_most >> 10, (double)(w->clock.mono - from) / 1e6);
    if (w->result->ok && !instance_status_has(s->a, "\"reachable\":true"))
        world_fail(w, "the bucket is back and not reachable");
    end_story(s);
}

/* Two instances under traffic; ten minutes without a bucket. */
static void ten_minutes(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    open_node(s);
    s->push_every_us = US_PER_SEC / 2;
    s->free_most = WORLD_QUEUES_MAX;
    for (unsigned q = 0; q < w->queues; q++)
        world_push(w, q, 1);
    start(s, s->a);
    start(s, s->b);
    run_for(s, 6 * TTL); /* shared */
    unsigned moves = watch_moves(w);
    w->store.outage = outage;
    w->result->outages++;
    run_for(s, REQUEST_MOST + 10 * US_PER_SEC);
    for (unsigned minute = 4; minute <= 10 && w->result->ok; minute++) {
        check_away(s, outage);
        if (w->result->ok && !instance_status_has(s->a, "\"lastError\":{"))
            world_fail(w, "%s: no queue shows an error", sim_outage_name(outage));
        run_for(s, 60 * US_PER_SEC);
    }
    bool fails = outage == OUTAGE_401 || outage == OUTAGE_403 || outage == OUTAGE_NO_BUCKET;
    if (!fails && watch_moves(w) != moves) /* one that fails gives its lease back */
        world_fail(w, "queues move because the bucket is away");
    come_back(s, outage);
}

/* Away at boot, for hours. */
static void at_boot(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    open_node(s);
    w->store.outage = outage;
    w->result->outages++;
    s->push_every_us = 10 * US_PER_SEC;
    s->free_most = WORLD_QUEUES_MAX;
    start(s, s->a);
    run_for(s, REQUEST_MOST + 10 * US_PER_SEC);
    check_away(s, outage);
    run_for(s, 2 * US_PER_HOUR);
    check_away(s, outage);
    come_back(s, outage);
}

/* More comes in than a window holds. */
static void outage_no_answer(struct story *s)
{
    s->push_most = 20;
    ten_minutes(s, OUTAGE_NO_ANSWER);
}

static void outage_hang(struct story *s)
{
    ten_minutes(s, OUTAGE_HANG);
}

static void outage_503(struct story *s)
{
    ten_minutes(s, OUTAGE_503);
}

static void outage_429(struct story *s)
{
    ten_minutes(s, OUTAGE_429);
}

static void outage_401(struct story *s)
{
    ten_minutes(s, OUTAGE_401);
}

static void outage_403(struct story *s)
{
    s->push_most = 20;
    ten_minutes(s, OUTAGE_403);
}

static void outage_no_bucket(struct story *s)
{
    ten_minutes(s, OUTAGE_NO_BUCKET);
}

static void boot_no_answer(struct story *s)
{
    at_boot(s, OUTAGE_NO_ANSWER);
}

static void boot_hang(struct story *s)
{
    at_boot(s, OUTAGE_HANG);
}

static void boot_403(struct story *s)
{
    at_boot(s, OUTAGE_403);
}

static void boot_no_bucket(struct story *s)
{
    at_boot(s, OUTAGE_NO_BUCKET);
}

static void boot_503(struct story *s)
{
    at_boot(s, OUTAGE_503);
}

/* Two thirds of all requests go wrong, half of these after they took effect or before. */
static void outage_flaky(struct story *s)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    open_node(s);
    s->push_every_us = US_PER_SEC / 2;
    s->free_most = WORLD_QUEUES_MAX;
    start(s, s->a);
    if (w->result->ok)
        s->a->bucket->fault_percent = 66;
    run_for(s, 600 * US_PER_SEC);
    if (w->store.rewrites == 0)
        world_fail(w, "no PUT was repeated behind a lost answer");
    if (w->result->ok)
        s->a->bucket->fault_percent = 0;
    come_back(s, OUTAGE_NONE);
}

/* --- the table --- */

static const struct {
    const char *name;
    enum check_kind kind;
    void (*run)(struct story *s);
} CHECKS[] = {
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
    {"lone-push", CHECK_PLACEMENT, lone_push},
    {"outage-no-answer", CHECK_OUTAGE, outage_no_answer},
    {"outage-hang", CHECK_OUTAGE, outage_hang},
    {"outage-503", CHECK_OUTAGE, outage_503},
    {"outage-429", CHECK_OUTAGE, outage_429},
    {"outage-401", CHECK_OUTAGE, outage_401},
    {"outage-403", CHECK_OUTAGE, outage_403},
    {"outage-no-bucket", CHECK_OUTAGE, outage_no_bucket},
    {"outage-flaky", CHECK_OUTAGE, outage_flaky},
    {"boot-no-answer", CHECK_OUTAGE, boot_no_answer},
    {"boot-hang", CHECK_OUTAGE, boot_hang},
    {"boot-403", CHECK_OUTAGE, boot_403},
    {"boot-no-bucket", CHECK_OUTAGE, boot_no_bucket},
    {"boot-503", CHECK_OUTAGE, boot_503},
};

#define OURS (sizeof(CHECKS) / sizeof(CHECKS[0])) /* the others are the clock's */

size_t check_count(void)
{
    return OURS + clock_check_count();
}

const char *check_name(size_t check)
{
    return check < OURS ? CHECKS[check].name : clock_check_name(check - OURS);
}

enum check_kind check_kind(size_t check)
{
    return check < OURS ? CHECKS[check].kind : CHECK_CLOCK;
}

void check_run(size_t check, const struct world_options *options, struct world_result *out)
{
    if (check >= OURS) {
        clock_check_run(check - OURS, options, out);
        return;
    }
    struct world w;
    struct world_options ours = *options;
    ours.instances = WORLD_INSTANCES_MAX;
    ours.queues = WORLD_QUEUES_MAX;
    world_init(&w, &ours, out);
    w.calm = w.one_by_one = true;
    w.setup = (struct sink_setup){.ttl_ms = TTL_MS,
                                  .window_ms = 2000,
                                  .guard_ms = 100,
                                  .checkpoint_every = 4,
                                  .compression = "zstd",
                                  .align = "hour",
                                  .http = true};
    int64_t start = w.clock.mono;
    struct story s = {.w = &w,
                      .a = &w.instances[0],
                      .b = &w.instances[1],
                      .c = &w.instances[2],
                      .push_at_us = start + US_PER_SEC,
                      .push_most = 4,
                      .free_most = WORLD_QUEUES_MAX};
    CHECKS[check].run(&s);
    if (out->ok && CHECKS[check].kind == CHECK_PLACEMENT)
        end_story(&s);
    out->virtual_us = w.clock.mono - start;
    world_drop(&w);
    world_deinit(&w);
}
