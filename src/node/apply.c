/* Apply: committed entries become state and queue-log runs, one entry after another.
 *
 * Order within an entry, under the state's write lock: the pure apply functions decide, the meta
 * row moves, the runs they hand out go to the queue logs (page cache). Only then is safeTime
 * published, the hooks are called and the waiting requests answered: so everything stamped at or
 * below a safeTime is readable when it is seen, and an answer is given after commit and local
 * apply. Nothing here is durable; the checkpoint makes it so.
 *
 * Apply waits between entries (storage rule 6): for room on the disk and in the overlay, so that a
 * checkpoint can run meanwhile. Somebody else may take the room it saw. Then the entry is left
 * half-way, decided and in part in the queue logs, without the lock: reads go on (what they cannot
 * find yet was never published), and no checkpoint is made of it. */
#include "node/internal.h"

#include "base/log.h"
#include "base/mem.h"

#define SPACE_CHECK_EVERY_BYTES (1u << 20)
#define SPACE_SLACK_BYTES (16u << 10) /* folders and files that an entry may begin */

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

/* The log of every queue that this entry appends to, made where there is none yet. */
static enum err open_run_logs(struct node *n, size_t from, struct error *error)
{
    for (size_t i = from; i < n->effects.n; i++) {
        struct queue *q = n->effects.runs[i].queue;
        if (q->log == NULL) {
            TRY(qlog_create(n->logs, q->id, &q->log, error));
            node_log_add(n, q->id, q->log);
        }
        if (i >= n->run_logs_cap) {
            n->run_logs_cap = 2 * (i + 1);
            n->run_logs = mem_grow(n->run_logs, n->run_logs_cap * sizeof(*n->run_logs));
        }
        n->run_logs[i] = q->log;
        touched_add(n, q->id);
    }
    return ERR_OK;
}

