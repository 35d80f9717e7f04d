/* Checkpoints of the state (storage rule 3).
 *
 * Freezing is O(1): the active layer (overlay, drops, dirty lists, ids of deleted queues) becomes
 * the frozen one and a new active one begins. A hot row that changes while it belongs to the frozen
 * set has its row, as of the freeze, encoded into `images` by the touch before the change;
 * frozen_write takes those rows from there and encodes the others from the live structs. A row may
 * so come twice into the batch, with equal bytes.
 *
 * The batch, in this order: range deletes (partitions of deleted queues, dropped ranges) and queue
 * row deletes, then puts and deletes of single rows, then meta. Rows of queues that were deleted
 * before the freeze are not written; one deleted after it is written as it was, and the next
 * checkpoint removes it: the epochs in the queue tell which.
 *
 * A frozen object stays on the frozen list until frozen_done or frozen_failed takes it off,
 * whatever happens to it meanwhile; nothing on a list is ever freed. So frozen_write may walk the
 * lists in pieces with the lock released between them. */
#include "store/state_internal.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "store/state_format.h"

#define PIECE 4096u /* hot rows per hold of the lock: about a millisecond */

/* What a dirty hot row costs, for the memory bound: its row in the batch, with keys and overhead.
 */
#define HOT_ROW_BYTES 160u

void state_layer_deinit(struct layer *layer)
{
    omap_free(layer->rows);
    state_drops_deinit(&layer->drops);
    mem_free(layer->dead_ids.at);
    mem_free(layer->gone_ids.at);
    *layer = (struct layer){0};
}

/* --- touching --- */

static void image_put(struct buf *images, struct span key, struct span value)
{
    buf_put_le32(images, (uint32_t)key.len);
    buf_put_le32(images, (uint32_t)value.len);
    buf_put_span(images, key);
    buf_put_span(images, value);
}

static uint8_t parity(const struct state *s)
{
    return s->epoch & 1 ? DIRTY_PARITY : 0;
}

/* True when the row is to be put on the active list. */
static bool must_list(const struct state *s, uint8_t *dirty)
{
    if (*dirty & DIRTY_LISTED)
        return false;
    *dirty = (uint8_t)((*dirty & ~DIRTY_PARITY) | DIRTY_LISTED | parity(s));
    return true;
}

/* True when the frozen row has to be set aside now. */
static bool must_set_aside(const struct state *s, uint8_t *dirty)
{
    if ((*dirty & DIRTY_PARITY) == parity(s) || (*dirty & DIRTY_CHANGED))
        return false;
    *dirty |= DIRTY_CHANGED;
    return !s->is_finishing;
}

void state_queue_touch(struct state *s, struct queue *q)
{
    if (must_list(s, &q->dirty)) {
        q->next_dirty = s->active.queues;
        s->active.queues = q;
        s->active.hot_count++;
    } else if (must_set_aside(s, &q->dirty)) {
        struct buf key = BUF_INIT, value = BUF_INIT;
        state_queue_key(q->id, &key);
        state_queue_encode(q, &value);
        image_put(&s->images, buf_span(&key), buf_span(&value));
        buf_deinit(&key);
        buf_deinit(&value);
    }
}

void state_partition_touch(struct state *s, struct partition *p)
{
    if (must_list(s, &p->dirty)) {
        p->next_dirty = NULL;
        if (s->active.partitions == NULL)
            s->active.partitions = p;
        else
            s->active.last_partition->next_dirty = p;
        s->active.last_partition = p;
        s->active.hot_count++;
    } else if (must_set_aside(s, &p->dirty)) { /* on the hot path: straight into the side buffer */
        buf_put_le32(&s->images, PARTITION_KEY_SIZE);
        buf_put_le32(&s->images, (uint32_t)(PARTITION_NAME_AT + p->name.len));
        state_partition_key(p->queue->id, p->id, &s->images);
        state_partition_encode(p, &s->images);
    }
}

/* --- freezing and the batch --- */

size_t state_active_bytes(const struct state *s)
{
    return omap_bytes(s->active.rows) + s->active.hot_count * HOT_ROW_BYTES;
}

size_t state_dirty_bytes(const struct state *s)
{
    size_t bytes = state_active_bytes(s);
    if (s->frozen.rows != NULL)
        bytes += omap_bytes(s->frozen.rows);
    return bytes + s->frozen.hot_count * HOT_ROW_BYTES + s->images.len;
}

