/* Judges a lake in a model bucket against the ledger: each acknowledged record in one object, once,
 * bytes equal; manifests exact; windows tile; nothing that no manifest names. */
#ifndef TESTS_SIM_LAKE_JUDGE_H
#define TESTS_SIM_LAKE_JUDGE_H

#include "sim/ledger.h"
#include "sim/sim_bucket.h"

struct lake_verdict {
    bool ok;
    size_t records, windows, missing;
    char why[1024]; /* the first thing that is wrong */
};

/* complete: everything acknowledged must be there; else only what is there is judged. queue_names:
 * by the ledger's queue number. Counts `seen` anew. */
void lake_judge(struct ledger *l, const struct omap *objects, const char *const *queue_names,
                unsigned n_queues, const char *const *partition_names, bool complete,
                struct lake_verdict *out);

#endif
