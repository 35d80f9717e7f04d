/* Where the runs of a partition are: the index in memory of a log's active segment, and the blocks
 * that a sealed segment ends in.
 *
 * In memory: one node of 40 bytes a run, in order of position, which is the order of stamps too; so
 * a search by stamp bisects them. The runs of one partition are chained backwards with jumps, so
 * that a search by offset costs O(log runs) without an array for each of perhaps a million
 * partitions.
 *
 * On disk: a static B-tree over (partition id, first offset), built once when the segment is sealed
 * and read with one pread of 4 KiB a level: three of them for a million runs, and no cache to
 * bound. The greatest and least partition id in the footer answer for most segments that a young or
 * an old partition is not in. */
#include "store/qlog_internal.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/mem.h"

#include <stdlib.h>

#define CHUNK_NODES 1024u
#define FIRST_NODES_MIN 4u /* the first chunk grows from here: most of many logs are small */

void qlog_active_init(struct qlog_active *a, uint64_t first)
{
    *a = (struct qlog_active){.first = first, .by_id = MAP64_INIT};
}

void qlog_active_deinit(struct qlog_active *a)
{
    for (uint32_t i = 0; i < a->chunks_cap; i++)
        mem_free(a->chunks[i]);
    mem_free(a->chunks);
    mem_free(a->slots);
    map64_deinit(&a->by_id);
    *a = (struct qlog_active){.by_id = MAP64_INIT};
}

static struct qlog_node *node_at(const struct qlog_active *a, uint32_t i)
{
    return &a->chunks[i / CHUNK_NODES][i % CHUNK_NODES];
}

/* Pointers to nodes of the first chunk do not survive it. */
static struct qlog_node *node_push(struct qlog_active *a)
{
    uint32_t chunk = a->n / CHUNK_NODES;
    if (chunk == a->chunks_cap) {
        uint32_t cap = a->chunks_cap > 0 ? 2 * a->chunks_cap : 4;
        a->chunks = mem_grow(a->chunks, cap * sizeof(a->chunks[0]));
        memset(a->chunks + a->chunks_cap, 0, (cap - a->chunks_cap) * sizeof(a->chunks[0]));
        a->chunks_cap = cap;
    }
    if (chunk == 0 && a->n == a->first_cap) {
        a->first_cap = a->first_cap > 0 ? 2 * a->first_cap : FIRST_NODES_MIN;
        a->chunks[0] = mem_grow(a->chunks[0], a->first_cap * sizeof(a->chunks[0][0]));
    }
    if (a->chunks[chunk] == NULL)
        a->chunks[chunk] = MEM_ARRAY(struct qlog_node, CHUNK_NODES);
    return node_at(a, a->n++);
}

/* Slot of the partition, or QLOG_NONE. */
static uint32_t slot_find(const struct qlog_active *a, uint64_t partition_id)
{
    uintptr_t found = (uintptr_t)map64_get(&a->by_id, partition_id);
    return found == 0 ? QLOG_NONE : (uint32_t)(found - 1);
}

static uint32_t slot_add(struct qlog_active *a, uint64_t partition_id)
{
    if (a->slots_n == a->slots_cap) {
        a->slots_cap = a->slots_cap > 0 ? 2 * a->slots_cap : 8;
        a->slots = mem_grow(a->slots, a->slots_cap * sizeof(a->slots[0]));
    }
    uint32_t slot = a->slots_n++;
    a->slots[slot] = (struct qlog_slot){.partition_id = partition_id, .last = QLOG_NONE};
    (void)map64_put(&a->by_id, partition_id, (void *)((uintptr_t)slot + 1)); /* it was not there */
    return slot;
}

/* Sets the chain fields of node i, whose predecessor in its partition is `prev`. */
static void chain(struct qlog_active *a, uint32_t i, uint32_t prev)
{
    struct qlog_node *node = node_at(a, i);
    node->prev = prev;
    if (prev == QLOG_NONE) {
        node->jump = i;
        node->depth = 0;
        return;
    }
    const struct qlog_node *p = node_at(a, prev);
    const struct qlog_node *pj = node_at(a, p->jump);
    const struct qlog_node *pjj = node_at(a, pj->jump);
    node->depth = p->depth + 1;
    node->jump = p->depth - pj->depth == pj->depth - pjj->depth ? pj->jump : prev;
}

