/* One simulated broker with up to three sinks, disk, state database, bucket, clock and clients, all
 * from one seed. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "sim/lake_judge.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"
#include "sink/sink.h"

#define WORLD_QUEUES_MAX 6u
#define WORLD_QUEUES 3u /* unless a story needs more */
#define WORLD_PARTITIONS 6u
#define WORLD_INSTANCES_MAX 3u

enum world_trace { TRACE_NONE, TRACE_STORY, TRACE_ALL };

struct world_options {
    uint64_t seed;
    bool with_sink;
    unsigned instances; /* of the sink; 0 = as the seed says */
    unsigned queues;    /* 0 = WORLD_QUEUES */
    unsigned lives;     /* boots */
    unsigned steps_per_life;
    enum world_trace trace;
    /* For shrinking, world_decisions() of each; NULL = not wanted. */
    const uint8_t *skip; /* 1: this decision is left out */
    uint8_t *moved_out;  /* 1: it changed anything */
    unsigned last_life;  /* nothing is played behind it; 0 = all lives, and the quiet one */
    /* For the simulator's own test: this many deletions are called wrong. 0 = none are. */
    unsigned deletions_wrong;
};

struct world;

struct world_result {
    bool ok;
    char why[1200];
    unsigned life;  /* that it failed in; 0: the quiet one behind them */
    char note[300]; /* what a check measured */
    uint64_t steps, crashes, kills, drains, records, windows, deletions, full;
    /* Of sink instances alone: */
    uint64_t kv_batches, configured;
    uint64_t storage_faults, storage_stops, slow; /* of them it stopped the node; slow disks */
    uint64_t deaths, stops, freezes, takeovers, fences, given_back, outages, late;
    uint64_t statuses, multiparts, stranded, redone; /* of the bucket */
    int64_t virtual_us;
    uint64_t trace_hash; /* equal for equal runs */
};

uint64_t world_decisions(const struct world_options *options);
void world_run(const struct world_options *options, struct world_result *out);
/* What the log writes while worlds run, for counting and --trace. */
void world_log_install(enum world_trace trace);

/* Leaves out of a failing run whatever it fails without, for so many seconds, and tells the rest. */
void world_shrink(const struct world_options *options, double seconds, enum world_trace trace);
/* Does this seed replay, and does shrinking find what matters? */
bool world_self_test(const struct world_options *options);

enum sweep_event {
    SWEEP_DELETE, /* the queue is deleted and made again */
    SWEEP_SIGTERM,
    SWEEP_KILL,
    SWEEP_POWER_CUT,
    SWEEP_DELETE_KILL,
    SWEEP_GONE_KILL, /* deleted, not made again, and a power cut right behind it */
    /* Two instances; it strikes the one that holds the queue: */
    SWEEP_OWNER_KILL,   /* it dies alone, and comes back later */
    SWEEP_OWNER_FREEZE, /* it stands still for about a TTL or longer, and goes on */
    SWEEP_OWNER_STOP,   /* it is stopped, and the node and the other go on */
    SWEEP_EVENTS,       /* how many */
};

const char *sweep_event_name(enum sweep_event event);
/* One story with the event before step `at`; false when the story was over before. */
bool sweep_run(const struct world_options *options, enum sweep_event event, unsigned at,
               struct world_result *out);

/* Named stories with a fixed course: placement and outages of the bucket. */
enum check_kind { CHECK_PLACEMENT, CHECK_OUTAGE, CHECK_LAKE, CHECK_CLOCK };
size_t check_count(void);
const char *check_name(size_t check);
enum check_kind check_kind(size_t check);
void check_run(size_t check, const struct world_options *options, struct world_result *out);

/* The storage rules of docs/architecture.md: the failure schedule of each. */
#define RULES 10u
const char *rule_name(unsigned rule); /* 1 .. RULES */
/* Why there is no schedule: the rule's feature is not there yet. NULL: there is one. */
const char *rule_not_built(unsigned rule);
void rule_run(unsigned rule, const struct world_options *options, struct world_result *out);

#endif
