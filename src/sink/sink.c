/* The sink of a node: start and end.
 *
 * A slot is one queue's task with what is pending for it (sink_slot.c); workers run slots one event
 * at a time (sink_run.c) and carry out what the task asks for (sink_ops.c). Whatever blocks (scans,
 * builds, checkpoints) is a job of the executor; KV batches and bucket requests are asynchronous.
 * Every answer comes back as an op in the slot's inbox.
 *
 * An op lives until the step that takes its answer is over. sink_free() waits for the ones still
 * out (the node is ended and the bucket cancelled by then); sink_abandon() drops them as a crash
 * would. */
#include "sink/sink_internal.h"

#include "base/mem.h"

/* --- start --- */

static void log_start(const struct sink *s)
{
    const struct sink_boot_settings *boot = s->options.settings;

    if (boot->ignored != NULL)
        log_msg(LOG_WARN, SINK_LOG_TARGET, "%s belong to the standalone sink and are ignored",
                boot->ignored);
    if (s->node->crash_at != SINK_CRASH_NEVER)
        log_msg(LOG_WARN, SINK_LOG_TARGET,
                "QUEEN_S3_CRASH_AT=%s is armed: the broker aborts there; for crash tests only",
                sink_crash_point_name(s->node->crash_at));
    if (s->settings == NULL)
        return;
    sink_settings_log(s->settings, s->node, buf_span(&s->tenant_text));
    if (bucket_hint_needs_path_style(s->settings))
        log_msg(LOG_WARN, SINK_LOG_TARGET,
                "virtual-host style does not go with an IP address in QUEEN_S3_ENDPOINT: set "
                "QUEEN_S3_PATH_STYLE=true");
    if (!lake_compressor_known(s->settings->compression))
        log_msg(LOG_WARN, SINK_LOG_TARGET,
                "another version of the compressor than the one this broker was made with: objects "
                "say writer=\"" SPAN_FMT "\"; every node needs the same one",
                SPAN_ARG(buf_span(&s->writer)));
}

enum err sink_start(const struct sink_options *options, struct sink **out, struct error *error)
{
    struct sink *s = mem_new(sizeof(*s));
    const struct sink_boot_settings *boot = options->settings;
    struct uuid tenant;

    ASSERT(!boot->has_sink || options->bucket != NULL);
    (void)error; /* nothing refuses: an unreachable bucket is not a boot error */
    s->options = *options;
    s->node = &boot->node;
    s->settings = boot->has_sink ? &boot->sink : NULL;
    s->tenant = TENANT_DEFAULT;
    memcpy(tenant.bytes, s->tenant.bytes, sizeof(tenant.bytes));
    buf_put_uuid(&s->tenant_text, &tenant);
    s->ttl_us = (int64_t)lease_ttl_seconds(s->node->lease_ttl_ms) * 1000000;
    s->run_last = &s->run_first;
    s->bucket.reachable = -1;
    s->started_us = clock_mono_us(options->clock);
    atomic_init(&s->clock_next, INT64_MAX);
    pthread_mutex_init(&s->lock, NULL);
    cond_init_mono(&s->wake);
    cond_init_mono(&s->idle);
    sink_log_init(&s->log);
    sink_counters_init(&s->counters);
    if (s->settings != NULL)
        lake_writer(&s->writer, s->settings->format, s->settings->compression,
                    !s->settings->quote_unreadable);
    sink_unit_init(s);
    log_start(s);
    node_add_hook(options->node, sink_entry_applied, s);
    if (!options->manual && s->settings != NULL) {
        s->n_threads = s->node->threads;
        s->threads = MEM_ARRAY(struct thread *, s->n_threads);
        for (size_t i = 0; i < s->n_threads; i++)
            s->threads[i] = thread_start("queen-s3", sink_worker, s);
    }
    *out = s;
    return ERR_OK;
}

/* --- end --- */

void sink_drain(struct sink *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->draining) {
        s->draining = true;
        if (s->settings != NULL)
            log_msg(LOG_INFO, SINK_LOG_TARGET, "stopping: no new reads");
        for (size_t i = 0; i < s->n_slots; i++)
            sink_slot_poke(s, s->slots[i], SLOT_STOP);
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}

