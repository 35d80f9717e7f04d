/* What a new owner does before it fills (spec/sink.md 8, 14; decisions.md 13; docs/architecture.md,
 * A foreign lake is never overwritten): read intent and pointer, find the queue, make T0 durable,
 * load a checkpoint, redo an open window, or make sure that the next window is free.
 *
 * Every sign that somebody else writes this lake ends the run as failed with nothing written;
 * before that the lease is refreshed and the rows are read again, in that order, so that a lease
 * that was lost meanwhile is told apart. */
#include "sink/task_internal.h"

void task_restore_begin(struct sink_task *t)
{
    t->queue_id = 0;
    t->passed = false;
    t->redo = t->has_t0 = false;
    t->suspect_rounds = 0;
    t->row.has_safe_time = false;
    t->checkpoint_k = t->checkpoint_rows = 0;
    t->near = (struct qlog_near){0};
    t->due_wanted = false;
    window_init(&t->window, WINDOW_NO_START);
    if (!t->quiet)
        task_state(t, SINK_ROW_RESTORING);
    task_enter(t, PHASE_RESTORE);
}

/* --- suspicion of a foreign lake --- */

void task_suspect(struct sink_task *t, const char *format, ...)
{
    va_list args;

    buf_reset(&t->suspicion);
    va_start(args, format);
    buf_vprintf(&t->suspicion, format, args);
    va_end(args);
    task_enter(t, PHASE_SUSPECT_REFRESH);
}

static uint64_t version_of(const struct kv_result *result, const struct buf *key)
{
    const struct kv_row *row = task_kv_row(result, buf_span(key));

    return row == NULL ? 0 : row->version;
}

static void suspect_answer(struct sink_task *t)
{
    const struct kv_result *result = t->event->kv.result;
    bool same = version_of(result, &t->key_intent) == t->intent_version &&
                version_of(result, &t->key_committed) == t->committed_version;

    if (!same && ++t->suspect_rounds < TASK_SUSPECT_ROUNDS) {
        task_enter(t, PHASE_RESTORE); /* the rows moved: judge them as they are now */
        return;
    }
    task_failed(t, SPAN_FMT, SPAN_ARG(buf_span(&t->suspicion)));
}

#define FOREIGN_WAY_OUT                                                                            \
    "another broker, or an older copy of this one's data, writes this lake: nothing was written; " \
    "give this broker another QUEEN_S3_PREFIX"

/* --- the rows --- */

/* False when the run ended or turned to a suspicion. */
static bool read_committed(struct sink_task *t, const struct kv_row *row)
{
    struct sink_committed doc;

    t->has_committed = false;
    t->k = 0;
    t->committed_version = row == NULL ? 0 : row->version;
    if (row == NULL)
        return true;
    if (sink_committed_parse(row->value, &doc) != ERR_OK) {
        task_note(t, SINK_NOTE_BAD_POINTER)->text = buf_span(&t->key_committed);
        task_suspect(t, "the commit pointer " SPAN_FMT " does not parse: " FOREIGN_WAY_OUT,
                     SPAN_ARG(buf_span(&t->key_committed)));
        return false;
    }
    t->has_committed = true;
    t->k = doc.k;
    t->committed_t_end = doc.t_end;
    t->row.k = doc.k;
    t->row.has_t_end = true;
    t->row.t_end = doc.t_end;
    sink_committed_deinit(&doc);
    return true;
}

/* The open window was begun for a place that today's settings do not reach. */
static bool intent_reachable(struct sink_task *t, const struct sink_intent *intent)
{
    if (span_eq(intent->endpoint, t->spec.endpoint) && span_eq(intent->bucket, t->spec.bucket))
        return true;
    task_failed(t,
                "window %llu is open for bucket " SPAN_FMT " at " SPAN_FMT
                ", which cannot be reached with today's settings: bucket " SPAN_FMT " at " SPAN_FMT
                ". Put the old ones back until it is committed; if they are gone for good, correct "
                "the window's intent (docs/operations.md, Another bucket or endpoint)",
                (unsigned long long)intent->k, SPAN_ARG(intent->bucket), SPAN_ARG(intent->endpoint),
                SPAN_ARG(t->spec.bucket), SPAN_ARG(t->spec.endpoint));
    return false;
}