bool qlog_active_add(struct qlog_active *a, const struct qlog_run_head *head)
{
    if (head->position < a->first || head->position - a->first > UINT32_MAX || a->n == QLOG_NONE ||
        (a->n > 0 && node_at(a, a->n - 1)->stamp > head->stamp))
        return false;
    uint32_t slot = slot_find(a, head->partition_id);
    if (slot != QLOG_NONE) {
        const struct qlog_node *last = node_at(a, a->slots[slot].last);
        if (head->first_offset < last->first_offset + last->count)
            return false;
    } else {
        slot = slot_add(a, head->partition_id);
    }
    uint32_t i = a->n;
    struct qlog_node *node = node_push(a);
    node->first_offset = head->first_offset;
    node->stamp = head->stamp;
    node->at = (uint32_t)(head->position - a->first);
    node->count = head->count;
    node->slot = slot;
    chain(a, i, a->slots[slot].last);
    a->slots[slot].last = i;
    return true;
}

bool qlog_active_seek_stamp(const struct qlog_active *a, int64_t stamp, uint64_t *position_out)
{
    uint32_t lo = 0;
    uint32_t hi = a->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (node_at(a, mid)->stamp < stamp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == a->n)
        return false;
    *position_out = a->first + node_at(a, lo)->at;
    return true;
}

/* The first node of the chain that starts above `offset`, given one that does. */
static const struct qlog_node *chain_above(const struct qlog_active *a,
                                           const struct qlog_node *node, uint64_t offset)
{
    while (node->prev != QLOG_NONE) {
        const struct qlog_node *jump = node_at(a, node->jump);
        const struct qlog_node *prev = node_at(a, node->prev);
        if (jump->first_offset > offset)
            node = jump;
        else if (prev->first_offset > offset)
            node = prev;
        else
            break;
    }
    return node;
}

void qlog_active_around(const struct qlog_active *a, uint64_t partition_id, uint64_t offset,
                        struct qlog_around *out)
{
    *out = (struct qlog_around){0};
    uint32_t slot = slot_find(a, partition_id);
    if (slot == QLOG_NONE)
        return;
    const struct qlog_node *floor = node_at(a, a->slots[slot].last);
    if (floor->first_offset > offset) {
        const struct qlog_node *above = chain_above(a, floor, offset);
        out->has_above = true;
        out->above = a->first + above->at;
        floor = above->prev == QLOG_NONE ? NULL : node_at(a, above->prev);
    }
    if (floor != NULL) {
        out->has_floor = true;
        out->floor = a->first + floor->at;
        out->floor_behind = floor->first_offset + floor->count;
    }
}

/* ---- Sealing ---- */

struct slot_order {
    uint64_t partition_id;
    uint32_t slot;
};

static int slot_order_cmp(const void *a, const void *b)
{
    const struct slot_order *x = a;
    const struct slot_order *y = b;
    return x->partition_id < y->partition_id ? -1 : x->partition_id > y->partition_id;
}

/* Node numbers in order of (partition id, first offset): a counting sort, as the nodes of a
 * partition are in order already. Returns owned; mem_free(). */
static uint32_t *nodes_sorted(const struct qlog_active *a, struct qlog_footer *footer)
{
    struct slot_order *order = MEM_ARRAY(struct slot_order, a->slots_n);
    for (uint32_t i = 0; i < a->slots_n; i++)
        order[i] = (struct slot_order){a->slots[i].partition_id, i};
    qsort(order, a->slots_n, sizeof(order[0]), slot_order_cmp);
    footer->partition_min = order[0].partition_id;
    footer->partition_max = order[a->slots_n - 1].partition_id;

    uint32_t *next = MEM_ARRAY(uint32_t, a->slots_n); /* by slot: where its next node goes */
    uint32_t at = 0;
    for (uint32_t i = 0; i < a->slots_n; i++) {
        next[order[i].slot] = at;
        at += node_at(a, a->slots[order[i].slot].last)->depth + 1;
    }
    ASSERT(at == a->n);
    uint32_t *sorted = MEM_ARRAY(uint32_t, a->n);
    for (uint32_t i = 0; i < a->n; i++)
        sorted[next[node_at(a, i)->slot]++] = i;
    mem_free(next);
    mem_free(order);
    return sorted;
}

/* Writes one level of blocks over n entries and returns their keys, an entry for each block: the
 * entries of the level above. */
