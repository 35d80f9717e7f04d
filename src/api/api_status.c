/* /health, /status, /metrics and /metrics/prometheus (spec/broker-api.md 6, spec/cluster.md 13). */
#include "api/internal.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define CLUSTER_VERSION 1

static double uptime_seconds(const struct api *a)
{
    return (double)(clock_mono_us(a->options.clock) - a->started_us) / 1e6;
}

/* Resident memory of this process in bytes, 0 where /proc does not tell. */
static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1)
        pages = 0;
    (void)fclose(f); /* read only */
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put_raft(struct json_writer *w, const struct node_status *n)
{
    json_key(w, "role");
    json_cstr(w, n->stopped ? "stopped" : "leader");
    json_key(w, "leader");
    json_bool(w, !n->stopped);
    json_key(w, "term");
    json_u64(w, n->term);
    json_key(w, "applied");
    json_u64(w, n->applied);
    json_key(w, "commit");
    json_u64(w, n->committed);
    json_key(w, "lag");
    json_u64(w, 0); /* one node is never behind itself */
    json_key(w, "storageReady");
    json_bool(w, !n->stopped);
}

static void put_apply(struct json_writer *w, const struct node_status *n)
{
    json_key(w, "apply");
    json_begin_object(w);
    json_key(w, "failure");
    if (n->stopped) {
        json_begin_object(w);
        json_key(w, "error");
        json_cstr(w, n->failure);
        json_end_object(w);
    } else {
        json_null(w);
    }
    json_key(w, "skipped");
    json_begin_array(w);
    json_end_array(w);
    json_end_object(w);
}

void api_health(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct node_status n;
    struct buf body = BUF_INIT;
    struct json_writer w;
    node_status(a->options.node, &n);
    json_writer_init(&w, &body);
    json_begin_object(&w);
    json_key(&w, "status");
    json_cstr(&w, n.stopped ? "settling" : "healthy");
    json_key(&w, "engine");
    json_cstr(&w, "raft");
    json_key(&w, "version");
    json_cstr(&w, a->options.version);
    json_key(&w, "raft");
    json_begin_object(&w);
    put_raft(&w, &n);
    json_key(&w, "clusterVersion");
    json_u64(&w, CLUSTER_VERSION);
    json_key(&w, "kinds");
    json_u64(&w, COMMAND_KV);
    put_apply(&w, &n);
    json_end_object(&w);
    json_end_object(&w);
    answer_json(http, n.stopped ? 503 : 200, &body);
}

void api_status(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct buf body = BUF_INIT;
    if (a->options.sink_status == NULL) {
        buf_puts(&body, "{\"status\":\"ok\",\"engine\":\"segments-rust\"}");
    } else {
        buf_puts(&body, "{\"engine\":\"segments-rust\",\"s3\":");
        a->options.sink_status(a->options.sink_ctx, &body);
        buf_puts(&body, ",\"status\":\"ok\"}");
    }
    answer_json(http, 200, &body);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void put_total(struct json_writer *w, const char *key, uint64_t total)
{
    json_key(w, key);
    json_begin_object(w);
    json_key(w, "total");
    json_u64(w, total);
    json_key(w, "rate");
    json_u64(w, 0);
    json_end_object(w);
}

static void put_process(struct json_writer *w)
{
    static const char *const unused[] = {"heapTotal", "heapUsed", "external", "arrayBuffers"};
    struct rusage usage = {0};
    (void)getrusage(RUSAGE_SELF, &usage); /* cannot fail for SELF */
    json_key(w, "memory");
    json_begin_object(w);
    json_key(w, "rss");
    json_u64(w, resident_bytes());
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
        json_key(w, unused[i]);
        json_u64(w, 0);
    }
    json_end_object(w);
    json_key(w, "cpu");
    json_begin_object(w);
    json_key(w, "user");
    json_f64(w, seconds(usage.ru_utime));
    json_key(w, "system");
    json_f64(w, seconds(usage.ru_stime));
    json_end_object(w);
}

void api_metrics(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct node_status n;
    struct buf body = BUF_INIT;
    struct json_writer w;
    node_status(a->options.node, &n);
    json_writer_init(&w, &body);
    json_begin_object(&w);
    json_key(&w, "uptime");
    json_f64(&w, uptime_seconds(a));
    put_total(&w, "requests", atomic_load(&a->counters.requests));
    put_total(&w, "messages", atomic_load(&a->counters.push_messages));
    put_process(&w);
    json_key(&w, "engine");
    json_cstr(&w, "raft");
    json_key(&w, "raft");
    json_begin_object(&w);
    put_raft(&w, &n);
    json_key(&w, "quorumAckMs");
    json_u64(&w, 0);
    json_end_object(&w);
    json_end_object(&w);
    answer_json(http, 200, &body);
}

static void put_one(struct buf *out, const char *name, enum metric_type type, const char *help,
                    double value)
{
    metrics_family(out, name, type, help);
    metrics_sample(out, name, NULL, NULL, 0, value);
}

