/* The checkpoint: makes everything applied so far durable in the state database, so that the WAL
 * below may go.
 *
 * The order is the point (storage rule 3):
 *   1. freeze the state at an entry boundary A (apply goes on above it);
 *   2. sync the whole filesystem: queue logs up to A are durable;
 *   3. one synced batch: every frozen row, each queue's log length, applied = A;
 *   4. only now: the WAL up to A is released, and logs of queues freed at or below A are unlinked
 * (rule 7). A crash between any two leaves the state database at an older A' with everything it
 * names durable, and the WAL from A' + 1 on. A failed sync stops the node and is never tried again
 * (rule 5); a database that reports a full disk is tried again later, with the frozen rows merged
 * back. */
#include "node/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "broker/dedup.h"

#define REAP_PARTITIONS 4096

void node_count_dirty(struct node *n)
{
    atomic_store(&n->dirty_bytes, state_dirty_bytes(n->state));
    atomic_store(&n->active_bytes, state_active_bytes(n->state));
}

void node_want_checkpoint(struct node *n)
{
    atomic_store(&n->checkpoint_wanted, true);
    pthread_mutex_lock(&n->mutex);
    pthread_cond_signal(&n->checkpoint_wake);
    pthread_mutex_unlock(&n->mutex);
}

/* The batch in the database's log, and a table of it and of what the write buffers hold. */
uint64_t node_checkpoint_need(struct node *n)
{
    struct db *db = state_db(n->state);
    uint64_t buffered = db->ops->buffered != NULL ? db->ops->buffered(db) : 0;
    return 2 * atomic_load(&n->dirty_bytes) + buffered;
}

/* The database must not meet a full disk: it would refuse writes for long after (db_rocks.c). */
static enum err check_room(struct node *n, struct error *error)
{
    struct disk_usage usage;
    uint64_t need = node_checkpoint_need(n);
    do {
        if (disk_usage(n->options.disk, &usage, NULL) != ERR_OK || usage.free_bytes >= need)
            return ERR_OK;
    } while (node_make_room(n));
    return error_set(error, ERR_NO_SPACE, "%llu bytes are free, it may take %llu",
                     (unsigned long long)usage.free_bytes, (unsigned long long)need);
}

static enum err write_frozen(struct node *n, struct error *error)
{
    TRY(disk_sync_all(n->options.disk, error));
    struct db *db = state_db(n->state);
    struct db_batch *batch = db->ops->batch_new(db);
    enum err err = state_frozen_write(n->state, batch, error);
    if (err == ERR_OK)
        err = db->ops->batch_write(db, batch, error);
    db->ops->batch_free(batch);
    return err;
}

/* Freed at or below the durable checkpoint, no reader left. */
static bool may_destroy(const struct node_log *log, uint64_t durable)
{
    return log->freed <= durable && log->refs == 0;
}

static bool anything_to_destroy(struct node *n)
{
    uint64_t durable = atomic_load(&n->durable);
    pthread_mutex_lock(&n->mutex);
    const struct node_log *log = n->shared.doomed;
    while (log != NULL && !may_destroy(log, durable))
        log = log->next_doomed;
    pthread_mutex_unlock(&n->mutex);
    return log != NULL;
}

static struct node_log *take_destroyable(struct node *n, uint64_t durable)
{
    struct node_log *list = NULL;
    pthread_mutex_lock(&n->mutex);
    struct node_log **at = &n->shared.doomed;
    while (*at != NULL) {
        struct node_log *log = *at;
        if (!may_destroy(log, durable)) {
            at = &log->next_doomed;
            continue;
        }
        *at = log->next_doomed;
        log->next_doomed = list;
        list = log;
    }
    pthread_mutex_unlock(&n->mutex);
    return list;
}

static enum err destroy_freed(struct node *n, uint64_t durable, struct error *error)
{
    struct node_log *list = take_destroyable(n, durable);
    enum err err = ERR_OK;
    while (list != NULL) {
        struct node_log *next = list->next_doomed;
        enum err one = qlog_destroy(list->log, err == ERR_OK ? error : NULL);
        if (err == ERR_OK)
            err = one;
        mem_free(list);
        list = next;
    }
    return err;
}

static bool freeze(struct node *n, uint64_t *bytes_out)
{
    state_write_lock(n->state);
    bool changed = !n->half_applied && state_meta(n->state)->applied > atomic_load(&n->durable);
    if (changed) {
        *bytes_out = atomic_load(&n->applied_bytes);
        atomic_store(&n->checkpoint_bytes_mark, *bytes_out);
        state_freeze(n->state);
        node_count_dirty(n);
    }
    state_write_unlock(n->state);
    return changed;
}

