/* Apply: committed entries become state and queue-log runs, one entry after another.
 *
 * Order within an entry, under the state's write lock: the pure apply functions decide, the runs
 * they hand out go to the queue logs (page cache), the meta row moves. Only then is safeTime
 * published, the hooks are called and the waiting requests answered: so everything stamped at or
 * below a safeTime is readable when it is seen, and an answer is given after commit and local
 * apply. Nothing here is durable; the checkpoint makes it so.
 *
 * Apply waits only between entries (storage rule 6): for room on the disk and in the overlay. */
#include "node/internal.h"

#include "base/log.h"
#include "base/mem.h"

#define SPACE_CHECK_EVERY_BYTES (1u << 20)
#define SPACE_MARGIN_BYTES (8u << 20)

/* Commands of an entry: from the waiting requests (live) or from the log (replay). */
struct entry_source {
    struct node_request *request; /* live: the next one */
    struct entry_reader *reader;  /* replay, else NULL */
};

static enum err source_next(struct entry_source *source, enum command_type *type, struct span *body,
                            struct node_request **request)
{
    if (source->reader != NULL) {
        *request = NULL;
        return entry_next(source->reader, type, body);
    }
    *request = source->request;
    if (*request == NULL)
        return ERR_NOT_FOUND;
    source->request = (*request)->next;
    *type = (*request)->type;
    *body = buf_span(&(*request)->body);
    return ERR_OK;
}

struct node_log *node_log_add(struct node *n, uint64_t queue_id, struct qlog *log)
{
    struct node_log *entry = mem_new(sizeof(*entry));
    entry->queue_id = queue_id;
    entry->log = log;
    pthread_mutex_lock(&n->mutex);
    map64_put(&n->shared.log_by_queue, queue_id, entry);
    pthread_mutex_unlock(&n->mutex);
    return entry;
}

static void touched_add(struct node *n, uint64_t queue_id)
{
    for (size_t i = n->touched_n; i > 0 && i + 8 > n->touched_n; i--) { /* near repeats only */
        if (n->touched[i - 1] == queue_id)
            return;
    }
    if (n->touched_n == n->touched_cap) {
        n->touched_cap = n->touched_cap == 0 ? 64 : 2 * n->touched_cap;
        n->touched = mem_grow(n->touched, n->touched_cap * sizeof(*n->touched));
    }
    n->touched[n->touched_n++] = queue_id;
}

/* Appends one run. A full disk costs the ballast; when that is gone too it is waited out, with the
 * state locked, since an entry that was started must be finished. */
static enum err append_run(struct node *n, struct queue *q, const struct qlog_run *run,
                           struct error *error)
{
    if (q->log == NULL) {
        TRY(qlog_create(n->logs, q->id, &q->log, error));
        node_log_add(n, q->id, q->log);
    }
    for (;;) {
        enum err err = qlog_append(q->log, run, NULL, error);
        if (err == ERR_NO_SPACE && node_ballast_drop(n))
            continue;
        if (err != ERR_NO_SPACE || n->options.manual)
            return err;
        pthread_mutex_lock(&n->mutex);
        (void)cond_wait_us(&n->space_wake, &n->mutex, 200 * 1000); /* then it looks again */
        bool closing = n->shared.closing;
        pthread_mutex_unlock(&n->mutex);
        if (closing)
            return err;
    }
}

static enum err apply_push(struct node *n, struct apply_context *at, struct span body,
                           struct node_request *request, struct error *error)
{
    push_effects_reset(&n->effects);
    TRY(push_apply(n->state, at, body, &n->effects, request == NULL ? NULL : &request->push,
                   error));
    for (size_t i = 0; i < n->effects.n; i++) {
        struct queue *q = n->effects.runs[i].queue;
        TRY(append_run(n, q, &n->effects.runs[i].run, error));
        q->log_length = qlog_end(q->log);
        touched_add(n, q->id);
    }
    return ERR_OK;
}

static enum err apply_command(struct node *n, struct apply_context *at, enum command_type type,
                              struct span body, struct node_request *request, struct error *error)
{
    switch (type) {
    case COMMAND_PUSH:
        return apply_push(n, at, body, request, error);
    case COMMAND_CONFIGURE:
        return configure_apply(n->state, at, body, request == NULL ? NULL : &request->configure,
                               error);
    case COMMAND_QUEUE_DELETE:
        return queue_delete_apply(n->state, at, body, request == NULL ? NULL : &request->existed,
                                  error);
    case COMMAND_KV:
        return kv_apply(n->state, at, body, request == NULL ? NULL : &request->kv, error);
    }
    return error_set(error, ERR_CORRUPT, "command type %d is unknown", (int)type);
}

