/* Running the sink: the node's hook, one event of one slot at a time, the workers.
 *
 * Workers take slots from the run queue one event at a time, so that no queue holds up another; a
 * slot is run by one worker at a time. The hook is called on the node's apply thread for every
 * entry: it looks at two atomics and takes the lock only when a task waits for what came. */
#include "sink/sink_internal.h"

/* --- the node's hook --- */

/* Wakes the tasks whose moment has come; the others' earliest one is the next to be told of. */
static void watch_applied(struct sink *s)
{
    int64_t safe_time = node_safe_time(s->options.node), next = INT64_MAX;

    for (size_t i = 0; i < s->n_slots; i++) {
        struct slot *slot = s->slots[i];
        if (slot->wishes.clock_us <= safe_time)
            sink_slot_poke(s, slot, SLOT_WAKE);
        else if (slot->wishes.clock_us < next)
            next = slot->wishes.clock_us;
    }
    atomic_store(&s->clock_next, next);
}

void sink_entry_applied(void *ctx, uint64_t queue_id)
{
    struct sink *s = ctx;

    if (queue_id != 0) {
        if (atomic_load(&s->append_watchers) == 0)
            return;
        pthread_mutex_lock(&s->lock);
        struct slot *slot = map64_get(&s->watchers, queue_id);
        if (slot != NULL) {
            slot->appended = true;
            sink_slot_poke(s, slot, SLOT_WAKE);
        }
        pthread_mutex_unlock(&s->lock);
        return;
    }
    if (node_safe_time(s->options.node) < atomic_load(&s->clock_next))
        return;
    pthread_mutex_lock(&s->lock);
    s->entry_applied = true;
    watch_applied(s);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* --- running a slot --- */

static void watch_appends(struct sink *s, struct slot *slot, const struct sink_wishes *wishes)
{
    bool had = slot->wishes.append, want = wishes->append;
    uint64_t old = slot->wishes.queue_id;

    if (had && (!want || old != wishes->queue_id) && map64_get(&s->watchers, old) == slot) {
        map64_remove(&s->watchers, old);
        atomic_fetch_sub(&s->append_watchers, 1);
    }
    if (want && map64_get(&s->watchers, wishes->queue_id) == NULL) {
        map64_put(&s->watchers, wishes->queue_id, slot);
        atomic_fetch_add(&s->append_watchers, 1);
    }
}

static void count_node(struct sink *s, struct slot *slot)
{
    const struct sink_row *row = sink_task_row(slot->task);

    if (slot->counted != slot->wishes.counts)
        s->counts += slot->wishes.counts ? 1u : UINT32_MAX;
    slot->counted = slot->wishes.counts;
    s->ended += slot->wishes.ended && !slot->ended;
    slot->ended |= slot->wishes.ended;
    if (slot->owned != row->owned_here)
        s->held += row->owned_here ? 1u : UINT32_MAX;
    slot->owned = row->owned_here;
    slot->ever_owned |= row->owned_here;
    s->buffered -= slot->buffered;
    slot->buffered = row->owned_here ? row->buffered : 0;
    s->buffered += slot->buffered;
    if (!row->owned_here) {
        slot->forced = false;
        sink_built_unref(slot->built);
        slot->built = NULL;
    }
}

/* The window of the queue that holds the most is closed early when the node holds too much. */
static void bound_memory(struct sink *s, struct slot *slot)
{
    uint64_t limit = s->node->memory_mb << 20;

    if (s->buffered <= limit || slot->buffered == 0 || slot->forced ||
        sink_task_row(slot->task)->state != SINK_ROW_FILLING)
        return;
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i]->buffered > slot->buffered)
            return;
    }
    slot->forced = true;
    slot->pending |= SLOT_FORCE;
    log_msg(LOG_INFO, SINK_LOG_TARGET,
            "memory budget reached, closing a window early queue=" SPAN_FMT
            " buffered=%llu total=%llu limit=%llu",
            SPAN_ARG(buf_span(&slot->name)), (unsigned long long)slot->buffered,
            (unsigned long long)s->buffered, (unsigned long long)limit);
}

