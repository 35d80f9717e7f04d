/* The KV channel of a queue task: at most one batch in flight, so that every write of the lease row
 * expects the version that the one before it made (spec/sink.md 5). A refresh that falls due
 * meanwhile waits for the answer; a step of the run that wants to write while a refresh is out
 * waits for that.
 *
 * Unknown outcomes. A batch may have been applied although no answer came. It is sent again as it
 * was; when it then loses a precondition, the rows are read: lease with our incarnation, pointer
 * with what we wrote, means that the first attempt did it (docs/architecture.md, The sink).
 * Anything else is the loss it looks like. */
#include "sink/task_internal.h"

const struct kv_row *task_kv_row(const struct kv_result *result, struct span key)
{
    for (size_t i = 0; i < result->n; i++) {
        const struct kv_op_result *op = &result->ops[i];
        for (size_t r = 0; r < op->n_rows; r++) {
            if (span_eq(op->rows[r].key, key))
                return &op->rows[r];
        }
    }
    return NULL;
}

static struct kv_op get_many(struct sink_task *t, bool with_lease)
{
    size_t n = 0;

    if (with_lease)
        t->kv_keys[n++] = buf_span(&t->key_lease);
    t->kv_keys[n++] = buf_span(&t->key_intent);
    t->kv_keys[n++] = buf_span(&t->key_committed);
    return (struct kv_op){
        .type = KV_GET_MANY, .ns = SINK_NAMESPACE, .keys = t->kv_keys, .n_keys = n};
}

static struct kv_op lease_get(struct sink_task *t)
{
    return (struct kv_op){.type = KV_GET, .ns = SINK_NAMESPACE, .key = buf_span(&t->key_lease)};
}

/* The row with our value: the fence of every batch. */
static struct kv_op lease_write(struct sink_task *t)
{
    buf_reset(&t->value_lease);
    lease_put(&t->value_lease, &t->lease);
    return (struct kv_op){
        .type = KV_PUT,
        .ns = SINK_NAMESPACE,
        .key = buf_span(&t->key_lease),
        .value = buf_span(&t->value_lease),
        .ttl_seconds = lease_ttl_seconds(t->node->lease_ttl_ms),
        .has_expect = true,
        .expect = t->lease.version,
        .required = true,
    };
}

static struct kv_op lease_claim(struct sink_task *t)
{
    struct kv_op op = lease_write(t);

    op.type = KV_PUT_IF_ABSENT;
    op.expect = 0;
    op.required = false;
    return op;
}

static struct kv_op pointer_write(struct sink_task *t, const struct buf *key, uint64_t expect)
{
    return (struct kv_op){
        .type = KV_PUT,
        .ns = SINK_NAMESPACE,
        .key = buf_span(key),
        .value = buf_span(&t->value_row),
        .forever = true,
        .has_expect = true,
        .expect = expect,
        .required = true,
    };
}

static struct kv_op intent_write(struct sink_task *t, bool is_window)
{
    struct sink_intent intent;

    task_intent_fill(t, &intent);
    buf_reset(&t->value_row);
    sink_intent_put(&t->value_row, &intent);
    struct kv_op op = pointer_write(t, &t->key_intent, t->intent_version);
    if (is_window) {
        op.pin = KV_PIN_SET;
        op.pin_queue = task_queue(t);
        op.pin_key = buf_span(&t->key_intent);
        op.pin_queue_id = intent.queue_id;
        op.pin_t_start = intent.t_start;
        op.pin_t_end = intent.t_end;
    }
    return op;
}

static struct kv_op committed_write(struct sink_task *t)
{
    struct kv_op op;

    /* value_row was made when the commit step began: the same step writes the same bytes */
    op = pointer_write(t, &t->key_committed, t->committed_version);
    op.pin = KV_PIN_CLEAR;
    op.pin_key = buf_span(&t->key_intent);
    return op;
}