/* Queues that this entry freed: their logs leave the table, so no new reader finds them, and wait
 * for a durable checkpoint (storage rule 7). Write lock held. */
static void take_freed(struct node *n)
{
    struct state_freed *freed = NULL;
    size_t count = state_take_freed(n->state, &freed);
    if (count == 0)
        return;
    pthread_mutex_lock(&n->mutex);
    for (size_t i = 0; i < count; i++) {
        struct node_log *log = map64_remove(&n->shared.log_by_queue, freed[i].queue_id);
        if (log == NULL)
            continue; /* nothing was ever pushed */
        log->freed = freed[i].index;
        log->next_doomed = n->shared.doomed;
        n->shared.doomed = log;
    }
    pthread_mutex_unlock(&n->mutex);
    mem_free(freed);
}

static enum err check_order(const struct state_meta *meta, uint64_t index, int64_t clock,
                            struct error *error)
{
    int64_t step = meta->last_count > 1 ? meta->last_count : 1;
    if (index != meta->applied + 1)
        return error_set(error, ERR_CORRUPT, "entry %llu follows entry %llu",
                         (unsigned long long)index, (unsigned long long)meta->applied);
    if (clock < meta->last_clock + step || clock <= meta->max_stamp)
        return error_set(error, ERR_CORRUPT,
                         "the clock of entry %llu went backwards: %lld after %lld",
                         (unsigned long long)index, (long long)clock, (long long)meta->last_clock);
    return ERR_OK;
}

static enum err apply_locked(struct node *n, uint64_t index, uint64_t term, int64_t clock,
                             struct entry_source *source, struct error *error)
{
    struct state_meta *meta = state_meta(n->state);
    TRY(check_order(meta, index, clock, error));
    struct apply_context at = {.index = index, .now = clock};
    /* A queue freed by this entry is recorded with the index it sees here. */
    meta->applied = index;
    meta->term = term;
    for (;;) {
        enum command_type type;
        struct span body;
        struct node_request *request;
        enum err err = source_next(source, &type, &body, &request);
        if (err == ERR_NOT_FOUND)
            break;
        if (err != ERR_OK)
            return error_set(error, err, "entry %llu does not decode", (unsigned long long)index);
        if (request != NULL)
            request->now = at.now;
        atomic_fetch_add(&n->applied_bytes, body.len);
        TRY(apply_command(n, &at, type, body, request, error));
        at.ordinal++;
        at.now++;
        at.minted = 0;
    }
    meta->last_clock = clock;
    meta->last_count = at.ordinal;
    take_freed(n);
    return ERR_OK;
}

static enum err apply_entry(struct node *n, uint64_t index, uint64_t term, int64_t clock,
                            struct entry_source *source, struct error *error)
{
    n->touched_n = 0;
    state_write_lock(n->state);
    enum err err = apply_locked(n, index, term, clock, source, error);
    if (err != ERR_OK)
        n->half_applied = true;
    atomic_store(&n->dirty_bytes, state_dirty_bytes(n->state));
    const struct state_meta *meta = state_meta(n->state);
    int64_t safe_time = meta->last_clock > meta->max_stamp ? meta->last_clock : meta->max_stamp;
    state_write_unlock(n->state);
    if (err != ERR_OK)
        return err;
    atomic_store(&n->safe_time, safe_time);
    atomic_store(&n->applied, index);
    return ERR_OK;
}

enum err node_replay_entry(void *ctx, const struct wal_entry *entry, struct error *error)
{
    struct node *n = ctx;
    struct entry_reader reader;
    enum err err = entry_reader_init(&reader, entry->payload);
    if (err != ERR_OK)
        return error_set(error, err, "entry %llu does not decode",
                         (unsigned long long)entry->index);
    struct entry_source source = {.reader = &reader};
    return apply_entry(n, entry->index, entry->term, reader.clock, &source, error);
}

static void call_hooks(struct node *n)
{
    for (size_t h = 0; h < n->n_hooks; h++) {
        for (size_t i = 0; i < n->touched_n; i++)
            n->hooks[h].fn(n->hooks[h].ctx, n->touched[i]);
        n->hooks[h].fn(n->hooks[h].ctx, 0);
    }
}