static void put_one_u64(struct buf *out, const char *name, enum metric_type type, const char *help,
                        uint64_t value)
{
    metrics_family(out, name, type, help);
    metrics_sample_u64(out, name, NULL, NULL, 0, value);
}

static void put_labelled(struct buf *out, const char *name, const char *label, const char *value,
                         uint64_t count)
{
    struct metric_label l = {label, span_str(value)};
    metrics_sample_u64(out, name, NULL, &l, 1, count);
}

static void put_process_families(struct api *a, struct buf *out)
{
    put_one(out, "queen_uptime_seconds", METRIC_GAUGE,
            "Seconds since this process started serving.", uptime_seconds(a));
    put_one_u64(out, "queen_process_resident_memory_bytes", METRIC_GAUGE,
                "Resident memory of this process.", resident_bytes());
    put_one_u64(out, "queen_process_push_requests_total", METRIC_COUNTER,
                "Push requests received by this node.", atomic_load(&a->counters.push_requests));
    put_one_u64(out, "queen_process_push_messages_total", METRIC_COUNTER,
                "Messages of answered pushes, duplicates included.",
                atomic_load(&a->counters.push_messages));
    put_one_u64(out, "queen_parked_long_polls", METRIC_GAUGE, "Reads that wait on this node.",
                atomic_load(&a->parked));
}

static void put_kv_families(struct api *a, struct buf *out)
{
    static const char *const names[KV_OP_TYPES] = {
        [KV_GET] = "get",
        [KV_GET_MANY] = "getMany",
        [KV_GET_PREFIX] = "getPrefix",
        [KV_PUT] = "put",
        [KV_PUT_IF_ABSENT] = "putIfAbsent",
        [KV_DELETE] = "delete",
        [KV_INCR] = "incr",
        [KV_CHECK] = "check",
    };
    metrics_family(out, "queen_kv_ops_total", METRIC_COUNTER, "KV operations of answered calls.");
    for (size_t i = 0; i < KV_OP_TYPES; i++)
        put_labelled(out, "queen_kv_ops_total", "op", names[i],
                     atomic_load(&a->counters.kv_ops[i]));
    pthread_mutex_lock(&a->kv.lock);
    struct metrics_histogram duration = a->kv.duration_ms;
    pthread_mutex_unlock(&a->kv.lock);
    metrics_family(out, "queen_kv_op_duration_milliseconds", METRIC_HISTOGRAM,
                   "From a KV call's arrival to its answer.");
    metrics_histogram_put(out, "queen_kv_op_duration_milliseconds", NULL, 0, &duration);
}

static void put_raft_families(struct api *a, struct buf *out)
{
    struct node_status n;
    node_status(a->options.node, &n);
    put_one_u64(out, "queen_raft_storage_full", METRIC_GAUGE,
                "1 while writes that grow storage are refused.", n.storage_full ? 1 : 0);
    metrics_family(out, "queen_raft_index", METRIC_GAUGE, "Places in the replicated log.");
    put_labelled(out, "queen_raft_index", "kind", "log", n.logged);
    put_labelled(out, "queen_raft_index", "kind", "committed", n.committed);
    put_labelled(out, "queen_raft_index", "kind", "applied", n.applied);
    put_labelled(out, "queen_raft_index", "kind", "durable", n.durable);
    put_one_u64(out, "queen_raft_inflight", METRIC_GAUGE, "Commands submitted and not applied yet.",
                n.inflight);
    put_one_u64(out, "queen_raft_proposals_total", METRIC_COUNTER, "Commands submitted.",
                n.proposals);
    metrics_family(out, "queen_raft_log_storage", METRIC_GAUGE,
                   "Bytes of the log and of changes not checkpointed yet.");
    put_labelled(out, "queen_raft_log_storage", "kind", "wal", n.wal_bytes);
    put_labelled(out, "queen_raft_log_storage", "kind", "dirty", n.dirty_bytes);
    metrics_family(out, "queen_raft_admit_total", METRIC_COUNTER, "Pushes by admission.");
    put_labelled(out, "queen_raft_admit_total", "outcome", "admitted",
                 atomic_load(&a->counters.admitted));
    put_labelled(out, "queen_raft_admit_total", "outcome", "held", atomic_load(&a->counters.held));
    put_labelled(out, "queen_raft_admit_total", "outcome", "overloaded",
                 atomic_load(&a->counters.overloaded));
    put_one(out, "queen_clock_ahead_seconds", METRIC_GAUGE,
            "By how much the log's clock leads the wall clock.", n.clock_ahead_seconds);
}

void api_metrics_text(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct buf body = BUF_INIT;
    put_process_families(a, &body);
    put_kv_families(a, &body);
    put_raft_families(a, &body);
    if (a->options.sink_metrics != NULL)
        a->options.sink_metrics(a->options.sink_ctx, &body);
    http_respond(http,
                 &(struct http_answer){.status = 200, .content_type = "text/plain; version=0.0.4"},
                 &body);
}
