/* The simulator; what it plays is in world.h.
 *
 *   sim                        worlds: a random life of broker, sinks, bucket and disk for each seed
 *   sim --broker               the same without sinks
 *   sim --sweep                one event at every step of a window; --at I plays only step I
 *   sim --checks               named stories: --placement, --outages and --lake are a part of them
 *   sim --rules, --rule N      the storage rules' failure schedules
 *   sim --self-test            that equal seeds are equal runs, and that shrinking works
 *
 *   --seed N, --seeds COUNT    from N on (1, one)
 *   --first                    ends at the first failure
 *   --shrink [--seconds S]     makes the first failing world short enough to read, and tells it
 *   --trace, --trace-all       tells the story
 *   --instances I, --lives L, --steps S    of a world
 *
 * Each failing seed is printed with what went wrong; the same seed replays the same run. Ends with
 * the line "N passed, N failed". Exit code 77: a rule that is not built yet. */
#include "sim/world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIPPED 77
#define USAGE                                                                                      \
    "usage: sim [--broker|--sweep|--checks|--placement|--outages|--lake|--rules|--rule "           \
    "N|--self-test]"                                                                               \
    " [--seed N] [--seeds COUNT] [--at I] [--first] [--shrink] [--seconds S] [--instances I]"      \
    " [--lives L] [--steps S] [--trace|--trace-all]\n"

enum mode {
    MODE_WORLDS,
    MODE_BROKER, /* worlds without sinks */
    MODE_SWEEP,
    MODE_CHECKS,
    MODE_PLACEMENT,
    MODE_OUTAGES,
    MODE_LAKE, /* somebody else writes it, drains, a full disk */
    MODE_RULES,
    MODE_SELF_TEST,
    MODES, /* how many */
};

static const char *const mode_names[MODES] = {"",         "--broker",    "--sweep",
                                              "--checks", "--placement", "--outages",
                                              "--lake",   "--rules",     "--self-test"};

struct sim_arguments {
    enum mode mode;
    uint64_t seed, seeds;
    bool first, shrink;
    uint64_t seconds; /* for shrinking */
    uint64_t rule;    /* 0: all */
    uint64_t at;      /* UINT64_MAX: every step */
    struct world_options world;
};

/* --- arguments --- */

/* False when it is none of those without a value. */
static bool parse_flag(struct sim_arguments *a, const char *name)
{
    for (unsigned mode = 1; mode < MODES; mode++) {
        if (strcmp(name, mode_names[mode]) == 0) {
            a->mode = (enum mode)mode;
            return true;
        }
    }
    if (strcmp(name, "--trace") == 0)
        a->world.trace = TRACE_STORY;
    else if (strcmp(name, "--trace-all") == 0)
        a->world.trace = TRACE_ALL;
    else if (strcmp(name, "--first") == 0)
        a->first = true;
    else if (strcmp(name, "--shrink") == 0)
        a->shrink = true;
    else
        return false;
    return true;
}

static bool parse_value(struct sim_arguments *a, const char *name, uint64_t value)
{
    if (strcmp(name, "--seed") == 0)
        a->seed = value;
    else if (strcmp(name, "--seeds") == 0)
        a->seeds = value;
    else if (strcmp(name, "--at") == 0)
        a->at = value;
    else if (strcmp(name, "--seconds") == 0)
        a->seconds = value;
    else if (strcmp(name, "--rule") == 0 && value >= 1 && value <= RULES)
        a->rule = value;
    else if (strcmp(name, "--instances") == 0 && value <= WORLD_INSTANCES_MAX)
        a->world.instances = (unsigned)value;
    else if (strcmp(name, "--lives") == 0 && value >= 1 && value <= 1000)
        a->world.lives = (unsigned)value;
    else if (strcmp(name, "--steps") == 0 && value <= 1000000)
        a->world.steps_per_life = (unsigned)value;
    else
        return false;
    return true;
}

static bool parse(int argc, char **argv, struct sim_arguments *a)
{
    *a = (struct sim_arguments){
        .seed = 1,
        .seeds = 1,
        .seconds = 30,
        .at = UINT64_MAX,
        .world = {.lives = 6, .steps_per_life = 1500},
    };
    for (int i = 1; i < argc; i++) {
        uint64_t value = 0;
        if (parse_flag(a, argv[i]))
            continue;
        if (i + 1 >= argc || !span_parse_u64(span_str(argv[i + 1]), &value) ||
            !parse_value(a, argv[i], value))
            return false;
        i++;
    }
    if (a->rule != 0)
        a->mode = MODE_RULES;
    a->world.with_sink = a->mode != MODE_BROKER;
    return true;
}

