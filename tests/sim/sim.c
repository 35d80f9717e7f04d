/* The simulator: `sim [--broker|--sweep] [--seed N] [--seeds COUNT] [--lives L] [--steps S] [--at
 * I] [--trace]`.
 *
 * With --sweep: one event at every step of a window (sweep.c), for each seed; --at I plays only
 * step I.
 *
 * Runs whole worlds (world.h), one per seed, and prints each failing seed with what went wrong; the
 * same seed replays the same run. Ends with the line "N passed, N failed". */
#include "sim/world.h"

#include "base/log.h"

#include <stdio.h>
#include <unistd.h>

struct sim_arguments {
    uint64_t seed, seeds;
    bool sweep;
    uint64_t at; /* UINT64_MAX: every step */
    struct world_options world;
};

static bool parse(int argc, char **argv, struct sim_arguments *a)
{
    *a = (struct sim_arguments){
        .seed = 1,
        .seeds = 1,
        .at = UINT64_MAX,
        .world = {.with_sink = true, .lives = 6, .steps_per_life = 1500},
    };
    for (int i = 1; i < argc; i++) {
        uint64_t value = 0;
        struct span name = span_str(argv[i]);
        bool has_value = i + 1 < argc && span_parse_u64(span_str(argv[i + 1]), &value);
        if (span_eq(name, SPAN_LIT("--trace"))) {
            a->world.trace = true;
            continue;
        }
        if (span_eq(name, SPAN_LIT("--sweep"))) {
            a->sweep = true;
            continue;
        }
        if (span_eq(name, SPAN_LIT("--broker"))) {
            a->world.with_sink = false;
            continue;
        }
        if (!has_value)
            return false;
        i++;
        if (span_eq(name, SPAN_LIT("--seed")))
            a->seed = value;
        else if (span_eq(name, SPAN_LIT("--seeds")))
            a->seeds = value;
        else if (span_eq(name, SPAN_LIT("--at")))
            a->at = value;
        else if (span_eq(name, SPAN_LIT("--lives")))
            a->world.lives = (unsigned)value;
        else if (span_eq(name, SPAN_LIT("--steps")))
            a->world.steps_per_life = (unsigned)value;
        else
            return false;
    }
    return true;
}

static void print_line(void *ctx, struct span line)
{
    (void)ctx;
    fwrite(line.ptr, 1, line.len, stdout);
}

static int64_t no_clock(void *ctx)
{
    (void)ctx;
    return 0;
}

struct totals {
    uint64_t passed, failed, records, windows, cuts, kills, drains, full;
    int64_t virtual_us;
};

static void count(struct totals *t, const struct world_result *r)
{
    t->passed += r->ok;
    t->failed += !r->ok;
    t->records += r->records;
    t->windows += r->windows;
    t->cuts += r->crashes;
    t->kills += r->kills;
    t->drains += r->drains;
    t->full += r->full;
    t->virtual_us += r->virtual_us;
}

static void run_seed(const struct sim_arguments *a, struct totals *t)
{
    struct world_result result;
    world_run(&a->world, &result);
    if (!result.ok)
        printf("seed %llu: %s (%llu steps)\n", (unsigned long long)a->world.seed, result.why,
               (unsigned long long)result.steps);
    count(t, &result);
}

static void sweep_seed(const struct sim_arguments *a, struct totals *t)
{
    for (int event = 0; event < SWEEP_EVENTS; event++) {
        struct world_result result;
        bool struck = true;
        unsigned first = a->at == UINT64_MAX ? 0 : (unsigned)a->at;
        for (unsigned at = first; struck && (a->at == UINT64_MAX || at == first); at++) {
            struck = sweep_run(&a->world, (enum sweep_event)event, at, &result);
            if (!result.ok)
                printf("seed %llu --sweep %s --at %u: %s\n", (unsigned long long)a->world.seed,
                       sweep_event_name((enum sweep_event)event), at, result.why);
            if (struck || !result.ok)
                count(t, &result);
        }
    }
}

int main(int argc, char **argv)
{
    struct sim_arguments a;
    struct totals t = {0};
    if (!parse(argc, argv, &a)) {
        fprintf(stderr, "usage: sim [--broker|--sweep] [--seed N] [--seeds COUNT] [--lives L]"
                        " [--steps S] [--at I] [--trace]\n");
        return 2;
    }
    if (a.world.trace)
        log_install(print_line, no_clock, NULL, false);
    for (uint64_t seed = a.seed; seed < a.seed + a.seeds; seed++) {
        a.world.seed = seed;
        if (a.sweep)
            sweep_seed(&a, &t);
        else
            run_seed(&a, &t);
    }
    printf("sim: %llu records, %llu windows, %llu power cuts, %llu kills, %llu drains,"
           " %llu full disks, %.0f virtual s\n",
           (unsigned long long)t.records, (unsigned long long)t.windows, (unsigned long long)t.cuts,
           (unsigned long long)t.kills, (unsigned long long)t.drains, (unsigned long long)t.full,
           (double)t.virtual_us / 1e6);
    printf("%llu passed, %llu failed\n", (unsigned long long)t.passed,
           (unsigned long long)t.failed);
    return t.failed == 0 ? 0 : 1;
}
