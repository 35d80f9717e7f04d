/* The simulator: `sim [--broker] [--seed N] [--seeds COUNT] [--lives L] [--steps S] [--trace]`.
 *
 * Runs whole worlds (world.h), one per seed, and prints each failing seed with what went wrong; the
 * same seed replays the same run. Ends with the line "N passed, N failed". */
#include "sim/world.h"

#include "base/log.h"

#include <stdio.h>
#include <unistd.h>

struct sim_arguments {
    uint64_t seed, seeds;
    struct world_options world;
};

static bool parse(int argc, char **argv, struct sim_arguments *a)
{
    *a = (struct sim_arguments){
        .seed = 1,
        .seeds = 1,
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

int main(int argc, char **argv)
{
    struct sim_arguments a;
    uint64_t passed = 0, failed = 0, records = 0, windows = 0, cuts = 0, kills = 0, drains = 0;
    int64_t virtual_us = 0;
    if (!parse(argc, argv, &a)) {
        fprintf(stderr, "usage: sim [--broker] [--seed N] [--seeds COUNT] [--lives L] [--steps S]"
                        " [--trace]\n");
        return 2;
    }
    if (a.world.trace)
        log_install(print_line, no_clock, NULL, false);
    for (uint64_t seed = a.seed; seed < a.seed + a.seeds; seed++) {
        struct world_result result;
        a.world.seed = seed;
        world_run(&a.world, &result);
        if (result.ok)
            passed++;
        else
            failed++;
        if (!result.ok)
            printf("seed %llu: %s (%llu steps)\n", (unsigned long long)seed, result.why,
                   (unsigned long long)result.steps);
        records += result.records;
        windows += result.windows;
        cuts += result.crashes;
        kills += result.kills;
        drains += result.drains;
        virtual_us += result.virtual_us;
    }
    printf("sim: %llu records, %llu windows, %llu power cuts, %llu kills, %llu drains, %.0f "
           "virtual s\n",
           (unsigned long long)records, (unsigned long long)windows, (unsigned long long)cuts,
           (unsigned long long)kills, (unsigned long long)drains, (double)virtual_us / 1e6);
    printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
    return failed == 0 ? 0 : 1;
}
