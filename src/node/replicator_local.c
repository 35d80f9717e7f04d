/* The local replicator: one voter, so the WAL's group commit is the whole protocol. */
#include "node/replicator.h"

#include "base/mem.h"

#include <stdatomic.h>

struct replicator_local {
    struct replicator base;
    struct wal *wal;
    _Atomic uint64_t committed;
};

static struct replicator_local *local_of(struct replicator *r)
{
    return (struct replicator_local *)r;
}

static enum err local_propose(struct replicator *r, const struct wal_append *entries, size_t n,
                              struct error *error)
{
    struct replicator_local *local = local_of(r);
    enum err err = wal_write(local->wal, entries, n, error);
    if (err == ERR_OK)
        atomic_store(&local->committed, entries[n - 1].index);
    return err;
}

static uint64_t local_committed(struct replicator *r)
{
    return atomic_load(&local_of(r)->committed);
}

static uint64_t local_term(struct replicator *r)
{
    return wal_term(local_of(r)->wal);
}

static bool local_leader(struct replicator *r)
{
    (void)r; /* the only voter always leads */
    return true;
}

static enum err local_release(struct replicator *r, uint64_t index, struct error *error)
{
    struct wal *wal = local_of(r)->wal;
    TRY(wal_release(wal, index, error));
    enum err err = wal_prepare(wal, error);    /* here, so that a roll need not on the hot path */
    return err == ERR_NO_SPACE ? ERR_OK : err; /* a roll tries again, and says so if it must */
}

static void local_close(struct replicator *r)
{
    struct replicator_local *local = local_of(r);
    wal_close(local->wal);
    mem_free(local);
}

static const struct replicator_ops LOCAL_OPS = {
    .propose = local_propose,
    .committed = local_committed,
    .term = local_term,
    .leader = local_leader,
    .release = local_release,
    .close = local_close,
};

struct replicator *replicator_local_new(struct wal *wal)
{
    struct replicator_local *local = mem_new(sizeof(*local));
    local->base.ops = &LOCAL_OPS;
    local->wal = wal;
    atomic_store(&local->committed, wal_last_index(wal));
    return &local->base;
}
