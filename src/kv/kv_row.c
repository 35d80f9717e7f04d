/* Rows as they are stored (store/state_format.h, kind K), and their expiry. A row is live while it
 * has no expiry or its expiry is strictly later than now (kv.md 1). */
#include "kv/kv_internal.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/timefmt.h"
#include "store/state_format.h"

#define EXPIRY_MAX                                                                                 \
    253402300799999999       /* 9999-12-31T23:59:59.999999Z: what the time formats can say */
#define SWEEP_LOOK_FACTOR 16 /* rows looked at per row that may go */

bool kv_namespace_valid(struct span ns)
{
    if (ns.len == 0 || ns.len > 64)
        return false;
    for (size_t i = 0; i < ns.len; i++) {
        uint8_t c = ns.ptr[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!word && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return true;
}

void kv_key_make(struct buf *out, const struct tenant_id *tenant, struct span ns, struct span key)
{
    buf_reset(out);
    buf_putc(out, STATE_KIND_KV);
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    buf_put_span(out, ns);
    buf_putc(out, 0);
    buf_put_span(out, key);
}

enum err kv_row_decode(struct span value, struct kv_row *out)
{
    if (value.len < KV_VALUE_AT)
        return ERR_CORRUPT;
    out->version = le64_get(value.ptr + KV_VERSION_AT);
    out->expires_at = (int64_t)le64_get(value.ptr + KV_EXPIRES_AT);
    out->updated_at = (int64_t)le64_get(value.ptr + KV_UPDATED_AT);
    out->value = span_sub(value, KV_VALUE_AT, value.len);
    return ERR_OK;
}

enum err kv_row_load(struct state *s, struct span key, int64_t now, struct kv_stored *out,
                     int64_t *expires_out, struct error *error)
{
    struct kv_row row;
    buf_reset(&out->value);
    out->live = false;
    if (expires_out != NULL)
        *expires_out = 0;
    enum err err = state_row_get(s, key, &out->value, error);
    if (err == ERR_NOT_FOUND)
        return ERR_OK;
    if (err != ERR_OK)
        return err;
    if (kv_row_decode(buf_span(&out->value), &row) != ERR_OK)
        return error_set(error, ERR_CORRUPT, "a KV row of %zu bytes", out->value.len);
    out->live = row.expires_at == 0 || row.expires_at > now;
    out->version = row.version;
    out->expires_at = row.expires_at;
    out->updated_at = row.updated_at;
    size_t len = row.value.len;
    memmove(out->value.ptr, row.value.ptr, len);
    out->value.len = len;
    if (expires_out != NULL)
        *expires_out = row.expires_at;
    return ERR_OK;
}

void kv_row_store(struct state *s, struct span key, const struct kv_stored *row)
{
    if (!row->live) {
        state_row_delete(s, key);
        return;
    }
    struct buf value = BUF_INIT;
    buf_put_le64(&value, row->version);
    buf_put_le64(&value, (uint64_t)row->expires_at);
    buf_put_le64(&value, (uint64_t)row->updated_at);
    buf_put_span(&value, buf_span(&row->value));
    state_row_put(s, key, buf_span(&value));
    buf_deinit(&value);
}

int64_t kv_expiry(const struct kv_op *op, int64_t now)
{
    if (op->forever)
        return 0;
    if (now >= EXPIRY_MAX || op->ttl_seconds > (uint64_t)((EXPIRY_MAX - now) / US_PER_SEC))
        return EXPIRY_MAX;
    return now + (int64_t)op->ttl_seconds * US_PER_SEC;
}

/* --- sweeping --- */

/* Collects keys of expired rows from the cursor on: le32 length, key. Sets the cursor for the next
 * time; at the end of the kind it starts over. */
static size_t collect_expired(struct state *s, int64_t now, size_t limit, struct buf *keys)
{
    struct buf *cursor = state_kv_cursor(s);
    size_t found = 0, looked = 0;
    if (cursor->len == 0)
        buf_putc(cursor, STATE_KIND_KV);
    struct state_iter *it = state_iter_new(s, buf_span(cursor));
    buf_reset(cursor);
    for (; state_iter_valid(it); state_iter_next(it)) {
        struct span key = state_iter_key(it);
        struct kv_row row;
        if (key.ptr[0] != STATE_KIND_KV)
            break;
        if (found == limit || looked++ == limit * SWEEP_LOOK_FACTOR) {
            buf_put_span(cursor, key);
            break;
        }
        if (kv_row_decode(state_iter_value(it), &row) != ERR_OK || row.expires_at == 0 ||
            row.expires_at > now)
            continue; /* a damaged row is found by whoever reads it */
        buf_put_le32(keys, (uint32_t)key.len);
        buf_put_span(keys, key);
        found++;
    }
    state_iter_free(it);
    return found;
}

void kv_sweep(struct state *s, int64_t now, size_t limit)
{
    struct buf keys = BUF_INIT;
    size_t n = collect_expired(s, now, limit, &keys);
    for (size_t i = 0, at = 0; i < n; i++) {
        uint32_t len = le32_get(keys.ptr + at);
        state_row_delete(s, span_make(keys.ptr + at + 4, len));
        at += 4 + len;
    }
    buf_deinit(&keys);
}