/* --- counting --- */

struct totals {
    uint64_t passed, failed, skipped, records, windows, cuts, kills, drains, full;
    uint64_t kv_batches, configured, storage_faults, storage_stops, slow;
    uint64_t deaths, stops, freezes, takeovers, fences, given_back, outages, late;
    uint64_t statuses, multiparts, stranded, redone;
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
    t->kv_batches += r->kv_batches;
    t->configured += r->configured;
    t->storage_faults += r->storage_faults;
    t->storage_stops += r->storage_stops;
    t->slow += r->slow;
    t->deaths += r->deaths;
    t->stops += r->stops;
    t->freezes += r->freezes;
    t->takeovers += r->takeovers;
    t->fences += r->fences;
    t->given_back += r->given_back;
    t->outages += r->outages;
    t->late += r->late;
    t->statuses += r->statuses;
    t->redone += r->redone;
    t->multiparts += r->multiparts;
    t->stranded += r->stranded;
    t->virtual_us += r->virtual_us;
}

/* What is being played, for the line that is printed when an assertion ends the process. */
static struct {
    uint64_t seed;
    char what[64];
    const struct world_result *result;
} playing;

static void begin(const struct sim_arguments *a, const struct world_result *result,
                  const char *format, ...) __attribute__((format(printf, 3, 4)));
static void begin(const struct sim_arguments *a, const struct world_result *result,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(playing.what, sizeof(playing.what), format, args);
    va_end(args);
    playing.seed = a->world.seed;
    playing.result = result;
}

static void tell_failure(const char *why)
{
    printf("seed %llu%s: %s (%llu steps)\n", (unsigned long long)playing.seed, playing.what, why,
           (unsigned long long)playing.result->steps);
    fflush(stdout);
}

static void aborted(int number)
{
    (void)number;
    tell_failure("aborted"); /* single-threaded, and the process ends here */
    _exit(1);
}

/* --- modes --- */

static void run_seed(const struct sim_arguments *a, struct totals *t)
{
    struct world_result result;
    begin(a, &result, "%s%s", a->world.with_sink ? "" : " ", mode_names[a->mode]);
    world_run(&a->world, &result);
    count(t, &result);
    if (result.ok)
        return;
    tell_failure(result.why);
    if (a->shrink && t->failed == 1)
        world_shrink(&a->world, (double)a->seconds, a->world.trace);
}

static void sweep_seed(const struct sim_arguments *a, struct totals *t)
{
    unsigned first = a->at == UINT64_MAX ? 0 : (unsigned)a->at;
    for (int event = 0; event < SWEEP_EVENTS; event++) {
        struct world_result result;
        bool struck = true;
        for (unsigned at = first; struck && (a->at == UINT64_MAX || at == first); at++) {
            begin(a, &result, " --sweep %s --at %u", sweep_event_name((enum sweep_event)event), at);
            struck = sweep_run(&a->world, (enum sweep_event)event, at, &result);
            if (struck || !result.ok)
                count(t, &result);
            if (!result.ok)
                tell_failure(result.why);
            if (!result.ok && a->first)
                return;
        }
    }
}

static bool chosen(const struct sim_arguments *a, enum check_kind kind)
{
    static const enum check_kind kinds[MODES] = {[MODE_PLACEMENT] = CHECK_PLACEMENT,
                                                 [MODE_OUTAGES] = CHECK_OUTAGE,
                                                 [MODE_LAKE] = CHECK_LAKE};
    return a->mode == MODE_CHECKS || kind == kinds[a->mode];
}

static void check_seed(const struct sim_arguments *a, struct totals *t)
{
    for (size_t check = 0; check < check_count(); check++) {
        struct world_result result;
        if (!chosen(a, check_kind(check)))
            continue;
        begin(a, &result, " %s", check_name(check));
        check_run(check, &a->world, &result);
        count(t, &result);
        if (result.ok)
            printf("seed %llu %s:%s ok\n", (unsigned long long)a->world.seed, check_name(check),
                   result.note);
        else
            tell_failure(result.why);
        if (!result.ok && a->first)
            return;
    }
}