static void note_taken(struct sink *s, struct slot *slot, const struct sink_note *note)
{
    struct sink_counters *c = &s->counters;

    switch (note->type) {
    case SINK_NOTE_COMMITTED:
        metrics_histogram_observe(&c->window_records, (double)note->records);
        metrics_histogram_observe(&c->window_bytes, (double)note->bytes);
        slot->quoted += note->quoted;
        slot->forced = false;
        sink_built_unref(slot->built);
        slot->built = NULL;
        break;
    case SINK_NOTE_PRECONDITION_LOST:
        c->precondition_lost++;
        break;
    case SINK_NOTE_RELEASED:
        c->given_back++;
        placement_released(&s->unit.placement, buf_span(&slot->name), sink_now(s));
        break;
    default:
        break;
    }
}

/* What a step changed beyond the task. */
static void after_step(struct sink *s, struct slot *slot, const struct sink_actions *actions)
{
    struct sink_wishes wishes;
    const struct sink_row *row = sink_task_row(slot->task);

    for (size_t i = 0; i < actions->n; i++) {
        const struct sink_action *a = &actions->items[i];
        if (a->type == SINK_DO_NOTE)
            note_taken(s, slot, &a->note);
        else if (a->type == SINK_DO_BUILD)
            slot->build_op = a->op;
        else if (a->type == SINK_DO_BUILD_CHECKPOINT)
            slot->checkpoint_op = a->op;
    }
    sink_task_wishes(slot->task, &wishes);
    watch_appends(s, slot, &wishes);
    slot->wishes = wishes;
    count_node(s, slot);
    bound_memory(s, slot);
    if (s->unit.placement.handoff == HANDOFF_DRAINING && !row->owned_here)
        placement_abandoned(&s->unit.placement, buf_span(&slot->name));
    if (row->state == SINK_ROW_HELD &&
        placement_seen_held(&s->unit.placement, buf_span(&slot->name)))
        log_msg(LOG_INFO, SINK_LOG_TARGET,
                "the queue given back is held by another node queue=" SPAN_FMT " owner=" SPAN_FMT,
                SPAN_ARG(buf_span(&slot->name)), SPAN_ARG(buf_span(&row->held_by)));
}

/* The next thing the task is told; false when nothing is pending. op_out: to be freed after the
 * step. */
static bool next_event(struct sink *s, struct slot *slot, struct sink_event *event,
                       struct op **op_out)
{
    static const struct {
        unsigned pending;
        enum sink_event_type type;
    } told[] = {
        {SLOT_START, SINK_EVENT_START}, {SLOT_CUT, SINK_EVENT_CUT},
        {SLOT_STOP, SINK_EVENT_STOP},   {SLOT_GIVE_BACK, SINK_EVENT_GIVE_BACK},
        {SLOT_FORCE, SINK_EVENT_FORCE},
    };

    *op_out = NULL;
    *event = (struct sink_event){
        .safe_time = node_safe_time(s->options.node),
        .mono_us = sink_now(s),
        .wall_us = clock_wall_us(s->options.clock),
        .placement = {.load = s->counts - slot->counted,
                      .held = s->held,
                      .share = placement_share(&s->unit.placement, s->n_slots)},
        .retry_after_us = -1,
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        if (slot->pending & told[i].pending) {
            slot->pending &= ~told[i].pending;
            event->type = told[i].type;
            return true;
        }
    }
    struct op *op = slot->inbox_first;
    if (op != NULL) {
        slot->inbox_first = op->next;
        if (slot->inbox_first == NULL)
            slot->inbox_last = &slot->inbox_first;
        sink_op_event(op, event);
        *op_out = op;
        return true;
    }
    if (slot->pending & SLOT_WAKE) {
        slot->pending &= ~(unsigned)SLOT_WAKE;
        event->type = SINK_EVENT_WAKE;
        event->appended = slot->appended;
        slot->appended = false;
        return true;
    }
    return false;
}

/* Sets the timers the task wishes for; asks for a clock entry when its moment has come. Lets go of
 * the lock. */
static void set_timers(struct sink *s, struct slot *slot, bool ask)
{
    struct sink_wishes wishes = slot->wishes;
    int64_t ask_us = INT64_MAX;

    if (wishes.clock_us != INT64_MAX && wishes.clock_us > node_safe_time(s->options.node)) {
        pthread_mutex_unlock(&s->lock);
        int64_t wait = node_clock_wait_us(s->options.node, wishes.clock_us);
        if (wait <= 0) {
            if (ask)
                node_request_clock_entry(s->options.node);
            wait = ask ? SINK_CLOCK_EVERY_US : 0;
        }
        pthread_mutex_lock(&s->lock);
        ask_us = sink_now(s) + wait;
    }
    slot->wake_us = wishes.timer_us;
    slot->ask_us = ask_us;
    sink_slot_timer(s, slot);
    if (wishes.clock_us < atomic_load(&s->clock_next))
        atomic_store(&s->clock_next, wishes.clock_us);
    if (wishes.clock_us <= node_safe_time(s->options.node))
        slot->pending |= SLOT_WAKE; /* it came meanwhile: the hook did not know */
}

