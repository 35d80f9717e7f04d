/* POST /api/v1/kv (spec/kv.md 3). A call with a write is one command; one with reads only is
 * answered from the applied state, at the end of the last applied entry.
 *
 * A read that meets a row due by the clock's estimate of now, but not yet at that end, has a clock
 * entry committed first (docs/architecture.md, Clock): what it then calls dead no later command
 * finds alive. The estimate is taken once, so a second read always decides. */
#include "api/internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define REREAD_US 1000000      /* in case the entry it waits for went by before it watched */
#define PRECONDITION_MAX 4096u /* of an abort's answer: longer ones come without detail */

struct kv_call {
    struct api_command command; /* first. Used by calls with a write */
    struct waiter waiter;       /* used by calls with reads only */
    struct http_request *http;
    struct kv_request request;
    int64_t started_us, deadline_us, estimate;
};

static void kv_free(struct kv_call *k)
{
    kv_request_deinit(&k->request);
    mem_free(k);
}

/* --- answers ------------------------------------------------------------------------------------
 */

static const char *op_name(enum kv_op_type type)
{
    switch (type) {
    case KV_GET:
        return "get";
    case KV_GET_MANY:
        return "getMany";
    case KV_GET_PREFIX:
        return "getPrefix";
    case KV_PUT:
        return "put";
    case KV_PUT_IF_ABSENT:
        return "putIfAbsent";
    case KV_DELETE:
        return "delete";
    case KV_INCR:
        return "incr";
    case KV_CHECK:
        return "check";
    }
    return "";
}

static void put_value(struct buf *out, struct span value)
{
    if (value.len == 0)
        buf_puts(out, "null");
    else
        buf_put_span(out, value);
}

static void put_time(struct buf *out, int64_t us)
{
    buf_putc(out, '"');
    buf_put_iso_kv(out, us);
    buf_putc(out, '"');
}

/* "key":..,"value":..,"version":..,"expiresAt":..,"updatedAt":.. */
static void put_row(struct buf *out, struct span key, const struct kv_row *row, bool with_value)
{
    buf_puts(out, "\"key\":");
    buf_put_json_string(out, key);
    if (with_value) {
        buf_puts(out, ",\"value\":");
        put_value(out, row->value);
    }
    buf_puts(out, ",\"version\":");
    buf_put_u64(out, row->version);
    buf_puts(out, ",\"expiresAt\":");
    if (row->expires_at == 0)
        buf_puts(out, "null");
    else
        put_time(out, row->expires_at);
    buf_puts(out, ",\"updatedAt\":");
    put_time(out, row->updated_at);
}