static void rules_seed(const struct sim_arguments *a, struct totals *t)
{
    for (unsigned rule = 1; rule <= RULES; rule++) {
        struct world_result result;
        if (a->rule != 0 && a->rule != rule)
            continue;
        if (rule_not_built(rule) != NULL) {
            printf("%s: skipped: %s\n", rule_name(rule), rule_not_built(rule));
            t->skipped++;
            continue;
        }
        begin(a, &result, " %s", rule_name(rule));
        rule_run(rule, &a->world, &result);
        count(t, &result);
        if (result.ok)
            printf("seed %llu %s: ok, %llu steps\n", (unsigned long long)a->world.seed,
                   rule_name(rule), (unsigned long long)result.steps);
        else
            tell_failure(result.why);
        if (!result.ok && a->first)
            return;
    }
}

static void self_test_seed(const struct sim_arguments *a, struct totals *t)
{
    bool good = world_self_test(&a->world);
    t->passed += good;
    t->failed += !good;
}

static void play(const struct sim_arguments *a, struct totals *t)
{
    switch (a->mode) {
    case MODE_WORLDS:
    case MODE_BROKER:
        run_seed(a, t);
        break;
    case MODE_SWEEP:
        sweep_seed(a, t);
        break;
    case MODE_CHECKS:
    case MODE_PLACEMENT:
    case MODE_OUTAGES:
    case MODE_LAKE:
        check_seed(a, t);
        break;
    case MODE_RULES:
        rules_seed(a, t);
        break;
    case MODE_SELF_TEST:
        self_test_seed(a, t);
        break;
    case MODES:
        break;
    }
}

static void print_totals(const struct totals *t)
{
    double cpu_s = (double)clock() / CLOCKS_PER_SEC, virtual_s = (double)t->virtual_us / 1e6;
    printf("sim: %llu records, %llu windows, %llu power cuts, %llu kills, %llu drains,"
           " %llu full disks\n",
           (unsigned long long)t->records, (unsigned long long)t->windows,
           (unsigned long long)t->cuts, (unsigned long long)t->kills, (unsigned long long)t->drains,
           (unsigned long long)t->full);
    printf("sim: %llu KV batches, %llu queues configured, %llu failures of the storage, %llu of"
           " them stopped the node; %llu slow disks\n",
           (unsigned long long)t->kv_batches, (unsigned long long)t->configured,
           (unsigned long long)t->storage_faults, (unsigned long long)t->storage_stops,
           (unsigned long long)t->slow);
    printf("sim: sinks alone: %llu died, %llu stopped, %llu froze; %llu takeovers, %llu fences,"
           " %llu give-backs, %llu outages, %llu late PUTs\n",
           (unsigned long long)t->deaths, (unsigned long long)t->stops,
           (unsigned long long)t->freezes, (unsigned long long)t->takeovers,
           (unsigned long long)t->fences, (unsigned long long)t->given_back,
           (unsigned long long)t->outages, (unsigned long long)t->late);
    printf("sim: bucket: %llu odd statuses, %llu uploads in parts, %llu stranded,"
           " %llu redone objects\n",
           (unsigned long long)t->statuses, (unsigned long long)t->multiparts,
           (unsigned long long)t->stranded, (unsigned long long)t->redone);
    printf("sim: %.0f virtual s in %.1f s of one core: %.0f times as fast\n", virtual_s, cpu_s,
           virtual_s / (cpu_s > 0 ? cpu_s : 1));
    printf("%llu passed, %llu failed\n", (unsigned long long)t->passed,
           (unsigned long long)t->failed);
}

int main(int argc, char **argv)
{
    struct sim_arguments a;
    struct totals t = {0};
    if (!parse(argc, argv, &a)) {
        fputs(USAGE, stderr);
        return 2;
    }
    signal(SIGABRT, aborted);
    world_log_install(a.world.trace);
    for (uint64_t seed = a.seed; seed < a.seed + a.seeds; seed++) {
        a.world.seed = seed;
        play(&a, &t);
        if (t.failed > 0 && (a.first || a.shrink))
            break;
    }
    print_totals(&t);
    if (t.failed == 0 && t.passed == 0 && t.skipped > 0)
        return EXIT_SKIPPED;
    return t.failed == 0 ? 0 : 1;
}
