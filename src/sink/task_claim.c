/* Claiming and releasing the lease of a queue (spec/sink.md 5, 6). A claim is always preceded by a
 * look of the same round; what the look finds decides: a free queue is waited for, one of an
 * earlier life of this instance is taken at once, another node's is looked at again later. */
#include "sink/task_internal.h"

void task_claim_begin(struct sink_task *t)
{
    lease_init(&t->lease, span_str(t->node->instance), task_random(t), t->event->wall_us);
    t->lease_unknown = false;
    t->found_us = 0;
    t->giving_back = false;
    if (!t->quiet && t->row.held_by.len == 0)
        task_state(t, SINK_ROW_CLAIMING);
    task_enter(t, PHASE_LOOK);
}

static void held_elsewhere(struct sink_task *t, const struct buf *holder)
{
    struct sink_row *row = &t->row;

    t->found_us = 0;
    t->row.failed_here = false;
    if (row->state != SINK_ROW_HELD || !span_eq(buf_span(&row->held_by), buf_span(holder)))
        task_note(t, SINK_NOTE_HELD)->text = buf_span(holder);
    task_state(t, SINK_ROW_HELD);
    buf_reset(&row->held_by);
    buf_put_span(&row->held_by, buf_span(holder));
    row->has_complete = row->has_safe_time = row->redo = false;
    row->buffered = row->partitions = 0;
    t->phase = PHASE_HELD;
    task_wait(t, placement_relook_us(&t->event->placement, t->ttl_us,
                                     task_jitter(t, PLACEMENT_JITTER_US)));
}

/* A missing queue stays `missing` through claim and release, unless another node was seen with it. */
static void not_held(struct sink_task *t)
{
    buf_reset(&t->row.held_by);
    if (!t->quiet || t->row.state == SINK_ROW_HELD)
        task_state(t, SINK_ROW_CLAIMING);
}

static void found_free(struct sink_task *t)
{
    int64_t now = task_now(t);

    not_held(t);
    if (t->found_us == 0) {
        t->found_us = now;
        t->jitter_us = task_jitter(t, PLACEMENT_JITTER_US);
    }
    int64_t at = placement_claim_at(&t->event->placement, t->found_us, t->jitter_us, t->ttl_us,
                                    t->cooldown_us, now);
    if (at <= now) {
        task_enter(t, PHASE_CLAIM);
        return;
    }
    t->phase = PHASE_TURN;
    task_wait(t, at - now < t->ttl_us / 3 ? at - now : t->ttl_us / 3);
}

/* A look, claim or take-over did not work: look again later. */
static void claim_failed(struct sink_task *t)
{
    int64_t wait = t->ttl_us;

    t->claim_failures++;
    if (t->event->kv.outcome != SINK_KV_TERMINAL) {
        if (t->event->retry_after_us >= 0)
            wait = t->event->retry_after_us;
        else if (t->claim_failures < 16)
            wait = ((int64_t)TASK_BACKOFF_US << (t->claim_failures - 1)) +
                   task_jitter(t, PLACEMENT_JITTER_US);
        if (wait > t->ttl_us)
            wait = t->ttl_us;
    }
    task_note(t, SINK_NOTE_CLAIM_FAILED)->text = task_error(t, "lease claim: ", t->event->error);
    t->phase = PHASE_TURN;
    task_wait(t, wait);
}

static void owned(struct sink_task *t, uint64_t version)
{
    t->claim_failures = 0;
    t->row.owned_here = true;
    if (!t->row.failed_here) { /* one that fails again and again is watched from its first time */
        t->row.taken_us = task_now(t);
        t->row.has_lag = false;
    }
    t->row.failed_here = false;
    buf_reset(&t->row.held_by);
    task_lease_written(t, version);
    if (!t->quiet)
        task_note(t, SINK_NOTE_OWNED)->text = t->lease.instance;
    if (t->stopping) {
        task_drained(t);
        return;
    }
    task_restore_begin(t);
}

static void look_answer(struct sink_task *t)
{
    const struct kv_op_result *op = &t->event->kv.result->ops[0];

    switch (lease_look(&t->lease, op->found ? &op->row : NULL, &t->text)) {
    case LEASE_FREE:
        found_free(t);
        break;
    case LEASE_MINE:
        not_held(t);
        t->lease.version = op->row.version;
        t->lease.since_ms = t->event->wall_us / 1000;
        task_enter(t, PHASE_TAKE);
        break;
    case LEASE_OTHER:
        held_elsewhere(t, &t->text);
        break;
    }
}

