/* The node: what is durable before what.
 *
 *   submit ─► log writer: entries, one WAL write, one fdatasync ─► committed ─► apply: state +
 * queue logs ─► publish safeTime ─► hooks ─► answers           checkpoint: sync, one batch, release
 * the WAL
 *
 * Invariants (docs/architecture.md, storage rules):
 *   I1 nothing is applied, readable or counted in safeTime before its WAL write is durable (log.c
 * hands entries to apply only after propose() and apply looks at committed()); I2 the state
 * database never holds anything newer than durable queue logs, and the WAL keeps everything above
 * it (checkpoint.c); I3 every record stamped at or below a published safeTime is readable, every
 * later one is stamped above it (apply.c publishes last, log.c's clock rises by at least the number
 * of commands); I4 an answer is given once, after commit and local apply; I5 a failed sync, EIO or
 * damage stops the node for good: it stays up, answers 503, applies nothing more and never writes a
 * checkpoint again (the state in memory may be ahead of what can be made durable).
 *
 * How it fails: a crash between any two steps leaves the checkpoint at A and the WAL from A + 1 on,
 * and recover.c rebuilds the rest. A request whose write failed for want of space is refused (507);
 * one whose fate is unknown is answered ERR_STOPPED. */
#include "node/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>

void node_options_default(struct node_options *o)
{
    *o = (struct node_options){
        .wal_segment_bytes = 64u << 20,
        .segment_bytes = 64u << 20,
        .durable_every_ms = 1000,
        .durable_every_bytes = 256u << 20,
        .entry_max_bytes = 96u << 20,
        .batch_max_commands = 4096,
        .batch_max_bytes = 4u << 20,
        .dirty_max_bytes = 256u << 20,
        .log_handles_max = 512,
        .disk_high_pct = 85.0,
        .disk_low_pct = 80.0,
    };
}

void node_complete(struct node *n, struct node_request *r, enum err err)
{
    uint64_t bytes = r->body.len + COMMAND_HEADER_SIZE;
    r->err = err;
    r->next = NULL;
    atomic_fetch_sub(&n->queued_bytes, bytes);
    atomic_fetch_sub(&n->inflight, 1);
    r->done(r); /* r may be gone now */
}

void node_complete_all(struct node *n, struct node_request *first, enum err err)
{
    while (first != NULL) {
        struct node_request *next = first->next; /* done() may free it */
        node_complete(n, first, err);
        first = next;
    }
}

void node_fail(struct node *n, const char *what, const struct error *error)
{
    pthread_mutex_lock(&n->mutex);
    bool first = !atomic_exchange(&n->stopped, true);
    if (first) {
        n->shared.failure = *error;
        error_wrap(&n->shared.failure, "%s", what);
    }
    pthread_cond_broadcast(&n->log_wake);
    pthread_cond_broadcast(&n->space_wake);
    pthread_mutex_unlock(&n->mutex);
    if (first) {
        struct log_line line;
        log_begin(&line, LOG_ERROR, "node", "stopped: nothing more is written until a restart");
        log_quoted(&line, "error", span_str(n->shared.failure.text));
        log_end(&line);
    }
}

void node_request_deinit(struct node_request *r)
{
    buf_deinit(&r->body);
    switch (r->type) {
    case COMMAND_PUSH:
        push_result_deinit(&r->push);
        break;
    case COMMAND_CONFIGURE:
        configure_result_deinit(&r->configure);
        break;
    case COMMAND_QUEUE_DELETE:
        break;
    case COMMAND_KV:
        kv_result_deinit(&r->kv);
        break;
    }
}

static struct node *node_new(const struct node_options *options)
{
    struct node *n = mem_new(sizeof(*n));
    n->options = *options;
    n->shared.pending_last = &n->shared.pending_first;
    n->shared.apply_last = &n->shared.apply_first;
    pthread_mutex_init(&n->mutex, NULL);
    pthread_mutex_init(&n->ballast.mutex, NULL);
    cond_init_mono(&n->log_wake);
    cond_init_mono(&n->apply_wake);
    cond_init_mono(&n->checkpoint_wake);
    cond_init_mono(&n->space_wake);
    cond_init_mono(&n->scrub_wake);
    n->last_checkpoint_mono = clock_mono_us(options->clock);
    return n;
}

