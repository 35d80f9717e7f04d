/* The commit sequence of a window (spec/sink.md 13, 14): intent, build, upload, manifest, pointer.
 * The intent fixes bounds and everything the bytes depend on before anything is uploaded; only the
 * pointer makes the window real. Every step repeats itself with the same bytes until it succeeds,
 * the lease is lost or the error is terminal. */
#include "sink/task_internal.h"

static struct span keep(struct sink_task *t, struct span text)
{
    size_t at = t->current_text.len;

    buf_put_span(&t->current_text, text);
    return span_make(t->current_text.ptr + at, text.len);
}

void task_window_today(struct sink_task *t, uint64_t k, int64_t t_start, int64_t t_end)
{
    t->current = (struct lake_window){.spec = t->spec, .k = k, .t_start = t_start, .t_end = t_end};
    t->current_writer = t->writer;
    t->intent_queue_id = t->queue_id;
}

void task_window_begin(struct sink_task *t, int64_t t_start, int64_t t_end)
{
    task_window_today(t, t->k + 1, t_start, t_end);
    task_state(t, SINK_ROW_INTENT);
    task_enter(t, PHASE_INTENT);
}

void task_window_redo(struct sink_task *t, const struct sink_intent *intent)
{
    t->redo = true;
    buf_reset(&t->current_text);
    buf_reserve(&t->current_text, intent->text.len);
    t->current = (struct lake_window){
        .spec = {.endpoint = keep(t, intent->endpoint),
                 .bucket = keep(t, intent->bucket),
                 .prefix = keep(t, intent->prefix),
                 .tenant = t->tenant,
                 .queue = task_queue(t),
                 .format = intent->format,
                 .compression = intent->compression,
                 .layout = intent->layout,
                 .align = intent->align,
                 .segment_max = intent->segment_max,
                 .raw = sink_intent_raw(intent)},
        .k = intent->k,
        .t_start = intent->t_start,
        .t_end = intent->t_end,
    };
    t->current_writer = keep(t, intent->writer);
    t->intent_queue_id = intent->queue_id;
}

void task_intent_fill(const struct sink_task *t, struct sink_intent *out)
{
    const struct lake_window *w = &t->current;

    *out = (struct sink_intent){
        .k = w->k,
        .t_start = w->t_start,
        .t_end = w->t_end,
        .format = w->spec.format,
        .compression = w->spec.compression,
        .layout = w->spec.layout,
        .align = w->spec.align,
        .writer = t->current_writer,
        .endpoint = w->spec.endpoint,
        .bucket = w->spec.bucket,
        .prefix = w->spec.prefix,
        .segment_max = w->spec.segment_max,
        .queue_id = t->intent_queue_id,
    };
}

void task_intent_done(struct sink_task *t)
{
    if (task_crash(t, SINK_CRASH_AFTER_INTENT))
        return;
    task_state(t, SINK_ROW_UPLOAD);
    task_enter(t, PHASE_BUILD);
}

/* --- build --- */

void task_build(struct sink_task *t)
{
    struct sink_action *action;

    /* A node that has not applied the whole window must not upload a part of it. */
    if (t->redo && t->event->safe_time - t->rules.guard_us < t->current.t_end) {
        t->due_wanted = true;
        task_wait(t, (int64_t)t->node->discovery_interval_ms * 1000);
        return;
    }
    action = task_operate(t, SINK_DO_BUILD);
    action->build.queue_id = t->intent_queue_id;
    action->build.window = t->current;
    action->build.near = t->near;
    if (!t->redo) {
        action->build.from = t->window.from;
        action->build.to = t->window.position;
    }
}

static void build_failed(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    if (event->built.err == ERR_NOT_FOUND) {
        task_failed(t,
                    "window %llu [%lld, %lld) is open, but the log of its queue, id %llu, cannot "
                    "be found here",
                    (unsigned long long)t->current.k, (long long)t->current.t_start,
                    (long long)t->current.t_end, (unsigned long long)t->intent_queue_id);
        return;
    }
    if (err_retryable(event->built.err)) {
        task_note(t, SINK_NOTE_BUILD_FAILED)->text = task_error(t, "build: ", event->error);
        task_retry(t);
        return;
    }
    task_failed(t, "build: " SPAN_FMT, SPAN_ARG(event->error));
}

