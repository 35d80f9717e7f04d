/* The queue task: creation, stepping, timers, and how a run ends. The phases' own work is in
 * task_claim.c (lease), task_restore.c (what the last owner left), task_fill.c (reading and
 * closing), task_commit.c (intent, upload, commit); the KV channel is in task_kv.c.
 *
 * A phase has one step: task_go() emits its action, the answer moves on to the next phase, waits
 * and tries again (task_retry), or ends the run (task_end). Every end goes through the release of
 * the lease. Nothing here trusts an answer to be of this run: numbers that are not awaited are
 * dropped in sink_task_step(). */
#include "sink/task_internal.h"

#include "base/mem.h"

const char *sink_row_state_name(enum sink_row_state state)
{
    static const char *const names[] = {
        [SINK_ROW_CLAIMING] = "claiming",   [SINK_ROW_HELD] = "held",
        [SINK_ROW_RESTORING] = "restoring", [SINK_ROW_FILLING] = "filling",
        [SINK_ROW_INTENT] = "intent",       [SINK_ROW_UPLOAD] = "upload",
        [SINK_ROW_COMMIT] = "commit",       [SINK_ROW_DRAINED] = "drained",
        [SINK_ROW_FENCED] = "fenced",       [SINK_ROW_FAILED] = "failed",
        [SINK_ROW_MISSING] = "missing",     [SINK_ROW_CRASHED] = "crashed",
        [SINK_ROW_RELEASED] = "released",
    };
    return names[state];
}

bool sink_row_lag(const struct sink_row *row, int64_t *lag_us_out)
{
    if (!row->has_complete || !row->has_safe_time)
        return false;
    int64_t lag = row->safe_time - row->complete_through;
    *lag_us_out = lag < 0 ? 0 : lag;
    return true;
}

struct sink_task *sink_task_new(const struct sink_task_options *options)
{
    struct sink_task *t = mem_new(sizeof(*t));
    const struct sink_settings *s = options->settings;

    t->tenant = options->tenant;
    t->writer = options->writer;
    t->settings = s;
    t->node = options->node;
    t->rng = options->seed;
    buf_put_span(&t->queue, options->queue);
    sink_key_lease(&t->key_lease, task_sink(t), options->queue);
    sink_key_intent(&t->key_intent, task_sink(t), options->queue);
    sink_key_committed(&t->key_committed, task_sink(t), options->queue);
    t->spec = (struct lake_spec){
        .endpoint = span_str(s->endpoint),
        .bucket = span_str(s->bucket),
        .prefix = span_str(s->prefix),
        .tenant = t->tenant,
        .queue = task_queue(t),
        .format = s->format,
        .compression = s->compression,
        .layout = s->layout,
        .align = s->align,
        .segment_max = (uint32_t)s->key_segment_max,
        .raw = !s->quote_unreadable,
    };
    t->rules = (struct window_rules){
        .align = s->align,
        .guard_us = (int64_t)t->node->safe_guard_ms * 1000,
        .window_us = (int64_t)s->max_window_ms * 1000,
        .target_weight = s->target_mb << 20,
    };
    int64_t look_us = (int64_t)t->node->discovery_interval_ms * 1000;
    t->rules.gather_us = look_us < t->rules.window_us ? look_us : t->rules.window_us;
    t->ttl_us = (int64_t)lease_ttl_seconds(t->node->lease_ttl_ms) * 1000000;
    t->row.name = task_queue(t);
    return t;
}

void sink_task_free(struct sink_task *t)
{
    if (t == NULL)
        return;
    struct buf *owned[] = {&t->queue,        &t->key_lease,    &t->key_intent, &t->key_committed,
                           &t->value_lease,  &t->value_row,    &t->listed,     &t->list_after,
                           &t->suspicion,    &t->current_text, &t->key,        &t->manifest,
                           &t->manifest_key, &t->row.held_by,  &t->row.error,  &t->text};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        buf_deinit(owned[i]);
    mem_free(t);
}