static bool drained(const struct sink *s)
{
    return s->unit.phase == UNIT_ENDED;
}

bool sink_drained(const struct sink *s)
{
    struct sink *mutable = (struct sink *)(uintptr_t)s; /* for the lock */

    pthread_mutex_lock(&mutable->lock);
    bool is = drained(s);
    pthread_mutex_unlock(&mutable->lock);
    return is;
}

/* The grace is nearly over: transfers are cut, what is left of the time gives leases and presence
 * back. */
static void begin_cut(struct sink *s)
{
    s->cut = true;
    atomic_store(&s->cancel, true);
    for (size_t i = 0; i < s->n_slots; i++)
        sink_slot_poke(s, s->slots[i], SLOT_CUT);
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    log_msg(LOG_WARN, SINK_LOG_TARGET, "the sink did not stop inside its grace window");
    if (s->options.bucket != NULL)
        bucket_cancel(s->options.bucket);
    pthread_mutex_lock(&s->lock);
}

bool sink_wait(struct sink *s, int64_t deadline_mono_us)
{
    int64_t reserve = (int64_t)s->node->shutdown_grace_ms * 1000 / 4;

    if (reserve > 1000000)
        reserve = 1000000;
    pthread_mutex_lock(&s->lock);
    while (!drained(s)) {
        int64_t now = sink_now(s);
        if (!s->cut && now >= deadline_mono_us - reserve) {
            begin_cut(s);
            continue;
        }
        if (now >= deadline_mono_us || s->options.manual)
            break;
        (void)cond_wait_us(&s->idle, &s->lock,
                           (s->cut ? deadline_mono_us : deadline_mono_us - reserve) - now);
    }
    bool clean = drained(s) && !s->cut;
    pthread_mutex_unlock(&s->lock);
    return clean;
}

static void free_everything(struct sink *s)
{
    for (struct op *op = s->alive; op != NULL;) {
        struct op *next = op->alive_next;
        sink_op_release(op);
        op = next;
    }
    for (size_t i = 0; i < s->n_slots; i++)
        sink_slot_free(s->slots[i]);
    mem_free(s->slots);
    mem_free(s->timers);
    mem_free(s->threads);
    map64_deinit(&s->watchers);
    sink_unit_deinit(s);
    sink_counters_deinit(&s->counters);
    sink_log_deinit(&s->log);
    buf_deinit(&s->tenant_text);
    buf_deinit(&s->writer);
    buf_deinit(&s->bucket.error);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

#define FREE_WAIT_US 2000000

void sink_free(struct sink *s)
{
    if (s == NULL)
        return;
    node_remove_hook(s->options.node, sink_entry_applied, s);
    if (s->options.manual) {
        sink_abandon(s);
        return;
    }
    atomic_store(&s->cancel, true);
    if (s->options.bucket != NULL)
        bucket_cancel(s->options.bucket);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->n_threads; i++)
        thread_join(s->threads[i]);

    /* Answers in an inbox were never taken; the others come soon. */
    pthread_mutex_lock(&s->lock);
    int64_t until = sink_now(s) + FREE_WAIT_US;
    for (size_t i = 0; i <= s->n_slots; i++) {
        struct op *op = i < s->n_slots ? s->slots[i]->inbox_first : s->unit.inbox_first;
        while (op != NULL) {
            struct op *next = op->next;
            pthread_mutex_unlock(&s->lock);
            sink_op_free(op);
            pthread_mutex_lock(&s->lock);
            op = next;
        }
    }
    for (struct op *op = s->rereads; op != NULL;) {
        struct op *next = op->next;
        pthread_mutex_unlock(&s->lock);
        sink_op_free(op);
        pthread_mutex_lock(&s->lock);
        op = next;
    }
    while (s->alive != NULL && sink_now(s) < until)
        (void)cond_wait_us(&s->idle, &s->lock, until - sink_now(s));
    bool out = s->alive != NULL;
    pthread_mutex_unlock(&s->lock);
    if (out)
        return; /* a call that never came back still refers to it: the process is going anyway */
    bucket_close(s->options.bucket);
    free_everything(s);
}

void sink_abandon(struct sink *s)
{
    if (s == NULL)
        return;
    bucket_close(s->options.bucket); /* while the bodies of its requests are still there */
    free_everything(s);
}
