/* Rows as they are stored (store/state_format.h, kind K), and their expiry. A row is live while it
 * has no expiry or its expiry is strictly later than now (kv.md 1). */
#include "kv/kv_internal.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/timefmt.h"
#include "store/state_format.h"

#define EXPIRY_MAX                                                                                 \
    253402300799999999 /* 9999-12-31T23:59:59.999999Z: what the time formats can say */

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

void kv_key_behind(struct buf *out, struct span prefix)
{
    buf_reset(out);
    buf_put_span(out, prefix);
    while (out->ptr[out->len - 1] == 0xff)
        out->len--;
    out->ptr[out->len - 1]++;
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

/* Bytes of a row that count: of its key and value. */
static uint32_t bytes_of(struct span key, size_t value_len)
{
    struct span rest = span_sub(key, KV_NAMESPACE_AT, key.len);
    const uint8_t *zero = memchr(rest.ptr, 0, rest.len); /* behind the namespace */
    return (uint32_t)((size_t)(rest.ptr + rest.len - zero) - 1 + value_len);
}

enum err kv_row_load(struct state *s, struct span key, int64_t now, struct kv_stored *out,
                     int64_t *expires_out, struct error *error)
{
    struct kv_row row;
    buf_reset(&out->value);
    out->live = false;
    out->stored.there = false;
    out->stored.bytes = 0;
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
    out->stored.there = true;
    out->stored.expires_at = row.expires_at;
    out->stored.bytes = bytes_of(key, len);
    memmove(out->value.ptr, row.value.ptr, len);
    out->value.len = len;
    if (expires_out != NULL)
        *expires_out = row.expires_at;
    return ERR_OK;
}

static void put(struct state *s, struct span key, const struct kv_stored *row)
{
    struct buf value = BUF_INIT;
    buf_put_le64(&value, row->version);
    buf_put_le64(&value, (uint64_t)row->expires_at);
    buf_put_le64(&value, (uint64_t)row->updated_at);
    buf_put_span(&value, buf_span(&row->value));
    state_row_put(s, key, buf_span(&value));
    buf_deinit(&value);
}

enum err kv_row_store(struct state *s, struct span key, const struct kv_stored *row,
                      struct kv_tally *tally)
{
    uint32_t bytes = row->live ? bytes_of(key, row->value.len) : 0;
    if (row->stored.there && row->stored.expires_at != 0)
        kv_expiry_remove(s, key, row->stored.expires_at);
    if (row->live)
        put(s, key, row);
    else
        state_row_delete(s, key);
    if (row->live && row->expires_at != 0)
        kv_expiry_put(s, key, row->expires_at, bytes);
    return kv_tally_add(tally, key, (int64_t)row->live - (int64_t)row->stored.there,
                        (int64_t)bytes - (int64_t)row->stored.bytes);
}

int64_t kv_expiry(const struct kv_op *op, int64_t now)
{
    if (op->forever)
        return 0;
    if (now >= EXPIRY_MAX || op->ttl_seconds > (uint64_t)((EXPIRY_MAX - now) / US_PER_SEC))
        return EXPIRY_MAX;
    return now + (int64_t)op->ttl_seconds * US_PER_SEC;
}
