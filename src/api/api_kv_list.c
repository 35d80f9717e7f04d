/* What an operator looks at: the namespaces, and the rows of one (spec/kv.md 5). */
#include "api/kv_call.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define NAMESPACES_PER_HOLD 1024u /* of the state's lock: about a millisecond */
#define NAMESPACES_MAX 100000u    /* of one answer, which is built in memory */

/* --- POST /api/v1/resources/kv/list -------------------------------------------------------------
 */

static void put_time(struct buf *out, const char *name, int64_t us)
{
    buf_puts(out, name);
    if (us == 0) {
        buf_puts(out, "null");
        return;
    }
    buf_putc(out, '"');
    buf_put_iso_us(out, us);
    buf_putc(out, '"');
}

static void put_row(struct buf *out, const struct kv_row *row, bool keys_only)
{
    buf_puts(out, "{\"key\":");
    buf_put_json_string(out, row->key);
    if (!keys_only) {
        buf_puts(out, ",\"value\":");
        kv_put_value(out, row->value);
    }
    buf_puts(out, ",\"version\":");
    buf_put_u64(out, row->version);
    put_time(out, ",\"expiresAt\":", row->expires_at);
    put_time(out, ",\"updatedAt\":", row->updated_at);
    buf_puts(out, row->expired ? ",\"expired\":true}" : "}");
}

static void answer_list(struct kv_call *k, const struct kv_result *result)
{
    const struct kv_op_result *r = &result->ops[0];
    struct buf body = BUF_INIT;
    uint64_t bytes = 0;
    buf_puts(&body, "{\"rows\":[");
    for (size_t i = 0; i < r->n_rows; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        put_row(&body, &r->rows[i], k->request.ops[0].keys_only);
        bytes += r->rows[i].key.len + r->rows[i].value.len;
    }
    buf_putc(&body, ']');
    kv_put_next(&body, r);
    buf_puts(&body, ",\"bytes\":");
    buf_put_u64(&body, bytes);
    buf_putc(&body, '}');
    answer_json(k->http, 200, &body);
}

void api_kv_list(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct kv_call *k = kv_call_new(a, http, answer_list);
    struct refusal refusal;
    enum err err =
        kv_list_request_parse(http_request_body(http), &a->kv_limits, &k->request, &refusal);
    kv_call_start(k, err, &refusal);
}

/* --- GET /api/v1/resources/kv/namespaces --------------------------------------------------------
 */

struct namespaces {
    struct api_read read; /* first: freed through it */
    struct buf *body;
    size_t n;
};

static void namespaces_free(struct api_read *r)
{
    mem_free(r);
}

static void put_namespace(void *ctx, struct span ns, const struct kv_size *size)
{
    struct namespaces *c = ctx;
    buf_puts(c->body, c->n++ == 0 ? "{\"namespace\":" : ",{\"namespace\":");
    buf_put_json_string(c->body, ns);
    buf_puts(c->body, ",\"keys\":");
    buf_put_u64(c->body, size->rows);
    buf_putc(c->body, '}');
}

/* In pieces: each count is exact, and every write that was answered before the call is in them. */
static enum err namespaces_build(struct api_read *r, struct buf *body)
{
    struct namespaces *c = (struct namespaces *)r;
    struct buf after = BUF_INIT;
    enum err err = ERR_OK;
    bool more = true;
    c->body = body;
    buf_puts(body, "{\"namespaces\":[");
    while (more && err == ERR_OK && c->n < NAMESPACES_MAX) {
        struct state *s = node_read_begin(r->api->options.node);
        err = kv_namespaces(s, &TENANT_DEFAULT, &after, NAMESPACES_PER_HOLD, put_namespace, c,
                            &more, NULL);
        node_read_end(r->api->options.node);
        if (err == ERR_OK && more && read_is_late(r))
            err = ERR_TIMEOUT;
    }
    buf_deinit(&after);
    buf_puts(body, more ? "],\"truncated\":true}" : "]}");
    return err;
}

void api_kv_namespaces(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    if (!kv_rates_take(a, http, 1, 0))
        return;
    struct namespaces *c = mem_new(sizeof(*c));
    c->read = (struct api_read){.api = a,
                                .http = http,
                                .build = namespaces_build,
                                .fail = answer_kv_err,
                                .free = namespaces_free};
    read_start(&c->read);
}
