/* What a tenant's sink does beside its queues: it probes the bucket before anything else, lists the
 * queues, keeps its presence row and gives queues back (spec/sink.md 1, 6), and leaves when every
 * task has ended. It probes again when the bucket is in trouble and no queue is about to ask.
 *
 * Run by one worker at a time. It is called with the lock and lets go of it for whatever touches
 * node or bucket. */
#include "sink/sink_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define PROBE_WAIT_US 1000000
#define PROBE_WAIT_MAX_US 60000000
/* A step waits no longer than this between two attempts: behind it nobody is about to make one. */
#define LOOK_AGAIN_US (PROBE_WAIT_MAX_US / 4 * 5)
#define LEAVE_US 10000000
#define BEAT_LIMIT 1000

void sink_unit_init(struct sink *s)
{
    s->unit.inbox_last = &s->unit.inbox_first;
    s->unit.list_us = INT64_MAX;
    s->unit.phase = s->settings == NULL ? UNIT_ENDED : UNIT_PROBE;
    s->unit.rng = entropy_u64(s->options.entropy);
    placement_init(&s->unit.placement, s->ttl_us);
    if (s->settings == NULL)
        return;
    sink_key_presence(&s->unit.key, span_str(s->settings->sink), span_str(s->node->instance));
    sink_key_presence_prefix(&s->unit.prefix, span_str(s->settings->sink));
    lease_init(&s->unit.presence, span_str(s->node->instance), entropy_u64(s->options.entropy),
               clock_wall_us(s->options.clock));
}

void sink_unit_deinit(struct sink *s)
{
    placement_deinit(&s->unit.placement);
    buf_deinit(&s->unit.key);
    buf_deinit(&s->unit.prefix);
    buf_deinit(&s->probe.head_error);
}

/* x 0.75 .. 1.25 */
static int64_t spread(struct sink *s, int64_t us)
{
    s->unit.rng = s->unit.rng * 6364136223846793005u + 1442695040888963407u;
    return us * 3 / 4 + (int64_t)((s->unit.rng >> 33) % (uint64_t)(us / 2 + 1));
}

