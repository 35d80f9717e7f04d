/* The body of POST /api/v1/kv (spec/kv.md 2, 3, 6): operations, each a set of fields (kv_fields.h)
 * judged by the rules of its kind. */
#include "api/kv_fields.h"

#define BODY_DEPTH 4u /* containers around a value: object, array, operation */

/* --- operations ---------------------------------------------------------------------------------
 */

static enum err take_incr(struct kv_parse *p, struct kv_op *op)
{
    bool has_delta = false;
    TRY(kv_take_number(p, KV_FIELD_DELTA, &has_delta, &op->value));
    if (!has_delta)
        return kv_refuse(p, "kv_bad_body", "delta is missing");
    TRY(kv_take_number(p, KV_FIELD_MIN, &op->has_min, &op->min));
    TRY(kv_take_number(p, KV_FIELD_MAX, &op->has_max, &op->max));
    return kv_take_expiry(p, op);
}

static enum err op_type(struct kv_parse *p, enum kv_op_type *out)
{
    const struct json_raw *raw = kv_given(p, KV_FIELD_OP);
    for (size_t i = 0; raw != NULL && raw->type == JSON_STRING && i < KV_OP_TYPES; i++) {
        enum kv_op_type type = (enum kv_op_type)i;
        if (json_string_is(raw->text, span_str(kv_op_name(type)))) {
            *out = type;
            return ERR_OK;
        }
    }
    return kv_refuse(p, "kv_unknown_op", "op is missing or unknown");
}

static enum err take_op(struct kv_parse *p, struct kv_op *op)
{
    TRY(kv_check_tenant(p));
    TRY(op_type(p, &op->type));
    TRY(kv_take_ns(p, KV_FIELD_NS, op));
    switch (op->type) {
    case KV_GET:
        return kv_take_key(p, op);
    case KV_GET_MANY:
        return kv_take_keys(p, op);
    case KV_GET_PREFIX:
        TRY(kv_take_prefix(p, false, op));
        return kv_take_page(p, op);
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
        TRY(kv_take_key(p, op));
        TRY(kv_take_value(p, op));
        TRY(kv_take_expiry(p, op));
        break;
    case KV_INCR:
        TRY(kv_take_key(p, op));
        TRY(take_incr(p, op));
        break;
    case KV_DELETE:
    case KV_CHECK:
        TRY(kv_take_key(p, op));
        break;
    }
    TRY(kv_take_expect(p, op));
    return kv_take_flag(p, KV_FIELD_REQUIRED, &op->required);
}

static bool writes_row(const struct kv_op *op)
{
    return op->type == KV_PUT || op->type == KV_PUT_IF_ABSENT || op->type == KV_DELETE ||
           op->type == KV_INCR;
}

static enum err check_unique(struct kv_parse *p)
{
    const struct kv_op *ops = p->out->ops;
    for (size_t i = 0; i < p->out->n; i++) {
        for (size_t j = 0; writes_row(&ops[i]) && j < i; j++) {
            if (writes_row(&ops[j]) && span_eq(ops[i].key, ops[j].key) &&
                span_eq(ops[i].ns, ops[j].ns)) {
                p->index = i;
                return kv_refuse(p, "kv_duplicate_key_in_call",
                                 "its key is written by operation %zu too", j);
            }
        }
    }
    return ERR_OK;
}

/* --- the body -----------------------------------------------------------------------------------
 */

static enum err parse_op(struct kv_parse *p, struct json_reader *in)
{
    TRY(kv_fields_read(p, in));
    struct kv_op *op = &p->out->ops[p->out->n++];
    TRY(take_op(p, op));
    if (p->keys > p->limits->keys_max)
        return kv_refuse(p, "kv_too_many_keys", "more than %zu keys in one call",
                         p->limits->keys_max);
    return ERR_OK;
}

static enum err parse_ops(struct kv_parse *p, struct json_reader *in)
{
    if (json_enter_array(in) != ERR_OK)
        return kv_refuse_json(in, p->refusal);
    p->out->n = p->keys = 0; /* of equal keys the last counts */
    p->out->ops = arena_alloc(&p->out->arena, p->limits->ops_max * sizeof(p->out->ops[0]));
    for (p->index = 0;; p->index++) {
        bool more;
        if (json_next_element(in, &more) != ERR_OK)
            return kv_refuse_json(in, p->refusal);
        if (!more)
            return check_unique(p);
        if (p->index == p->limits->ops_max)
            return kv_refuse(p, "kv_too_many_ops", "more than %zu operations in one call",
                             p->limits->ops_max);
        TRY(parse_op(p, in));
    }
}

/* {"operations": [...]} */
static enum err parse_object(struct kv_parse *p, struct json_reader *in)
{
    bool seen = false;
    if (json_enter_object(in) != ERR_OK)
        return kv_refuse_json(in, p->refusal);
    for (;;) {
        struct json_raw key, value;
        enum json_type type;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return kv_refuse_json(in, p->refusal);
        if (!more)
            return seen ? ERR_OK : kv_refuse_body(p->refusal, "operations is missing");
        if (!json_string_is(key.text, SPAN_LIT("operations"))) {
            if (json_take(in, &value) != ERR_OK)
                return kv_refuse_json(in, p->refusal);
            continue;
        }
        if (json_peek(in, &type) != ERR_OK)
            return kv_refuse_json(in, p->refusal);
        if (type != JSON_ARRAY)
            return kv_refuse_body(p->refusal, "operations must be an array");
        TRY(parse_ops(p, in));
        seen = true;
    }
}

static enum err parse_body(struct kv_parse *p, struct span body)
{
    struct json_reader in;
    enum json_type type;
    json_reader_init(&in, body, p->limits->depth_max + BODY_DEPTH);
    if (json_peek(&in, &type) != ERR_OK)
        return kv_refuse_json(&in, p->refusal);
    if (type == JSON_ARRAY)
        TRY(parse_ops(p, &in));
    else if (type == JSON_OBJECT)
        TRY(parse_object(p, &in));
    else
        return kv_refuse_body(p->refusal, "neither an array nor an object");
    return json_end(&in) == ERR_OK ? ERR_OK : kv_refuse_json(&in, p->refusal);
}

enum err kv_request_parse(struct span body, const struct kv_limits *limits, struct kv_request *out,
                          struct refusal *refusal)
{
    *out = (struct kv_request){0};
    struct kv_parse p = {.out = out, .limits = limits, .refusal = refusal};
    enum err err = parse_body(&p, body);
    buf_deinit(&p.scratch);
    return err;
}

void kv_request_deinit(struct kv_request *r)
{
    arena_deinit(&r->arena);
}