static enum err apply_push(struct node *n, struct apply_context *at, struct span body,
                           struct node_request *request, struct error *error)
{
    size_t from = n->effects.n;
    TRY(push_apply(n->state, at, body, &n->effects, request == NULL ? NULL : &request->push,
                   error));
    return open_run_logs(n, from, error);
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
    if (atomic_load(&n->emergency))
        node_want_checkpoint(n); /* it makes room */
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

static enum err undecodable(uint64_t index, enum err err, struct error *error)
{
    return error_set(error, err, "entry %llu does not decode", (unsigned long long)index);
}

static enum err apply_locked(struct node *n, const struct node_entry *entry,
                             struct entry_source *source, struct error *error)
{
    struct state_meta *meta = state_meta(n->state);
    TRY(check_order(meta, entry->index, entry->clock, error));
    struct apply_context at = {.index = entry->index, .now = entry->clock};
    /* A queue freed by this entry is recorded with the index it sees here. */
    meta->applied = entry->index;
    meta->term = entry->term;
    for (;;) {
        enum command_type type;
        struct span body;
        struct node_request *request;
        enum err err = source_next(source, &type, &body, &request);
        if (err == ERR_NOT_FOUND)
            break;
        if (err != ERR_OK)
            return undecodable(entry->index, err, error);
        if (request != NULL)
            request->now = at.now;
        atomic_fetch_add(&n->applied_bytes, body.len);
        TRY(apply_command(n, &at, type, body, request, error));
        at.ordinal++;
        at.now++;
        at.minted = 0;
    }
    meta->last_clock = entry->clock;
    meta->last_count = at.ordinal;
    take_freed(n);
    return kv_expire(n->state, entry->clock, KV_EXPIRE_PER_ENTRY, error);
}

/* Appends the runs that are not there yet. ERR_NO_SPACE: some do not fit, and nothing is left to
 * give up for them. */
static enum err append_runs(struct node *n, struct error *error)
{
    while (n->runs_done < n->effects.n) {
        enum err err =
            qlog_append(n->run_logs[n->runs_done], &n->effects.runs[n->runs_done].run, NULL, error);
        if (err == ERR_NO_SPACE && node_make_room(n))
            continue;
        TRY(err);
        n->runs_done++;
    }
    return ERR_OK;
}

/* A run borrows its partition's name, which may be freed as soon as the lock is let go: the entry
 * may have deleted the queue behind the push. */
static void keep_names(struct node *n)
{
    size_t len = 0;
    buf_reset(&n->run_names);
    for (size_t i = n->runs_done; i < n->effects.n; i++)
        buf_put_span(&n->run_names, n->effects.runs[i].run.partition);
    for (size_t i = n->runs_done; i < n->effects.n; i++) {
        struct span *name = &n->effects.runs[i].run.partition;
        *name = span_make(n->run_names.ptr + len, name->len);
        len += name->len;
    }
}

static void set_log_lengths(struct node *n)
{
    for (size_t i = 0; i < n->effects.n; i++) {
        struct qlog *log = n->run_logs[i];
        if (i > 0 && n->run_logs[i - 1] == log)
            continue;
        struct queue *q = state_queue_by_id(n->state, qlog_id(log));
        if (q != NULL) /* else deleted by the entry itself */
            q->log_length = qlog_end(log);
    }
}

/* Write lock held, and let go. What the runs had to say decides what the entry has come to. */
static enum err end_entry(struct node *n, enum err err)
{
    n->half_applied = err != ERR_OK;
    if (err == ERR_OK)
        set_log_lengths(n);
    else if (err == ERR_NO_SPACE)
        keep_names(n);
    node_count_dirty(n);
    const struct state_meta *meta = state_meta(n->state);
    int64_t safe_time = meta->last_clock > meta->max_stamp ? meta->last_clock : meta->max_stamp;
    uint64_t index = meta->applied;
    atomic_store(&n->kv_expire_next, kv_expire_next(n->state));
    state_write_unlock(n->state);
    if (err != ERR_OK)
        return err;
    atomic_store(&n->safe_time, safe_time);
    atomic_store(&n->applied, index);
    return ERR_OK;
}

static enum err begin_entry(struct node *n, const struct node_entry *entry, struct error *error)
{
    struct entry_reader reader;
    struct entry_source source = {.request = entry->first};
    if (entry->replay.len > 0) {
        source.reader = &reader;
        if (entry_reader_init(&reader, buf_span(&entry->replay)) != ERR_OK)
            return undecodable(entry->index, ERR_CORRUPT, error);
    }
    n->touched_n = 0;
    n->runs_done = 0;
    push_effects_reset(&n->effects);
    state_write_lock(n->state);
    enum err err = apply_locked(n, entry, &source, error);
    if (err == ERR_NO_SPACE)
        err = ERR_IO; /* not at the runs: it cannot be gone on with */
    if (err == ERR_OK)
        err = append_runs(n, error);
    return end_entry(n, err);
}

/* An entry that was left half-way. */
static enum err resume_entry(struct node *n, struct error *error)
{
    enum err err = append_runs(n, error); /* no checkpoint touches the logs' lengths meanwhile */
    if (err == ERR_NO_SPACE)
        return err;
    state_write_lock(n->state);
    return end_entry(n, err);
}

void node_expire_look(struct node *n)
{
    if (atomic_load(&n->kv_expire_next) <= node_clock_estimate(n))
        node_request_clock_entry(n);
}

static void call_hooks(struct node *n)
{
    size_t hooks = atomic_load(&n->n_hooks);
    for (size_t h = 0; h < hooks; h++) {
        for (size_t i = 0; i < n->touched_n; i++)
            n->hooks[h].fn(n->hooks[h].ctx, n->touched[i]);
        n->hooks[h].fn(n->hooks[h].ctx, 0);
    }
}

static void finish_entry(struct node *n, struct node_entry *entry, enum err err)
{
    node_complete_all(n, entry->first, err);
    buf_deinit(&entry->replay);
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

/* Does the entry fit beside what the next checkpoint needs? A look at the disk every so many bytes,
 * at every entry while it is known to be full. Entries without a push always pass: deletions and
 * the like are what makes room. */
static bool disk_has_room(struct node *n, const struct node_entry *entry)
{
    struct disk_usage usage;
    uint64_t need = entry->log_bytes;
    if (entry->log_bytes == 0 ||
        (n->bytes_since_space_check < SPACE_CHECK_EVERY_BYTES && !node_storage_full(n)))
        return true;
    if (atomic_load(&n->applied) != atomic_load(&n->durable)) /* a checkpoint may help: not tight */
        need += need / 4 + SPACE_SLACK_BYTES;
    do {
        if (disk_usage(n->options.disk, &usage, NULL) != ERR_OK ||
            usage.free_bytes >= need + node_checkpoint_need(n))
            return true;
    } while (node_make_room(n));
    return false;
}

/* Room for an entry on the disk and in the overlay. */
static bool has_room(struct node *n, const struct node_entry *entry)
{
    if (!disk_has_room(n, entry))
        return false;
    n->bytes_since_space_check %= SPACE_CHECK_EVERY_BYTES;
    uint64_t most = node_dirty_max(n);
    if (atomic_load(&n->dirty_bytes) < most)
        return true;
    /* One large entry may have taken it past the bound; while that is written others go on. */
    return !atomic_load(&n->emergency) && atomic_load(&n->active_bytes) < most / 2;
}

/* ERR_NOT_FOUND: nothing is committed that is not applied. ERR_NO_SPACE: the next entry, now
 * n->current, waits for room. Any other error is for good. */
static enum err apply_next(struct node *n, struct error *error)
{
    if (n->current == NULL) {
        pthread_mutex_lock(&n->mutex);
        n->current = take_entry_locked(n);
        pthread_mutex_unlock(&n->mutex);
        if (n->current == NULL)
            return ERR_NOT_FOUND;
        n->bytes_since_space_check += n->current->log_bytes;
    }
    enum err err = ERR_STOPPED;
    if (!atomic_load(&n->stopped)) {
        if (!n->half_applied && !has_room(n, n->current))
            return ERR_NO_SPACE;
        err = n->half_applied ? resume_entry(n, error) : begin_entry(n, n->current, error);
        if (err == ERR_NO_SPACE)
            return err;
    }
    struct node_entry *entry = n->current;
    n->current = NULL;
    if (err == ERR_OK)
        call_hooks(n);
    else if (err != ERR_STOPPED && n->opened) /* else it refuses the boot */
        node_fail(n, "apply", error);
    if (atomic_load(&n->kv_expire_next) <= atomic_load(&n->safe_time))
        node_expire_look(n); /* more than one entry removes */
    finish_entry(n, entry, err == ERR_OK ? ERR_OK : ERR_STOPPED);
    return err;
}

bool node_pump_apply(struct node *n)
{
    struct error error = {0};
    enum err err = apply_next(n, &error);
    return err != ERR_NOT_FOUND && err != ERR_NO_SPACE;
}

void node_drop_entries(struct node *n)
{
    struct node_entry *entry = n->current;
    n->current = NULL;
    pthread_mutex_lock(&n->mutex);
    if (entry == NULL)
        entry = n->shared.apply_first;
    else
        entry->next = n->shared.apply_first;
    n->shared.apply_first = NULL;
    n->shared.apply_last = &n->shared.apply_first;
    pthread_mutex_unlock(&n->mutex);
    while (entry != NULL) {
        struct node_entry *next = entry->next;
        finish_entry(n, entry, ERR_STOPPED);
        entry = next;
    }
}

/* How much of the entry goes to queue logs. */
static enum err count_log_bytes(struct node_entry *entry, struct entry_reader *reader)
{
    for (;;) {
        enum command_type type;
        struct span body;
        enum err err = entry_next(reader, &type, &body);
        if (err != ERR_OK)
            return err == ERR_NOT_FOUND ? ERR_OK : err;
        if (type == COMMAND_PUSH)
            entry->log_bytes += body.len;
    }
}

/* The entry goes the way of a live one. When it does not fit on the disk it stays in memory, with
 * all that follow: the node opens, and they are applied as soon as there is room. */
enum err node_replay_entry(void *ctx, const struct wal_entry *found, struct error *error)
{
    struct node *n = ctx;
    struct entry_reader reader;
    if (entry_reader_init(&reader, found->payload) != ERR_OK)
        return undecodable(found->index, ERR_CORRUPT, error);
    struct node_entry *entry = mem_new(sizeof(*entry));
    *entry = (struct node_entry){.index = found->index,
                                 .term = found->term,
                                 .clock = reader.clock,
                                 .count = reader.count,
                                 .bytes = found->payload.len};
    buf_put_span(&entry->replay, found->payload);
    enum err err = count_log_bytes(entry, &reader);
    n->shared.last_clock = entry->clock;
    n->shared.last_count = entry->count;
    pthread_mutex_lock(&n->mutex);
    *n->shared.apply_last = entry;
    n->shared.apply_last = &entry->next;
    pthread_mutex_unlock(&n->mutex);
    if (err != ERR_OK)
        return undecodable(found->index, err, error);
    if (n->current != NULL)
        return ERR_OK; /* behind one that waits */
    err = apply_next(n, error);
    return err == ERR_NO_SPACE && n->options.open_behind ? ERR_OK : err;
}

static void wake_checkpoint_when_due(struct node *n)
{
    if (!node_checkpoint_full(n))
        return;
    pthread_mutex_lock(&n->mutex);
    pthread_cond_signal(&n->checkpoint_wake);
    pthread_mutex_unlock(&n->mutex);
}

/* Nothing was done: waits until there may be something. False at the end. Mutex held. */
static bool wait_for_work(struct node *n)
{
    bool blocked = n->current != NULL;
    if (n->shared.log_done)
        return false;
    if (blocked) {
        if (!n->half_applied && !atomic_load(&n->checkpoint_short))
            atomic_store(&n->checkpoint_wanted, true); /* it may be all that is waited for */
        pthread_cond_signal(&n->checkpoint_wake);
    }
    (void)cond_wait_us(blocked ? &n->space_wake : &n->apply_wake, &n->mutex,
                       blocked ? 200 * 1000 : -1); /* why it woke is looked at by the caller */
    return true;
}

void node_apply_thread(void *ctx)
{
    struct node *n = ctx;
    bool go_on = true;
    while (go_on) {
        if (node_pump_apply(n)) {
            wake_checkpoint_when_due(n);
            continue;
        }
        pthread_mutex_lock(&n->mutex);
        if (n->current != NULL || n->shared.apply_first == NULL)
            go_on = wait_for_work(n);
        pthread_mutex_unlock(&n->mutex);
    }
    node_drop_entries(n); /* those that do not fit: the log has them */
    pthread_mutex_lock(&n->mutex);
    n->shared.apply_done = true;
    pthread_cond_broadcast(&n->checkpoint_wake);
    pthread_mutex_unlock(&n->mutex);
}
