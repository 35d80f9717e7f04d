/* Filling: looks at the queue, scans what its log has gained, closes windows (spec/sink.md 9, 11,
 * 12, 16, 18 in the form of decisions.md 11 and 12).
 *
 * One round is a look-up (safeTime first, then queue id and the end of its log), scans from where
 * the last one ended up to the cap, and the judgement. safeTime is read before the end of the log,
 * so below it nothing is missed. Between rounds the task waits for the discovery interval, for
 * appends when it holds nothing, or for the moment the closing rules can fire. */
#include "sink/task_internal.h"

static void scan(struct sink_task *t, int64_t cap)
{
    struct window *w = &t->window;
    struct sink_action *action;

    t->phase = PHASE_SCAN;
    action = task_operate(t, SINK_DO_SCAN);
    action->scan.queue_id = t->queue_id;
    action->scan.seek = !w->positioned;
    action->scan.seek_stamp = w->t_prev;
    action->scan.near = t->near;
    action->scan.position = w->position;
    action->scan.limit = window_scan_limit(w, cap);
    action->scan.weight_max =
        w->weight < t->rules.target_weight ? t->rules.target_weight - w->weight : 1;
}

static void wait_for_more(struct sink_task *t)
{
    struct window *w = &t->window;

    t->phase = PHASE_FILL;
    window_note_unread(w, t->safe_time, t->log_end);
    if (w->records == 0 && w->frontier != WINDOW_NO_START)
        task_complete_through(t, w->frontier);
    t->due_wanted = true;
    task_wait(t, (int64_t)t->node->discovery_interval_ms * 1000);
}

/* Scans what is left to scan below the cap, else closes, skips or waits. */
static void go_on(struct sink_task *t)
{
    struct window *w = &t->window;
    int64_t t_start, t_end;

    for (;;) {
        int64_t cap = window_cap(w, &t->rules, t->safe_time);
        if (!task_draining(t) && window_scan_due(w, cap, t->log_end)) {
            scan(t, cap);
            return;
        }
        switch (window_judge(w, &t->rules, t->safe_time, &t_start, &t_end)) {
        case WINDOW_SKIP:
            task_complete_through(t, w->t_prev);
            continue;
        case WINDOW_CLOSE:
            t->due_wanted = false;
            task_window_begin(t, t_start, t_end);
            return;
        case WINDOW_WAIT:
            break;
        }
        break;
    }
    if (task_draining(t))
        task_drained(t);
    else
        wait_for_more(t);
}

void task_fill_queue(struct sink_task *t)
{
    const struct sink_event *event = t->event;

    if (!event->queue.found || (t->queue_id != 0 && event->queue.id != t->queue_id)) {
        task_end(t, END_MISSING,
                 event->queue.found ? SPAN_LIT("the queue was deleted and made again")
                                    : SPAN_LIT("the queue was deleted"));
        return;
    }
    if (!task_check(t, event->safe_time >= t->safe_time || !t->passed, "safeTime went back"))
        return;
    t->queue_id = event->queue.id;
    t->passed = true;
    t->safe_time = event->safe_time;
    t->log_end = event->queue.log_end;
    t->row.partitions = event->queue.partitions;
    t->row.has_discovery = true;
    t->quiet = false;
    task_state(t, SINK_ROW_FILLING);
    if (task_draining(t))
        task_fill_drain(t);
    else
        go_on(t);
}

static void scan_failed(struct sink_task *t)
{
    if (t->event->scanned.err == ERR_NOT_FOUND) { /* deleted meanwhile: the look-up says so */
        task_enter(t, PHASE_FILL);
        return;
    }
    task_note(t, SINK_NOTE_SCAN_FAILED)->text = task_error(t, "fetch: ", t->event->error);
    t->phase = PHASE_FILL;
    task_wait(t, TASK_BACKOFF_US * 3 / 4 + task_jitter(t, TASK_BACKOFF_US / 2));
}

static void take_scan(struct sink_task *t, const struct sink_scanned *s, int64_t limit)
{
    struct window *w = &t->window;
    int64_t reached = s->at_limit ? limit : s->next_stamp;

    if (!w->positioned) {
        w->positioned = true;
        w->from = s->from;
    }
    if (s->records > 0 && w->records == 0)
        w->first_stamp = s->first_stamp;
    w->records += s->records;
    w->weight += s->weight;
    w->position = s->position;
    w->next_known = s->next_known;
    w->next_stamp = s->next_stamp;
    if (s->size_reached && w->weight >= t->rules.target_weight) {
        w->size_reached = true;
        if (s->next_known && s->next_stamp < limit)
            reached = s->next_stamp; /* the first record that stays outside */
        else
            reached = limit;
    }
    if (reached > w->frontier)
        w->frontier = reached;
}

void task_fill_scanned(struct sink_task *t)
{
    struct window *w = &t->window;
    int64_t cap = window_cap(w, &t->rules, t->safe_time);
    int64_t limit = window_scan_limit(w, cap);

    if (t->event->scanned.err != ERR_OK) {
        if (task_draining(t))
            task_fill_drain(t);
        else
            scan_failed(t);
        return;
    }
    take_scan(t, &t->event->scanned.out, limit);
    if (task_draining(t))
        task_fill_drain(t);
    else
        go_on(t);
}

void task_fill_force(struct sink_task *t)
{
    t->window.forced = true;
    if (t->phase == PHASE_FILL && t->io_op == 0 && t->passed && !task_draining(t)) {
        t->timer_us = 0;
        t->due_wanted = false;
        go_on(t);
    }
}

bool task_drain_closes(const struct sink_task *t, bool *aged_out)
{
    int64_t lag = 0;
    uint64_t weight = t->window.weight;

    *aged_out = weight > 0 && sink_row_lag(&t->row, &lag) && lag >= TASK_DRAIN_LAG_US;
    return weight >= TASK_DRAIN_WEIGHT || *aged_out;
}

void task_fill_drain(struct sink_task *t)
{
    bool aged;

    t->phase = PHASE_FILL;
    t->timer_us = 0;
    t->due_wanted = false;
    if (!t->passed || !task_drain_closes(t, &aged)) {
        task_drained(t);
        return;
    }
    t->window.forced = true;
    go_on(t);
}
