/* Calls of the key-value store, and POST /api/v1/kv (spec/kv.md 3). A call with a write is one
 * command; one with reads only is answered from the applied state, at the end of the last applied
 * entry.
 *
 * A read that meets a row due by the clock's estimate of now, but not yet at that end, has a clock
 * entry committed first (docs/architecture.md, Clock): what it then calls dead no later command
 * finds alive. The estimate is taken once, so a second read always decides. */
#include "api/kv_call.h"

#include "base/mem.h"

#define REREAD_US 1000000 /* in case the entry it waits for went by before it watched */

void kv_call_free(struct kv_call *k)
{
    kv_request_deinit(&k->request);
    mem_free(k);
}

static void run_read(struct waiter *w);

struct kv_call *kv_call_new(struct api *a, struct http_request *http,
                            void (*answer)(struct kv_call *k, const struct kv_result *result))
{
    struct kv_call *k = mem_new(sizeof(*k));
    waiter_init(&k->waiter, a, run_read);
    k->http = http;
    k->started_us = clock_mono_us(a->options.clock);
    k->answer = answer;
    return k;
}

static void count_call(const struct kv_call *k)
{
    struct api *a = k->waiter.api;
    for (size_t i = 0; i < k->request.n; i++)
        atomic_fetch_add(&a->counters.kv_ops[k->request.ops[i].type], 1);
    double ms = (double)(clock_mono_us(a->options.clock) - k->started_us) / 1000;
    pthread_mutex_lock(&a->kv.lock);
    metrics_histogram_observe(&a->kv.duration_ms, ms);
    pthread_mutex_unlock(&a->kv.lock);
}

/* --- calls with a write -------------------------------------------------------------------------
 */

static void write_free(struct api_command *c)
{
    kv_call_free((struct kv_call *)c);
}

static void write_answer(struct api_command *c)
{
    struct kv_call *k = (struct kv_call *)c;
    count_call(k);
    k->answer(k, &c->node.kv);
}

/* Deletes and checks pass the disk gate. */
static bool grows(const struct kv_request *r)
{
    for (size_t i = 0; i < r->n; i++) {
        enum kv_op_type type = r->ops[i].type;
        if (type == KV_PUT || type == KV_PUT_IF_ABSENT || type == KV_INCR)
            return true;
    }
    return false;
}

static void start_write(struct kv_call *k)
{
    struct api *a = k->waiter.api;
    k->command =
        (struct api_command){.api = a,
                             .http = k->http,
                             .node = {.type = COMMAND_KV, .grows_storage = grows(&k->request)},
                             .answer = write_answer,
                             .fail = answer_kv_err,
                             .free = write_free};
    kv_encode(&k->command.node.body, &TENANT_DEFAULT, k->request.ops, k->request.n);
    command_start(&k->command);
}

/* --- calls with reads only ----------------------------------------------------------------------
 */

static void finish_read(struct kv_call *k)
{
    struct api *a = k->waiter.api;
    waiter_deinit(&k->waiter);
    kv_call_free(k);
    atomic_fetch_sub(&a->outstanding, 1);
}

/* Clock of the last thing that was applied: every later command's is above it. */
static int64_t applied_end(struct state *s)
{
    const struct state_meta *meta = state_meta(s);
    return meta->last_clock + (meta->last_count > 0 ? (int64_t)meta->last_count - 1 : 0);
}

/* No clock entry will come. */
static bool node_is_stopped(struct node *node)
{
    struct node_status status;
    node_status(node, &status);
    return status.stopped;
}

