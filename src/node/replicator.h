/* The seam between the node and whatever makes an entry durable on a majority
 * (docs/architecture.md, Consensus). What the rest of the broker sees of it is small: propose
 * entries, committed up to an index, who leads. One node needs only the group-commit path below
 * (replicator_local.c); a cluster puts the consensus core behind the same calls, where propose()
 * returns before the entries are committed and the `committed` callback tells. */
#ifndef NODE_REPLICATOR_H
#define NODE_REPLICATOR_H

#include "wal/wal.h"

struct replicator;

struct replicator_ops {
    /* Entries continue the log. ERR_NO_SPACE: nothing was logged. Other errors stop the node.
     * Blocks; log-writer thread only. */
    enum err (*propose)(struct replicator *r, const struct wal_append *entries, size_t n,
                        struct error *error);
    uint64_t (*committed)(struct replicator *r); /* Any thread */
    uint64_t (*term)(struct replicator *r);      /* Any thread */
    bool (*leader)(struct replicator *r);        /* Any thread */
    /* Entries up to index are in a durable checkpoint. */
    enum err (*release)(struct replicator *r, uint64_t index, struct error *error);
    void (*close)(struct replicator *r);
};

struct replicator {
    const struct replicator_ops *ops;
};

/* One voter, no network: an entry is committed when its WAL write is durable. Takes wal. */
struct replicator *replicator_local_new(struct wal *wal);

#endif
