/* Fuzz target of the parser of KV calls: what it takes is within the limits, its values are in
 * normal form, and the call encodes. */
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
        ASSERT(op->limit >= 1 && op->limit <= limits.keys_max);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_make(data, size);
    struct kv_request r;
    struct refusal refusal = {0};
    if (kv_request_parse(body, &limits, &r, &refusal) == ERR_OK) {
        struct buf command = BUF_INIT;
        ASSERT(json_valid(body, JSON_DEPTH_MAX, NULL));
        ASSERT(r.n <= limits.ops_max);
        for (size_t i = 0; i < r.n; i++)
            check_op(&r.ops[i]);
        if (kv_has_write(r.ops, r.n))
            kv_encode(&command, &TENANT_DEFAULT, r.ops, r.n);
        buf_deinit(&command);
    } else {
        ASSERT(refusal.status == 400 || refusal.status == 413);
        ASSERT(refusal.code != NULL && refusal.reason != NULL);
        ASSERT(refusal.text[0] != '\0');
    }
    kv_request_deinit(&r);
    return 0;
}
