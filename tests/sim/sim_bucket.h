/* A model of a bucket that may do anything a bucket does: slow, down, wrong statuses, answers lost
 * after success, uploads in parts that end anywhere, requests that take effect long after their
 * client gave up. Objects survive crashes
 * of the broker. It also judges: a data object that is ever rewritten with other bytes is a
 * violation, as is one that no durable intent accounts for.
 *
 * The store is one for all; each sink instance has a client of its own (struct sim_bucket). */
#ifndef TESTS_SIM_BUCKET_H
#define TESTS_SIM_BUCKET_H

#include "base/omap.h"
#include "s3/bucket.h"
#include "sim/sim_clock.h"

/* What a store that is down does to every request. */
enum sim_outage {
    OUTAGE_NONE,
    OUTAGE_NO_ANSWER, /* refused or reset at once */
    OUTAGE_HANG,      /* nothing until the client gives up after SIM_BUCKET_HANG_US */
    OUTAGE_503,
    OUTAGE_429,
    OUTAGE_401,
    OUTAGE_403,
    OUTAGE_NO_BUCKET, /* 404 NoSuchBucket */
    OUTAGES,          /* how many */
};

#define SIM_BUCKET_HANG_US INT64_C(120000000)
#define SIM_BUCKET_HICCUP_US INT64_C(60000000) /* one request in fifty hangs for up to this long */

const char *sim_outage_name(enum sim_outage outage);

struct sim_bucket_store { /* survives crashes */
    struct omap *objects;
    enum sim_outage outage;
    bool prompt;               /* while it is up no request hangs */
    struct sim_late_put *late; /* bytes on their way whose client is gone */
    size_t n_late, cap_late;
    bool violated;
    char violation[512];
    struct sim_upload *uploads; /* in parts, neither completed nor aborted */
    uint64_t puts, rewrites, landed_late, statuses, multiparts;
    uint64_t redone; /* data objects that were written again, with the same bytes */
    /* Asked for each data object before it is stored: false when nothing accounts for it. NULL:
     * everything is allowed. */
    bool (*accounted)(void *ctx, struct span key);
    void *ctx;
};

struct sim_bucket {
    struct bucket base;
    struct sim_bucket_store *store;
    struct sim_clock *clock;
    struct prng *prng;
    unsigned fault_percent; /* of requests that go wrong in some way */
    bool wild;              /* these ways: any status, damaged answers, lists in small pages */
    uint64_t part_bytes;    /* larger bodies go in parts of this size; 0: none do */
    struct sim_bucket_job *jobs;
    size_t n, cap;
};

void sim_bucket_store_init(struct sim_bucket_store *s);
void sim_bucket_store_deinit(struct sim_bucket_store *s);
/* Lands what is due by now. next_due_out as below. */
void sim_bucket_store_pump(struct sim_bucket_store *s, int64_t now_us, int64_t *next_due_out);

uint64_t sim_bucket_store_stranded(const struct sim_bucket_store *s); /* uploads of nobody */

/* bucket_close() frees it (requests outstanding are dropped, as by a crash: some took effect). */
struct sim_bucket *sim_bucket_new(struct sim_bucket_store *store, struct sim_clock *clock,
                                  struct prng *prng);
/* Finishes one request that is due. next_due_out: mono us of the earliest later one, INT64_MAX
 * none. */
bool sim_bucket_pump(struct sim_bucket *b, int64_t *next_due_out);
/* The client dies: what it was sending took effect, never will, or will later. */
void sim_bucket_kill(struct sim_bucket *b);
/* The client stands still: some of what it was sending arrives meanwhile. */
void sim_bucket_freeze(struct sim_bucket *b);

#endif
