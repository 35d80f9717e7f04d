/* Deduplication rows; the layout is in dedup.h and store/state_format.h.
 *
 * A queue writes rows into the class of its current window, in buckets by stamp. When its window
 * moves to another class the old rows stay where they are; the queue remembers until which stamp
 * there may be any (dedup_until). A row counts when its stamp is within the window and not below
 * the queue's floor, which a raise of the window sets to where the old window began: rows from
 * there on are certain to be kept.
 *
 * So the stamps that may count in a class are one interval per queue, never longer than the class:
 * for the current class [max(now - window, floor), now], for an old one the same cut at
 * dedup_until. Why an old one is not longer: a raise at T set the floor to T - old window, and
 * lowering only shortens. Hence at most nine buckets to look into, and the sweep may drop every
 * bucket outside all queues' intervals. */
#include "broker/dedup.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/timefmt.h"
#include "broker/dedup_window.h"
#include "store/state_format.h"

unsigned dedup_class(int32_t window_seconds)
{
    unsigned c = QUEUE_DEDUP_CLASS_MIN;
    while (c < QUEUE_DEDUP_CLASS_MAX && (int64_t)1 << c < window_seconds)
        c++;
    return c;
}

static int64_t bucket_width(unsigned c)
{
    return (((int64_t)1 << c) / 8) * US_PER_SEC;
}

static uint32_t bucket_of(unsigned c, int64_t stamp)
{
    return stamp <= 0 ? 0 : (uint32_t)(stamp / bucket_width(c));
}

static void key_make(uint8_t key[DEDUP_KEY_SIZE], unsigned c, uint32_t bucket,
                     uint64_t partition_id, struct span transaction_id)
{
    uint8_t digest[SHA256_SIZE];
    sha256(transaction_id, digest);
    key[0] = STATE_KIND_DEDUP;
    key[DEDUP_CLASS_AT] = (uint8_t)c;
    be32_put(key + DEDUP_BUCKET_AT, bucket);
    be64_put(key + DEDUP_PARTITION_AT, partition_id);
    memcpy(key + DEDUP_HASH_AT, digest, DEDUP_HASH_SIZE);
}

/* Stamps of this queue's rows in class c that count at `now`; false when there are none. */
static bool interval(const struct queue *q, unsigned c, int64_t now, int64_t *from_out,
                     int64_t *to_out)
{
    int32_t window = q->options.dedup_window_seconds;
    if (window == 0 || !(q->dedup_classes & 1u << c))
        return false;
    int64_t from = now - (int64_t)window * US_PER_SEC;
    if (from < q->dedup_floor)
        from = q->dedup_floor;
    int64_t to = now;
    if (c != dedup_class(window))
        to = q->dedup_until[c - QUEUE_DEDUP_CLASS_MIN];
    *from_out = from;
    *to_out = to;
    return from <= to;
}

static bool row_decode(struct span value, struct dedup_hit *out)
{
    if (value.len != DEDUP_SIZE)
        return false;
    out->offset = le64_get(value.ptr + DEDUP_OFFSET_AT);
    memcpy(out->message_id.bytes, value.ptr + DEDUP_ID_AT, sizeof(out->message_id.bytes));
    out->stamp = (int64_t)le64_get(value.ptr + DEDUP_STAMP_AT);
    return true;
}

/* Newest bucket first: most repeats come soon. */
static enum err find_in_class(struct state *s, unsigned c, int64_t from, int64_t to, uint8_t *key,
                              struct buf *value, struct dedup_hit *out, struct error *error)
{
    uint32_t first = bucket_of(c, from);
    key[DEDUP_CLASS_AT] = (uint8_t)c;
    for (uint32_t bucket = bucket_of(c, to);; bucket--) {
        struct dedup_hit hit;
        be32_put(key + DEDUP_BUCKET_AT, bucket);
        buf_reset(value);
        enum err err = state_row_get(s, span_make(key, DEDUP_KEY_SIZE), value, error);
        if (err != ERR_OK && err != ERR_NOT_FOUND)
            return err;
        if (err == ERR_OK && !row_decode(buf_span(value), &hit))
            return error_set(error, ERR_CORRUPT, "a dedup row of %zu bytes", value->len);
        if (err == ERR_OK && hit.stamp >= from && hit.stamp <= to) {
            *out = hit;
            return ERR_OK;
        }
        if (bucket == first)
            return ERR_NOT_FOUND;
    }
}