/* Allowed, but worth a line (decisions.md 5). The row of the last committed window is still there.
 */
static void note_changes(struct sink_task *t, const struct sink_intent *last)
{
    const struct lake_spec *s = &t->spec;

    if (last->format == s->format && last->compression == s->compression &&
        last->layout == s->layout && last->align == s->align)
        return;
    buf_reset(&t->text);
    buf_printf(&t->text, "format=%s compression=%s layout=%s align=%s",
               sink_format_name(last->format), sink_compression_name(last->compression),
               sink_layout_name(last->layout), sink_align_name(last->align));
    task_note(t, SINK_NOTE_CHANGED)->text = buf_span(&t->text);
}

static bool use_intent(struct sink_task *t, const struct sink_intent *intent)
{
    if (intent->k > t->k + 1) {
        task_suspect(
            t, "the intent names window %llu, but %llu is the last committed one: " FOREIGN_WAY_OUT,
            (unsigned long long)intent->k, (unsigned long long)t->k);
        return false;
    }
    if (intent->k == 0) {
        t->has_t0 = !t->has_committed && t->settings->start == SINK_LATEST;
        t->t0 = intent->t_start;
    } else if (intent->k == t->k + 1) {
        if (!intent_reachable(t, intent))
            return false;
        if (intent->unknown || intent->lost_only || intent->format != SINK_JSONL ||
            intent->layout != SINK_MERGED) {
            task_failed(
                t,
                "window %llu is open in a form that this version does not write; its intent "
                "is " SPAN_FMT,
                (unsigned long long)intent->k, SPAN_ARG(buf_span(&t->key_intent)));
            return false;
        }
        task_window_redo(t, intent);
    } else if (intent->k == t->k && t->has_committed && !intent->unknown) {
        note_changes(t, intent);
    }
    return true; /* any other is of a window committed before */
}

static bool read_intent(struct sink_task *t, const struct kv_row *row)
{
    struct sink_intent intent;

    t->redo = t->has_t0 = false;
    t->intent_version = row == NULL ? 0 : row->version;
    if (row == NULL)
        return true;
    if (sink_intent_parse(row->value, &intent) != ERR_OK) {
        task_note(t, SINK_NOTE_BAD_POINTER)->text = buf_span(&t->key_intent);
        return true; /* its version is expected by the next write */
    }
    bool go_on = use_intent(t, &intent);
    sink_intent_deinit(&intent);
    return go_on;
}

static void list_or_go_on(struct sink_task *t);

static void rows_answer(struct sink_task *t)
{
    const struct kv_result *result = t->event->kv.result;

    if (!read_committed(t, task_kv_row(result, buf_span(&t->key_committed))) ||
        !read_intent(t, task_kv_row(result, buf_span(&t->key_intent))))
        return;
    if (t->has_committed)
        window_init(&t->window, t->committed_t_end);
    else if (t->redo)
        window_init(&t->window, t->current.t_start);
    else if (t->has_t0)
        window_init(&t->window, t->t0);
    if (t->has_committed || t->has_t0)
        task_complete_through(t, t->window.t_prev);
    t->checkpoint_since = t->window.t_prev;
    t->since_k = 0;
    if (t->redo)
        list_or_go_on(t); /* by queue id: the window is finished even if the queue is gone */
    else
        task_enter(t, PHASE_FIND);
}

void task_restore_answer(struct sink_task *t, enum sink_kv_purpose purpose)
{
    if (task_kv_failed(t, "kv restore: "))
        return;
    if (purpose == SINK_KV_SUSPECT_READ)
        suspect_answer(t);
    else
        rows_answer(t);
}

/* T0 of start=latest: made durable before anything that a bucket out of reach could hold up, or a
 * restart meanwhile would move it. */
static void start_at(struct sink_task *t, int64_t t0)
{
    t->t0 = t0;
    window_init(&t->window, t0);
    t->checkpoint_since = t0;
    task_complete_through(t, t0);
    task_window_today(t, 0, t0, t0);
    task_enter(t, PHASE_START);
}