static void claim_answer(struct sink_task *t)
{
    const struct kv_op_result *op = &t->event->kv.result->ops[0];

    if (op->applied) {
        owned(t, op->row.version);
    } else if (lease_look(&t->lease, &op->row, &t->text) == LEASE_MINE) {
        t->lease.version = op->row.version;
        task_enter(t, PHASE_TAKE);
    } else {
        held_elsewhere(t, &t->text);
    }
}

void task_claim_answer(struct sink_task *t, enum sink_kv_purpose purpose)
{
    enum sink_kv_outcome outcome = t->event->kv.outcome;

    if (t->stopping && (outcome != SINK_KV_OK || purpose == SINK_KV_LOOK)) {
        /* a claim of unknown outcome may have left a row: the release looks */
        task_drained(t);
        return;
    }
    if (outcome == SINK_KV_LOST) { /* the row moved between look and take-over */
        t->phase = PHASE_TURN;
        task_wait(t, task_jitter(t, PLACEMENT_JITTER_US));
        return;
    }
    if (outcome != SINK_KV_OK) {
        claim_failed(t);
        return;
    }
    if (purpose == SINK_KV_LOOK)
        look_answer(t);
    else if (purpose == SINK_KV_CLAIM)
        claim_answer(t);
    else
        owned(t, t->event->kv.result->ops[0].row.version);
}

/* --- the end of a run --- */

static void wait_after(struct sink_task *t, enum sink_row_state state, int64_t wait_us)
{
    task_state(t, state);
    t->phase = PHASE_WAIT;
    if (t->stopping)
        t->phase = PHASE_END;
    else
        task_wait(t, wait_us);
}

static void run_ended(struct sink_task *t)
{
    struct sink_row *row = &t->row;

    t->lease.held = false;
    t->timer_us = 0;
    row->owned_here = false; /* the row's other values stay as last seen */
    row->has_discovery = row->has_checkpoint = false;
    t->redo = false;
    t->window.weight = 0;
    buf_reset(&row->held_by);
    switch (t->end) {
    case END_DRAINED:
        task_state(t, SINK_ROW_DRAINED);
        if (!t->cut)
            task_note(t, SINK_NOTE_DRAINED);
        t->phase = PHASE_END;
        break;
    case END_RELEASED:
        t->cooldown_us = task_now(t) + PLACEMENT_COOLDOWN_TTLS * t->ttl_us;
        task_note(t, SINK_NOTE_RELEASED);
        wait_after(t, SINK_ROW_RELEASED, 0);
        break;
    case END_FENCED:
        wait_after(t, SINK_ROW_FENCED, t->ttl_us);
        break;
    case END_MISSING:
        t->quiet = true;
        wait_after(t, SINK_ROW_MISSING, TASK_MISSING_WAIT_US);
        break;
    case END_FAILED:
    case END_PANICKED:
        t->row.failed_here = true;
        wait_after(t, SINK_ROW_FAILED, TASK_FAILED_WAIT_US);
        break;
    case END_CRASHED:
        break;
    }
}

/* Retried for at most 10 s in all; then the row goes by its TTL. */
static void release_failed(struct sink_task *t)
{
    if (task_now(t) >= t->release_until_us) {
        task_note(t, SINK_NOTE_RELEASE_FAILED)->text = t->event->error;
        run_ended(t);
        return;
    }
    t->phase = PHASE_RELEASE_LOOK;
    task_wait(t, t->release_wait_us);
    t->release_wait_us = t->release_wait_us >= 500000 ? 1000000 : 2 * t->release_wait_us;
}

void task_release_answer(struct sink_task *t, enum sink_kv_purpose purpose)
{
    enum sink_kv_outcome outcome = t->event->kv.outcome;

    if (outcome != SINK_KV_OK) {
        release_failed(t);
        return;
    }
    if (purpose == SINK_KV_RELEASE) {
        run_ended(t); /* a lost one was taken over meanwhile: not ours to delete */
        return;
    }
    const struct kv_op_result *op = &t->event->kv.result->ops[0];
    if (!op->found || !lease_is_own(&t->lease, op->row.value)) {
        run_ended(t);
        return;
    }
    t->lease.version = op->row.version;
    task_enter(t, PHASE_RELEASE);
}