enum err dedup_find(struct state *s, const struct partition *p, struct span transaction_id,
                    int64_t now, struct dedup_hit *out, struct error *error)
{
    uint8_t key[DEDUP_KEY_SIZE];
    struct buf value = BUF_INIT;
    bool made = false;
    enum err err = ERR_NOT_FOUND;
    for (unsigned c = QUEUE_DEDUP_CLASS_MIN; c <= QUEUE_DEDUP_CLASS_MAX && err == ERR_NOT_FOUND;
         c++) {
        int64_t from, to;
        if (!interval(p->queue, c, now, &from, &to))
            continue;
        if (from < p->created_at) /* spares a young partition most of the looking */
            from = p->created_at;
        if (to > p->last_write_at) /* and an idle or new one */
            to = p->last_write_at;
        if (from > to)
            continue;
        if (!made)
            key_make(key, c, 0, p->id, transaction_id);
        made = true;
        err = find_in_class(s, c, from, to, key, &value, out, error);
    }
    buf_deinit(&value);
    return err;
}

void dedup_put(struct state *s, struct partition *p, struct span transaction_id,
               const struct dedup_hit *row)
{
    struct queue *q = p->queue;
    if (q->options.dedup_window_seconds == 0)
        return;
    unsigned c = dedup_class(q->options.dedup_window_seconds);
    if (!(q->dedup_classes & 1u << c)) {
        state_queue_touch(s, q);
        q->dedup_classes |= 1u << c;
    }
    uint8_t key[DEDUP_KEY_SIZE], value[DEDUP_SIZE];
    key_make(key, c, bucket_of(c, row->stamp), p->id, transaction_id);
    le64_put(value + DEDUP_OFFSET_AT, row->offset);
    memcpy(value + DEDUP_ID_AT, row->message_id.bytes, sizeof(row->message_id.bytes));
    le64_put(value + DEDUP_STAMP_AT, (uint64_t)row->stamp);
    state_row_put(s, span_make(key, sizeof(key)), span_make(value, sizeof(value)));
}

void dedup_window_set(struct state *s, struct queue *q, int32_t window, int64_t now)
{
    int32_t old = q->options.dedup_window_seconds;
    if (window == old)
        return;
    state_queue_touch(s, q);
    if (window > old) {
        int64_t kept_from = now - (int64_t)old * US_PER_SEC; /* old 0: nothing was kept */
        if (kept_from > q->dedup_floor)
            q->dedup_floor = kept_from;
    }
    unsigned old_class = dedup_class(old);
    if ((q->dedup_classes & 1u << old_class) && (window == 0 || dedup_class(window) != old_class))
        q->dedup_until[old_class - QUEUE_DEDUP_CLASS_MIN] = now;
    q->options.dedup_window_seconds = window;
    if (window != 0)
        q->dedup_until[dedup_class(window) - QUEUE_DEDUP_CLASS_MIN] = 0;
    for (unsigned c = QUEUE_DEDUP_CLASS_MIN; c <= QUEUE_DEDUP_CLASS_MAX; c++) {
        int64_t from, to; /* classes without any row that can still count are forgotten */
        if ((q->dedup_classes & 1u << c) && !interval(q, c, now, &from, &to)) {
            q->dedup_classes &= ~(1u << c);
            q->dedup_until[c - QUEUE_DEDUP_CLASS_MIN] = 0;
        }
    }
}

/* --- sweeping --- */

/* Which buckets of each class some queue still needs, gathered over many short holds of the lock.
 * Meanwhile nothing is needed that was not before: the stamps that count of a queue begin at a
 * moment that never moves back, and a queue made meanwhile has no rows in the buckets before
 * now's, which alone are dropped. */

#define SWEEP_EVERY_US (16 * US_PER_SEC) /* an eighth of the narrowest bucket */
#define SWEEP_QUEUES 4096u               /* per hold of the lock */

struct bucket_range {
    uint32_t from, to; /* both inclusive */
};