void state_freeze(struct state *s)
{
    ASSERT(!s->is_frozen);
    s->is_frozen = true;
    s->epoch++;
    s->frozen = s->active;
    s->active = state_layer_new();
    s->frozen_meta = s->meta;
}

uint64_t state_frozen_applied(const struct state *s)
{
    ASSERT(s->is_frozen);
    return s->frozen_meta.applied;
}

static void range_of_queue(uint64_t id, struct buf *from, struct buf *to)
{
    buf_reset(from);
    buf_reset(to);
    state_partition_key(id, 0, from);
    state_partition_key(id + 1, 0, to);
}

static void write_deletes(struct state *s, struct db_batch *batch)
{
    const struct db_ops *ops = s->db->ops;
    const struct layer *layer = &s->frozen;
    struct buf from = BUF_INIT, to = BUF_INIT;
    for (size_t i = 0; i < layer->dead_ids.n; i++) {
        range_of_queue(layer->dead_ids.at[i], &from, &to);
        ops->batch_delete_range(batch, buf_span(&from), buf_span(&to));
    }
    for (size_t i = 0; i < layer->gone_ids.n; i++) {
        buf_reset(&from);
        state_queue_key(layer->gone_ids.at[i], &from);
        ops->batch_delete(batch, buf_span(&from));
    }
    for (size_t i = 0; i < layer->drops.n; i++)
        ops->batch_delete_range(batch, buf_span(&layer->drops.at[i].from),
                                buf_span(&layer->drops.at[i].to));
    buf_deinit(&from);
    buf_deinit(&to);
}

struct row_writer {
    const struct db_ops *ops;
    struct db_batch *batch;
};

static void write_row(void *ctx, const struct omap_row *row)
{
    struct row_writer *w = ctx;
    if (row->deleted)
        w->ops->batch_delete(w->batch, row->key);
    else
        w->ops->batch_put(w->batch, row->key, row->value);
}

static void write_rows(struct state *s, struct db_batch *batch)
{
    omap_each(s->frozen.rows, write_row, &(struct row_writer){s->db->ops, batch});
}

/* Was it deleted when the frozen set was taken? */
static bool before_freeze(const struct state *s, uint64_t epoch)
{
    return epoch != 0 && epoch < s->epoch;
}

static void write_queues(struct state *s, struct db_batch *batch)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct queue *q = s->frozen.queues;
    while (q != NULL) {
        state_read_lock(s);
        for (unsigned i = 0; i < PIECE && q != NULL; i++, q = q->next_dirty) {
            if ((q->dirty & DIRTY_CHANGED) || before_freeze(s, q->gone_epoch))
                continue;
            buf_reset(&key);
            buf_reset(&value);
            state_queue_key(q->id, &key);
            state_queue_encode(q, &value);
            s->db->ops->batch_put(batch, buf_span(&key), buf_span(&value));
        }
        state_read_unlock(s);
    }
    buf_deinit(&key);
    buf_deinit(&value);
}

static void write_partitions(struct state *s, struct db_batch *batch)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct partition *p = s->frozen.partitions;
    while (p != NULL) {
        state_read_lock(s);
        for (unsigned i = 0; i < PIECE && p != NULL; i++, p = p->next_dirty) {
            if ((p->dirty & DIRTY_CHANGED) || before_freeze(s, p->queue->deleted_epoch))
                continue;
            buf_reset(&key);
            buf_reset(&value);
            state_partition_key(p->queue->id, p->id, &key);
            state_partition_encode(p, &value);
            s->db->ops->batch_put(batch, buf_span(&key), buf_span(&value));
        }
        state_read_unlock(s);
    }
    buf_deinit(&key);
    buf_deinit(&value);
}

/* After the two above: what was changed before they came by is in here. */
static void write_images(struct state *s, struct db_batch *batch)
{
    for (size_t at = 0, more = 1; more != 0;) {
        state_read_lock(s);
        for (unsigned i = 0; i < PIECE && at < s->images.len; i++) {
            size_t key_len = le32_get(s->images.ptr + at);
            size_t value_len = le32_get(s->images.ptr + at + 4);
            const uint8_t *row = s->images.ptr + at + 8;
            s->db->ops->batch_put(batch, span_make(row, key_len),
                                  span_make(row + key_len, value_len));
            at += 8 + key_len + value_len;
        }
        more = at < s->images.len;
        state_read_unlock(s);
    }
}