static void run_read(struct waiter *w)
{
    struct kv_call *k = (struct kv_call *)(void *)((char *)w - offsetof(struct kv_call, waiter));
    struct api *a = w->api;
    struct node *node = a->options.node;
    struct kv_result result = {0};
    struct error error = {0};
    bool due = false;
    if (clock_mono_us(a->options.clock) >= k->deadline_us && w->links == NULL) {
        answer_kv_err(k->http, ERR_TIMEOUT); /* it waited for a thread all that time */
        finish_read(k);
        return;
    }
    struct state *s = node_read_begin(node);
    enum err err = kv_read(s, &TENANT_DEFAULT, k->request.ops, k->request.n, applied_end(s),
                           k->estimate, &result, &due, &error);
    node_read_end(node);
    int64_t now = clock_mono_us(a->options.clock);
    bool over = atomic_load(&a->draining) || (due && node_is_stopped(node));
    due = due && !node_clock_paused(node);
    if (err == ERR_OK && due && now < k->deadline_us && !over) {
        kv_result_deinit(&result);
        bool first = w->links == NULL;
        (void)waiter_watch(w, (const uint64_t[]){0}, 1); /* watching already is fine */
        node_request_clock_entry(node);
        int64_t next =
            now + (first ? 1000 : REREAD_US); /* once soon: it may have gone by already */
        waiter_park(w, next < k->deadline_us ? next : k->deadline_us);
        return;
    }
    if (err != ERR_OK)
        answer_kv_err(k->http, err);
    else if (due)
        answer_kv_err(k->http, over ? ERR_STOPPED : ERR_TIMEOUT);
    else {
        count_call(k);
        k->answer(k, &result);
    }
    kv_result_deinit(&result);
    finish_read(k);
}

static void start_read(struct kv_call *k)
{
    struct api *a = k->waiter.api;
    if (node_is_behind(a->options.node)) {
        answer_kv_err(k->http, ERR_AGAIN);
        kv_call_free(k);
        return;
    }
    atomic_fetch_add(&a->outstanding, 1);
    k->estimate = node_clock_estimate(a->options.node);
    k->deadline_us = k->started_us + (int64_t)a->options.request_timeout_ms * 1000;
    waiter_submit(&k->waiter);
}

/* --- rates --------------------------------------------------------------------------------------
 */

static void answer_rate_limited(struct http_request *http, int64_t wait_us)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"error\":\"rate_limited\"}");
    http_respond(http,
                 &(struct http_answer){.status = 429, .retry_after = rate_retry_after(wait_us)},
                 &body);
}

/* There is one tenant yet, so one pair of buckets. */
bool kv_rates_take(struct api *a, struct http_request *http, uint64_t reads, uint64_t writes)
{
    int64_t now = clock_mono_us(a->options.clock);
    pthread_mutex_lock(&a->kv.lock);
    int64_t wait = rate_wait_us(&a->kv.reads, reads, now);
    int64_t write_wait = rate_wait_us(&a->kv.writes, writes, now);
    if (wait < write_wait)
        wait = write_wait;
    if (wait == 0) {
        rate_take(&a->kv.reads, reads);
        rate_take(&a->kv.writes, writes);
    }
    pthread_mutex_unlock(&a->kv.lock);
    if (wait != 0)
        answer_rate_limited(http, wait);
    return wait == 0;
}

/* --- starting -----------------------------------------------------------------------------------
 */

void kv_call_start(struct kv_call *k, enum err parsed, const struct refusal *refusal)
{
    const struct kv_request *r = &k->request;
    if (parsed != ERR_OK) {
        answer_kv_refusal(k->http, refusal);
        kv_call_free(k);
        return;
    }
    uint64_t writes = 0;
    for (size_t i = 0; i < r->n; i++)
        writes += kv_has_write(&r->ops[i], 1);
    if (!kv_rates_take(k->waiter.api, k->http, r->n - writes, writes))
        kv_call_free(k);
    else if (writes != 0)
        start_write(k);
    else
        start_read(k);
}

/* --- POST /api/v1/kv ----------------------------------------------------------------------------
 */

static void answer_results(struct kv_call *k, const struct kv_result *result)
{
    struct buf body = BUF_INIT;
    if (result->aborted) {
        kv_put_abort(&body, result);
        answer_json(k->http, 200, &body);
        return;
    }
    ASSERT(result->n == k->request.n);
    buf_puts(&body, "{\"results\":[");
    for (size_t i = 0; i < result->n; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        kv_put_result(&body, i, &k->request.ops[i], &result->ops[i]);
    }
    buf_puts(&body, "]}");
    answer_json(k->http, 200, &body);
}

void api_kv(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct kv_call *k = kv_call_new(a, http, answer_results);
    struct refusal refusal;
    enum err err = kv_request_parse(http_request_body(http), &a->kv_limits, &k->request, &refusal);
    if (err == ERR_OK && k->request.n == 0) { /* nothing to ask anybody */
        answer_results(k, &(struct kv_result){0});
        kv_call_free(k);
        return;
    }
    kv_call_start(k, err, &refusal);
}