static int64_t doubled(unsigned failures, int64_t first, int64_t max)
{
    int64_t wait = failures > 16 ? max : first << (failures - 1);

    return wait > max ? max : wait;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The queue that met a trouble may be gone or held elsewhere, and then nothing would ever show that it is over: the
 * sink looks itself. */
static int64_t look_again_us(const struct sink *s)
{
    bool trouble = s->bucket.reachable == 0 || s->bucket.error.len > 0;

    return trouble && !s->probe.again ? s->bucket.tried_us + LOOK_AGAIN_US : INT64_MAX;
}

static int64_t run_due(const struct sink *s)
{
    int64_t due = earlier(s->unit.list_us, look_again_us(s));

    if (s->draining) {
        if (s->unit.in_flight) /* also when every task has ended: one batch at a time */
            return INT64_MAX;
        return sink_tasks_ended(s) ? 0 : s->unit.next_us;
    }
    return s->unit.in_flight ? due : earlier(due, s->unit.next_us);
}

int64_t sink_unit_due(const struct sink *s)
{
    if (s->unit.inbox_first != NULL)
        return 0;
    switch (s->unit.phase) {
    case UNIT_PROBE:
        if (s->draining)
            return 0;
        return s->unit.in_flight ? INT64_MAX : s->unit.next_us;
    case UNIT_RUN:
        return run_due(s);
    case UNIT_LEAVE:
        return s->unit.in_flight ? INT64_MAX : s->unit.next_us;
    case UNIT_ENDED:
        return INT64_MAX;
    }
    return INT64_MAX;
}

/* --- probe --- */

static void probe(struct sink *s)
{
    s->unit.in_flight = true;
    sink_probe_begin(s);
}

static void begin_running(struct sink *s)
{
    int64_t now = sink_now(s);

    s->unit.failures = 0;
    s->unit.phase = UNIT_RUN;
    s->unit.next_us = now; /* the first beat */
    s->unit.list_us = s->settings->all_queues ? now : INT64_MAX;
    for (size_t i = 0; i < s->settings->n_queues; i++) {
        if (sink_slot_find(s, span_str(s->settings->queues[i])) == NULL)
            sink_slot_add(s, span_str(s->settings->queues[i]));
    }
}

static void probe_answer(struct sink *s, const struct op *op)
{
    s->unit.in_flight = true; /* if it asks on: the answer may come before the call is over */
    switch (sink_probe_answer(s, op)) {
    case PROBE_ASKS:
        return;
    case PROBE_FAILED:
        s->unit.failures++;
        s->unit.next_us =
            sink_now(s) + spread(s, doubled(s->unit.failures, PROBE_WAIT_US, PROBE_WAIT_MAX_US));
        break;
    case PROBE_SUCCEEDED:
        begin_running(s);
        break;
    }
    s->unit.in_flight = false;
}

static void look_again(struct sink *s)
{
    s->probe.again = true;
    sink_probe_begin(s);
}

static void look_again_answer(struct sink *s, const struct op *op)
{
    if (s->draining || sink_probe_answer(s, op) != PROBE_ASKS)
        s->probe.again = false;
}

/* --- listing: queues=* --- */

/* Names, one behind the other. */
struct names {
    struct buf text;
    size_t *ends;
    size_t n, cap;
};

static void names_add(struct names *names, struct span name)
{
    if (names->n == names->cap) {
        names->cap = names->cap == 0 ? 16 : 2 * names->cap;
        names->ends = mem_grow(names->ends, names->cap * sizeof(*names->ends));
    }
    buf_put_span(&names->text, name);
    names->ends[names->n++] = names->text.len;
}

/* A queue that was deleted behind an intent of this sink is not listed any more, but its window is to be finished
 * (storage rule 8): its pin names it. */
static void add_pinned(struct sink *s, struct state *state, struct names *names)
{
    const struct pin **pins = NULL;
    struct buf prefix = BUF_INIT;
    size_t n = state_pin_list(state, &pins);

    buf_printf(&prefix, "s3:%s:", s->settings->sink);
    for (size_t i = 0; i < n; i++) {
        const struct queue *q = state_queue_by_id(state, pins[i]->queue_id);
        if (q != NULL && q->dead && span_starts_with(pins[i]->key, buf_span(&prefix)) &&
            memcmp(&pins[i]->tenant, &s->tenant, sizeof(s->tenant)) == 0)
            names_add(names, q->name);
    }
    buf_deinit(&prefix);
    mem_free(pins);
}

static void list(struct sink *s)
{
    int64_t every = 10 * (int64_t)s->node->discovery_interval_ms * 1000;
    struct names names = {.text = BUF_INIT};
    struct queue **queues = NULL;

    pthread_mutex_unlock(&s->lock);
    struct state *state = node_read_begin(s->options.node);
    size_t n = state_queue_list(state, &s->tenant, &queues);
    for (size_t i = 0; i < n; i++)
        names_add(&names, queues[i]->name);
    add_pinned(s, state, &names);
    node_read_end(s->options.node);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < names.n && !s->draining; i++) {
        size_t from = i == 0 ? 0 : names.ends[i - 1];
        struct span name = span_make(names.text.ptr + from, names.ends[i] - from);
        if (sink_slot_find(s, name) == NULL)
            sink_slot_add(s, name);
    }
    s->unit.list_us = sink_now(s) + (every < US_PER_SEC ? US_PER_SEC : every);
    mem_free(queues);
    mem_free(names.ends);
    buf_deinit(&names.text);
}

/* --- presence --- */