static void send(struct sink_task *t, enum sink_kv_purpose purpose)
{
    struct sink_action *action = task_act(t, SINK_DO_KV);
    struct kv_op *ops = action->kv.ops;
    size_t n = 1;

    switch (purpose) {
    case SINK_KV_NONE:
        n = 0;
        break;
    case SINK_KV_LOOK:
    case SINK_KV_RELEASE_LOOK:
        ops[0] = lease_get(t);
        break;
    case SINK_KV_CLAIM:
        ops[0] = lease_claim(t);
        break;
    case SINK_KV_TAKE:
    case SINK_KV_REFRESH:
    case SINK_KV_SUSPECT_REFRESH:
        ops[0] = lease_write(t);
        break;
    case SINK_KV_RESTORE:
    case SINK_KV_SUSPECT_READ:
        ops[0] = get_many(t, false);
        break;
    case SINK_KV_VERIFY:
        ops[0] = get_many(t, true);
        break;
    case SINK_KV_START:
    case SINK_KV_INTENT:
        ops[0] = lease_write(t);
        ops[1] = intent_write(t, purpose == SINK_KV_INTENT);
        n = 2;
        break;
    case SINK_KV_COMMIT:
        ops[0] = lease_write(t);
        ops[1] = committed_write(t);
        n = 2;
        break;
    case SINK_KV_RELEASE:
        ops[0] = (struct kv_op){.type = KV_DELETE,
                                .ns = SINK_NAMESPACE,
                                .key = buf_span(&t->key_lease),
                                .has_expect = true,
                                .expect = t->lease.version};
        break;
    }
    action->kv.n = n;
    action->kv.purpose = purpose;
    action->op = t->kv_op = ++t->last_op;
    t->kv_purpose = purpose;
}

void task_kv(struct sink_task *t, enum sink_kv_purpose purpose)
{
    if (t->kv_op != 0)
        t->kv_waiting = purpose;
    else
        send(t, purpose);
}

static bool may_refresh(const struct sink_task *t)
{
    return t->lease.held && t->kv_op == 0 && t->phase > PHASE_TAKE && t->phase < PHASE_RELEASE_LOOK;
}

void task_kv_refresh_if_due(struct sink_task *t)
{
    if (may_refresh(t) && t->refresh_us <= task_now(t))
        send(t, SINK_KV_REFRESH);
}

static void refresh_later(struct sink_task *t)
{
    int64_t every = t->ttl_us / 3 / 1000 * 1000;

    t->refresh_us = task_now(t) + (every < 100000 ? 100000 : every);
}

void task_lease_written(struct sink_task *t, uint64_t version)
{
    t->lease.version = version;
    t->lease.held = true;
    t->lease_unknown = false;
    refresh_later(t);
}

bool task_kv_failed(struct sink_task *t, const char *prefix)
{
    enum sink_kv_outcome outcome = t->event->kv.outcome;

    if (outcome != SINK_KV_RETRIABLE && outcome != SINK_KV_UNKNOWN && outcome != SINK_KV_TERMINAL)
        return false;
    if (outcome == SINK_KV_TERMINAL) {
        task_failed(t, "%s" SPAN_FMT, prefix, SPAN_ARG(t->event->error));
        return true;
    }
    if (outcome == SINK_KV_UNKNOWN)
        t->kv_unknown = true;
    task_note(t, SINK_NOTE_KV_FAILED)->text = task_error(t, prefix, t->event->error);
    task_retry(t);
    return true;
}

static void lease_lost(struct sink_task *t)
{
    struct sink_lease doc;
    const struct kv_row *row = &t->event->kv.result->failed_row;

    buf_reset(&t->text);
    if (row->version == 0 || sink_lease_parse(row->value, &doc) != ERR_OK) {
        buf_puts(&t->text, "lease refresh lost: the row is gone");
    } else {
        buf_printf(&t->text, "lease refresh lost: it is held by " SPAN_FMT, SPAN_ARG(doc.instance));
        sink_lease_deinit(&doc);
    }
    t->lease.held = false;
    task_note(t, SINK_NOTE_LEASE_LOST)->text = buf_span(&t->text);
    task_end(t, END_FENCED, buf_span(&t->text));
}

