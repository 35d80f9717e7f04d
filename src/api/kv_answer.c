/* Results of the key-value store as JSON (spec/kv.md 3.2, 3.3). */
#include "api/kv_call.h"

#include "base/timefmt.h"

#define PRECONDITION_MAX 4096u /* of an abort's answer: longer ones come without detail */

void kv_put_value(struct buf *out, struct span value)
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
        kv_put_value(out, row->value);
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

void kv_put_next(struct buf *out, const struct kv_op_result *r)
{
    buf_puts(out, r->truncated ? ",\"truncated\":true" : ",\"truncated\":false");
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
    kv_put_value(out, r->row.value);
    buf_puts(out, ",\"version\":");
    buf_put_u64(out, r->row.version);
}

void kv_put_result(struct buf *out, size_t index, const struct kv_op *op,
                   const struct kv_op_result *r)
{
    buf_puts(out, "{\"index\":");
    buf_put_u64(out, index);
    buf_puts(out, ",\"op\":\"");
    buf_puts(out, kv_op_name(op->type));
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
        kv_put_next(out, r);
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

void kv_put_abort(struct buf *out, const struct kv_result *result)
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
    kv_put_value(out, result->failed_row.value);
    if (out->len >= PRECONDITION_MAX)
        out->len = whole;
    buf_putc(out, '}');
}