void task_restore_queue(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    if (!event->queue.found) {
        task_end(t, END_MISSING, SPAN_LIT("the queue does not exist"));
        return;
    }
    if (t->quiet) {
        t->quiet = false;
        task_state(t, SINK_ROW_RESTORING);
        task_note(t, SINK_NOTE_OWNED)->text = t->lease.instance;
    }
    t->queue_id = event->queue.id;
    t->passed = true;
    if (!t->has_committed && !t->has_t0 && t->settings->start == SINK_LATEST)
        start_at(t, event->safe_time); /* of the first look that found it */
    else
        list_or_go_on(t);
}

void task_restore_started(struct sink_task *t)
{
    t->has_t0 = true;
    list_or_go_on(t);
}

/* --- the bucket --- */

static void start_filling(struct sink_task *t)
{
    task_state(t, SINK_ROW_FILLING);
    task_enter(t, PHASE_FILL);
}

static void restored(struct sink_task *t)
{
    struct sink_note *note = task_note(t, SINK_NOTE_RESTORED);

    note->k = t->k;
    note->redo = t->redo;
    note->checkpoint_k = t->checkpoint_k;
    note->positions = t->checkpoint_rows;
    t->row.has_checkpoint = true;
    t->row.checkpoint_k = t->checkpoint_k;
    task_enter(t, t->redo ? PHASE_REDO_LOOK : PHASE_PROBE);
}

/* The next checkpoint also holds what the windows behind the last one wrote. */
static void without_checkpoint(struct sink_task *t)
{
    t->since_k = t->listed_k < t->k ? t->listed_k + 1 : 0;
    restored(t);
}

static void list_or_go_on(struct sink_task *t)
{
    buf_reset(&t->listed);
    buf_reset(&t->list_after);
    t->listed_k = 0;
    if (t->k == 0)
        restored(t); /* no checkpoint can be usable */
    else
        task_enter(t, PHASE_LIST);
}

static void list_answer(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    if (event->bucket.outcome != BUCKET_OK && event->bucket.outcome != BUCKET_ABSENT) {
        task_note(t, SINK_NOTE_CHECKPOINT_NOT_LISTED)->text = event->error;
        t->listed_k = t->k - t->k % t->node->checkpoint_every; /* where the last one was due */
        without_checkpoint(t);
        return;
    }
    for (size_t i = 0; i < event->bucket.n_keys; i++) {
        uint64_t k = 0;
        struct span key = event->bucket.keys[i];
        if (!lake_key_checkpoint_parse(key, &k) || k > t->k || k <= t->listed_k)
            continue;
        t->listed_k = k;
        buf_reset(&t->listed);
        buf_put_span(&t->listed, key);
    }
    if (event->bucket.truncated && event->bucket.n_keys > 0) {
        buf_reset(&t->list_after);
        buf_put_span(&t->list_after, event->bucket.keys[event->bucket.n_keys - 1]);
        task_enter(t, PHASE_LIST);
    } else if (t->listed_k > 0) {
        task_enter(t, PHASE_LOAD);
    } else {
        without_checkpoint(t);
    }
}

/* Only a cache, and anybody may have written it: it must fit the pointer, and whatever it says then
 * decides no more than how the log is searched, and which partitions the next one names. */
static bool checkpoint_fits(const struct sink_task *t)
{
    int64_t t_end = t->event->checkpoint.t_end;

    return t->event->checkpoint.k == t->listed_k &&
           (t->listed_k == t->k ? t_end == t->committed_t_end : t_end < t->committed_t_end);
}

void task_restore_checkpoint(struct sink_task *t)
{
    if (t->event->checkpoint.err != ERR_OK || !checkpoint_fits(t)) {
        task_note(t, SINK_NOTE_CHECKPOINT_UNREADABLE)->text = buf_span(&t->listed);
        without_checkpoint(t);
        return;
    }
    t->checkpoint_k = t->listed_k;
    t->checkpoint_rows = t->event->checkpoint.rows;
    t->checkpoint_since = t->event->checkpoint.t_end;
    t->near = t->event->checkpoint.near;
    restored(t);
}