enum err state_frozen_write(struct state *s, struct db_batch *batch, struct error *error)
{
    (void)error; /* nothing can fail yet: batches live in memory */
    ASSERT(s->is_frozen);
    struct buf meta = BUF_INIT;
    write_deletes(s, batch);
    write_rows(s, batch);
    write_queues(s, batch);
    write_partitions(s, batch);
    write_images(s, batch);
    state_meta_encode(&s->frozen_meta, &meta);
    s->db->ops->batch_put(batch, SPAN_LIT("M"), buf_span(&meta));
    buf_deinit(&meta);
    return ERR_OK;
}

/* --- what becomes of the frozen set --- */

/* Takes up to `max` members off the frozen lists: onto the active list those that changed (or all
 * of them), freed what is dead, clean the rest. True while there are more. */
static bool thaw(struct state *s, bool all, size_t max)
{
    for (; s->frozen.partitions != NULL && max != 0; max--) {
        struct partition *p = s->frozen.partitions;
        bool changed = all || (p->dirty & DIRTY_CHANGED);
        s->frozen.partitions = p->next_dirty;
        s->frozen.hot_count--;
        p->next_dirty = NULL;
        if (p->dirty & DIRTY_REAPED) {
            p->dirty = 0;
            state_partition_release(s, p);
            continue;
        }
        p->dirty = 0;
        if (changed)
            state_partition_touch(s, p);
    }
    for (; s->frozen.queues != NULL && max != 0; max--) {
        struct queue *q = s->frozen.queues;
        bool changed = all || (q->dirty & DIRTY_CHANGED);
        s->frozen.queues = q->next_dirty;
        s->frozen.hot_count--;
        q->next_dirty = NULL;
        q->dirty = 0;
        if (q->gone_epoch != 0)
            state_queue_release(s, q);
        else if (changed)
            state_queue_touch(s, q);
    }
    return s->frozen.partitions != NULL || s->frozen.queues != NULL;
}

void state_frozen_done(struct state *s)
{
    state_write_lock(s);
    ASSERT(s->is_frozen);
    s->is_finishing = true;
    struct omap *rows = s->frozen.rows;
    struct buf images = s->images;
    s->frozen.rows = NULL;
    s->images = BUF_INIT;
    state_drops_deinit(&s->frozen.drops);
    while (thaw(s, false, PIECE)) {
        state_write_unlock(s);
        state_write_lock(s);
    }
    ASSERT(s->frozen.hot_count == 0);
    state_layer_deinit(&s->frozen);
    s->is_finishing = false;
    s->is_frozen = false;
    state_write_unlock(s);
    omap_free(rows); /* without the lock: as much work as there are rows */
    buf_deinit(&images);
}

static void swap_rows(struct layer *a, struct layer *b)
{
    struct layer old = *a;
    a->rows = b->rows;
    a->drops = b->drops;
    a->dedup_low = b->dedup_low;
    a->dedup_high = b->dedup_high;
    b->rows = old.rows;
    b->drops = old.drops;
}

static void put_row(void *ctx, const struct omap_row *row)
{
    state_layer_put(ctx, row);
}

/* The active rows over the frozen ones, as one layer. */
static void merge_rows(struct state *s)
{
    struct layer *below = &s->frozen, *above = &s->active;
    for (size_t i = 0; i < above->drops.n; i++)
        state_layer_drop(below, buf_span(&above->drops.at[i].from),
                         buf_span(&above->drops.at[i].to));
    omap_each(above->rows, put_row, below);
    swap_rows(above, below);
}

void state_frozen_failed(struct state *s)
{
    state_write_lock(s);
    ASSERT(s->is_frozen);
    merge_rows(s);
    for (size_t i = 0; i < s->frozen.dead_ids.n; i++)
        id_list_add(&s->active.dead_ids, s->frozen.dead_ids.at[i]);
    for (size_t i = 0; i < s->frozen.gone_ids.n; i++)
        id_list_add(&s->active.gone_ids, s->frozen.gone_ids.at[i]);
    s->is_finishing = true;        /* no images of what is being thawed */
    (void)thaw(s, true, SIZE_MAX); /* all of them in one hold: the merge is one step */
    s->is_finishing = false;
    buf_reset(&s->images);
    state_layer_deinit(&s->frozen);
    s->is_frozen = false;
    state_write_unlock(s);
}
