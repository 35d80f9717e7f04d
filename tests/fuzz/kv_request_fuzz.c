/* Fuzz target of the parsers of KV calls: what they take is within the limits, its values are in
 * normal form, and a call that writes encodes. An input is a body; one that begins with G, P or D
 * is a path, a line break and the body of a call about one key, one with L the body of a listing. */
#include "fuzz/fuzz.h"

#include "api/request.h"

#include "base/utf8.h"

static const struct kv_limits limits = {
    .value_max = 4096, .ops_max = 16, .keys_max = 64, .depth_max = 64};

static void check_key(const struct kv_op *op, struct span key)
{
    ASSERT(key.len > 0 && key.len <= KV_KEY_MAX);
    ASSERT(utf8_valid(key));
    ASSERT(memchr(key.ptr, 0, key.len) == NULL);
    ASSERT(op->ns.len + key.len < KV_STORE_KEY_MAX);
}

static void check_number(struct span number)
{
    struct json_raw raw;
    ASSERT(json_valid(number, 0, &raw));
    ASSERT(raw.type == JSON_NUMBER);
}

static void check_value(struct span value)
{
    struct buf again = BUF_INIT;
    ASSERT(value.len <= limits.value_max);
    ASSERT(json_normalise(value, limits.depth_max, limits.value_max, &again, NULL) == ERR_OK);
    ASSERT(span_eq(buf_span(&again), value));
    buf_deinit(&again);
}

static void check_op(const struct kv_op *op)
{
    ASSERT(kv_namespace_valid(op->ns));
    switch (op->type) {
    case KV_GET_MANY:
        ASSERT(op->n_keys <= limits.keys_max);
        for (size_t i = 0; i < op->n_keys; i++)
            check_key(op, op->keys[i]);
        return;
    case KV_GET_PREFIX:
        ASSERT(op->limit >= 1 && op->limit <= 1000);
        ASSERT(op->after.len <= KV_KEY_MAX);
        if (op->key.len == 0) /* of a listing */
            return;
        break;
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
        check_value(op->value);
        ASSERT(op->forever != (op->ttl_seconds > 0));
        break;
    case KV_INCR:
        check_number(op->value);
        ASSERT(op->forever != (op->ttl_seconds > 0));
        if (op->has_min)
            check_number(op->min);
        if (op->has_max)
            check_number(op->max);
        break;
    case KV_CHECK:
        ASSERT(op->has_expect);
        break;
    case KV_GET:
    case KV_DELETE:
        break;
    }
    check_key(op, op->key);
}

static void check_request(enum err err, const struct kv_request *r, const struct refusal *refusal)
{
    struct buf command = BUF_INIT;
    if (err != ERR_OK) {
        ASSERT(refusal->status == 400 || refusal->status == 413);
        ASSERT(refusal->code != NULL && refusal->reason != NULL);
        ASSERT(refusal->text[0] != '\0');
        return;
    }
    ASSERT(r->n <= limits.ops_max);
    for (size_t i = 0; i < r->n; i++)
        check_op(&r->ops[i]);
    if (kv_has_write(r->ops, r->n))
        kv_encode(&command, &TENANT_DEFAULT, r->ops, r->n);
    buf_deinit(&command);
}

static enum err parse_key(enum kv_op_type type, struct span in, struct kv_request *r,
                          struct refusal *refusal)
{
    const uint8_t *end = memchr(in.ptr, '\n', in.len);
    size_t len = end == NULL ? in.len : (size_t)(end - in.ptr);
    struct kv_key_source from = {.type = type, .path = span_sub(in, 0, len)};
    if (end != NULL)
        from.body = span_sub(in, len + 1, in.len);
    enum err err = kv_key_request_parse(&from, &limits, r, refusal);
    ASSERT(err != ERR_OK || (r->n == 1 && r->ops[0].type == type));
    return err;
}

static enum err parse(struct span in, struct kv_request *r, struct refusal *refusal)
{
    struct span rest = in.len == 0 ? in : span_sub(in, 1, in.len);
    switch (in.len == 0 ? 0 : in.ptr[0]) {
    case 'G':
        return parse_key(KV_GET, rest, r, refusal);
    case 'P':
        return parse_key(KV_PUT, rest, r, refusal);
    case 'D':
        return parse_key(KV_DELETE, rest, r, refusal);
    case 'L':
        return kv_list_request_parse(rest, &limits, r, refusal);
    }
    enum err err = kv_request_parse(in, &limits, r, refusal);
    ASSERT(err != ERR_OK || json_valid(in, JSON_DEPTH_MAX, NULL));
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_request r;
    struct refusal refusal = {0};
    enum err err = parse(span_make(data, size), &r, &refusal);
    check_request(err, &r, &refusal);
    kv_request_deinit(&r);
    return 0;
}
