/* Rows of the unbounded kinds: what changed since the last checkpoint lies in ordered maps above
 * the database. Newest first:
 *
 *   active rows, active drops, frozen rows, frozen drops, database
 *
 * A drop (a range of keys that no longer counts) hides the layers below it; rows of its own layer
 * were put after it and win. The frozen layer never changes: the checkpoint reads it without the
 * lock. */
#include "store/state_internal.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "store/state_format.h"

struct layer state_layer_new(void)
{
    return (struct layer){.rows = omap_new(), .dedup_low = UINT64_MAX};
}

static bool dedup_number(struct span key, uint64_t *out)
{
    if (key.len < sizeof(*out) || key.ptr[0] != STATE_KIND_DEDUP)
        return false;
    *out = be64_get(key.ptr);
    return true;
}

void state_layer_put(struct layer *layer, const struct omap_row *row)
{
    uint64_t number;
    if (dedup_number(row->key, &number)) {
        if (number < layer->dedup_low)
            layer->dedup_low = number;
        if (number > layer->dedup_high)
            layer->dedup_high = number;
    }
    if (row->deleted)
        omap_put_tombstone(layer->rows, row->key);
    else
        omap_put(layer->rows, row->key, row->value);
}

/* --- drops --- */

static void range_deinit(struct range *r)
{
    buf_deinit(&r->from);
    buf_deinit(&r->to);
}

void state_drops_deinit(struct range_list *drops)
{
    for (size_t i = 0; i < drops->n; i++)
        range_deinit(&drops->at[i]);
    mem_free(drops->at);
    *drops = (struct range_list){0};
}

bool state_drops_hide(const struct range_list *drops, struct span key, struct span *end_out)
{
    for (size_t i = 0; i < drops->n; i++) {
        const struct range *r = &drops->at[i];
        if (span_cmp(key, buf_span(&r->from)) >= 0 && span_cmp(key, buf_span(&r->to)) < 0) {
            *end_out = buf_span(&r->to);
            return true;
        }
    }
    return false;
}

static bool range_touches(const struct range *a, const struct range *b)
{
    return span_cmp(buf_span(&a->from), buf_span(&b->to)) <= 0 &&
           span_cmp(buf_span(&b->from), buf_span(&a->to)) <= 0;
}

/* Swaps in the bound of `from` where it reaches further than that of `into`. */
static void range_widen(struct range *into, struct range *from)
{
    struct buf old;
    if (span_cmp(buf_span(&from->from), buf_span(&into->from)) < 0) {
        old = into->from;
        into->from = from->from;
        from->from = old;
    }
    if (span_cmp(buf_span(&from->to), buf_span(&into->to)) > 0) {
        old = into->to;
        into->to = from->to;
        from->to = old;
    }
}

/* Joins every range it touches: the list stays as short as the holes in it. */
static void drops_add(struct range_list *drops, struct span from, struct span to)
{
    struct range joined = {BUF_INIT, BUF_INIT};
    buf_put_span(&joined.from, from);
    buf_put_span(&joined.to, to);
    for (size_t i = 0; i < drops->n;) {
        if (!range_touches(&joined, &drops->at[i])) {
            i++;
            continue;
        }
        range_widen(&joined, &drops->at[i]);
        range_deinit(&drops->at[i]);
        drops->at[i] = drops->at[--drops->n];
        i = 0; /* the wider range may touch ones passed already */
    }
    if (drops->n == drops->cap) {
        drops->cap = drops->cap == 0 ? 4 : drops->cap * 2;
        drops->at = mem_grow(drops->at, drops->cap * sizeof(*drops->at));
    }
    drops->at[drops->n++] = joined;
}

void state_layer_drop(struct layer *layer, struct span from, struct span to)
{
    struct omap_row row;
    if (span_cmp(from, to) >= 0)
        return;
    while (omap_seek(layer->rows, from, false, &row) && span_cmp(row.key, to) < 0)
        omap_erase(layer->rows, row.key);
    drops_add(&layer->drops, from, to);
}

void state_rows_drop(struct state *s, struct span from, struct span to)
{
    state_layer_drop(&s->active, from, to);
}

/* --- single rows --- */

/* What a layer says about a key. */
enum verdict { FOUND, HIDDEN, BELOW };

static enum verdict layer_look(const struct layer *layer, struct span key, struct omap_row *row)
{
    struct span end;
    uint64_t number;
    if (layer->rows == NULL)
        return BELOW;
    bool outside =
        dedup_number(key, &number) && (number < layer->dedup_low || number > layer->dedup_high);
    if (!outside && omap_get(layer->rows, key, row))
        return row->deleted ? HIDDEN : FOUND;
    return state_drops_hide(&layer->drops, key, &end) ? HIDDEN : BELOW;
}

