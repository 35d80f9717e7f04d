/* Removing expired rows. An index by expiry (kind E of store/state_format.h) says which are next, so
 * the work is that of the rows that go, however many there are.
 *
 * Rows go when entries apply, a bounded number with each: it is a part of the state how many are
 * still there. The cursor (state_kv_cursor()) only spares looking: from the start of the index the
 * database would walk over what was removed before. */
#include "kv/kv_internal.h"

#include "base/bytes.h"
#include "store/state_format.h"

#define LOOK_AHEAD 1024u /* deleted rows passed to find the next one that will expire */

static void index_key(struct buf *out, struct span key, int64_t expires_at)
{
    buf_putc(out, STATE_KIND_KV_EXPIRY);
    buf_put_be64(out, (uint64_t)expires_at);
    buf_put_span(out, span_sub(key, 1, key.len));
}

void kv_expiry_put(struct state *s, struct span key, int64_t expires_at, uint32_t bytes)
{
    struct buf *cursor = state_kv_cursor(s);
    struct buf at = BUF_INIT, value = BUF_INIT;
    index_key(&at, key, expires_at);
    buf_put_le32(&value, bytes);
    state_row_put(s, buf_span(&at), buf_span(&value));
    if (cursor->len != 0 && span_cmp(buf_span(&at), buf_span(cursor)) < 0) {
        buf_reset(cursor);
        buf_put_span(cursor, buf_span(&at));
    }
    buf_deinit(&at);
    buf_deinit(&value);
}

void kv_expiry_remove(struct state *s, struct span key, int64_t expires_at)
{
    struct buf at = BUF_INIT;
    index_key(&at, key, expires_at);
    state_row_delete(s, buf_span(&at));
    buf_deinit(&at);
}

int64_t kv_expire_next(struct state *s)
{
    const struct buf *cursor = state_kv_cursor(s);
    if (cursor->len != 0 && cursor->ptr[0] != STATE_KIND_KV_EXPIRY)
        return INT64_MAX;
    if (cursor->len < KV_EXPIRY_KEY_AT)
        return INT64_MIN;
    return (int64_t)be64_get(cursor->ptr + 1);
}

/* Does it lead to a KV row: tenant, namespace, zero, key? */
static bool sound(struct span key, struct span value)
{
    size_t names_at = KV_EXPIRY_KEY_AT + sizeof(struct tenant_id);
    return key.len > names_at && memchr(key.ptr + names_at, 0, key.len - names_at) != NULL &&
           value.len == KV_EXPIRY_SIZE;
}

static void cursor_set(struct buf *cursor, struct span key)
{
    buf_reset(cursor);
    if (key.len != 0)
        buf_put_span(cursor, key);
    else
        buf_putc(cursor, STATE_KIND_KV_EXPIRY + 1); /* none is left */
}

/* Collects what expired at or before `now`: le32 length, key, le32 bytes. *stop_out: the first row
 * that is left; where the iterator has no more steps, a deleted one that is no greater; or empty. */
static enum err collect_from(struct state_iter *it, int64_t now, size_t limit, struct buf *rows,
                             size_t *n, struct span *stop_out, struct error *error)
{
    *stop_out = (struct span){0};
    for (; state_iter_valid(it); state_iter_next(it)) {
        struct span key = state_iter_key(it), value = state_iter_value(it);
        *stop_out = key;
        if (!sound(key, value))
            return error_set(error, ERR_CORRUPT, "an expiry of a KV row does not decode");
        if ((int64_t)be64_get(key.ptr + 1) > now || *n == limit)
            return ERR_OK;
        buf_put_le32(rows, (uint32_t)key.len);
        buf_put_span(rows, key);
        buf_put_span(rows, value);
        ++*n;
    }
    *stop_out = state_iter_spent(it) ? state_iter_key(it) : (struct span){0};
    return state_iter_error(it, error);
}

/* Goes on as long as there may be expired ones, and no further past deleted ones than need be. */
static enum err collect(struct state *s, int64_t now, size_t limit, struct buf *rows, size_t *n,
                        struct error *error)
{
    static const uint8_t end = STATE_KIND_KV_EXPIRY + 1;
    struct buf *cursor = state_kv_cursor(s);
    enum err err = ERR_OK;
    if (cursor->len == 0)
        buf_putc(cursor, STATE_KIND_KV_EXPIRY);
    for (bool more = true; more && err == ERR_OK;) {
        size_t steps = LOOK_AHEAD;
        struct span stop;
        struct state_iter *it =
            state_iter_new_bounded(s, buf_span(cursor), span_make(&end, 1), &steps);
        err = collect_from(it, now, limit, rows, n, &stop, error);
        cursor_set(cursor, stop);
        more = state_iter_spent(it) && *n != limit && kv_expire_next(s) <= now;
        state_iter_free(it);
    }
    return err;
}

static enum err remove_row(struct state *s, struct span index, uint32_t bytes, struct buf *key,
                           struct kv_tally *tally)
{
    buf_reset(key);
    buf_putc(key, STATE_KIND_KV);
    buf_put_span(key, span_sub(index, KV_EXPIRY_KEY_AT, index.len));
    state_row_delete(s, index);
    state_row_delete(s, buf_span(key));
    return kv_tally_add(tally, buf_span(key), -1, -(int64_t)bytes);
}

enum err kv_expire(struct state *s, int64_t now, size_t limit, struct error *error)
{
    struct buf rows = BUF_INIT, key = BUF_INIT;
    struct kv_tally tally = {.s = s, .error = error};
    size_t n = 0, at = 0;
    if (limit == 0 || kv_expire_next(s) > now)
        return ERR_OK;
    enum err err = collect(s, now, limit, &rows, &n, error);
    for (; n != 0 && err == ERR_OK; n--) {
        size_t len = le32_get(rows.ptr + at);
        struct span index = span_make(rows.ptr + at + 4, len);
        err = remove_row(s, index, le32_get(index.ptr + len), &key, &tally);
        at += 4 + len + KV_EXPIRY_SIZE;
    }
    enum err end = kv_tally_end(&tally);
    buf_deinit(&rows);
    buf_deinit(&key);
    return err == ERR_OK ? end : err;
}

enum err kv_expire_find(struct state *s, struct error *error)
{
    struct buf none = BUF_INIT;
    size_t n = 0;
    buf_reset(state_kv_cursor(s));
    return collect(s, INT64_MAX, 0, &none, &n, error);
}
