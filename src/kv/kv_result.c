/* Results. What rows point into grows while the result is built, so their spans hold offsets until
 * the end, when they become pointers. */
#include "kv/kv_internal.h"

#include "base/mem.h"

const char *kv_op_name(enum kv_op_type type)
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

const char *kv_reason_text(enum kv_reason reason)
{
    switch (reason) {
    case KV_REASON_NONE:
        return "";
    case KV_REASON_EXISTS:
        return "exists";
    case KV_REASON_ABSENT:
        return "absent";
    case KV_REASON_VERSION:
        return "version";
    case KV_REASON_LIMIT:
        return "limit";
    case KV_REASON_TYPE:
        return "type";
    case KV_REASON_QUEUE:
        return "queue";
    }
    return "";
}

void kv_result_begin(struct kv_result *r, const struct kv_op *ops, size_t n)
{
    *r = (struct kv_result){.ops = MEM_ARRAY(struct kv_op_result, n + 1), .n = n};
    for (size_t i = 0; i < n; i++)
        r->ops[i].type = ops[i].type;
}

struct span kv_result_keep(struct kv_result *r, struct span bytes)
{
    struct span kept = {(const uint8_t *)(uintptr_t)r->bytes.len, bytes.len};
    buf_put_span(&r->bytes, bytes);
    return kept;
}

void kv_result_row(struct kv_result *r, struct kv_row *row, struct span key,
                   const struct kv_stored *stored)
{
    *row = (struct kv_row){.key = kv_result_keep(r, key)};
    if (!stored->live)
        return;
    row->value = kv_result_keep(r, buf_span(&stored->value));
    row->version = stored->version;
    row->expires_at = stored->expires_at;
    row->updated_at = stored->updated_at;
}

static void span_fix(const struct kv_result *r, struct span *s)
{
    s->ptr = s->len == 0 ? NULL : r->bytes.ptr + (uintptr_t)s->ptr;
}

static void row_fix(const struct kv_result *r, struct kv_row *row)
{
    span_fix(r, &row->key);
    span_fix(r, &row->value);
}

void kv_result_end(struct kv_result *r)
{
    row_fix(r, &r->failed_row);
    for (size_t i = 0; i < r->n; i++) {
        struct kv_op_result *op = &r->ops[i];
        row_fix(r, &op->row);
        for (size_t j = 0; j < op->n_rows; j++)
            row_fix(r, &op->rows[j]);
        for (size_t j = 0; j < op->n_missing; j++)
            span_fix(r, &op->missing[j]);
        span_fix(r, &op->next_after);
    }
}

void kv_result_empty(struct kv_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        mem_free(r->ops[i].rows);
        mem_free(r->ops[i].missing);
    }
    mem_free(r->ops);
    r->ops = NULL;
    r->n = 0;
    buf_reset(&r->bytes);
}

void kv_result_deinit(struct kv_result *r)
{
    if (r == NULL)
        return;
    kv_result_empty(r);
    buf_deinit(&r->bytes);
    *r = (struct kv_result){0};
}