enum err state_row_get(struct state *s, struct span key, struct buf *value_out, struct error *error)
{
    struct omap_row row;
    enum verdict verdict = layer_look(&s->active, key, &row);
    if (verdict == BELOW)
        verdict = layer_look(&s->frozen, key, &row);
    switch (verdict) {
    case FOUND:
        buf_put_span(value_out, row.value);
        return ERR_OK;
    case HIDDEN:
        return ERR_NOT_FOUND;
    case BELOW:
        break;
    }
    return s->db->ops->get(s->db, key, value_out, error);
}

void state_row_put(struct state *s, struct span key, struct span value)
{
    state_layer_put(&s->active, &(struct omap_row){key, value, false});
}

void state_row_delete(struct state *s, struct span key)
{
    state_layer_put(&s->active, &(struct omap_row){key, SPAN_LIT(""), true});
}

/* --- iteration --- */

struct source {
    const struct layer *layer;
    struct omap_row row;
    bool valid;
};

struct state_iter {
    struct state *s;
    struct source active, frozen;
    struct db_iter *db;
    struct span key, value; /* valid while `valid` */
    bool valid;
    struct span to;
    size_t *steps; /* NULL: any number */
    bool spent;
};

static void source_seek(struct source *src, struct span from, bool strict)
{
    src->valid = src->layer->rows != NULL && omap_seek(src->layer->rows, from, strict, &src->row);
}

/* Moves the two lower sources past what the layers above them dropped. */
static void skip_hidden(struct state_iter *it)
{
    const struct db_ops *ops = it->s->db->ops;
    struct span end;
    while (it->frozen.valid && state_drops_hide(&it->s->active.drops, it->frozen.row.key, &end))
        source_seek(&it->frozen, end, false);
    while (ops->iter_valid(it->db) &&
           (state_drops_hide(&it->s->active.drops, ops->iter_key(it->db), &end) ||
            state_drops_hide(&it->s->frozen.drops, ops->iter_key(it->db), &end)))
        ops->iter_seek(it->db, end);
}

/* Every source that stands on the key moves on. */
static void advance(struct state_iter *it, struct span key)
{
    const struct db_ops *ops = it->s->db->ops;
    bool frozen = it->frozen.valid && span_eq(it->frozen.row.key, key);
    bool db = ops->iter_valid(it->db) && span_eq(ops->iter_key(it->db), key);
    if (it->active.valid && span_eq(it->active.row.key, key))
        source_seek(&it->active, it->active.row.key, true);
    if (frozen)
        source_seek(&it->frozen, it->frozen.row.key, true);
    if (db) /* last: key may point into the iterator */
        ops->iter_next(it->db);
}

/* Settles on the first key that is not deleted. */
static void settle(struct state_iter *it)
{
    const struct db_ops *ops = it->s->db->ops;
    for (;;) {
        skip_hidden(it);
        struct omap_row best = {0};
        it->valid = false;
        if (ops->iter_valid(it->db)) {
            best = (struct omap_row){ops->iter_key(it->db), ops->iter_value(it->db), false};
            it->valid = true;
        }
        if (it->frozen.valid && (!it->valid || span_cmp(it->frozen.row.key, best.key) <= 0)) {
            best = it->frozen.row;
            it->valid = true;
        }
        if (it->active.valid && (!it->valid || span_cmp(it->active.row.key, best.key) <= 0)) {
            best = it->active.row;
            it->valid = true;
        }
        if (it->valid && it->to.len != 0 && span_cmp(best.key, it->to) >= 0)
            it->valid = false;
        if (!it->valid || !best.deleted) {
            it->key = best.key;
            it->value = best.value;
            return;
        }
        if (it->steps != NULL && *it->steps == 0) {
            it->key = best.key;
            it->valid = false;
            it->spent = true;
            return;
        }
        if (it->steps != NULL)
            --*it->steps;
        advance(it, best.key);
    }
}

struct state_iter *state_iter_new(struct state *s, struct span from, struct span to)
{
    return state_iter_new_bounded(s, from, to, NULL);
}

struct state_iter *state_iter_new_bounded(struct state *s, struct span from, struct span to,
                                          size_t *steps)
{
    struct state_iter *it = mem_new(sizeof(*it));
    it->s = s;
    it->to = to;
    it->steps = steps;
    it->active.layer = &s->active;
    it->frozen.layer = &s->frozen;
    it->db = s->db->ops->iter_new(s->db, to);
    s->db->ops->iter_seek(it->db, from);
    source_seek(&it->active, from, false);
    source_seek(&it->frozen, from, false);
    settle(it);
    return it;
}

void state_iter_free(struct state_iter *it)
{
    if (it == NULL)
        return;
    it->s->db->ops->iter_free(it->db);
    mem_free(it);
}

bool state_iter_valid(struct state_iter *it)
{
    return it->valid;
}

bool state_iter_spent(struct state_iter *it)
{
    return it->spent;
}

struct span state_iter_key(struct state_iter *it)
{
    return it->key;
}

struct span state_iter_value(struct state_iter *it)
{
    return it->value;
}

void state_iter_next(struct state_iter *it)
{
    advance(it, it->key);
    settle(it);
}

enum err state_iter_error(struct state_iter *it, struct error *error)
{
    return it->s->db->ops->iter_error(it->db, error);
}
