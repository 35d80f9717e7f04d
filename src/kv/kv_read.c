/* Reads. Every multi-key read of a call returns at least one row where there is one, so that paging
 * goes on whatever the call's byte budget has left.
 *
 * A getPrefix may have many rows to pass that it does not return: expired ones, and ones deleted
 * since the last checkpoint. The steps of a call are bounded; the page then ends where it got to. */
#include "kv/kv_internal.h"

#include "base/mem.h"

#define STEPS_MIN 64u /* of each getPrefix, whatever those before it took */

static void met(struct kv_reader *r, int64_t expires_at)
{
    if (expires_at > r->now && expires_at <= r->estimate)
        r->due = true;
}

static struct kv_row *row_add(struct kv_op_result *result, size_t *cap)
{
    if (result->n_rows == *cap) {
        *cap = *cap == 0 ? 16 : *cap * 2;
        result->rows = mem_grow(result->rows, *cap * sizeof(*result->rows));
    }
    return &result->rows[result->n_rows++];
}

static enum err read_one(struct kv_reader *r, struct span ns, struct span key,
                         struct kv_stored *row)
{
    struct buf row_key = BUF_INIT;
    int64_t expires_at;
    kv_key_make(&row_key, &r->tenant, ns, key);
    enum err err = kv_row_load(r->s, buf_span(&row_key), r->now, row, &expires_at, r->error);
    buf_deinit(&row_key);
    if (err == ERR_OK)
        met(r, expires_at);
    return err;
}

static enum err read_get(struct kv_reader *r, const struct kv_op *op, struct kv_op_result *result)
{
    struct kv_stored row = {0};
    enum err err = read_one(r, op->ns, op->key, &row);
    if (err == ERR_OK) {
        result->found = row.live;
        kv_result_row(r->result, &result->row, op->key, &row);
        r->bytes += row.live ? op->key.len + row.value.len : 0;
    }
    buf_deinit(&row.value);
    return err;
}