static void put_rows(struct buf *out, const struct kv_op_result *r, bool with_value)
{
    buf_puts(out, ",\"rows\":[");
    for (size_t i = 0; i < r->n_rows; i++) {
        buf_puts(out, i > 0 ? ",{" : "{");
        put_row(out, r->rows[i].key, &r->rows[i], with_value);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_missing(struct buf *out, const struct kv_op_result *r)
{
    buf_puts(out, ",\"missing\":[");
    for (size_t i = 0; i < r->n_missing; i++) {
        if (i > 0)
            buf_putc(out, ',');
        buf_put_json_string(out, r->missing[i]);
    }
    buf_putc(out, ']');
}

static void put_next(struct buf *out, const struct kv_op_result *r)
{
    buf_puts(out, ",\"nextAfter\":");
    if (r->has_next)
        buf_put_json_string(out, r->next_after);
    else
        buf_puts(out, "null");
}

static void put_write(struct buf *out, const struct kv_op *op, const struct kv_op_result *r)
{
    buf_puts(out, r->applied ? ",\"applied\":true" : ",\"applied\":false");
    if (!r->applied) {
        buf_puts(out, ",\"reason\":\"");
        buf_puts(out, kv_reason_text(r->reason));
        buf_putc(out, '"');
    }
    buf_puts(out, ",\"key\":");
    buf_put_json_string(out, op->key);
    buf_puts(out, ",\"value\":");
    put_value(out, r->row.value);
    buf_puts(out, ",\"version\":");
    buf_put_u64(out, r->row.version);
}

static void put_result(struct buf *out, size_t index, const struct kv_op *op,
                       const struct kv_op_result *r)
{
    buf_puts(out, "{\"index\":");
    buf_put_u64(out, index);
    buf_puts(out, ",\"op\":\"");
    buf_puts(out, op_name(op->type));
    buf_putc(out, '"');
    switch (op->type) {
    case KV_GET:
        buf_puts(out, r->found ? ",\"found\":true," : ",\"found\":false,\"key\":");
        if (r->found)
            put_row(out, op->key, &r->row, true);
        else
            buf_put_json_string(out, op->key);
        break;
    case KV_GET_MANY:
        put_rows(out, r, true);
        put_missing(out, r);
        buf_puts(out, r->truncated ? ",\"truncated\":true" : ",\"truncated\":false");
        break;
    case KV_GET_PREFIX:
        put_rows(out, r, !op->keys_only);
        buf_puts(out, r->truncated ? ",\"truncated\":true" : ",\"truncated\":false");
        put_next(out, r);
        break;
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
    case KV_DELETE:
    case KV_INCR:
    case KV_CHECK:
        put_write(out, op, r);
        break;
    }
    buf_putc(out, '}');
}

static void put_abort(struct buf *out, const struct kv_result *result)
{
    buf_puts(out, "{\"ok\":false,\"reason\":\"kv_precondition\"");
    size_t whole = out->len;
    buf_puts(out, ",\"failedIndex\":");
    buf_put_u64(out, result->failed_index);
    buf_puts(out, ",\"kvReason\":\"");
    buf_puts(out, kv_reason_text(result->failed_reason));
    buf_puts(out, "\",\"version\":");
    buf_put_u64(out, result->failed_row.version);
    buf_puts(out, ",\"value\":");
    put_value(out, result->failed_row.value);
    if (out->len >= PRECONDITION_MAX)
        out->len = whole;
    buf_putc(out, '}');
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

static void answer_result(struct kv_call *k, const struct kv_result *result)
{
    struct buf body = BUF_INIT;
    count_call(k);
    if (result->aborted) {
        put_abort(&body, result);
        answer_json(k->http, 200, &body);
        return;
    }
    ASSERT(result->n == k->request.n);
    buf_puts(&body, "{\"results\":[");
    for (size_t i = 0; i < result->n; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        put_result(&body, i, &k->request.ops[i], &result->ops[i]);
    }
    buf_puts(&body, "]}");
    answer_json(k->http, 200, &body);
}

/* --- calls with a write -------------------------------------------------------------------------
 */

static void write_free(struct api_command *c)
{
    kv_free((struct kv_call *)c);
}

static void write_answer(struct api_command *c)
{
    answer_result((struct kv_call *)c, &c->node.kv);
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
    kv_free(k);
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
    else
        answer_result(k, &result);
    kv_result_deinit(&result);
    finish_read(k);
}

static void start_read(struct kv_call *k)
{
    struct api *a = k->waiter.api;
    if (node_is_behind(a->options.node)) {
        answer_kv_err(k->http, ERR_AGAIN);
        kv_free(k);
        return;
    }
    atomic_fetch_add(&a->outstanding, 1);
    k->estimate = node_clock_estimate(a->options.node);
    k->deadline_us = k->started_us + (int64_t)a->options.request_timeout_ms * 1000;
    waiter_submit(&k->waiter);
}

void api_kv(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct kv_call *k = mem_new(sizeof(*k));
    struct refusal refusal;
    waiter_init(&k->waiter, a, run_read);
    k->http = http;
    k->started_us = clock_mono_us(a->options.clock);
    if (kv_request_parse(http_request_body(http), &a->kv_limits, &k->request, &refusal) != ERR_OK) {
        kv_free(k);
        answer_kv_refusal(http, &refusal);
        return;
    }
    if (k->request.n == 0) {
        struct buf body = BUF_INIT;
        buf_puts(&body, "{\"results\":[]}");
        kv_free(k);
        answer_json(http, 200, &body);
        return;
    }
    if (kv_has_write(k->request.ops, k->request.n))
        start_write(k);
    else
        start_read(k);
}
