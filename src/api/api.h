/* The HTTP API: one route table; JSON to commands and back (spec/broker-api.md, spec/kv.md). */
#ifndef API_API_H
#define API_API_H

#include "http/http.h"
#include "io/pool.h"
#include "node/node.h"

struct api;
struct sink;

struct api_options {
    struct node *node;
    struct clock *clock;
    struct entropy *entropy;
    struct sink *sink; /* NULL when the sink is off */
    unsigned json_depth_max;  /* QUEEN_MAX_JSON_DEPTH */
    uint64_t admit_max_bytes; /* 0 = no admission control */
    uint64_t admit_hold_ms;
    uint64_t request_timeout_ms; /* DEFAULT_TIMEOUT, clamped 1..60000 */
    uint64_t entry_max_bytes;
    unsigned reader_threads;
    const char *version;
};

struct api *api_new(const struct api_options *options);
/* For struct http_options. */
void api_handle(void *ctx, struct http_request *r);
bool api_admit(void *ctx, struct http_request *r, uint64_t length);
/* Answers waiting fetches at once and refuses new work with 503: before http_server_stop(). */
void api_drain(struct api *a);
void api_free(struct api *a);


#endif
