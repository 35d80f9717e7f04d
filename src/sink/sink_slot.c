/* Slots (one queue's task and what is pending for it), the timer heap over them, and the ops whose
 * answers they take. */
#include "sink/sink_internal.h"

#include "base/mem.h"

int64_t sink_now(const struct sink *s)
{
    return clock_mono_us(s->options.clock);
}

/* --- heaps --- */

int64_t sink_slot_due(const struct slot *slot)
{
    return slot->wake_us < slot->ask_us ? slot->wake_us : slot->ask_us;
}

static int64_t heap_key(enum slot_heap heap, const struct slot *slot)
{
    return heap == HEAP_TIMER ? sink_slot_due(slot) : slot->clock_us;
}

static void heap_place(struct sink *s, enum slot_heap heap, size_t at, struct slot *slot)
{
    s->heaps[heap][at] = slot;
    slot->heap_at[heap] = at;
}

/* Puts the slot where it belongs, given that it may be at `at`. */
static void heap_fix(struct sink *s, enum slot_heap heap, size_t at, struct slot *slot)
{
    struct slot **slots = s->heaps[heap];
    int64_t key = heap_key(heap, slot);

    while (at > 1 && heap_key(heap, slots[at / 2]) > key) {
        heap_place(s, heap, at, slots[at / 2]);
        at /= 2;
    }
    for (size_t child = 2 * at; child <= s->n_slots; child = 2 * at) {
        if (child < s->n_slots && heap_key(heap, slots[child + 1]) < heap_key(heap, slots[child]))
            child++;
        if (heap_key(heap, slots[child]) >= key)
            break;
        heap_place(s, heap, at, slots[child]);
        at = child;
    }
    heap_place(s, heap, at, slot);
}

void sink_slot_timer(struct sink *s, struct slot *slot)
{
    heap_fix(s, HEAP_TIMER, slot->heap_at[HEAP_TIMER], slot);
}

void sink_slot_clock(struct sink *s, struct slot *slot, int64_t clock_us)
{
    if (slot->clock_us == clock_us)
        return;
    slot->clock_us = clock_us;
    heap_fix(s, HEAP_CLOCK, slot->heap_at[HEAP_CLOCK], slot);
}

struct slot *sink_slot_first(const struct sink *s, enum slot_heap heap)
{
    return s->n_slots == 0 ? NULL : s->heaps[heap][1];
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

#define WALK_PIECE 256u
#define WALK_PAUSE_US 50

size_t sink_slot_walk(const struct sink *s, size_t i)
{
    struct sink *mutable = (struct sink *)(uintptr_t)s; /* for the lock */

    if (i == 0 || i % WALK_PIECE != 0 || i >= s->n_slots)
        return i;
    const struct slot *last = s->slots[i - 1]; /* slots stay as long as the sink */
    (void)cond_wait_us(&mutable->idle, &mutable->lock,
                       WALK_PAUSE_US); /* unlocking is all it is for */
    return slot_place(s, buf_span(&last->name)) + 1;
}

static struct slot *slot_new(struct sink *s, struct span name)
{
    struct slot *slot = mem_new(sizeof(*slot));

    slot->sink = s;
    slot->inbox_last = &slot->inbox_first;
    slot->wake_us = slot->ask_us = slot->clock_us = INT64_MAX;
    slot->wishes = (struct sink_wishes){.timer_us = INT64_MAX, .clock_us = INT64_MAX};
    buf_put_span(&slot->name, name);
    slot->task = sink_task_new(&(struct sink_task_options){
        .queue = buf_span(&slot->name),
        .tenant = buf_span(&s->tenant_text),
        .settings = s->settings,
        .node = s->node,
        .writer = buf_span(&s->writer),
        .seed = entropy_u64(s->options.entropy),
    });
    return slot;
}

void sink_names_add(struct sink_names *names, struct span name)
{
    if (names->n == names->cap) {
        names->cap = names->cap == 0 ? 16 : 2 * names->cap;
        names->ends = mem_grow(names->ends, names->cap * sizeof(*names->ends));
    }
    buf_put_span(&names->text, name);
    names->ends[names->n++] = names->text.len;
}

void sink_names_deinit(struct sink_names *names)
{
    mem_free(names->ends);
    buf_deinit(&names->text);
}

static int name_order(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* The names that have no slot yet, sorted, each once. Returns owned. */
static struct span *new_names(struct sink *s, const struct sink_names *names, size_t *n_out)
{
    struct span *list = MEM_ARRAY(struct span, names->n + 1);
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < names->n; i++) {
        size_t from = i == 0 ? 0 : names->ends[i - 1];
        struct span name = span_make(names->text.ptr + from, names->ends[i] - from);
        if (sink_slot_find(s, name) == NULL)
            list[n++] = name;
    }
    if (n > 0)
        qsort(list, n, sizeof(*list), name_order);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || !span_eq(list[kept - 1], list[i]))
            list[kept++] = list[i];
    }
    *n_out = kept;
    return list;
}

static void slots_reserve(struct sink *s, size_t n)
{
    while (n > s->cap_slots)
        s->cap_slots = s->cap_slots == 0 ? 8 : 2 * s->cap_slots;
    s->slots = mem_grow(s->slots, s->cap_slots * sizeof(struct slot *));
    for (unsigned h = 0; h < SLOT_HEAPS; h++)
        s->heaps[h] = mem_grow(s->heaps[h], (s->cap_slots + 1) * sizeof(struct slot *));
}

/* However many come at once, the others move but once. */
void sink_slots_add(struct sink *s, const struct sink_names *names)
{
    size_t n;
    struct span *list = new_names(s, names, &n);
    struct slot **fresh = MEM_ARRAY(struct slot *, n + 1);
    size_t old = s->n_slots, to = old + n;

    if (n > 0)
        slots_reserve(s, to);
    for (size_t i = n; i > 0; i--) {
        fresh[i - 1] = slot_new(s, list[i - 1]);
        while (old > 0 && span_cmp(buf_span(&s->slots[old - 1]->name), list[i - 1]) > 0)
            s->slots[--to] = s->slots[--old];
        s->slots[--to] = fresh[i - 1];
    }
    for (size_t i = 0; i < n; i++) {
        s->n_slots++;
        for (unsigned h = 0; h < SLOT_HEAPS; h++)
            heap_fix(s, h, s->n_slots, fresh[i]);
        sink_slot_poke(s, fresh[i], SLOT_START);
    }
    mem_free(fresh);
    mem_free(list);
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