static struct qlog_entry *put_level(uint64_t first, uint32_t *number, uint16_t level,
                                    const struct qlog_entry *entries, uint32_t n, struct buf *out)
{
    uint32_t blocks = (n - 1) / QLOG_BLOCK_ENTRIES + 1;
    struct qlog_entry *above = MEM_ARRAY(struct qlog_entry, blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        const struct qlog_entry *from = entries + (size_t)i * QLOG_BLOCK_ENTRIES;
        uint32_t left = n - i * QLOG_BLOCK_ENTRIES;
        above[i] = (struct qlog_entry){from->partition_id, from->first_offset, *number, 0};
        qlog_block_encode(first, *number, level, from,
                          left < QLOG_BLOCK_ENTRIES ? left : QLOG_BLOCK_ENTRIES,
                          buf_extend(out, QLOG_BLOCK_SIZE));
        ++*number;
    }
    return above;
}

static void put_blocks(const struct qlog_active *a, const uint32_t *sorted, struct buf *out,
                       struct qlog_footer *footer)
{
    struct qlog_entry *entries = MEM_ARRAY(struct qlog_entry, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct qlog_node *node = node_at(a, sorted[i]);
        entries[i] = (struct qlog_entry){
            .partition_id = a->slots[node->slot].partition_id,
            .first_offset = node->first_offset,
            .position = a->first + node->at,
            .stamp = node->stamp,
        };
    }
    uint32_t number = 0;
    uint32_t n = a->n;
    for (uint16_t level = 0; level == 0 || n > 1; level++) {
        struct qlog_entry *above = put_level(a->first, &number, level, entries, n, out);
        mem_free(entries);
        entries = above;
        n = (n - 1) / QLOG_BLOCK_ENTRIES + 1;
        if (level == 0)
            footer->leaves = n;
    }
    mem_free(entries);
    footer->blocks = number;
}

static void put_marks(const struct qlog_active *a, struct buf *out, struct qlog_footer *footer)
{
    size_t from = out->len;
    uint64_t due = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct qlog_node *node = node_at(a, i);
        if (node->at < due)
            continue;
        buf_put_le64(out, (uint64_t)node->stamp);
        buf_put_le64(out, a->first + node->at);
        footer->marks++;
        due = (uint64_t)node->at + QLOG_MARK_SPACING;
    }
    footer->marks_crc = crc32c(0, out->ptr + from, out->len - from);
}

void qlog_active_seal(const struct qlog_active *a, uint64_t run_bytes, struct buf *out,
                      struct qlog_footer *footer_out)
{
    ASSERT(a->n > 0);
    struct qlog_footer footer = {
        .first = a->first,
        .run_bytes = run_bytes,
        .runs = a->n,
        .first_stamp = node_at(a, 0)->stamp,
        .last_stamp = node_at(a, a->n - 1)->stamp,
    };
    uint32_t *sorted = nodes_sorted(a, &footer);
    put_blocks(a, sorted, out, &footer);
    mem_free(sorted);
    put_marks(a, out, &footer);
    qlog_footer_encode(&footer, buf_extend(out, QLOG_FOOTER_SIZE));
    *footer_out = footer;
}

/* ---- Sealed segments ---- */

struct tree { /* one search in one segment */
    struct qlog_segment *seg;
    struct qlog_handle *h;
    struct error *error;
    uint8_t bytes[QLOG_BLOCK_SIZE];
    struct qlog_block block; /* the one in bytes */
};

static enum err block_damaged(struct tree *t, uint32_t number, const char *what)
{
    uint64_t at = qlog_footer_blocks_at(&t->seg->footer) + (uint64_t)number * QLOG_BLOCK_SIZE;
    return qlog_segment_damaged(t->seg, at, what, t->error);
}

static enum err block_load(struct tree *t, uint32_t number, unsigned level)
{
    uint64_t at = qlog_footer_blocks_at(&t->seg->footer) + (uint64_t)number * QLOG_BLOCK_SIZE;
    TRY(qlog_segment_read(t->seg, t->h, at, t->bytes, sizeof(t->bytes), t->error));
    if (qlog_block_decode(t->bytes, t->seg->first, number, &t->block) != ERR_OK ||
        t->block.level != level)
        return block_damaged(t, number, "bad index block");
    return ERR_OK;
}