static void free_log_table(struct node *n)
{
    size_t at = 0;
    uint64_t id;
    void *value;
    while (map64_next(&n->shared.log_by_queue, &at, &id, &value))
        mem_free(value);
    map64_deinit(&n->shared.log_by_queue);
    while (n->shared.doomed != NULL) {
        struct node_log *next = n->shared.doomed->next_doomed;
        mem_free(n->shared.doomed);
        n->shared.doomed = next;
    }
}

/* Frees everything, writing nothing. */
static void node_free(struct node *n)
{
    if (n == NULL)
        return;
    node_drop_entries(n); /* found at boot, if it was refused */
    free_log_table(n);
    qlog_set_close(n->logs);
    state_close(n->state);
    if (n->replicator != NULL)
        n->replicator->ops->close(n->replicator);
    disk_close(n->options.disk, n->lock_file);
    buf_deinit(&n->log.headers);
    mem_free(n->log.parts);
    push_effects_deinit(&n->effects);
    buf_deinit(&n->run_names);
    mem_free(n->run_logs);
    mem_free(n->touched);
    pthread_mutex_destroy(&n->mutex);
    pthread_mutex_destroy(&n->ballast.mutex);
    pthread_cond_destroy(&n->log_wake);
    pthread_cond_destroy(&n->apply_wake);
    pthread_cond_destroy(&n->checkpoint_wake);
    pthread_cond_destroy(&n->space_wake);
    pthread_cond_destroy(&n->scrub_wake);
    mem_free(n);
}

enum err node_open(const struct node_options *options, struct node **out, struct error *error)
{
    struct node *n;
    enum err err;
    for (bool again = true; again;) {
        n = node_new(options);
        err = node_recover(n, error);
        again = err == ERR_NO_SPACE && node_make_room_for_boot(n);
        if (err != ERR_OK)
            node_free(n);
    }
    if (err != ERR_OK)
        return err;
    node_pump_space(n);
    if (!options->manual) {
        n->log_thread = thread_start("queen-log", node_log_thread, n);
        n->apply_thread = thread_start("queen-apply", node_apply_thread, n);
        n->checkpoint_thread = thread_start("queen-ckpt", node_checkpoint_thread, n);
        n->scrub_thread = thread_start("queen-scrub", node_scrub_thread, n);
    }
    *out = n;
    return ERR_OK;
}

/* Completes what was queued and not written yet. */
static void fail_pending(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    struct node_request *r = n->shared.pending_first;
    n->shared.pending_first = NULL;
    n->shared.pending_last = &n->shared.pending_first;
    pthread_mutex_unlock(&n->mutex);
    node_complete_all(n, r, ERR_STOPPED);
}

static void begin_close(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    n->shared.closing = true;
    pthread_cond_broadcast(&n->log_wake);
    pthread_cond_broadcast(&n->apply_wake);
    pthread_cond_broadcast(&n->checkpoint_wake);
    pthread_cond_broadcast(&n->space_wake);
    pthread_cond_broadcast(&n->scrub_wake);
    pthread_mutex_unlock(&n->mutex);
}

void node_end(struct node *n)
{
    if (n == NULL || n->ended)
        return;
    n->ended = true;
    begin_close(n);
    fail_pending(n);
    if (n->options.manual) {
        while (node_pump_apply(n)) {
        }
        node_drop_entries(n);
    } else {
        thread_join(n->log_thread);
        thread_join(n->apply_thread);
        thread_join(n->checkpoint_thread);
        thread_join(n->scrub_thread);
    }
    (void)node_pump_checkpoint(n); /* a failure was logged; the WAL still has everything */
}