static struct kv_op nodes_after(struct sink *s, struct span after)
{
    return (struct kv_op){.type = KV_GET_PREFIX,
                          .ns = SINK_NAMESPACE,
                          .key = buf_span(&s->unit.prefix),
                          .after = after,
                          .limit = BEAT_LIMIT,
                          .keys_only = true};
}

static void beat(struct sink *s)
{
    struct buf value = BUF_INIT;
    struct kv_op ops[2];

    lease_put(&value, &s->unit.presence);
    ops[0] = (struct kv_op){.type = KV_PUT,
                            .ns = SINK_NAMESPACE,
                            .key = buf_span(&s->unit.key),
                            .value = buf_span(&value),
                            .ttl_seconds = lease_ttl_seconds(s->node->lease_ttl_ms)};
    ops[1] = nodes_after(s, (struct span){0});
    s->unit.in_flight = true;
    s->unit.nodes = 0;
    s->unit.presence_written = true; /* perhaps: leaving looks */
    pthread_mutex_unlock(&s->lock);
    sink_kv_submit(sink_op_new(s, NULL, OP_BEAT, 0), ops, 2);
    buf_deinit(&value);
    pthread_mutex_lock(&s->lock);
}

static void next_page(struct sink *s, struct span after)
{
    struct buf copy = BUF_INIT;

    buf_put_span(&copy, after);
    s->unit.in_flight = true;
    pthread_mutex_unlock(&s->lock);
    struct kv_op op = nodes_after(s, buf_span(&copy));
    sink_kv_submit(sink_op_new(s, NULL, OP_BEAT_PAGE, 0), &op, 1);
    buf_deinit(&copy);
    pthread_mutex_lock(&s->lock);
}

static void rebalance(struct sink *s)
{
    struct placement *p = &s->unit.placement;
    struct placement_queue *queues = MEM_ARRAY(struct placement_queue, s->n_slots + 1);
    int64_t now = sink_now(s);

    for (size_t i = 0; i < s->n_slots; i++) {
        const struct sink_row *row = sink_task_row(s->slots[i]->task);
        queues[i] = (struct placement_queue){
            .name = row->name, .buffered = row->buffered, .running = row->owned_here};
    }
    if (placement_expired(p, now))
        log_msg(LOG_INFO, SINK_LOG_TARGET, "nobody took the queue given back");
    int chosen = placement_beat(p, s->unit.nodes, queues, s->n_slots, now);
    if (chosen >= 0 && !s->draining) {
        log_msg(LOG_INFO, SINK_LOG_TARGET,
                "holding more than the fair share, giving one queue back queue=" SPAN_FMT
                " held=%u share=%u nodes=%u queues=%u",
                SPAN_ARG(queues[chosen].name), p->held, p->share, p->nodes, p->queues);
        sink_slot_poke(s, s->slots[chosen], SLOT_GIVE_BACK);
    }
    mem_free(queues);
}

static void beat_answer(struct sink *s, const struct op *op)
{
    int64_t now = sink_now(s), every = s->ttl_us / 3;

    if (every < 100000)
        every = 100000;
    if (op->outcome != SINK_KV_OK) {
        s->unit.failures++;
        s->unit.next_us = now + doubled(s->unit.failures, US_PER_SEC, every);
        sink_log_presence(&s->log, span_str(op->error.text), now);
        return;
    }
    const struct kv_op_result *rows = &op->request.kv.ops[op->request.kv.n - 1];
    s->unit.nodes += (uint32_t)rows->n_rows;
    if (rows->has_next && rows->truncated) {
        next_page(s, rows->next_after);
        return;
    }
    s->unit.failures = 0;
    s->unit.next_us = now + every;
    rebalance(s);
}

/* --- leaving --- */

static void ended(struct sink *s)
{
    s->unit.phase = UNIT_ENDED;
    log_msg(LOG_INFO, SINK_LOG_TARGET, "sink stopped");
    pthread_cond_broadcast(&s->idle);
}