void task_built(struct sink_task *t)
{
    if (t->event->built.err != ERR_OK) {
        build_failed(t);
        return;
    }
    t->built = t->event->built.out;
    if (t->redo) {
        task_enter(t, PHASE_LOOK_AGAIN);
        return;
    }
    if (task_check(t, t->built.records == t->window.records,
                   "the build found other records than the scan"))
        task_enter(t, PHASE_PUT);
}

/* --- upload --- */

void task_put_object(struct sink_task *t)
{
    struct sink_action *action;

    buf_reset(&t->key);
    lake_key_object(&t->key, &t->current);
    action = task_operate(t, SINK_DO_PUT_OBJECT);
    action->put.key = buf_span(&t->key);
    action->put.content_type = "application/x-ndjson";
}

static void hex(char out[2 * SHA256_SIZE + 1], const uint8_t digest[SHA256_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    for (unsigned i = 0; i < SHA256_SIZE; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * (size_t)SHA256_SIZE] = '\0';
}

/* Who writes the bytes of this window: today's library, in the intent's format. */
static void put_writer(struct buf *out, const struct sink_task *t)
{
    const struct lake_spec *s = &t->current.spec;

    if (s->format == t->spec.format && s->compression == t->spec.compression &&
        s->raw == t->spec.raw)
        buf_put_span(out, t->writer);
    else
        lake_writer(out, s->format, s->compression, s->raw);
}

/* Made once per window: a repeated PUT sends the same bytes. */
static void make_manifest(struct sink_task *t)
{
    const struct lake_window *w = &t->current;
    const struct sink_built *b = &t->built;
    struct buf writer = BUF_INIT;
    put_writer(&writer, t);
    struct lake_manifest_object object = {
        .key = buf_span(&t->key), .bytes = b->size, .records = b->records};
    struct lake_manifest m = {
        .sink = task_sink(t),
        .tenant = t->tenant,
        .queue = task_queue(t),
        .k = w->k,
        .t_start = w->t_start,
        .t_end = w->t_end,
        .format = span_str(sink_format_name(w->spec.format)),
        .compression = span_str(sink_compression_name(w->spec.compression)),
        .layout = span_str(sink_layout_name(w->spec.layout)),
        .objects = &object,
        .n_objects = 1,
        .records = b->records,
        .bytes = b->size,
        .partitions = b->partitions,
        .has_ts = b->records > 0,
        .min_ts = b->min_ts,
        .max_ts = b->max_ts,
        .writer = buf_span(&writer),
        .committed_at = t->event->wall_us,
    };

    hex(object.sha256, b->sha256);
    buf_reset(&t->manifest);
    lake_manifest_put(&t->manifest, &m);
    buf_deinit(&writer);
    buf_reset(&t->manifest_key);
    lake_key_manifest(&t->manifest_key, &w->spec, w->k);
}

void task_put_manifest(struct sink_task *t)
{
    struct sink_action *action = task_operate(t, SINK_DO_PUT);

    action->put.key = buf_span(&t->manifest_key);
    action->put.bytes = buf_span(&t->manifest);
    action->put.content_type = "application/json";
}

static void put_failed(struct sink_task *t, const struct buf *key)
{
    buf_reset(&t->text);
    buf_printf(&t->text, "put " SPAN_FMT ": ", SPAN_ARG(buf_span(key)));
    buf_put_span(&t->text, t->event->error);
    if (t->event->bucket.outcome == BUCKET_TERMINAL || t->event->bucket.outcome == BUCKET_ABSENT) {
        task_end(t, END_FAILED, buf_span(&t->text));
        return;
    }
    task_note(t, SINK_NOTE_PUT_FAILED)->text = task_error(t, "", buf_span(&t->text));
    task_retry(t);
}

static void object_answer(struct sink_task *t)
{
    if (t->event->bucket.outcome != BUCKET_OK) {
        put_failed(t, &t->key);
        return;
    }
    if (task_crash(t, SINK_CRASH_MID_UPLOAD))
        return;
    make_manifest(t);
    task_enter(t, PHASE_MANIFEST);
}

static void manifest_answer(struct sink_task *t)
{
    if (t->event->bucket.outcome != BUCKET_OK) {
        put_failed(t, &t->manifest_key);
        return;
    }
    if (task_crash(t, SINK_CRASH_AFTER_UPLOAD))
        return;
    t->commit_records = t->built.records;
    t->commit_bytes = t->built.size;
    t->commit_quoted = t->built.quoted;
    task_commit_begin(t);
}

/* Redo: right before the first PUT. A manifest that matches was written by an attempt that was slow
 * to land. */
static void look_again_answer(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    if (event->bucket.outcome == BUCKET_ABSENT) {
        task_enter(t, PHASE_PUT);
        return;
    }
    if (event->bucket.outcome != BUCKET_OK) {
        buf_reset(&t->text);
        buf_printf(&t->text, "get " SPAN_FMT ": ", SPAN_ARG(buf_span(&t->manifest_key)));
        buf_put_span(&t->text, event->error);
        if (event->bucket.outcome == BUCKET_TERMINAL) {
            task_end(t, END_FAILED, buf_span(&t->text));
            return;
        }
        task_note(t, SINK_NOTE_GET_FAILED)->text = task_error(t, "", buf_span(&t->text));
        if (task_draining(t))
            task_drained(t);
        else
            task_retry(t);
        return;
    }
    switch (task_manifest_compare(t, event->bucket.body)) {
    case MANIFEST_MATCHES:
        task_commit_from_manifest(t, t->commit_records, t->commit_bytes);
        break;
    case MANIFEST_FOREIGN:
        task_suspect(t, SPAN_FMT " was written by somebody else while this window was built",
                     SPAN_ARG(buf_span(&t->manifest_key)));
        break;
    case MANIFEST_OTHER:
        task_enter(t, PHASE_PUT);
        break;
    }
}

/* --- commit --- */

void task_commit_from_manifest(struct sink_task *t, uint64_t records, uint64_t bytes)
{
    struct sink_note *note = task_note(t, SINK_NOTE_FROM_MANIFEST);

    note->k = t->current.k;
    note->records = records;
    t->commit_records = records;
    t->commit_bytes = bytes;
    t->commit_quoted = 0;
    task_commit_begin(t);
}

void task_commit_begin(struct sink_task *t)
{
    struct sink_committed doc = {
        .k = t->current.k,
        .t_end = t->current.t_end,
        .manifest = buf_span(&t->manifest_key),
        .records = t->commit_records,
        .bytes = t->commit_bytes,
        .committed_at_ms = t->event->wall_us / 1000,
    };

    task_state(t, SINK_ROW_COMMIT);
    if (task_crash(t, SINK_CRASH_BEFORE_COMMIT))
        return;
    buf_reset(&t->value_row);
    sink_committed_put(&t->value_row, &doc);
    task_enter(t, PHASE_COMMIT);
}

static void count_window(struct sink_task *t)
{
    struct sink_row *row = &t->row;

    row->k = t->k;
    row->has_t_end = true;
    row->t_end = t->committed_t_end;
    row->windows++;
    row->records += t->commit_records;
    row->bytes += t->commit_bytes;
    task_complete_through(t, t->committed_t_end);

    struct sink_note *note = task_note(t, SINK_NOTE_COMMITTED);
    note->k = t->k;
    note->records = t->commit_records;
    note->bytes = t->commit_bytes;
    note->quoted = t->commit_quoted;
    note->t_end = t->committed_t_end;
    int64_t lag = t->event->safe_time - row->complete_through;
    note->lag_us = lag < 0 ? 0 : lag;
}

static void next_window(struct sink_task *t)
{
    if (task_draining(t)) {
        task_drained(t);
        return;
    }
    task_state(t, SINK_ROW_FILLING);
    task_enter(t, PHASE_FILL);
}

/* The restore looked at the redone window's manifest, so the look at the one behind it is still
 * owed: a copy of the data that was made while a window was open may stand here. */
static void after_redo(struct sink_task *t)
{
    if (task_draining(t)) {
        task_drained(t);
        return;
    }
    task_state(t, SINK_ROW_RESTORING);
    task_enter(t, PHASE_PROBE);
}

void task_commit_done(struct sink_task *t)
{
    if (task_crash(t, SINK_CRASH_AFTER_COMMIT))
        return;
    t->k = t->current.k;
    t->has_committed = true;
    t->committed_t_end = t->current.t_end;
    count_window(t);
    if (t->redo) {
        t->redo = false;
        window_init(&t->window, t->committed_t_end);
        after_redo(t);
        return;
    }
    window_next(&t->window, t->committed_t_end);
    if (t->passed && t->k % t->node->checkpoint_every == 0)
        task_enter(t, PHASE_PROBE_NEXT);
    else
        next_window(t);
}

/* --- checkpoint --- */

static void probe_answer(struct sink_task *t)
{
    switch (t->event->bucket.outcome) {
    case BUCKET_OK:
        task_suspect(t,
                     SPAN_FMT " is there already, but no intent of ours names it: another broker "
                              "writes this lake; give this one another QUEEN_S3_PREFIX",
                     SPAN_ARG(buf_span(&t->manifest_key)));
        break;
    case BUCKET_ABSENT:
        task_enter(t, t->since_k > 0 ? PHASE_CHECKPOINT_SINCE : PHASE_CHECKPOINT_BUILD);
        break;
    case BUCKET_RETRIABLE:
    case BUCKET_TERMINAL:
    case BUCKET_CANCELLED:
        task_note(t, SINK_NOTE_CHECKPOINT_NOT_WRITTEN)->text = t->event->error;
        next_window(t);
        break;
    }
}

/* The manifest of the first window that is in no checkpoint. One that is gone or damaged is done
 * without: the checkpoint holds what this run wrote. */
static void since_answer(struct sink_task *t)
{
    const struct sink_event *event = t->event;
    struct lake_manifest m;

    if (event->bucket.outcome == BUCKET_RETRIABLE || event->bucket.outcome == BUCKET_CANCELLED) {
        task_note(t, SINK_NOTE_CHECKPOINT_NOT_WRITTEN)->text = event->error;
        next_window(t);
        return;
    }
    if (event->bucket.outcome == BUCKET_OK &&
        lake_manifest_parse(event->bucket.body, &m) == ERR_OK) {
        if (m.k == t->since_k && m.t_start < t->checkpoint_since)
            t->checkpoint_since = m.t_start;
        lake_manifest_deinit(&m);
    }
    t->since_k = 0;
    task_enter(t, PHASE_CHECKPOINT_BUILD);
}

void task_checkpoint_built(struct sink_task *t)
{
    if (t->event->checkpoint.err == ERR_OK) {
        t->checkpoint_rows = t->event->checkpoint.rows;
        task_enter(t, PHASE_CHECKPOINT_PUT);
        return;
    }
    task_note(t, SINK_NOTE_CHECKPOINT_NOT_WRITTEN)->text = t->event->error;
    next_window(t);
}

/* Best effort: three attempts, then the next one. */
static void checkpoint_answer(struct sink_task *t)
{
    if (t->event->bucket.outcome == BUCKET_OK) {
        t->checkpoint_k = t->k;
        t->checkpoint_since = t->committed_t_end;
        t->row.has_checkpoint = true;
        t->row.checkpoint_k = t->k;
        next_window(t);
    } else if (++t->attempts < TASK_CHECKPOINT_ATTEMPTS &&
               t->event->bucket.outcome == BUCKET_RETRIABLE) {
        task_wait(t, (int64_t)t->attempts * TASK_BACKOFF_US);
    } else {
        task_note(t, SINK_NOTE_CHECKPOINT_NOT_WRITTEN)->text = t->event->error;
        next_window(t);
    }
}

void task_commit_bucket(struct sink_task *t)
{
    switch (t->phase) {
    case PHASE_LOOK_AGAIN:
        look_again_answer(t);
        break;
    case PHASE_PUT:
        object_answer(t);
        break;
    case PHASE_MANIFEST:
        manifest_answer(t);
        break;
    case PHASE_PROBE_NEXT:
        probe_answer(t);
        break;
    case PHASE_CHECKPOINT_SINCE:
        since_answer(t);
        break;
    case PHASE_CHECKPOINT_PUT:
        checkpoint_answer(t);
        break;
    default:
        task_check(t, false, "an upload answer out of place");
    }
}