/* One event of one slot. */
static void run_slot(struct sink *s, struct slot *slot)
{
    struct sink_actions actions;
    struct sink_event event;
    struct op *op;

    slot->running = true;
    if (next_event(s, slot, &event, &op)) {
        sink_task_step(slot->task, &event, &actions);
        after_step(s, slot, &actions);
        pthread_mutex_unlock(&s->lock);
        sink_carry_out(slot, &actions);
        if (op != NULL)
            sink_op_free(op);
        pthread_mutex_lock(&s->lock);
        set_timers(s, slot, false);
    } else if (slot->pending & SLOT_CLOCK) {
        slot->pending &= ~(unsigned)SLOT_CLOCK;
        set_timers(s, slot, true);
    }
    slot->running = false;
    if (slot->pending != 0 || slot->inbox_first != NULL)
        sink_slot_enqueue(s, slot);
    if (slot->wishes.ended && s->draining)
        pthread_cond_signal(&s->wake); /* the unit may leave */
}

/* --- work --- */

static void collect_due(struct sink *s, int64_t now)
{
    while (s->n_timers > 0 && sink_slot_due(s->timers[1]) <= now) {
        struct slot *slot = s->timers[1];
        if (slot->wake_us <= now) {
            slot->wake_us = INT64_MAX;
            sink_slot_poke(s, slot, SLOT_WAKE);
        }
        if (slot->ask_us <= now) {
            slot->ask_us = INT64_MAX;
            sink_slot_poke(s, slot, SLOT_CLOCK);
        }
        sink_slot_timer(s, slot);
    }
}

/* KV reads that met a row about to expire are made again when an entry was applied. */
static bool reread(struct sink *s, int64_t now)
{
    struct op *op = s->rereads;

    if (op == NULL || (!s->entry_applied && now < s->reread_us))
        return false;
    s->rereads = NULL;
    s->entry_applied = false;
    pthread_mutex_unlock(&s->lock);
    while (op != NULL) {
        struct op *next = op->next;
        sink_kv_read(op);
        op = next;
    }
    pthread_mutex_lock(&s->lock);
    return true;
}

/* Locked. Does one piece of work; false when there is none before *next_out. */
static bool work(struct sink *s, int64_t *next_out)
{
    int64_t now = sink_now(s);

    *next_out = INT64_MAX;
    if (s->crashed)
        return false;
    collect_due(s, now);
    if (reread(s, now))
        return true;
    int64_t unit_due = s->unit.running ? INT64_MAX : sink_unit_due(s);
    if (unit_due <= now) { /* first: a node with much to do must not look dead to the others */
        s->unit.running = true;
        sink_unit_run(s);
        s->unit.running = false;
        return true;
    }
    struct slot *slot = s->run_first;
    if (slot != NULL) {
        s->run_first = slot->next_run;
        if (s->run_first == NULL)
            s->run_last = &s->run_first;
        slot->queued = false;
        run_slot(s, slot);
        return true;
    }
    *next_out = unit_due;
    if (s->n_timers > 0 && sink_slot_due(s->timers[1]) < *next_out)
        *next_out = sink_slot_due(s->timers[1]);
    if (s->rereads != NULL && s->reread_us < *next_out)
        *next_out = s->reread_us;
    return false;
}

void sink_worker(void *ctx)
{
    struct sink *s = ctx;
    int64_t next;

    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        if (work(s, &next))
            continue;
        int64_t wait = next == INT64_MAX ? -1 : next - sink_now(s);
        if (next == INT64_MAX || wait > 0)
            (void)cond_wait_us(&s->wake, &s->lock, wait); /* woken or due: looks again */
    }
    pthread_mutex_unlock(&s->lock);
}

bool sink_pump(struct sink *s, int64_t *next_wake_out)
{
    pthread_mutex_lock(&s->lock);
    bool did = work(s, next_wake_out);
    pthread_mutex_unlock(&s->lock);
    return did;
}
