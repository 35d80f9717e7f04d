/* What the world's files share: world.c (a seed's random life), sweep.c (one event at every step).
 */
#ifndef TESTS_SIM_WORLD_INTERNAL_H
#define TESTS_SIM_WORLD_INTERNAL_H

#include "sim/world.h"

extern const char *const world_queue_names[WORLD_QUEUES];
extern const char *const world_partition_names[WORLD_PARTITIONS];

struct world {
    const struct world_options *options;
    struct world_result *result;
    struct prng prng;
    struct sim_clock clock;
    struct sim_entropy entropy;
    struct sim_executor executor;
    struct disk *disk;
    struct sim_db_state *db_state;
    struct sim_bucket_store store;
    struct sim_bucket *bucket;
    struct ledger ledger;
    struct node *node;
    struct sink *sink;
    struct sink_boot_settings settings;
    bool calm; /* faults off, no new pushes */
    bool full; /* the disk has little or no room left */
    uint64_t life;
    unsigned outstanding;
};

void world_init(struct world *w, const struct world_options *options, struct world_result *result);
void world_deinit(struct world *w);
/* Records the first thing that is wrong. */
void world_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_trace(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool world_open(struct world *w); /* node, check of the log, sink; false when it does not open */
/* Everything in memory is gone, as by a crash; the disk is the caller's. */
void world_drop(struct world *w);
bool world_stopped(struct world *w);
/* Submits one push of n new records to the queue; the ledger learns the answer. */
void world_push(struct world *w, unsigned queue, size_t n);
void world_delete(struct world *w, unsigned queue);
void world_judge(struct world *w, bool complete, struct lake_verdict *out);

#endif
