/* The HTTP API: one route table; JSON to commands and back (spec/broker-api.md, spec/kv.md). */
#ifndef API_API_H
#define API_API_H

#include "http/http.h"
#include "io/pool.h"
#include "node/node.h"

struct api;

struct api_options {
    struct node *node;
    struct clock *clock;
    struct entropy *entropy;
    /* The sink's parts: its "s3" object of /status, its metric families. NULL when the sink is off.
     */
    void (*sink_status)(void *ctx, struct buf *out);
    void (*sink_metrics)(void *ctx, struct buf *out);
    void *sink_ctx;
    unsigned json_depth_max;  /* QUEEN_MAX_JSON_DEPTH */
    uint64_t admit_max_bytes; /* 0 = no admission control */
    uint64_t admit_hold_ms;
    uint64_t request_timeout_ms; /* DEFAULT_TIMEOUT, clamped 1..60000 */
    uint64_t entry_max_bytes;
    unsigned reader_threads;
    uint32_t kv_value_max, kv_ops_max,
        kv_keys_max; /* QUEEN_KV_MAX_*; 0 = the defaults of spec/kv.md 2 */
    /* Operations of the key-value store; a rate of 0 is no limit. */
    uint64_t kv_read_rate, kv_read_burst, kv_write_rate, kv_write_burst;
    const char *version;
};

/* Adds its hook to the node, which must outlive no use of it: see api_free(). Starts threads. */
struct api *api_new(const struct api_options *options);
/* For struct http_options; their ctx is the api. */
void api_handle(void *ctx, struct http_request *r);
bool api_admit(void *ctx, struct http_request *r, uint64_t length);
bool api_arriving(void *ctx, struct http_request *r, uint64_t length);
void api_aborted(void *ctx, struct http_request *r);
/* Answers waiting fetches at once and refuses new work with 503: before http_server_stop(). */
void api_drain(struct api *a);
/* After http_server_stop() and node_close(): nothing may apply any more (the hook would be called).
 * Waits for commands that the node still holds; NULL is allowed. */
void api_free(struct api *a);

/* The generated parts of docs/api.md. */
void api_doc_put(struct buf *out);

#endif
