/* How many rows a namespace and a tenant have (kind S of store/state_format.h): kept with every
 * change, so that nobody has to count. */
#include "kv/kv_internal.h"

#include "base/bytes.h"
#include "store/state_format.h"

static void size_key(struct buf *out, const struct tenant_id *tenant, struct span ns)
{
    buf_putc(out, STATE_KIND_KV_SIZE);
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    buf_put_span(out, ns);
}

static enum err decode(struct span value, struct kv_size *out, struct error *error)
{
    if (value.len != KV_SIZE_SIZE)
        return error_set(error, ERR_CORRUPT, "a size of the KV store of %zu bytes", value.len);
    out->rows = le64_get(value.ptr);
    out->bytes = le64_get(value.ptr + 8);
    return ERR_OK;
}

static enum err load(struct state *s, struct span key, struct kv_size *out, struct error *error)
{
    struct buf value = BUF_INIT;
    *out = (struct kv_size){0};
    enum err err = state_row_get(s, key, &value, error);
    if (err == ERR_OK)
        err = decode(buf_span(&value), out, error);
    else if (err == ERR_NOT_FOUND)
        err = ERR_OK;
    buf_deinit(&value);
    return err;
}

enum err kv_size(struct state *s, const struct tenant_id *tenant, struct span ns,
                 struct kv_size *out, struct error *error)
{
    struct buf key = BUF_INIT;
    struct kv_size size;
    size_key(&key, tenant, ns);
    enum err err = load(s, buf_span(&key), &size, error);
    buf_deinit(&key);
    if (err == ERR_OK)
        *out = size;
    return err;
}

/* --- namespaces --- */

static enum err list_from(struct state_iter *it, struct buf *after, size_t limit,
                          kv_namespace_fn fn, void *ctx, bool *more_out, struct error *error)
{
    size_t n = 0;
    *more_out = false;
    for (; state_iter_valid(it); state_iter_next(it), n++) {
        struct span key = state_iter_key(it);
        struct kv_size size;
        if (n == limit) {
            *more_out = true;
            return ERR_OK;
        }
        TRY(decode(state_iter_value(it), &size, error));
        struct span ns = span_sub(key, KV_NAMESPACE_AT, key.len);
        fn(ctx, ns, &size);
        buf_reset(after);
        buf_put_span(after, ns);
    }
    if (state_iter_spent(it)) {
        struct span stopped = state_iter_key(it);
        *more_out = true;
        buf_reset(after);
        buf_put_span(after, span_sub(stopped, KV_NAMESPACE_AT, stopped.len));
    }
    return state_iter_error(it, error);
}

enum err kv_namespaces(struct state *s, const struct tenant_id *tenant, struct buf *after,
                       size_t limit, kv_namespace_fn fn, void *ctx, bool *more_out,
                       struct error *error)
{
    struct buf start = BUF_INIT, end = BUF_INIT;
    size_t steps = limit;
    size_key(&start, tenant, buf_span(after));
    buf_putc(&start, 0); /* the least key behind it: the tenant's own row is left out too */
    kv_key_behind(&end, span_make(start.ptr, KV_NAMESPACE_AT));
    struct state_iter *it = state_iter_new_bounded(s, buf_span(&start), buf_span(&end), &steps);
    enum err err = list_from(it, after, limit, fn, ctx, more_out, error);
    state_iter_free(it);
    buf_deinit(&start);
    buf_deinit(&end);
    return err;
}

/* --- changes --- */

static bool add(uint64_t *number, int64_t delta)
{
    if (delta < 0 && *number < (uint64_t)-delta)
        return false;
    *number += (uint64_t)delta;
    return true;
}

static enum err change(const struct kv_tally *t, struct span key)
{
    struct kv_size size;
    TRY(load(t->s, key, &size, t->error));
    if (!add(&size.rows, t->rows) || !add(&size.bytes, t->bytes))
        return error_set(t->error, ERR_CORRUPT, "the size of the KV store does not fit its rows");
    if (size.rows == 0) {
        state_row_delete(t->s, key);
        return ERR_OK;
    }
    uint8_t value[KV_SIZE_SIZE];
    le64_put(value, size.rows);
    le64_put(value + 8, size.bytes);
    state_row_put(t->s, key, span_make(value, sizeof(value)));
    return ERR_OK;
}

/* The namespace's row and its tenant's. */
static enum err flush(struct kv_tally *t)
{
    if (t->rows != 0 || t->bytes != 0) {
        TRY(change(t, buf_span(&t->key)));
        TRY(change(t, span_make(t->key.ptr, KV_NAMESPACE_AT)));
    }
    buf_reset(&t->key);
    t->rows = t->bytes = 0;
    return ERR_OK;
}

enum err kv_tally_add(struct kv_tally *t, struct span key, int64_t rows, int64_t bytes)
{
    struct span rest = span_sub(key, KV_NAMESPACE_AT, key.len);
    const uint8_t *zero = memchr(rest.ptr, 0, rest.len); /* behind the namespace */
    struct span head = span_make(key.ptr + 1, (size_t)(zero - key.ptr) - 1);
    if (t->key.len != 0 && !span_eq(head, span_sub(buf_span(&t->key), 1, t->key.len)))
        TRY(flush(t));
    if (t->key.len == 0) {
        buf_putc(&t->key, STATE_KIND_KV_SIZE);
        buf_put_span(&t->key, head);
    }
    t->rows += rows;
    t->bytes += bytes;
    return ERR_OK;
}

enum err kv_tally_end(struct kv_tally *t)
{
    enum err err = flush(t);
    buf_deinit(&t->key);
    return err;
}
