/* Makes a failing run short enough to read.
 *
 * The decisions of a run are numbered and independent of each other (world.c), so leaving some out
 * is another run of the same world. First all that moved nothing go, if it fails without, then chunks of what is left,
 * halves to single ones, as long as the run still fails (Zeller, Hildebrandt: Simplifying and isolating
 * failure-inducing input, 2002). It may fail in another way then, which is as wrong and simpler.
 * What remains is told once more, as a story: a line for each thing that happens, and the sinks'
 * own log lines. */
#include "sim/world.h"

#include "base/mem.h"

#include <stdio.h>
#include <time.h>

#define PRUNED_PARTS 32u

struct shrinking {
    struct world_options options;
    uint64_t n;     /* decisions */
    uint8_t *skip;  /* of the best run so far */
    uint8_t *tried; /* of the one being tried */
    uint8_t *moved; /* by it */
    uint8_t *best;  /* moved by the best run so far */
    uint64_t *kept; /* those not left out, rising */
    size_t n_kept;
    uint64_t runs;
    bool failing;
    double until;
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Runs it without what `tried` leaves out; true when it fails, and then that is the best one. */
static bool fails(struct shrinking *s)
{
    struct world_result result;
    memset(s->moved, 0, s->n);
    s->options.skip = s->tried;
    s->options.moved_out = s->moved;
    s->runs++;
    world_run(&s->options, &result);
    if (result.ok)
        return false;
    s->options.last_life = result.life; /* what is tried need not be played any further */
    s->n_kept = 0;
    memcpy(s->skip, s->tried, s->n);
    memcpy(s->best, s->moved, s->n);
    for (uint64_t i = 0; i < s->n; i++) {
        if (!s->skip[i])
            s->kept[s->n_kept++] = i;
    }
    return true;
}

/* Leaves out what moved nothing, as far as is known: that is tried, too, and else in parts. */
static void prune(struct shrinking *s, uint64_t from, uint64_t to)
{
    memcpy(s->tried, s->skip, s->n);
    for (uint64_t i = from; i < to; i++)
        s->tried[i] = s->skip[i] || !s->best[i];
    if (memcmp(s->tried, s->skip, s->n) == 0 || seconds_now() >= s->until || fails(s) ||
        to - from <= s->n / PRUNED_PARTS)
        return;
    prune(s, from, from + (to - from) / 2);
    prune(s, from + (to - from) / 2, to);
}

/* Leaves out kept ones [from, to) too. */
static bool fails_without(struct shrinking *s, size_t from, size_t to)
{
    memcpy(s->tried, s->skip, s->n);
    for (size_t i = from; i < to; i++)
        s->tried[s->kept[i]] = 1;
    bool fewer = fails(s);
    if (fewer)
        prune(s, 0, s->n);
    return fewer;
}

/* One pass over all of them; true when any chunk went. */
static bool drop_chunks(struct shrinking *s, size_t chunk)
{
    bool any = false;
    for (size_t end = s->n_kept; end > 0 && seconds_now() < s->until;) {
        size_t from = end < chunk ? 0 : end - chunk;
        any = fails_without(s, from, end) || any;
        end = from < s->n_kept ? from : s->n_kept;
    }
    return any;
}

static void minimise(struct shrinking *s)
{
    size_t chunk = s->n_kept / 2;
    while (s->n_kept > 0 && seconds_now() < s->until) {
        if (chunk < 1)
            chunk = 1;
        bool any = drop_chunks(s, chunk);
        if (chunk == 1 && !any)
            break;
        if (chunk > 1)
            chunk /= 2;
    }
}

static void shrink_init(struct shrinking *s, const struct world_options *options, double seconds)
{
    *s = (struct shrinking){.options = *options, .n = world_decisions(options)};
    s->options.trace = TRACE_NONE;
    s->skip = MEM_ARRAY(uint8_t, s->n);
    s->tried = MEM_ARRAY(uint8_t, s->n);
    s->moved = MEM_ARRAY(uint8_t, s->n);
    s->best = MEM_ARRAY(uint8_t, s->n);
    s->kept = MEM_ARRAY(uint64_t, s->n);
    s->until = seconds_now() + seconds;
    s->failing = fails(s);
    if (s->failing) {
        prune(s, 0, s->n);
        minimise(s);
    }
}

static void shrink_deinit(struct shrinking *s)
{
    mem_free(s->skip);
    mem_free(s->tried);
    mem_free(s->moved);
    mem_free(s->best);
    mem_free(s->kept);
}

static void tell(struct shrinking *s, enum world_trace trace)
{
    struct world_result result;
    s->options.skip = s->skip;
    s->options.moved_out = NULL;
    s->options.trace = trace == TRACE_NONE ? TRACE_STORY : trace;
    world_log_install(s->options.trace);
    world_run(&s->options, &result);
    printf("%s\n", result.why);
}

void world_shrink(const struct world_options *options, double seconds, enum world_trace trace)
{
    struct shrinking s;
    world_log_install(TRACE_NONE);
    shrink_init(&s, options, seconds);
    if (!s.failing)
        printf("seed %llu does not fail\n", (unsigned long long)options->seed);
    else
        tell(&s, trace);
    printf("seed %llu shrunk: %zu decisions of %llu, after %llu runs\n",
           (unsigned long long)options->seed, s.n_kept, (unsigned long long)s.n,
           (unsigned long long)s.runs);
    shrink_deinit(&s);
}

/* --- the simulator's own test --- */

/* Equal seeds, equal runs; and another seed is another run. */
static bool replays(const struct world_options *options)
{
    struct world_options other = *options;
    struct world_result a, b, c;
    other.seed += 1000000;
    world_run(options, &a);
    world_run(options, &b);
    world_run(&other, &c);
    return a.ok && b.ok && a.trace_hash == b.trace_hash && a.trace_hash != c.trace_hash;
}

/* Two deletions are called wrong: a run that has them shrinks to these two. */
static bool shrinks(const struct world_options *options)
{
    struct shrinking s;
    struct world_options wrong = *options;
    struct world_result result;
    wrong.deletions_wrong = 2;
    world_run(&wrong, &result);
    if (result.ok)
        return true; /* it has none */
    shrink_init(&s, &wrong, 60);
    bool two = s.n_kept == 2;
    if (!two)
        printf("seed %llu: two deletions shrink to %zu decisions\n",
               (unsigned long long)options->seed, s.n_kept);
    shrink_deinit(&s);
    return two;
}

bool world_self_test(const struct world_options *options)
{
    if (!replays(options)) {
        printf("seed %llu: does not replay\n", (unsigned long long)options->seed);
        return false;
    }
    return shrinks(options);
}