struct class_needs {
    struct bucket_range *at;
    size_t n, cap;
};

struct sweep {
    struct state *s;
    int64_t now;
    struct class_needs needs[QUEUE_DEDUP_CLASSES];
};

static int range_order(const void *a, const void *b)
{
    const struct bucket_range *ra = a, *rb = b;
    return (ra->from > rb->from) - (ra->from < rb->from);
}

/* Nearly all queues need the same buckets as one before them. */
static void need(struct class_needs *needs, uint32_t from, uint32_t to)
{
    for (size_t i = needs->n; i > 0 && i + 8 > needs->n; i--) {
        struct bucket_range *r = &needs->at[i - 1];
        if (from > r->to || to < r->from)
            continue;
        r->from = from < r->from ? from : r->from;
        r->to = to > r->to ? to : r->to;
        return;
    }
    if (needs->n == needs->cap) {
        needs->cap = needs->cap == 0 ? 8 : 2 * needs->cap;
        needs->at = mem_grow(needs->at, needs->cap * sizeof(*needs->at));
    }
    needs->at[needs->n++] = (struct bucket_range){from, to};
}

static void queue_needs(struct sweep *w, const struct queue *q)
{
    for (uint32_t left = q->dedup_classes; left != 0; left &= left - 1) {
        unsigned c = (unsigned)__builtin_ctz(left);
        int64_t from, to;
        if (interval(q, c, w->now, &from, &to))
            need(&w->needs[c - QUEUE_DEDUP_CLASS_MIN], bucket_of(c, from), bucket_of(c, to));
    }
}

static void gather_needs(struct sweep *w)
{
    uint64_t id = 1;
    for (bool more = true; more;) {
        state_read_lock(w->s);
        uint64_t end = state_meta(w->s)->next_queue_id;
        for (unsigned i = 0; i < SWEEP_QUEUES && id < end; i++, id++) {
            const struct queue *q = state_queue_by_id(w->s, id);
            if (q != NULL && !q->dead)
                queue_needs(w, q);
        }
        more = id < end;
        state_read_unlock(w->s);
    }
}

/* Drops buckets [from, to) of a class, when there is any row in them. */
static void drop_buckets(struct state *s, unsigned c, uint32_t from, uint32_t to)
{
    uint8_t first[DEDUP_PARTITION_AT] = {STATE_KIND_DEDUP, (uint8_t)c};
    uint8_t end[DEDUP_PARTITION_AT] = {STATE_KIND_DEDUP, (uint8_t)c};
    if (from >= to)
        return;
    be32_put(first + DEDUP_BUCKET_AT, from);
    be32_put(end + DEDUP_BUCKET_AT, to);
    struct span from_key = span_make(first, sizeof(first)), to_key = span_make(end, sizeof(end));
    state_read_lock(s);
    struct state_iter *it = state_iter_new(s, from_key, to_key);
    bool any = state_iter_valid(it);
    state_iter_free(it);
    state_read_unlock(s);
    if (!any)
        return;
    state_write_lock(s);
    state_rows_drop(s, from_key, to_key);
    state_write_unlock(s);
}

static void sweep_class(struct state *s, unsigned c, struct class_needs *needs, uint32_t now)
{
    if (needs->n != 0)
        qsort(needs->at, needs->n, sizeof(*needs->at), range_order);
    uint32_t at = 0; /* below it everything is dropped or needed */
    for (size_t i = 0; i < needs->n; i++) {
        drop_buckets(s, c, at, needs->at[i].from);
        if (needs->at[i].to >= at)
            at = needs->at[i].to + 1;
    }
    drop_buckets(s, c, at, now);
}

void dedup_sweep(struct state *s, int64_t *last, int64_t now)
{
    struct sweep w = {.s = s, .now = now};
    if (now - *last < SWEEP_EVERY_US)
        return;
    *last = now;
    gather_needs(&w);
    for (unsigned c = QUEUE_DEDUP_CLASS_MIN; c <= QUEUE_DEDUP_CLASS_MAX; c++) {
        struct class_needs *needs = &w.needs[c - QUEUE_DEDUP_CLASS_MIN];
        sweep_class(s, c, needs, bucket_of(c, now));
        mem_free(needs->at);
    }
}
