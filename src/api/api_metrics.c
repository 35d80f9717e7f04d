/* /metrics/prometheus: the broker's part of the table in status/families.h, then the sink's. */
#include "api/internal.h"

/* What one exposition shows, read once. */
struct view {
    struct api *api;
    struct node_status node;
    struct buf out;
};

static void put(struct view *v, enum metric_id id, uint64_t value)
{
    metrics_sample_u64(&v->out, metric_family(id), NULL, value);
}

static void put_labelled(struct view *v, enum metric_id id, const char *label, uint64_t value)
{
    struct span text = span_str(label);
    metrics_sample_u64(&v->out, metric_family(id), &text, value);
}

static void put_kv_ops(struct view *v)
{
    for (size_t i = 0; i < KV_OP_TYPES; i++)
        put_labelled(v, FAMILY_KV_OPS, kv_op_name((enum kv_op_type)i),
                     atomic_load(&v->api->counters.kv_ops[i]));
}

static void put_kv_duration(struct view *v)
{
    pthread_mutex_lock(&v->api->kv.lock);
    struct metrics_histogram duration = v->api->kv.duration_ms;
    pthread_mutex_unlock(&v->api->kv.lock);
    metrics_histogram_put(&v->out, metric_family(FAMILY_KV_DURATION), NULL, &duration);
}

static void put_index(struct view *v)
{
    put_labelled(v, FAMILY_INDEX, "log", v->node.logged);
    put_labelled(v, FAMILY_INDEX, "committed", v->node.committed);
    put_labelled(v, FAMILY_INDEX, "applied", v->node.applied);
    put_labelled(v, FAMILY_INDEX, "durable", v->node.durable);
}

static void put_log_storage(struct view *v)
{
    put_labelled(v, FAMILY_LOG_STORAGE, "wal", v->node.wal_bytes);
    put_labelled(v, FAMILY_LOG_STORAGE, "dirty", v->node.dirty_bytes);
}

static void put_admit(struct view *v)
{
    put_labelled(v, FAMILY_ADMIT, "admitted", atomic_load(&v->api->counters.admitted));
    put_labelled(v, FAMILY_ADMIT, "held", atomic_load(&v->api->counters.held));
    put_labelled(v, FAMILY_ADMIT, "overloaded", atomic_load(&v->api->counters.overloaded));
}

static void put_seconds(struct view *v, enum metric_id id, double value)
{
    metrics_sample(&v->out, metric_family(id), NULL, value);
}

/* Of the families with one sample that is a count; 0 of what is not served yet. */
static uint64_t count_of(const struct view *v, enum metric_id id)
{
    const struct api *a = v->api;
    switch ((unsigned)id) {
    case FAMILY_RESIDENT_MEMORY:
        return process_resident_bytes();
    case FAMILY_PUSH_REQUESTS:
        return atomic_load(&a->counters.push_requests);
    case FAMILY_PUSH_MESSAGES:
        return atomic_load(&a->counters.push_messages);
    case FAMILY_PARKED_POLLS:
        return atomic_load(&a->parked);
    case FAMILY_STORAGE_FULL:
        return v->node.storage_full ? 1 : 0;
    case FAMILY_INFLIGHT:
        return v->node.inflight;
    case FAMILY_PROPOSALS:
        return v->node.proposals;
    }
    return 0;
}

static void put_samples(struct view *v, enum metric_id id)
{
    switch ((unsigned)id) {
    case FAMILY_UPTIME:
        put_seconds(v, id, api_uptime_seconds(v->api));
        break;
    case FAMILY_POP_LAG: /* nothing is popped */
    case FAMILY_DLQ_DEPTH:
        break;
    case FAMILY_KV_OPS:
        put_kv_ops(v);
        break;
    case FAMILY_KV_DURATION:
        put_kv_duration(v);
        break;
    case FAMILY_INDEX:
        put_index(v);
        break;
    case FAMILY_LOG_STORAGE:
        put_log_storage(v);
        break;
    case FAMILY_ADMIT:
        put_admit(v);
        break;
    case FAMILY_CLOCK_AHEAD:
        put_seconds(v, id, v->node.clock_ahead_seconds);
        break;
    default:
        put(v, id, count_of(v, id));
    }
}

void api_metrics_text(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct view v = {.api = a, .out = BUF_INIT};
    node_status(a->options.node, &v.node);
    for (enum metric_id id = 0; id < FAMILY_SINK_FIRST; id++) {
        metrics_family(&v.out, metric_family(id));
        put_samples(&v, id);
    }
    if (a->options.sink_metrics != NULL)
        a->options.sink_metrics(a->options.sink_ctx, &v.out);
    http_respond(http,
                 &(struct http_answer){.status = 200, .content_type = "text/plain; version=0.0.4"},
                 &v.out);
}
