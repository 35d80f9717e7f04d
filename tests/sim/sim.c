/* The simulator: `sim [--broker|--sweep|--checks|--placement|--outages] [--seed N] [--seeds COUNT]
 * [--instances I] [--lives L] [--steps S] [--at I] [--trace]`.
 *
 * With --sweep: one event at every step of a window (sweep.c), for each seed; --at I plays only
 * step I. With --checks: the named stories (checks.c), or only those of placement or outages.
 *
 * Runs whole worlds (world.h), one per seed, and prints each failing seed with what went wrong; the
 * same seed replays the same run. Ends with the line "N passed, N failed". */
#include "sim/world.h"

#include <stdio.h>
#include <unistd.h>

struct sim_arguments {
    uint64_t seed, seeds;
    bool sweep, placement, outages;
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
        bool checks = span_eq(name, SPAN_LIT("--checks"));
        if (checks || span_eq(name, SPAN_LIT("--placement")) ||
            span_eq(name, SPAN_LIT("--outages"))) {
            a->placement = a->placement || !span_eq(name, SPAN_LIT("--outages"));
            a->outages = a->outages || !span_eq(name, SPAN_LIT("--placement"));
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
        else if (span_eq(name, SPAN_LIT("--instances")) && value <= WORLD_INSTANCES_MAX)
            a->world.instances = (unsigned)value;
        else if (span_eq(name, SPAN_LIT("--lives")))
            a->world.lives = (unsigned)value;
        else if (span_eq(name, SPAN_LIT("--steps")))
            a->world.steps_per_life = (unsigned)value;
        else
            return false;
    }
    return true;
}

struct totals {
    uint64_t passed, failed, records, windows, cuts, kills, drains, full;
    uint64_t deaths, stops, freezes, takeovers, fences, given_back, outages, late;
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
    t->deaths += r->deaths;
    t->stops += r->stops;
    t->freezes += r->freezes;
    t->takeovers += r->takeovers;
    t->fences += r->fences;
    t->given_back += r->given_back;
    t->outages += r->outages;
    t->late += r->late;
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

static void check_seed(const struct sim_arguments *a, struct totals *t)
{
    for (size_t check = 0; check < check_count(); check++) {
        struct world_result result;
        if (check_kind(check) == CHECK_PLACEMENT ? !a->placement : !a->outages)
            continue;
        check_run(check, &a->world, &result);
        printf("seed %llu %s:%s %s\n", (unsigned long long)a->world.seed, check_name(check),
               result.note, result.ok ? "ok" : result.why);
        count(t, &result);
    }
}

static void print_totals(const struct totals *t)
{
    printf("sim: %llu records, %llu windows, %llu power cuts, %llu kills, %llu drains,"
           " %llu full disks, %.0f virtual s\n",
           (unsigned long long)t->records, (unsigned long long)t->windows,
           (unsigned long long)t->cuts, (unsigned long long)t->kills, (unsigned long long)t->drains,
           (unsigned long long)t->full, (double)t->virtual_us / 1e6);
    printf("sim: sinks alone: %llu died, %llu stopped, %llu froze; %llu takeovers, %llu fences,"
           " %llu give-backs, %llu outages, %llu late PUTs\n",
           (unsigned long long)t->deaths, (unsigned long long)t->stops,
           (unsigned long long)t->freezes, (unsigned long long)t->takeovers,
           (unsigned long long)t->fences, (unsigned long long)t->given_back,
           (unsigned long long)t->outages, (unsigned long long)t->late);
    printf("%llu passed, %llu failed\n", (unsigned long long)t->passed,
           (unsigned long long)t->failed);
}

int main(int argc, char **argv)
{
    struct sim_arguments a;
    struct totals t = {0};
    if (!parse(argc, argv, &a)) {
        fprintf(stderr, "usage: sim [--broker|--sweep|--checks|--placement|--outages] [--seed N]"
                        " [--seeds COUNT] [--instances I] [--lives L] [--steps S] [--at I]"
                        " [--trace]\n");
        return 2;
    }
    world_log_install(a.world.trace);
    for (uint64_t seed = a.seed; seed < a.seed + a.seeds; seed++) {
        a.world.seed = seed;
        if (a.sweep)
            sweep_seed(&a, &t);
        else if (a.placement || a.outages)
            check_seed(&a, &t);
        else
            run_seed(&a, &t);
    }
    print_totals(&t);
    return t.failed == 0 ? 0 : 1;
}