void node_close(struct node *n)
{
    if (n == NULL)
        return;
    node_end(n);
    node_free(n);
}

void node_abandon(struct node *n)
{
    ASSERT(n->options.manual);
    begin_close(n);
    fail_pending(n);
    node_drop_entries(n);
    node_free(n);
}

uint64_t node_queued_bytes(const struct node *n)
{
    return atomic_load(&n->queued_bytes);
}

bool node_storage_full(const struct node *n)
{
    return atomic_load(&n->storage_full) || atomic_load(&n->space_tight);
}

bool node_is_behind(const struct node *n)
{
    return atomic_load(&n->applied) < n->recover_to;
}

int64_t node_safe_time(const struct node *n)
{
    return atomic_load(&n->safe_time);
}

struct state *node_read_begin(struct node *n)
{
    state_read_lock(n->state);
    return n->state;
}

void node_read_end(struct node *n)
{
    state_read_unlock(n->state);
}

struct qlog *node_log_ref(struct node *n, uint64_t queue_id)
{
    struct qlog *log = NULL;
    pthread_mutex_lock(&n->mutex);
    struct node_log *entry = map64_get(&n->shared.log_by_queue, queue_id);
    if (entry != NULL) {
        entry->refs++;
        log = entry->log;
    }
    pthread_mutex_unlock(&n->mutex);
    return log;
}

void node_log_unref(struct node *n, struct qlog *log)
{
    uint64_t id = qlog_id(log);
    pthread_mutex_lock(&n->mutex);
    struct node_log *entry = map64_get(&n->shared.log_by_queue, id);
    for (struct node_log *d = n->shared.doomed; entry == NULL && d != NULL; d = d->next_doomed) {
        if (d->queue_id == id)
            entry = d;
    }
    ASSERT(entry != NULL && entry->refs > 0);
    entry->refs--;
    pthread_mutex_unlock(&n->mutex);
}

void node_add_hook(struct node *n, node_hook_fn fn, void *ctx)
{
    size_t at = atomic_load(&n->n_hooks);
    ASSERT(at < NODE_HOOKS_MAX);
    n->hooks[at].fn = fn;
    n->hooks[at].ctx = ctx;
    atomic_store(&n->n_hooks, at + 1);
}

void node_remove_hook(struct node *n, node_hook_fn fn, void *ctx)
{
    ASSERT(n->options.manual || n->ended);
    for (size_t h = 0; h < n->n_hooks; h++) {
        if (n->hooks[h].fn != fn || n->hooks[h].ctx != ctx)
            continue;
        n->n_hooks--;
        memmove(&n->hooks[h], &n->hooks[h + 1], (n->n_hooks - h) * sizeof(n->hooks[0]));
        return;
    }
}

void node_status(struct node *n, struct node_status *out)
{
    *out = (struct node_status){
        .stopped = atomic_load(&n->stopped),
        .term = n->replicator->ops->term(n->replicator),
        .applied = atomic_load(&n->applied),
        .committed = n->replicator->ops->committed(n->replicator),
        .durable = atomic_load(&n->durable),
        .proposals = atomic_load(&n->proposals),
        .entries = atomic_load(&n->entries),
        .checkpoints = atomic_load(&n->checkpoints),
        .inflight = atomic_load(&n->inflight),
        .wal_bytes = wal_bytes(n->wal),
        .dirty_bytes = atomic_load(&n->dirty_bytes),
        .storage_full = node_storage_full(n) || atomic_load(&n->room_asked) > 0,
        .cluster = n->cluster,
    };
    out->logged = out->committed; /* one voter: what is logged is committed */
    pthread_mutex_lock(&n->mutex);
    int64_t ahead = n->shared.last_clock - clock_wall_us(n->options.clock);
    memcpy(out->failure, n->shared.failure.text, sizeof(out->failure));
    pthread_mutex_unlock(&n->mutex);
    out->clock_ahead_seconds = ahead > 0 ? (double)ahead / 1e6 : 0.0;
}