static void leave_look(struct sink *s)
{
    struct kv_op get = {.type = KV_GET, .ns = SINK_NAMESPACE, .key = buf_span(&s->unit.key)};

    s->unit.in_flight = true;
    pthread_mutex_unlock(&s->lock);
    sink_kv_submit(sink_op_new(s, NULL, OP_PRESENCE_LOOK, 0), &get, 1);
    pthread_mutex_lock(&s->lock);
}

static void leave_delete(struct sink *s, uint64_t version)
{
    struct kv_op del = {.type = KV_DELETE,
                        .ns = SINK_NAMESPACE,
                        .key = buf_span(&s->unit.key),
                        .has_expect = true,
                        .expect = version};

    s->unit.in_flight = true;
    pthread_mutex_unlock(&s->lock);
    sink_kv_submit(sink_op_new(s, NULL, OP_PRESENCE_DELETE, 0), &del, 1);
    pthread_mutex_lock(&s->lock);
}

/* The presence row goes only if it carries our incarnation. */
static void leave_answer(struct sink *s, const struct op *op)
{
    int64_t now = sink_now(s);

    if (op->outcome != SINK_KV_OK) {
        if (now >= s->unit.leave_until_us) {
            ended(s); /* it expires by its TTL */
            return;
        }
        s->unit.failures++;
        s->unit.next_us = now + doubled(s->unit.failures, 100000, US_PER_SEC);
        return;
    }
    const struct kv_op_result *row = &op->request.kv.ops[0];
    if (op->kind == OP_PRESENCE_LOOK && row->found &&
        lease_is_own(&s->unit.presence, row->row.value))
        leave_delete(s, row->row.version);
    else
        ended(s);
}

static void begin_leaving(struct sink *s)
{
    s->unit.failures = 0;
    s->unit.next_us = 0;
    s->unit.phase = UNIT_LEAVE;
    s->unit.leave_until_us = sink_now(s) + LEAVE_US;
}

/* --- */

static void answer(struct sink *s, struct op *op)
{
    if (s->probe.again && (op->kind == OP_PROBE || op->kind == OP_PROBE_LIST)) {
        look_again_answer(s, op);
        return;
    }
    s->unit.in_flight = false;
    switch (op->kind) {
    case OP_PROBE:
    case OP_PROBE_LIST:
        if (s->unit.phase == UNIT_PROBE && !s->draining)
            probe_answer(s, op);
        break;
    case OP_BEAT:
    case OP_BEAT_PAGE:
        beat_answer(s, op);
        break;
    case OP_PRESENCE_LOOK:
    case OP_PRESENCE_DELETE:
        leave_answer(s, op);
        break;
    default:
        break; /* a queue's, never in the unit's inbox */
    }
}

void sink_unit_run(struct sink *s)
{
    struct op *op = s->unit.inbox_first;

    if (op != NULL) {
        s->unit.inbox_first = op->next;
        if (s->unit.inbox_first == NULL)
            s->unit.inbox_last = &s->unit.inbox_first;
        answer(s, op);
        pthread_mutex_unlock(&s->lock);
        sink_op_free(op);
        pthread_mutex_lock(&s->lock);
        return;
    }
    switch (s->unit.phase) {
    case UNIT_PROBE:
        if (s->draining)
            ended(s); /* nothing was written */
        else if (!s->unit.in_flight)
            probe(s);
        break;
    case UNIT_RUN:
        if (s->draining && sink_tasks_ended(s))
            begin_leaving(s);
        else if (!s->draining && s->unit.list_us <= sink_now(s))
            list(s);
        else if (!s->draining && look_again_us(s) <= sink_now(s))
            look_again(s);
        else if (!s->unit.in_flight)
            beat(s);
        break;
    case UNIT_LEAVE:
        if (s->unit.in_flight)
            break;
        if (s->unit.presence_written)
            leave_look(s);
        else
            ended(s);
        break;
    case UNIT_ENDED:
        break;
    }
}
