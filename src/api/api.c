/* Dispatch by the route table (routes.c), and the API's life. */
#include "api/internal.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <unistd.h>

#define TIMEOUT_MS_MAX 60000u
#define VALUE_DEPTH_MAX 500u /* json_normalise recurses */
#define FREE_POLL_US 1000

/* --- dispatch -----------------------------------------------------------------------------------
 */

static bool matches(const char *pattern, struct span path, struct span *rest)
{
    size_t len = strlen(pattern);
    *rest = (struct span){NULL, 0};
    if (pattern[len - 1] != '*')
        return span_eq(path, span_make(pattern, len));
    if (path.len < len || !span_starts_with(path, span_make(pattern, len - 1)))
        return false;
    *rest = span_sub(path, len - 1, path.len);
    return true;
}

static void answer_no_route(struct http_request *http)
{
    struct buf body = BUF_INIT, path = BUF_INIT;
    buf_put_utf8_lossy(&path, http_request_path(http));
    buf_puts(&body, "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":");
    buf_put_json_string(&body, buf_span(&path));
    buf_putc(&body, '}');
    buf_deinit(&path);
    answer_json(http, 404, &body);
}

static void answer_wrong_method(struct http_request *http, enum http_method allowed)
{
    struct buf body = BUF_INIT;
    const char *allow = allowed == HTTP_GET ? "GET, HEAD" : route_method_text(allowed);
    buf_puts(&body, "{\"error\":\"method not allowed\",\"code\":\"method_not_allowed\"}");
    http_respond(http,
                 &(struct http_answer){.status = 405, .extra_name = "Allow", .extra_value = allow},
                 &body);
}

static void dispatch(struct api *a, struct http_request *http)
{
    struct span path = http_request_path(http);
    enum http_method method = http_request_method(http);
    const struct route *other = NULL; /* the same path with another method */
    if (method == HTTP_HEAD)
        method = HTTP_GET;
    for (size_t i = 0; i < api_route_count; i++) {
        struct span rest;
        if (!matches(api_routes[i].pattern, path, &rest))
            continue;
        if (api_routes[i].method == method) {
            api_routes[i].handler(a, http, rest);
            return;
        }
        if (rest.len == 0)
            other = &api_routes[i];
    }
    if (other != NULL)
        answer_wrong_method(http, other->method);
    else
        answer_no_route(http);
}

/* Status routes answer while everything else stops. */
static bool answers_while_draining(struct span path)
{
    return !span_starts_with(path, SPAN_LIT("/api/"));
}

void api_handle(void *ctx, struct http_request *http)
{
    struct api *a = ctx;
    struct admission *admission = http_request_ctx(http);
    atomic_fetch_add(&a->counters.requests, 1);
    if (atomic_load(&a->draining) && !answers_while_draining(http_request_path(http)))
        answer_err(http, ERR_STOPPED);
    else
        dispatch(a, http);
    admission_end(admission);
}

/* --- life ---------------------------------------------------------------------------------------
 */

static struct api_options with_defaults(struct api_options o)
{
    if (o.request_timeout_ms < 1)
        o.request_timeout_ms = 1;
    if (o.request_timeout_ms > TIMEOUT_MS_MAX)
        o.request_timeout_ms = TIMEOUT_MS_MAX;
    if (o.reader_threads == 0)
        o.reader_threads = 1;
    if (o.json_depth_max == 0 || o.json_depth_max > JSON_DEPTH_MAX)
        o.json_depth_max = JSON_DEPTH_MAX;
    return o;
}

struct api *api_new(const struct api_options *options)
{
    static const double bounds[] = {0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000};
    struct api *a = mem_new(sizeof(*a));
    a->options = with_defaults(*options);
    a->kv_limits = (struct kv_limits){
        .value_max = options->kv_value_max == 0 ? KV_VALUE_MAX : options->kv_value_max,
        .ops_max = options->kv_ops_max == 0 ? KV_OPS_MAX : options->kv_ops_max,
        .keys_max = options->kv_keys_max == 0 ? KV_KEYS_MAX : options->kv_keys_max,
        .depth_max = a->options.json_depth_max < VALUE_DEPTH_MAX ? a->options.json_depth_max
                                                                 : VALUE_DEPTH_MAX,
    };
    a->started_us = clock_mono_us(a->options.clock);
    rate_init(&a->kv.reads, options->kv_read_rate, options->kv_read_burst, a->started_us);
    rate_init(&a->kv.writes, options->kv_write_rate, options->kv_write_burst, a->started_us);
    a->kv.duration_ms.bounds = bounds;
    a->kv.duration_ms.n_bounds = sizeof(bounds) / sizeof(bounds[0]);
    pthread_mutex_init(&a->gate.lock, NULL);
    pthread_mutex_init(&a->kv.lock, NULL);
    pthread_mutex_init(&a->minter.lock, NULL);
    pthread_mutex_init(&a->waits.lock, NULL);
    a->timers = timers_new(a->options.clock);
    a->readers = pool_new("queen-read", a->options.reader_threads);
    node_add_hook(a->options.node, waits_hook, a);
    return a;
}

void api_drain(struct api *a)
{
    atomic_store(&a->draining, true);
    waits_wake_all(a);
    admissions_refuse(a);
}

void api_free(struct api *a)
{
    if (a == NULL)
        return;
    api_drain(a);
    while (atomic_load(&a->outstanding) > 0)
        (void)usleep(FREE_POLL_US); /* completions are under way */
    pool_free(a->readers);
    timers_free(a->timers);
    map64_deinit(&a->waits.lists);
    pthread_mutex_destroy(&a->waits.lock);
    pthread_mutex_destroy(&a->minter.lock);
    pthread_mutex_destroy(&a->kv.lock);
    pthread_mutex_destroy(&a->gate.lock);
    mem_free(a);
}