static int span_order(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* Keys in byte order, each once. Missing ones come in that order too. */
static enum err read_many(struct kv_reader *r, const struct kv_op *op, struct kv_op_result *result)
{
    struct span *keys = MEM_ARRAY(struct span, op->n_keys + 1);
    struct kv_stored row = {0};
    size_t cap = 0;
    enum err err = ERR_OK;
    if (op->n_keys != 0)
        memcpy(keys, op->keys, op->n_keys * sizeof(*keys));
    qsort(keys, op->n_keys, sizeof(*keys), span_order);
    result->missing = MEM_ARRAY(struct span, op->n_keys + 1);
    for (size_t i = 0; i < op->n_keys; i++) {
        if (i != 0 && span_eq(keys[i], keys[i - 1]))
            continue;
        if (result->n_rows != 0 && r->bytes >= KV_READ_BYTES_MAX) {
            result->truncated = true;
            break;
        }
        err = read_one(r, op->ns, keys[i], &row);
        if (err != ERR_OK)
            break;
        if (!row.live) {
            result->missing[result->n_missing++] = kv_result_keep(r->result, keys[i]);
            continue;
        }
        kv_result_row(r->result, row_add(result, &cap), keys[i], &row);
        r->bytes += keys[i].len + row.value.len;
    }
    buf_deinit(&row.value);
    mem_free(keys);
    return err;
}

/* Where a getPrefix starts: behind `after` when that lies behind the prefix. */
static void prefix_start(const struct kv_reader *r, const struct kv_op *op, struct buf *start)
{
    bool after = op->after.len != 0 && span_cmp(op->after, op->key) >= 0;
    kv_key_make(start, &r->tenant, op->ns, after ? op->after : op->key);
    if (after)
        buf_putc(start, 0); /* the least key behind it */
}

/* A live row of the prefix: false when it must be left for the next page. */
static bool prefix_row(struct kv_reader *r, const struct kv_op *op, struct kv_op_result *result,
                       size_t *cap, const struct kv_row *row)
{
    if (result->n_rows != 0 && (result->n_rows >= op->limit || r->bytes >= KV_READ_BYTES_MAX)) {
        result->truncated = true;
        result->has_next = true;
        result->next_after = result->rows[result->n_rows - 1].key;
        return false;
    }
    struct kv_row *kept = row_add(result, cap);
    *kept = *row;
    kept->key = kv_result_keep(r->result, row->key);
    kept->value = (struct span){0};
    if (!op->keys_only)
        kept->value = kv_result_keep(r->result, row->value);
    r->bytes += row->key.len + kept->value.len;
    return true;
}

/* The page ends behind `key`, for want of steps. */
static void prefix_cut(struct kv_reader *r, struct kv_op_result *result, struct span key)
{
    result->truncated = true;
    result->has_next = true;
    result->next_after = kv_result_keep(r->result, key);
}

/* Goes through the rows from the iterator on; key_at: where the row's own key begins. */
static enum err prefix_rows(struct kv_reader *r, const struct kv_op *op,
                            struct kv_op_result *result, struct state_iter *it, size_t key_at)
{
    size_t cap = 0;
    for (; state_iter_valid(it); state_iter_next(it)) {
        struct span key = state_iter_key(it);
        struct kv_row row = {0};
        if (kv_row_decode(state_iter_value(it), &row) != ERR_OK)
            return error_set(r->error, ERR_CORRUPT, "a KV row does not decode");
        met(r, row.expires_at);
        row.expired = row.expires_at != 0 && row.expires_at <= r->now;
        row.key = span_sub(key, key_at, key.len);
        if ((!row.expired || op->with_expired) && !prefix_row(r, op, result, &cap, &row))
            return ERR_OK;
        if (r->steps == 0) {
            prefix_cut(r, result, row.key);
            return ERR_OK;
        }
        r->steps--;
    }
    if (state_iter_spent(it))
        prefix_cut(r, result, span_sub(state_iter_key(it), key_at, state_iter_key(it).len));
    return state_iter_error(it, r->error);
}

static enum err read_prefix(struct kv_reader *r, const struct kv_op *op,
                            struct kv_op_result *result)
{
    struct buf prefix = BUF_INIT, start = BUF_INIT, end = BUF_INIT;
    kv_key_make(&prefix, &r->tenant, op->ns, op->key);
    prefix_start(r, op, &start);
    if (r->steps < STEPS_MIN)
        r->steps = STEPS_MIN;
    kv_key_behind(&end, buf_span(&prefix));
    struct state_iter *it =
        state_iter_new_bounded(r->s, buf_span(&start), buf_span(&end), &r->steps);
    enum err err = prefix_rows(r, op, result, it, prefix.len - op->key.len);
    state_iter_free(it);
    buf_deinit(&prefix);
    buf_deinit(&start);
    buf_deinit(&end);
    return err;
}

enum err kv_read_op(struct kv_reader *r, const struct kv_op *op, struct kv_op_result *result)
{
    switch (op->type) {
    case KV_GET:
        return read_get(r, op, result);
    case KV_GET_MANY:
        return read_many(r, op, result);
    case KV_GET_PREFIX:
        return read_prefix(r, op, result);
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
    case KV_DELETE:
    case KV_INCR:
    case KV_CHECK:
        break;
    }
    ASSERT(!kv_op_writes(op->type));
    return ERR_OK;
}

enum err kv_read(struct state *s, const struct tenant_id *tenant, const struct kv_op *ops, size_t n,
                 int64_t now, int64_t estimate, struct kv_result *result, bool *due_out,
                 struct error *error)
{
    struct kv_result built;
    struct kv_reader r = {
        .s = s,
        .tenant = *tenant,
        .now = now,
        .estimate = estimate,
        .steps = KV_READ_STEPS_MAX,
        .result = &built,
        .error = error,
    };
    kv_result_begin(&built, ops, n);
    for (size_t i = 0; i < n; i++) {
        enum err err = kv_read_op(&r, &ops[i], &built.ops[i]);
        if (err != ERR_OK) {
            kv_result_deinit(&built);
            return err;
        }
    }
    kv_result_end(&built);
    *result = built;
    *due_out = r.due;
    return ERR_OK;
}