const struct sink_row *sink_task_row(const struct sink_task *t)
{
    return &t->row;
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t task_random(struct sink_task *t)
{
    uint64_t z = t->rng += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t task_jitter(struct sink_task *t, int64_t max_us)
{
    return (int64_t)(task_random(t) % (uint64_t)max_us);
}

/* --- actions --- */

struct sink_action *task_act(struct sink_task *t, enum sink_action_type type)
{
    ASSERT(t->out->n < SINK_ACTIONS_MAX);
    struct sink_action *action = &t->out->items[t->out->n++];
    *action = (struct sink_action){.type = type};
    return action;
}

struct sink_action *task_operate(struct sink_task *t, enum sink_action_type type)
{
    struct sink_action *action = task_act(t, type);

    action->op = t->io_op = ++t->last_op;
    return action;
}

struct sink_note *task_note(struct sink_task *t, enum sink_note_type type)
{
    struct sink_note *note = &task_act(t, SINK_DO_NOTE)->note;

    *note = (struct sink_note){.type = type};
    return note;
}

/* --- phases and waits --- */

void task_state(struct sink_task *t, enum sink_row_state state)
{
    t->row.state = state;
}

void task_enter(struct sink_task *t, enum phase phase)
{
    t->phase = phase;
    t->attempts = 0;
    t->timer_us = 0;
    t->kv_unknown = false;
    task_go(t);
}

void task_wait(struct sink_task *t, int64_t us)
{
    if (task_draining(t) && us > TASK_STOPPING_WAIT_US)
        us = TASK_STOPPING_WAIT_US;
    t->timer_us = task_now(t) + (us < 1 ? 1 : us);
}

void task_retry(struct sink_task *t)
{
    int64_t wait = TASK_BACKOFF_MAX_US;

    if (t->event->retry_after_us >= 0) {
        t->attempts++;
        task_wait(t, t->event->retry_after_us);
        return;
    }
    if (t->attempts < 6)
        wait = (int64_t)TASK_BACKOFF_US << t->attempts;
    if (wait > TASK_BACKOFF_MAX_US)
        wait = TASK_BACKOFF_MAX_US;
    t->attempts++;
    task_wait(t, wait * 3 / 4 + task_jitter(t, wait / 2));
}

void task_go(struct sink_task *t)
{
    struct sink_action *action;

    t->timer_us = 0;
    switch (t->phase) {
    case PHASE_LOOK:
    case PHASE_TURN:
    case PHASE_HELD:
        t->phase = PHASE_LOOK;
        task_kv(t, SINK_KV_LOOK);
        break;
    case PHASE_WAIT:
        task_claim_begin(t);
        break;
    case PHASE_END:
        break;
    case PHASE_CLAIM:
        task_kv(t, SINK_KV_CLAIM);
        break;
    case PHASE_TAKE:
        task_kv(t, SINK_KV_TAKE);
        break;
    case PHASE_RESTORE:
        task_kv(t, SINK_KV_RESTORE);
        break;
    case PHASE_FIND:
    case PHASE_FILL:
        (void)task_operate(t, SINK_DO_LOOK_UP);
        break;
    case PHASE_LIST:
        buf_reset(&t->key);
        lake_key_checkpoint_prefix(&t->key, &t->spec);
        action = task_operate(t, SINK_DO_LIST);
        action->list.prefix = buf_span(&t->key);
        action->list.start_after = buf_span(&t->list_after);
        break;
    case PHASE_LOAD:
        action = task_operate(t, SINK_DO_GET);
        action->get.key = buf_span(&t->listed);
        action->get.is_checkpoint = true;
        break;
    case PHASE_PROBE:
    case PHASE_PROBE_NEXT:
        buf_reset(&t->manifest_key);
        lake_key_manifest(&t->manifest_key, &t->spec, t->k + 1);
        task_operate(t, SINK_DO_GET)->get.key = buf_span(&t->manifest_key);
        break;
    case PHASE_CHECKPOINT_SINCE:
        buf_reset(&t->manifest_key);
        lake_key_manifest(&t->manifest_key, &t->spec, t->since_k);
        task_operate(t, SINK_DO_GET)->get.key = buf_span(&t->manifest_key);
        break;
    case PHASE_REDO_LOOK:
    case PHASE_LOOK_AGAIN:
        buf_reset(&t->manifest_key);
        lake_key_manifest(&t->manifest_key, &t->current.spec, t->current.k);
        task_operate(t, SINK_DO_GET)->get.key = buf_span(&t->manifest_key);
        break;
    case PHASE_START:
        task_kv(t, SINK_KV_START);
        break;
    case PHASE_SCAN: /* is emitted by task_fill.c, which knows its bounds; a failure goes back to
                        FILL */
        break;
    case PHASE_INTENT:
        task_kv(t, SINK_KV_INTENT);
        break;
    case PHASE_BUILD:
        task_build(t);
        break;
    case PHASE_PUT:
        task_put_object(t);
        break;
    case PHASE_MANIFEST:
        task_put_manifest(t);
        break;
    case PHASE_COMMIT:
        task_kv(t, SINK_KV_COMMIT);
        break;
    case PHASE_CHECKPOINT_BUILD:
        action = task_operate(t, SINK_DO_BUILD_CHECKPOINT);
        action->checkpoint.queue_id = t->queue_id;
        action->checkpoint.k = t->k;
        action->checkpoint.since = t->checkpoint_since;
        action->checkpoint.t_end = t->committed_t_end;
        break;
    case PHASE_CHECKPOINT_PUT:
        buf_reset(&t->key);
        lake_key_checkpoint(&t->key, &t->spec, t->k);
        action = task_operate(t, SINK_DO_PUT_CHECKPOINT);
        action->put.key = buf_span(&t->key);
        action->put.content_type = "application/zstd";
        break;
    case PHASE_SUSPECT_REFRESH:
        task_kv(t, SINK_KV_SUSPECT_REFRESH);
        break;
    case PHASE_SUSPECT_READ:
        task_kv(t, SINK_KV_SUSPECT_READ);
        break;
    case PHASE_RELEASE_LOOK:
        task_kv(t, SINK_KV_RELEASE_LOOK);
        break;
    case PHASE_RELEASE:
        task_kv(t, SINK_KV_RELEASE);
        break;
    }
}

/* --- errors and ends --- */

struct span task_error(struct sink_task *t, const char *prefix, struct span text)
{
    t->row.has_error = true;
    t->row.error_at = t->event->wall_us;
    buf_reset(&t->row.error);
    buf_puts(&t->row.error, prefix);
    buf_put_span(&t->row.error, text);
    return buf_span(&t->row.error);
}

void task_end(struct sink_task *t, enum run_end end, struct span why)
{
    t->end = end;
    t->io_op = 0;
    t->kv_waiting = SINK_KV_NONE;
    t->kv_verifying = SINK_KV_NONE;
    if (t->kv_op != 0 && t->kv_purpose != SINK_KV_REFRESH)
        t->kv_abandoned = true;
    t->due_wanted = false;

    switch (end) {
    case END_DRAINED:
    case END_RELEASED:
        break;
    case END_MISSING:
        task_error(t, "", why);
        if (!t->quiet)
            task_note(t, SINK_NOTE_MISSING);
        break;
    case END_FENCED:
        task_note(t, SINK_NOTE_FENCED)->text = task_error(t, "", why);
        break;
    case END_FAILED: {
        struct sink_note *note = task_note(t, SINK_NOTE_STOPPED);
        note->text = task_error(t, "", why);
        note->retry_us = TASK_FAILED_WAIT_US;
        break;
    }
    case END_CRASHED:
        task_state(t, SINK_ROW_CRASHED);
        t->phase = PHASE_END;
        t->timer_us = 0;
        return;
    case END_PANICKED:
        task_note(t, SINK_NOTE_PANICKED)->text = task_error(t, "queue task panicked: ", why);
        break;
    }
    t->release_until_us = task_now(t) + TASK_RELEASE_US;
    t->release_wait_us = 100000;
    task_enter(t, PHASE_RELEASE_LOOK);
}

void task_drained(struct sink_task *t)
{
    task_end(t, t->stopping ? END_DRAINED : END_RELEASED, (struct span){0});
}

void task_failed(struct sink_task *t, const char *format, ...)
{
    struct buf why = BUF_INIT;
    va_list args;

    va_start(args, format);
    buf_vprintf(&why, format, args);
    va_end(args);
    task_end(t, END_FAILED, buf_span(&why));
    buf_deinit(&why);
}

bool task_check(struct sink_task *t, bool holds, const char *what)
{
    if (!holds)
        task_end(t, END_PANICKED, span_str(what));
    return holds;
}

bool task_crash(struct sink_task *t, enum sink_crash_point point)
{
    if (t->node->crash_at != point)
        return false;
    task_act(t, SINK_DO_CRASH)->crash = point;
    task_end(t, END_CRASHED, (struct span){0});
    return true;
}

void task_complete_through(struct sink_task *t, int64_t us)
{
    if (!t->row.has_complete || us > t->row.complete_through)
        t->row.complete_through = us;
    t->row.has_complete = true;
}

/* --- drain --- */

static bool in_window(enum phase phase)
{
    return phase >= PHASE_INTENT && phase <= PHASE_CHECKPOINT_PUT;
}

static void note_shutdown(struct sink_task *t)
{
    bool aged = false;
    bool filling = t->phase == PHASE_FILL || t->phase == PHASE_SCAN;
    bool closing = filling && task_drain_closes(t, &aged);
    struct sink_note *note = task_note(t, SINK_NOTE_SHUTTING_DOWN);

    note->buffered = t->row.buffered;
    note->aged = aged;
    note->closing = closing || in_window(t->phase);
    note->state = sink_row_state_name(t->row.state);
}

/* Nothing is held: the task just ends. */
static void end_idle(struct sink_task *t)
{
    t->phase = PHASE_END;
    t->timer_us = 0;
    t->kv_waiting = SINK_KV_NONE;
    t->kv_abandoned = t->kv_op != 0;
}

/* Stop or hand-off: what can end ends, what is in flight is finished. */
static void drain(struct sink_task *t)
{
    if (t->phase <= PHASE_WAIT) {
        if (t->stopping)
            end_idle(t);
        return;
    }
    if (t->phase == PHASE_END || t->phase >= PHASE_RELEASE_LOOK)
        return;
    if (t->phase > PHASE_TAKE)
        note_shutdown(t);
    if (t->timer_us > task_now(t) + TASK_STOPPING_WAIT_US)
        t->timer_us = task_now(t) + TASK_STOPPING_WAIT_US;
    if (t->phase == PHASE_FILL) {
        t->io_op = 0;
        task_fill_drain(t);
    } else if (t->phase > PHASE_TAKE && t->phase < PHASE_FILL && !t->redo) {
        task_drained(t);
    }
}

/* The grace is over: whatever is in flight is left to the next owner. */
static void cut(struct sink_task *t)
{
    t->stopping = t->cut = true;
    if (t->phase <= PHASE_WAIT) {
        end_idle(t);
    } else if (t->phase > PHASE_END && t->phase < PHASE_RELEASE_LOOK) {
        task_end(t, END_DRAINED, (struct span){0});
    } else if (t->timer_us > task_now(t) + TASK_STOPPING_WAIT_US) {
        t->timer_us = task_now(t) + TASK_STOPPING_WAIT_US;
    }
}

/* --- stepping --- */

static void wake(struct sink_task *t)
{
    struct sink_wishes wishes;

    sink_task_wishes(t, &wishes);
    bool timer = t->timer_us != 0 && t->timer_us <= task_now(t);
    bool clock = t->event->safe_time >= wishes.clock_us;
    if (!timer && !clock && !(wishes.append && t->event->appended))
        return;
    t->due_wanted = false;
    task_go(t);
}

static void bucket_answer(struct sink_task *t)
{
    switch (t->phase) {
    case PHASE_LIST:
    case PHASE_LOAD:
    case PHASE_REDO_LOOK:
    case PHASE_PROBE:
        task_restore_bucket(t);
        break;
    case PHASE_LOOK_AGAIN:
    case PHASE_PUT:
    case PHASE_MANIFEST:
    case PHASE_PROBE_NEXT:
    case PHASE_CHECKPOINT_SINCE:
    case PHASE_CHECKPOINT_PUT:
        task_commit_bucket(t);
        break;
    default:
        task_check(t, false, "an answer of the bucket in a phase that asks nothing of it");
    }
}

/* lastError shows after the first failed attempt; the operation goes on by itself. */
static void attempt_failed(struct sink_task *t)
{
    bool get = t->phase != PHASE_PUT && t->phase != PHASE_MANIFEST;
    struct span key = t->phase == PHASE_PUT ? buf_span(&t->key) : buf_span(&t->manifest_key);

    if (t->phase == PHASE_LIST || t->phase == PHASE_LOAD || t->phase == PHASE_CHECKPOINT_SINCE ||
        t->phase == PHASE_CHECKPOINT_PUT)
        return; /* a cache: its own warnings tell */
    buf_reset(&t->text);
    buf_printf(&t->text, "%s " SPAN_FMT ": ", get ? "get" : "put", SPAN_ARG(key));
    buf_put_span(&t->text, t->event->error);
    struct span text = task_error(t, "", buf_span(&t->text));
    task_note(t, get ? SINK_NOTE_GET_FAILED : SINK_NOTE_PUT_FAILED)->text = text;
}

static void io_answer(struct sink_task *t)
{
    if (t->event->op != t->io_op)
        return; /* of a run that ended */
    if (t->event->type == SINK_EVENT_ATTEMPT) {
        attempt_failed(t);
        return;
    }
    t->io_op = 0;
    switch (t->event->type) {
    case SINK_EVENT_QUEUE:
        if (t->phase == PHASE_FIND)
            task_restore_queue(t);
        else if (task_check(t, t->phase == PHASE_FILL, "a queue was looked up out of place"))
            task_fill_queue(t);
        break;
    case SINK_EVENT_SCANNED:
        if (task_check(t, t->phase == PHASE_SCAN, "a scan came out of place"))
            task_fill_scanned(t);
        break;
    case SINK_EVENT_BUILT:
        if (task_check(t, t->phase == PHASE_BUILD, "a build came out of place"))
            task_built(t);
        break;
    case SINK_EVENT_CHECKPOINT:
        if (t->phase == PHASE_LOAD)
            task_restore_checkpoint(t);
        else if (task_check(t, t->phase == PHASE_CHECKPOINT_BUILD,
                            "a checkpoint came out of place"))
            task_checkpoint_built(t);
        break;
    case SINK_EVENT_BUCKET:
        bucket_answer(t);
        break;
    default:
        break;
    }
}

/* What follows from any step: the newest safeTime, the lag, the buffer. */
static void refresh_row(struct sink_task *t)
{
    struct sink_row *row = &t->row;

    if (!row->owned_here)
        return;
    if ((t->passed || t->redo) && t->event->safe_time > 0) {
        row->has_safe_time = true;
        if (t->event->safe_time > row->safe_time)
            row->safe_time = t->event->safe_time;
    }
    row->buffered = t->window.weight;
    row->redo = t->redo;
    int64_t lag;
    if (t->phase < PHASE_RELEASE_LOOK && sink_row_lag(row, &lag)) {
        row->has_lag = true;
        row->lag_us = lag;
        row->lag_at_us = task_now(t);
    }
}

void sink_task_step(struct sink_task *t, const struct sink_event *event, struct sink_actions *out)
{
    out->n = 0;
    t->event = event;
    t->out = out;
    switch (event->type) {
    case SINK_EVENT_START:
        task_note(t, SINK_NOTE_STARTING);
        task_claim_begin(t);
        break;
    case SINK_EVENT_WAKE:
        wake(t);
        break;
    case SINK_EVENT_KV:
        task_kv_answer(t);
        break;
    case SINK_EVENT_QUEUE:
    case SINK_EVENT_SCANNED:
    case SINK_EVENT_BUILT:
    case SINK_EVENT_CHECKPOINT:
    case SINK_EVENT_BUCKET:
    case SINK_EVENT_ATTEMPT:
        io_answer(t);
        break;
    case SINK_EVENT_STOP:
        if (!t->stopping) {
            t->stopping = true;
            t->giving_back = false;
            drain(t);
        }
        break;
    case SINK_EVENT_GIVE_BACK:
        if (!t->stopping && !t->giving_back && t->phase > PHASE_TAKE &&
            t->phase < PHASE_RELEASE_LOOK) {
            t->giving_back = true;
            drain(t);
        }
        break;
    case SINK_EVENT_FORCE:
        task_fill_force(t);
        break;
    case SINK_EVENT_CUT:
        cut(t);
        break;
    }
    task_kv_refresh_if_due(t);
    refresh_row(t);
    t->event = NULL;
    t->out = NULL;
}

void sink_task_wishes(const struct sink_task *t, struct sink_wishes *out)
{
    *out = (struct sink_wishes){
        .timer_us = t->timer_us == 0 ? INT64_MAX : t->timer_us,
        .clock_us = WINDOW_NEVER,
        .queue_id = t->queue_id,
        .counts = t->phase > PHASE_END,
        .ended = t->phase == PHASE_END,
    };
    if (t->lease.held && t->phase < PHASE_RELEASE_LOOK && t->kv_op == 0 &&
        t->refresh_us < out->timer_us)
        out->timer_us = t->refresh_us;
    if (!t->due_wanted)
        return;
    out->clock_us = t->phase == PHASE_BUILD ? t->current.t_end + t->rules.guard_us
                                            : window_due(&t->window, &t->rules);
    out->append = t->phase == PHASE_FILL && out->clock_us == WINDOW_NEVER;
}
