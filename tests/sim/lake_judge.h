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

struct lake_names {
    const char *const *queues; /* by the ledger's queue number */
    unsigned n_queues;
    const char *const *partitions;
};

/* complete: everything acknowledged must be there; else only what is there is judged. t0: of each
 * queue, where its lake begins (start=latest; INT64_MIN: everything): records stamped before it
 * must not be there. Counts `seen` anew. */
void lake_judge(struct ledger *l, const struct omap *objects, const struct lake_names *names,
                const int64_t *t0, bool complete, struct lake_verdict *out);

#endif