/* Number of the block's entries with a key at or below the one asked for. */
static size_t block_upper(const struct qlog_block *b, uint64_t partition_id, uint64_t offset)
{
    size_t lo = 0;
    size_t hi = b->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        struct qlog_entry e = qlog_block_entry(b, mid);
        if (qlog_key_cmp(e.partition_id, e.first_offset, partition_id, offset) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Loads the leaf where the key belongs. */
static enum err tree_descend(struct tree *t, uint64_t partition_id, uint64_t offset)
{
    unsigned level = 0;
    for (uint32_t n = t->seg->footer.leaves; n > 1; n = (n - 1) / QLOG_BLOCK_ENTRIES + 1)
        level++;
    uint32_t number = t->seg->footer.blocks - 1;
    TRY(block_load(t, number, level));
    while (level > 0) {
        size_t upper = block_upper(&t->block, partition_id, offset);
        uint64_t child = qlog_block_entry(&t->block, upper > 0 ? upper - 1 : 0).position;
        if (child >= number)
            return block_damaged(t, number, "bad child in index block");
        number = (uint32_t)child;
        TRY(block_load(t, number, --level));
    }
    return ERR_OK;
}

static enum err entry_position(struct tree *t, struct qlog_entry e, uint64_t *out)
{
    const struct qlog_footer *f = &t->seg->footer;
    if (e.position < f->first || e.position - f->first >= f->run_bytes)
        return block_damaged(t, t->block.number, "bad position in index block");
    *out = e.position;
    return ERR_OK;
}

static enum err tree_around(struct tree *t, uint64_t partition_id, uint64_t offset,
                            struct qlog_around *out)
{
    struct qlog_around around = {0};
    TRY(tree_descend(t, partition_id, offset));
    size_t upper = block_upper(&t->block, partition_id, offset);
    if (upper > 0) {
        struct qlog_entry e = qlog_block_entry(&t->block, upper - 1);
        around.has_floor = e.partition_id == partition_id;
        if (around.has_floor)
            TRY(entry_position(t, e, &around.floor));
    }
    if (upper == t->block.count && t->block.number + 1 < t->seg->footer.leaves) {
        TRY(block_load(t, t->block.number + 1, 0));
        upper = 0;
    }
    if (upper < t->block.count) {
        struct qlog_entry e = qlog_block_entry(&t->block, upper);
        around.has_above = e.partition_id == partition_id;
        if (around.has_above)
            TRY(entry_position(t, e, &around.above));
    }
    *out = around;
    return ERR_OK;
}

enum err qlog_sealed_around(struct qlog_segment *seg, uint64_t partition_id, uint64_t offset,
                            struct qlog_around *out, struct error *error)
{
    if (partition_id < seg->footer.partition_min || partition_id > seg->footer.partition_max) {
        *out = (struct qlog_around){0};
        return ERR_OK;
    }
    struct tree t;
    t.seg = seg;
    t.error = error;
    TRY(qlog_handle_acquire(seg, &t.h, error));
    enum err err = tree_around(&t, partition_id, offset, out);
    qlog_handle_release(t.h);
    return err;
}

static enum err marks_load(struct qlog_segment *seg, struct buf *out, struct error *error)
{
    struct qlog_handle *h;
    TRY(qlog_handle_acquire(seg, &h, error));
    size_t size = (size_t)seg->footer.marks * QLOG_MARK_SIZE;
    uint64_t at = qlog_footer_marks_at(&seg->footer);
    enum err err = qlog_segment_read(seg, h, at, buf_extend(out, size), size, error);
    if (err == ERR_OK && crc32c(0, out->ptr, size) != seg->footer.marks_crc)
        err = qlog_segment_damaged(seg, at, "bad stamp marks", error);
    qlog_handle_release(h);
    return err;
}

enum err qlog_sealed_seek_mark(struct qlog_segment *seg, int64_t stamp, uint64_t *position_out,
                               int64_t *stamp_out, struct error *error)
{
    struct buf marks = BUF_INIT;
    enum err err = marks_load(seg, &marks, error);
    if (err != ERR_OK)
        goto out;
    size_t lo = 0; /* marks below `stamp`; the run looked for lies behind the last of them */
    size_t hi = seg->footer.marks;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((int64_t)le64_get(marks.ptr + mid * QLOG_MARK_SIZE) < stamp)
            lo = mid + 1;
        else
            hi = mid;
    }
    const uint8_t *mark = lo > 0 ? marks.ptr + (lo - 1) * QLOG_MARK_SIZE : NULL;
    uint64_t position = mark != NULL ? le64_get(mark + 8) : seg->footer.first;
    if (position < seg->footer.first || position - seg->footer.first >= seg->footer.run_bytes) {
        err =
            qlog_segment_damaged(seg, qlog_footer_marks_at(&seg->footer), "bad stamp mark", error);
        goto out;
    }
    *position_out = position;
    *stamp_out = mark != NULL ? (int64_t)le64_get(mark) : seg->footer.first_stamp;
out:
    buf_deinit(&marks);
    return err;
}