enum manifest_verdict task_manifest_compare(struct sink_task *t, struct span body)
{
    struct lake_manifest m;
    const struct lake_window *w = &t->current;

    if (lake_manifest_parse(body, &m) != ERR_OK)
        return MANIFEST_OTHER; /* cut short by a store, say: our intent accounts for it */
    bool ours = span_eq(m.sink, task_sink(t)) && span_eq(m.queue, task_queue(t)) &&
                (m.tenant.len == 0 || span_eq(m.tenant, t->tenant)) && m.k == w->k &&
                m.t_start == w->t_start && m.t_end == w->t_end;
    bool same = span_eq(m.format, span_str(sink_format_name(w->spec.format))) &&
                span_eq(m.compression, span_str(sink_compression_name(w->spec.compression))) &&
                span_eq(m.layout, span_str(sink_layout_name(w->spec.layout)));
    if (ours && same) { /* and at the key that the intent's prefix, align and segmentMax give */
        buf_reset(&t->key);
        lake_key_object(&t->key, w);
        same = m.n_objects == 1 && span_eq(m.objects[0].key, buf_span(&t->key));
        t->commit_records = m.records;
        t->commit_bytes = m.bytes;
    }
    lake_manifest_deinit(&m);
    if (!ours)
        return MANIFEST_FOREIGN;
    return same ? MANIFEST_MATCHES : MANIFEST_OTHER;
}

static void redo_answer(struct sink_task *t)
{
    if (t->event->bucket.outcome == BUCKET_OK) {
        switch (task_manifest_compare(t, t->event->bucket.body)) {
        case MANIFEST_MATCHES:
            task_commit_from_manifest(t, t->commit_records, t->commit_bytes);
            return;
        case MANIFEST_FOREIGN:
            task_suspect(
                t,
                SPAN_FMT
                " holds a manifest that the open intent does not account for: " FOREIGN_WAY_OUT,
                SPAN_ARG(buf_span(&t->manifest_key)));
            return;
        case MANIFEST_OTHER:
            break;
        }
    }
    task_state(t, SINK_ROW_UPLOAD);
    task_enter(t, PHASE_BUILD);
}

/* A look at the bucket that must succeed: true when it failed and is tried again, or ended the run.
 */
static bool look_failed(struct sink_task *t)
{
    enum bucket_outcome outcome = t->event->bucket.outcome;

    if (outcome == BUCKET_OK || outcome == BUCKET_ABSENT)
        return false;
    buf_reset(&t->text);
    buf_printf(&t->text, "get " SPAN_FMT ": ", SPAN_ARG(buf_span(&t->manifest_key)));
    buf_put_span(&t->text, t->event->error);
    if (outcome == BUCKET_TERMINAL) {
        task_end(t, END_FAILED, buf_span(&t->text));
        return true;
    }
    task_note(t, SINK_NOTE_GET_FAILED)->text = task_error(t, "", buf_span(&t->text));
    if (task_draining(t))
        task_drained(t);
    else
        task_retry(t);
    return true;
}

void task_restore_bucket(struct sink_task *t)
{
    switch (t->phase) {
    case PHASE_LIST:
        list_answer(t);
        break;
    case PHASE_LOAD:
        task_note(t, SINK_NOTE_CHECKPOINT_UNREADABLE)->text = buf_span(&t->listed);
        without_checkpoint(t);
        break;
    case PHASE_REDO_LOOK:
        if (!look_failed(t))
            redo_answer(t);
        break;
    case PHASE_PROBE:
        if (look_failed(t))
            break;
        if (t->event->bucket.outcome == BUCKET_OK)
            task_suspect(
                t, SPAN_FMT " is there already, but no intent of ours names it: " FOREIGN_WAY_OUT,
                SPAN_ARG(buf_span(&t->manifest_key)));
        else
            start_filling(t);
        break;
    default:
        task_check(t, false, "a restore answer out of place");
    }
}
