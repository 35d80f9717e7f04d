/* One simulated broker with its sink, disk, state database, bucket, clock and clients, all from one
 * seed. */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "sim/lake_judge.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"
#include "sink/sink.h"

#define WORLD_QUEUES 3u
#define WORLD_PARTITIONS 6u

struct world_options {
    uint64_t seed;
    bool with_sink;
    unsigned lives; /* boots */
    unsigned steps_per_life;
    bool trace;
};

struct world;

struct world_result {
    bool ok;
    char why[1200];
    uint64_t steps, crashes, kills, drains, records, windows, deletions, full;
    int64_t virtual_us;
};

void world_run(const struct world_options *options, struct world_result *out);

enum sweep_event {
    SWEEP_DELETE, /* the queue is deleted and made again */
    SWEEP_SIGTERM,
    SWEEP_KILL,
    SWEEP_POWER_CUT,
    SWEEP_DELETE_KILL,
    SWEEP_GONE_KILL, /* deleted, not made again, and a power cut right behind it */
    SWEEP_EVENTS,    /* how many */
};

const char *sweep_event_name(enum sweep_event event);
/* One story with the event before step `at`; false when the story was over before. */
bool sweep_run(const struct world_options *options, enum sweep_event event, unsigned at,
               struct world_result *out);

#endif
