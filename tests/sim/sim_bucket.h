/* A model of a bucket that may do anything a bucket does: slow, down, wrong statuses, answers lost
 * after success, requests that take effect late. Objects survive crashes of the broker. It also
 * judges: a data object that is ever rewritten with other bytes is a violation. */
#ifndef TESTS_SIM_BUCKET_H
#define TESTS_SIM_BUCKET_H

#include "base/omap.h"
#include "s3/bucket.h"
#include "sim/sim_clock.h"

struct sim_bucket_store { /* survives crashes */
    struct omap *objects;
    bool violated;
    char violation[512];
    uint64_t puts, rewrites;
};

struct sim_bucket {
    struct bucket base;
    struct sim_bucket_store *store;
    struct sim_clock *clock;
    struct prng *prng;
    unsigned fault_percent; /* of requests that go wrong in some way */
    bool down;              /* no request gets an answer */
    struct sim_bucket_job *jobs;
    size_t n, cap;
};

void sim_bucket_store_init(struct sim_bucket_store *s);
void sim_bucket_store_deinit(struct sim_bucket_store *s);
/* bucket_close() frees it (requests outstanding are dropped, as by a crash: some took effect). */
struct sim_bucket *sim_bucket_new(struct sim_bucket_store *store, struct sim_clock *clock,
                                  struct prng *prng);
/* Finishes one request that is due. next_due_out: mono us of the earliest later one, INT64_MAX
 * none. */
bool sim_bucket_pump(struct sim_bucket *b, int64_t *next_due_out);

#endif