/* Of a refresh, or of the one before a lake is called foreign: true when the lease is ours. */
static bool refresh_answer(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    switch (event->kv.outcome) {
    case SINK_KV_OK:
        task_lease_written(t, event->kv.result->ops[0].row.version);
        return true;
    case SINK_KV_LOST:
        if (event->kv.result->failed_row.version != 0 &&
            lease_is_own(&t->lease, event->kv.result->failed_row.value)) {
            /* only this handle writes this incarnation: an attempt of unknown outcome was applied
             */
            task_lease_written(t, event->kv.result->failed_row.version);
            return true;
        }
        lease_lost(t);
        return false;
    case SINK_KV_RETRIABLE:
    case SINK_KV_UNKNOWN:
    case SINK_KV_TERMINAL:
        if (event->kv.outcome == SINK_KV_UNKNOWN)
            t->lease_unknown = true;
        refresh_later(t);
        task_note(t, SINK_NOTE_REFRESH_FAILED)->text =
            task_error(t, "lease refresh: ", event->error);
        return false;
    }
    return false;
}

static void fence_lost(struct sink_task *t, enum sink_kv_purpose purpose)
{
    const struct kv_result *result = t->event->kv.result;
    bool lease = result->failed_index == 0;

    task_note(t, SINK_NOTE_PRECONDITION_LOST);
    if (!lease && result->failed_reason == KV_REASON_QUEUE) {
        task_end(t, END_MISSING, SPAN_LIT("the queue was deleted"));
        return;
    }
    buf_reset(&t->text);
    buf_printf(&t->text, "kv %s: lost its precondition on the %s (%s)",
               purpose == SINK_KV_COMMIT ? "commit" : "intent", lease ? "lease" : "pointer",
               kv_reason_text(result->failed_reason));
    if (lease)
        t->lease.held = false;
    task_end(t, END_FENCED, buf_span(&t->text));
}

static void batch_applied(struct sink_task *t, enum sink_kv_purpose purpose, uint64_t row_version)
{
    t->kv_unknown = false;
    switch (purpose) {
    case SINK_KV_START:
        t->intent_version = row_version;
        task_restore_started(t);
        break;
    case SINK_KV_INTENT:
        t->intent_version = row_version;
        task_intent_done(t);
        break;
    case SINK_KV_COMMIT:
        t->committed_version = row_version;
        task_commit_done(t);
        break;
    default:
        task_check(t, false, "a batch that is none of the fenced ones");
    }
}

/* START, INTENT, COMMIT. */
static void fenced_answer(struct sink_task *t, enum sink_kv_purpose purpose)
{
    const struct sink_event *event = t->event;

    if (task_kv_failed(t, purpose == SINK_KV_COMMIT ? "kv commit: " : "kv intent: "))
        return;
    if (event->kv.outcome == SINK_KV_OK) {
        task_lease_written(t, event->kv.result->ops[0].row.version);
        batch_applied(t, purpose, event->kv.result->ops[1].row.version);
    } else if (t->kv_unknown || t->lease_unknown) {
        t->kv_verifying = purpose;
        task_kv(t, SINK_KV_VERIFY);
    } else {
        fence_lost(t, purpose);
    }
}

static bool intent_is_ours(struct sink_task *t, const struct kv_row *row)
{
    struct sink_intent got, want;

    if (row == NULL || sink_intent_parse(row->value, &got) != ERR_OK)
        return false;
    task_intent_fill(t, &want);
    bool same = got.k == want.k && got.t_start == want.t_start && got.t_end == want.t_end &&
                got.queue_id == want.queue_id;
    sink_intent_deinit(&got);
    return same;
}