static void finish_entry(struct node *n, struct node_entry *entry, enum err err)
{
    struct node_request *r = entry->first;
    while (r != NULL) {
        struct node_request *next = r->next;
        node_complete(n, r, err);
        r = next;
    }
    mem_free(entry);
}

static struct node_entry *take_entry_locked(struct node *n)
{
    struct node_entry *entry = n->shared.apply_first;
    if (entry == NULL || entry->index > n->replicator->ops->committed(n->replicator))
        return NULL;
    n->shared.apply_first = entry->next;
    if (n->shared.apply_first == NULL)
        n->shared.apply_last = &n->shared.apply_first;
    return entry;
}

static void run_entry(struct node *n, struct node_entry *entry)
{
    struct error error = {0};
    enum err err = ERR_STOPPED;
    if (!atomic_load(&n->stopped)) {
        struct entry_source source = {.request = entry->first};
        uint64_t term = n->replicator->ops->term(n->replicator);
        err = apply_entry(n, entry->index, term, entry->clock, &source, &error);
        if (err != ERR_OK)
            node_fail(n, "apply", &error);
        else
            call_hooks(n);
    }
    finish_entry(n, entry, err == ERR_OK ? ERR_OK : ERR_STOPPED);
}

bool node_pump_apply(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    struct node_entry *entry = take_entry_locked(n);
    pthread_mutex_unlock(&n->mutex);
    if (entry == NULL)
        return false;
    run_entry(n, entry);
    return true;
}

static bool entry_grows(const struct node_entry *entry)
{
    for (const struct node_request *r = entry->first; r != NULL; r = r->next) {
        if (r->grows_storage)
            return true;
    }
    return false;
}

/* A look at the disk, every so many bytes, at every entry while it is known to be full. Deletions
 * and the like always pass: they are what makes room. */
static bool disk_has_room(struct node *n, const struct node_entry *entry)
{
    struct disk_usage usage;
    if ((n->bytes_since_space_check < SPACE_CHECK_EVERY_BYTES && !node_storage_full(n)) ||
        !entry_grows(entry) || disk_usage(n->options.disk, &usage, NULL) != ERR_OK)
        return true;
    return usage.free_bytes >= 2 * entry->bytes + SPACE_MARGIN_BYTES;
}

/* Waits until the entry's bytes fit on the disk and the overlay has room. */
static void wait_for_room(struct node *n, const struct node_entry *entry)
{
    n->bytes_since_space_check += entry->bytes;
    while (!atomic_load(&n->stopped)) {
        bool room = disk_has_room(n, entry) || node_ballast_drop(n);
        if (room)
            n->bytes_since_space_check %= SPACE_CHECK_EVERY_BYTES;
        state_read_lock(n->state);
        bool overlay = state_dirty_bytes(n->state) < n->options.dirty_max_bytes;
        state_read_unlock(n->state);
        if (room && overlay)
            return;
        pthread_mutex_lock(&n->mutex);
        bool closing = n->shared.closing;
        pthread_cond_signal(&n->checkpoint_wake);
        if (!closing)
            (void)cond_wait_us(&n->space_wake, &n->mutex, 200 * 1000); /* then it looks again */
        pthread_mutex_unlock(&n->mutex);
        if (closing)
            return;
    }
}

static void wake_checkpoint_when_due(struct node *n)
{
    uint64_t since = atomic_load(&n->applied_bytes) - atomic_load(&n->checkpoint_bytes_mark);
    if (since < n->options.durable_every_bytes)
        return;
    pthread_mutex_lock(&n->mutex);
    pthread_cond_signal(&n->checkpoint_wake);
    pthread_mutex_unlock(&n->mutex);
}

void node_apply_thread(void *ctx)
{
    struct node *n = ctx;
    pthread_mutex_lock(&n->mutex);
    for (;;) {
        struct node_entry *entry = take_entry_locked(n);
        if (entry != NULL) {
            pthread_mutex_unlock(&n->mutex);
            wait_for_room(n, entry);
            run_entry(n, entry);
            wake_checkpoint_when_due(n);
            pthread_mutex_lock(&n->mutex);
        } else if (n->shared.log_done) {
            break;
        } else {
            (void)cond_wait_us(&n->apply_wake, &n->mutex, -1);
        }
    }
    n->shared.apply_done = true;
    pthread_cond_broadcast(&n->checkpoint_wake);
    pthread_mutex_unlock(&n->mutex);
}
