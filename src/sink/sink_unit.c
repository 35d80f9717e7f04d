/* What a tenant's sink does beside its queues: it probes the bucket before anything else, lists the
 * queues, keeps its presence row and gives queues back (spec/sink.md 1, 6), and leaves when every
 * task has ended.
 *
 * Run by one worker at a time. It is called with the lock and lets go of it for whatever touches
 * node or bucket. */
#include "sink/sink_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define PROBE_WAIT_US 1000000
#define PROBE_WAIT_MAX_US 60000000
#define LEAVE_US 10000000
#define BEAT_LIMIT 1000
#define LIST_PIECE 4096u /* queues looked at per hold of the state's lock */

void sink_unit_init(struct sink *s)
{
    s->unit.inbox_last = &s->unit.inbox_first;
    s->unit.list_us = INT64_MAX;
    s->unit.listed_id = 1;
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
        if (s->unit.in_flight) /* also when every task has ended: one batch at a time */
            return s->draining ? INT64_MAX : s->unit.list_us;
        if (s->draining && sink_tasks_ended(s))
            return 0;
        return s->draining || s->unit.next_us < s->unit.list_us ? s->unit.next_us : s->unit.list_us;
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
    struct sink_names names = {.text = BUF_INIT};
    for (size_t i = 0; i < s->settings->n_queues; i++)
        sink_names_add(&names, span_str(s->settings->queues[i]));
    sink_slots_add(s, &names);
    sink_names_deinit(&names);
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

/* --- listing: queues=* --- */

/* A queue that was deleted behind an intent of this sink is not listed any more, but its window is to be finished
 * (storage rule 8): its pin names it. */
static void add_pinned(struct sink *s, struct state *state, struct sink_names *names)
{
    const struct pin **pins = NULL;
    struct buf prefix = BUF_INIT;
    size_t n = state_pin_list(state, &pins);

    buf_printf(&prefix, "s3:%s:", s->settings->sink);
    for (size_t i = 0; i < n; i++) {
        const struct queue *q = state_queue_by_id(state, pins[i]->queue_id);
        if (q != NULL && q->dead && span_starts_with(pins[i]->key, buf_span(&prefix)) &&
            memcmp(&pins[i]->tenant, &s->tenant, sizeof(s->tenant)) == 0)
            sink_names_add(names, q->name);
    }
    buf_deinit(&prefix);
    mem_free(pins);
}

/* The queues made since the last listing: ids rise, so what was seen is not looked at again. Not locked. */
static void add_made(struct sink *s, struct sink_names *names)
{
    for (bool more = true; more;) {
        struct state *state = node_read_begin(s->options.node);
        uint64_t end = state_meta(state)->next_queue_id;
        for (unsigned i = 0; i < LIST_PIECE && s->unit.listed_id < end; i++) {
            const struct queue *q = state_queue_by_id(state, s->unit.listed_id++);
            if (q != NULL && !q->dead && memcmp(&q->tenant, &s->tenant, sizeof(s->tenant)) == 0)
                sink_names_add(names, q->name);
        }
        more = s->unit.listed_id < end;
        if (!more)
            add_pinned(s, state, names);
        node_read_end(s->options.node);
    }
}

static void list(struct sink *s)
{
    int64_t every = 10 * (int64_t)s->node->discovery_interval_ms * 1000;
    struct sink_names names = {.text = BUF_INIT};

    pthread_mutex_unlock(&s->lock);
    add_made(s, &names);
    pthread_mutex_lock(&s->lock);
    if (!s->draining)
        sink_slots_add(s, &names);
    s->unit.list_us = sink_now(s) + (every < US_PER_SEC ? US_PER_SEC : every);
    sink_names_deinit(&names);
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