static bool commit_is_ours(struct sink_task *t, const struct kv_row *row)
{
    struct sink_committed got;

    if (row == NULL || sink_committed_parse(row->value, &got) != ERR_OK)
        return false;
    bool same = got.k == t->current.k && got.t_end == t->current.t_end &&
                span_eq(got.manifest, buf_span(&t->manifest_key));
    sink_committed_deinit(&got);
    return same;
}

static void verify_answer(struct sink_task *t)
{
    enum sink_kv_purpose purpose = t->kv_verifying;
    const struct kv_result *result = t->event->kv.result;

    if (task_kv_failed(t, purpose == SINK_KV_COMMIT ? "kv commit: " : "kv intent: "))
        return; /* the retry sends the batch itself again */
    t->kv_verifying = SINK_KV_NONE;
    const struct kv_row *lease = task_kv_row(result, buf_span(&t->key_lease));
    const struct kv_row *row = task_kv_row(
        result, buf_span(purpose == SINK_KV_COMMIT ? &t->key_committed : &t->key_intent));
    bool ours = purpose == SINK_KV_COMMIT ? commit_is_ours(t, row) : intent_is_ours(t, row);

    if (lease != NULL && lease_is_own(&t->lease, lease->value)) {
        task_lease_written(t, lease->version);
        if (ours) {
            batch_applied(t, purpose, row->version);
            return;
        }
        uint64_t expected = purpose == SINK_KV_COMMIT ? t->committed_version : t->intent_version;
        uint64_t version = row == NULL ? 0 : row->version;
        if (version == expected) { /* only the lease had moved: a refresh of unknown outcome */
            t->kv_unknown = false;
            task_kv(t, purpose);
            return;
        }
    } else {
        t->lease.held = false;
    }
    task_note(t, SINK_NOTE_PRECONDITION_LOST);
    task_end(t, END_FENCED, SPAN_LIT("the rows after a batch of unknown outcome are not ours"));
}

static void main_answer(struct sink_task *t, enum sink_kv_purpose purpose)
{
    switch (purpose) {
    case SINK_KV_NONE:
    case SINK_KV_REFRESH:
        break;
    case SINK_KV_LOOK:
    case SINK_KV_CLAIM:
    case SINK_KV_TAKE:
        task_claim_answer(t, purpose);
        break;
    case SINK_KV_RESTORE:
    case SINK_KV_SUSPECT_READ:
        task_restore_answer(t, purpose);
        break;
    case SINK_KV_SUSPECT_REFRESH:
        if (refresh_answer(t))
            task_enter(t, PHASE_SUSPECT_READ);
        else if (t->phase == PHASE_SUSPECT_REFRESH)
            task_retry(t);
        break;
    case SINK_KV_START:
    case SINK_KV_INTENT:
    case SINK_KV_COMMIT:
        fenced_answer(t, purpose);
        break;
    case SINK_KV_VERIFY:
        verify_answer(t);
        break;
    case SINK_KV_RELEASE_LOOK:
    case SINK_KV_RELEASE:
        task_release_answer(t, purpose);
        break;
    }
}

void task_kv_answer(struct sink_task *t)
{
    if (t->event->op != t->kv_op)
        return;
    enum sink_kv_purpose purpose = t->kv_purpose;
    bool abandoned = t->kv_abandoned;

    t->kv_op = 0;
    t->kv_abandoned = false;
    if (purpose == SINK_KV_REFRESH) {
        if (t->phase < PHASE_RELEASE_LOOK)
            (void)refresh_answer(t); /* a failure was noted, a loss has ended the run */
    } else if (!abandoned) {
        main_answer(t, purpose);
    }
    if (t->kv_op == 0 && t->kv_waiting != SINK_KV_NONE) {
        enum sink_kv_purpose waiting = t->kv_waiting;
        t->kv_waiting = SINK_KV_NONE;
        send(t, waiting);
    }
}
