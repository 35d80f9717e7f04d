/* /health, /status and /metrics (spec/broker-api.md 6, spec/cluster.md 13). */
#include "api/internal.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define CLUSTER_VERSION 1

double api_uptime_seconds(const struct api *a)
{
    return (double)(clock_mono_us(a->options.clock) - a->started_us) / 1e6;
}

uint64_t process_resident_bytes(void)
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
    bool settling = n.stopped || node_is_behind(a->options.node);
    json_writer_init(&w, &body);
    json_begin_object(&w);
    json_key(&w, "status");
    json_cstr(&w, settling ? "settling" : "healthy");
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
    answer_json(http, settling ? 503 : 200, &body);
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
    json_u64(w, process_resident_bytes());
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
    json_f64(&w, api_uptime_seconds(a));
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
