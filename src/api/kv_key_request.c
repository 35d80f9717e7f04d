/* The requests about one key (spec/kv.md 4) and for a listing (5). The key is in the path, so a body
 * must not name one again. */
#include "api/kv_fields.h"

#include "base/pct.h"
#include "base/utf8.h"

#define BODY_DEPTH 2u /* containers around a value: the object */

static struct kv_op *op_new(struct kv_request *out, enum kv_op_type type)
{
    out->ops = arena_alloc(&out->arena, sizeof(out->ops[0]));
    out->ops[0].type = type;
    out->n = 1;
    return out->ops;
}

/* Parts of a path may hold any bytes once they are decoded; decoding what follows the namespace at
 * once equals decoding its parts one by one. */
static struct span decoded(struct kv_parse *p, struct span raw)
{
    buf_reset(&p->scratch);
    buf_put_pct_decoded(&p->scratch, raw, false);
    return arena_copy(&p->out->arena, buf_span(&p->scratch));
}

/* "ns/key", raw. */
static enum err take_path(struct kv_parse *p, struct span path, struct kv_op *op)
{
    const uint8_t *slash = memchr(path.ptr, '/', path.len);
    size_t ns_len = slash == NULL ? path.len : (size_t)(slash - path.ptr);
    op->ns = decoded(p, span_sub(path, 0, ns_len));
    if (!kv_namespace_valid(op->ns))
        return kv_refuse(p, "kv_bad_namespace",
                         "the namespace in the path must match " KV_NAMESPACE_PATTERN);
    if (slash == NULL)
        return kv_refuse(p, "kv_bad_key", "the path names no key: /api/v1/kv/<namespace>/<key>");
    op->key = decoded(p, span_sub(path, ns_len + 1, path.len));
    if (!utf8_valid(op->key))
        return kv_refuse(p, "kv_bad_key", "the key in the path is not UTF-8");
    return kv_check_key(p, op->ns, op->key);
}

static enum err read_body(struct kv_parse *p, struct span body)
{
    struct json_reader in;
    json_reader_init(&in, body, p->limits->depth_max + BODY_DEPTH);
    TRY(kv_fields_read(p, &in));
    return json_end(&in) == ERR_OK ? ERR_OK : kv_refuse_json(&in, p->refusal);
}

static enum err check_not_in_body(struct kv_parse *p)
{
    static const struct {
        enum kv_field field;
        const char *name;
    } in_path[] = {{KV_FIELD_OP, "op"},
                   {KV_FIELD_NS, "ns"},
                   {KV_FIELD_NAMESPACE, "namespace"},
                   {KV_FIELD_KEY, "key"}};
    for (size_t i = 0; i < sizeof(in_path) / sizeof(in_path[0]); i++) {
        if (kv_given(p, in_path[i].field) != NULL)
            return kv_refuse(p, "kv_field_in_path", "%s comes from method and path, not the body",
                             in_path[i].name);
    }
    return kv_check_tenant(p);
}

static enum err take_body(struct kv_parse *p, struct span body, struct kv_op *op)
{
    if (op->type == KV_GET || (op->type == KV_DELETE && body.len == 0))
        return ERR_OK;
    TRY(read_body(p, body));
    TRY(check_not_in_body(p));
    if (op->type == KV_PUT) {
        TRY(kv_take_value(p, op));
        TRY(kv_take_expiry(p, op));
    }
    TRY(kv_take_expect(p, op));
    return kv_take_flag(p, KV_FIELD_REQUIRED, &op->required);
}

enum err kv_key_request_parse(const struct kv_key_source *from, const struct kv_limits *limits,
                              struct kv_request *out, struct refusal *refusal)
{
    *out = (struct kv_request){0};
    struct kv_parse p = {.out = out, .limits = limits, .refusal = refusal, .alone = true};
    struct kv_op *op = op_new(out, from->type);
    enum err err = from->query.len == 0
                       ? take_path(&p, from->path, op)
                       : kv_refuse(&p, "kv_no_query_string", "this route takes no query string");
    if (err == ERR_OK)
        err = take_body(&p, from->body, op);
    buf_deinit(&p.scratch);
    return err;
}

enum err kv_list_request_parse(struct span body, const struct kv_limits *limits,
                               struct kv_request *out, struct refusal *refusal)
{
    *out = (struct kv_request){0};
    struct kv_parse p = {.out = out, .limits = limits, .refusal = refusal, .alone = true};
    struct kv_op *op = op_new(out, KV_GET_PREFIX);
    TRY(read_body(&p, body));
    TRY(kv_check_tenant(&p));
    TRY(kv_take_ns(&p, KV_FIELD_NAMESPACE, op));
    TRY(kv_take_prefix(&p, true, op));
    TRY(kv_take_page(&p, op));
    return kv_take_flag(&p, KV_FIELD_WITH_EXPIRED, &op->with_expired);
}