/* Apply may wait for what was done. */
static void wake_waiting(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    pthread_cond_broadcast(&n->space_wake);
    pthread_mutex_unlock(&n->mutex);
}

enum err node_checkpoint(struct node *n, bool *did_out, struct error *error)
{
    *did_out = false;
    n->last_checkpoint_mono = clock_mono_us(n->options.clock);
    atomic_store(&n->checkpoint_wanted, false);
    uint64_t durable = atomic_load(&n->durable), bytes = 0;
    if (atomic_load(&n->stopped))
        return ERR_OK;
    if (atomic_load(&n->applied) == durable)
        return destroy_freed(n, durable, error); /* a reader had it when the checkpoint was made */
    TRY(check_room(n, error));
    if (!freeze(n, &bytes))
        return ERR_OK;
    wake_waiting(n);
    uint64_t index = state_frozen_applied(n->state);
    enum err err = write_frozen(n, error);
    if (err != ERR_OK) {
        state_frozen_failed(n->state);
        return err;
    }
    state_frozen_done(n->state);
    state_read_lock(n->state);
    node_count_dirty(n);
    state_read_unlock(n->state);
    atomic_store(&n->checkpointed_bytes, bytes);
    atomic_store(&n->checkpoint_short, false);
    atomic_store(&n->durable, index);
    atomic_fetch_add(&n->checkpoints, 1);
    *did_out = true;
    TRY(n->replicator->ops->release(n->replicator, index, error));
    return destroy_freed(n, index, error);
}

/* Invisible housekeeping: rows and memory that no read can reach any more. */
static void sweep(struct node *n)
{
    state_write_lock(n->state);
    dedup_sweep(n->state, state_meta(n->state)->last_clock);
    bool more = state_reap(n->state, REAP_PARTITIONS);
    state_write_unlock(n->state);
    while (more) {
        state_write_lock(n->state);
        more = state_reap(n->state, REAP_PARTITIONS);
        state_write_unlock(n->state);
    }
}

static void report(struct node *n, enum err err, const struct error *error)
{
    if (err == ERR_OK)
        return;
    if (err != ERR_NO_SPACE) {
        node_fail(n, "checkpoint", error);
        return;
    }
    int64_t now = clock_mono_us(n->options.clock);
    bool known = atomic_exchange(&n->checkpoint_short, true) &&
                 now - n->last_short_said_mono < NODE_SHORT_SAY_EVERY_US;
    if (node_make_room(n))
        node_want_checkpoint(n);
    if (known)
        return;
    n->last_short_said_mono = now;
    log_msg(LOG_ERROR, "node",
            "checkpoint: %s: writes that grow storage are refused until there is room",
            error->text);
}

bool node_pump_checkpoint(struct node *n)
{
    struct error error = {0};
    bool did = false;
    enum err err = node_checkpoint(n, &did, &error);
    report(n, err, &error);
    if (did)
        sweep(n);
    return did;
}

bool node_checkpoint_full(const struct node *n)
{
    uint64_t since = atomic_load(&n->applied_bytes) - atomic_load(&n->checkpoint_bytes_mark);
    return since >= n->options.durable_every_bytes ||
           atomic_load(&n->dirty_bytes) >= node_dirty_due(n);
}

bool node_pump_checkpoint_due(struct node *n)
{
    if (atomic_load(&n->applied) == atomic_load(&n->durable))
        return !atomic_load(&n->stopped) && anything_to_destroy(n);
    int64_t age = clock_mono_us(n->options.clock) - n->last_checkpoint_mono;
    if (atomic_load(&n->checkpoint_wanted))
        return true;
    if (atomic_load(&n->checkpoint_short))
        return age >= NODE_SPACE_CHECK_EVERY_US;
    return node_checkpoint_full(n) || age >= (int64_t)n->options.durable_every_ms * 1000;
}

void node_checkpoint_thread(void *ctx)
{
    struct node *n = ctx;
    int64_t period_us = (int64_t)n->options.durable_every_ms * 1000;
    if (period_us > NODE_SPACE_CHECK_EVERY_US)
        period_us = NODE_SPACE_CHECK_EVERY_US;
    pthread_mutex_lock(&n->mutex);
    while (!n->shared.apply_done) {
        (void)cond_wait_us(&n->checkpoint_wake, &n->mutex, period_us);
        pthread_mutex_unlock(&n->mutex);
        node_pump_space(n);
        if (node_pump_checkpoint_due(n)) {
            (void)node_pump_checkpoint(n); /* whether it did anything does not matter here */
            wake_waiting(n);
        }
        pthread_mutex_lock(&n->mutex);
    }
    pthread_mutex_unlock(&n->mutex);
}
