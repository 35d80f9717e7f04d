/* Slots (one queue's task and what is pending for it), the timer heap over them, and the ops whose
 * answers they take. */
#include "sink/sink_internal.h"

#include "base/mem.h"

int64_t sink_now(const struct sink *s)
{
    return clock_mono_us(s->options.clock);
}

/* --- timers: a heap of slots by the earlier of wake_us and ask_us --- */

int64_t sink_slot_due(const struct slot *slot)
{
    return slot->wake_us < slot->ask_us ? slot->wake_us : slot->ask_us;
}

static void heap_place(struct sink *s, size_t at, struct slot *slot)
{
    s->timers[at] = slot;
    slot->timer_at = at;
}

static void heap_fix(struct sink *s, size_t at, struct slot *slot)
{
    while (at > 1 && sink_slot_due(s->timers[at / 2]) > sink_slot_due(slot)) {
        heap_place(s, at, s->timers[at / 2]);
        at /= 2;
    }
    for (size_t child = 2 * at; child <= s->n_timers; child = 2 * at) {
        if (child < s->n_timers &&
            sink_slot_due(s->timers[child + 1]) < sink_slot_due(s->timers[child]))
            child++;
        if (sink_slot_due(s->timers[child]) >= sink_slot_due(slot))
            break;
        heap_place(s, at, s->timers[child]);
        at = child;
    }
    heap_place(s, at, slot);
}

void sink_slot_timer(struct sink *s, struct slot *slot)
{
    heap_fix(s, slot->timer_at, slot);
}

static void heap_add(struct sink *s, struct slot *slot)
{
    if (s->n_timers + 2 > s->cap_timers) {
        s->cap_timers = s->cap_timers == 0 ? 16 : 2 * s->cap_timers;
        s->timers = mem_grow(s->timers, s->cap_timers * sizeof(struct slot *));
    }
    s->n_timers++;
    heap_fix(s, s->n_timers, slot);
}

/* --- slots --- */

void sink_slot_enqueue(struct sink *s, struct slot *slot)
{
    if (slot->queued || slot->running)
        return; /* the worker that runs it looks again */
    slot->queued = true;
    slot->next_run = NULL;
    *s->run_last = slot;
    s->run_last = &slot->next_run;
    pthread_cond_signal(&s->wake);
}

void sink_slot_poke(struct sink *s, struct slot *slot, unsigned pending)
{
    slot->pending |= pending;
    sink_slot_enqueue(s, slot);
}

static size_t slot_place(const struct sink *s, struct span name)
{
    size_t low = 0, high = s->n_slots;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (span_cmp(buf_span(&s->slots[mid]->name), name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct slot *sink_slot_find(struct sink *s, struct span name)
{
    size_t at = slot_place(s, name);

    if (at == s->n_slots || !span_eq(buf_span(&s->slots[at]->name), name))
        return NULL;
    return s->slots[at];
}

void sink_slot_add(struct sink *s, struct span name)
{
    size_t at = slot_place(s, name);
    struct slot *slot = mem_new(sizeof(*slot));

    slot->sink = s;
    slot->inbox_last = &slot->inbox_first;
    slot->wake_us = slot->ask_us = INT64_MAX;
    slot->wishes = (struct sink_wishes){.timer_us = INT64_MAX, .clock_us = INT64_MAX};
    buf_put_span(&slot->name, name);
    slot->task = sink_task_new(&(struct sink_task_options){
        .queue = name,
        .tenant = buf_span(&s->tenant_text),
        .settings = s->settings,
        .node = s->node,
        .writer = buf_span(&s->writer),
        .seed = entropy_u64(s->options.entropy),
    });
    if (s->n_slots == s->cap_slots) {
        s->cap_slots = s->cap_slots == 0 ? 8 : 2 * s->cap_slots;
        s->slots = mem_grow(s->slots, s->cap_slots * sizeof(struct slot *));
    }
    memmove(&s->slots[at + 1], &s->slots[at], (s->n_slots - at) * sizeof(struct slot *));
    s->slots[at] = slot;
    s->n_slots++;
    heap_add(s, slot);
    sink_slot_poke(s, slot, SLOT_START);
}

void sink_built_unref(struct built *b)
{
    if (b == NULL || --b->refs > 0)
        return;
    b->sink->held_bytes -= b->held;
    lake_object_deinit(&b->object);
    mem_free(b);
}

void sink_slot_free(struct slot *slot)
{
    sink_task_free(slot->task);
    buf_deinit(&slot->name);
    buf_deinit(&slot->checkpoint);
    sink_built_unref(slot->built);
    mem_free(slot);
}

bool sink_tasks_ended(const struct sink *s)
{
    return s->ended == s->n_slots && s->jobs == 0;
}

/* --- ops --- */

struct op *sink_op_new(struct sink *s, struct slot *slot, enum op_kind kind, uint64_t number)
{
    struct op *op = mem_new(sizeof(*op));

    op->sink = s;
    op->slot = slot;
    op->kind = kind;
    op->number = number;
    op->retry_after_us = -1;
    op->bucket.body.fd = -1;
    pthread_mutex_lock(&s->lock);
    op->alive_next = s->alive;
    op->alive_at = &s->alive;
    if (s->alive != NULL)
        s->alive->alive_at = &op->alive_next;
    s->alive = op;
    pthread_mutex_unlock(&s->lock);
    return op;
}

void sink_op_release(struct op *op)
{
    node_request_deinit(&op->request);
    kv_result_deinit(&op->result);
    bucket_request_deinit(&op->bucket);
    buf_deinit(&op->key);
    buf_deinit(&op->bytes);
    buf_deinit(&op->after);
    buf_deinit(&op->told);
    sink_built_unref(op->built);
    mem_free(op);
}

void sink_op_free(struct op *op)
{
    struct sink *s = op->sink;

    pthread_mutex_lock(&s->lock);
    *op->alive_at = op->alive_next;
    if (op->alive_next != NULL)
        op->alive_next->alive_at = op->alive_at;
    sink_op_release(op);
    if (s->closing)
        pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

void sink_op_done(struct op *op)
{
    struct sink *s = op->sink;

    pthread_mutex_lock(&s->lock);
    if (s->closing) { /* nobody is there to take it */
        pthread_mutex_unlock(&s->lock);
        sink_op_free(op);
        return;
    }
    op->next = NULL;
    if (op->slot != NULL) {
        *op->slot->inbox_last = op;
        op->slot->inbox_last = &op->next;
        sink_slot_enqueue(s, op->slot);
    } else {
        *s->unit.inbox_last = op;
        s->unit.inbox_last = &op->next;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}
