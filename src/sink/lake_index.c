/* Collecting run positions within a bound; the idea is in lake_index.h.
 *
 * Entries live in chunks and are linked per partition; dropping a partition puts its whole chain on
 * the free list. Ids that turned out not to be wanted are remembered so that their name is not read
 * again for every run, up to a quarter of the bound; beyond that they are asked for again. */
#include "sink/lake_index.h"

#include "base/mem.h"

#define CHUNK_ENTRIES 1024u
#define ENTRY_BYTES (sizeof(uint64_t) + sizeof(uint32_t))
#define MAP_SLOT_BYTES 32 /* of a map64 at its usual fill */
#define PART_BYTES (sizeof(struct lake_part) + MAP_SLOT_BYTES + 4 * sizeof(void *))
#define UNWANTED_SHARE 4 /* of the bound, for ids that are not wanted */
#define UNWANTED_MIN 64

struct entry_chunk {
    uint64_t position[CHUNK_ENTRIES];
    uint32_t next[CHUNK_ENTRIES];
};

static struct lake_part unwanted_mark; /* its address marks an id */

struct span lake_part_name(const struct lake_part *p)
{
    return span_make(p->name, p->name_len);
}

/* ---- Entries ---- */

uint64_t lake_index_position(const struct lake_index *ix, uint32_t entry)
{
    return ix->chunks[entry / CHUNK_ENTRIES]->position[entry % CHUNK_ENTRIES];
}

static uint32_t *next_of(const struct lake_index *ix, uint32_t entry)
{
    return &ix->chunks[entry / CHUNK_ENTRIES]->next[entry % CHUNK_ENTRIES];
}

uint32_t lake_index_next(const struct lake_index *ix, uint32_t entry)
{
    return *next_of(ix, entry);
}

static uint32_t entry_new(struct lake_index *ix, uint64_t position)
{
    uint32_t entry = ix->free;
    if (entry != LAKE_INDEX_NONE) {
        ix->free = lake_index_next(ix, entry);
    } else {
        entry = ix->entries++;
        ASSERT(entry < LAKE_INDEX_NONE - 1); /* 48 GiB of them */
        if (entry / CHUNK_ENTRIES == ix->n_chunks) {
            ix->chunks = mem_grow(ix->chunks, (ix->n_chunks + 1) * sizeof(struct entry_chunk *));
            ix->chunks[ix->n_chunks++] = mem_new(sizeof(struct entry_chunk));
        }
    }
    ix->chunks[entry / CHUNK_ENTRIES]->position[entry % CHUNK_ENTRIES] = position;
    *next_of(ix, entry) = LAKE_INDEX_NONE;
    ix->bytes += ENTRY_BYTES;
    return entry;
}

/* The chain goes to the free list. */
static void drop_entries(struct lake_index *ix, struct lake_part *p)
{
    if (p->first == LAKE_INDEX_NONE)
        return;
    ix->bytes -= p->entries * ENTRY_BYTES;
    p->entries = 0;
    *next_of(ix, p->last) = ix->free;
    ix->free = p->first;
    p->first = p->last = LAKE_INDEX_NONE;
}

static void append_entry(struct lake_index *ix, struct lake_part *p, uint64_t position)
{
    uint32_t entry = entry_new(ix, position);
    if (p->first == LAKE_INDEX_NONE)
        p->first = entry;
    else
        *next_of(ix, p->last) = entry;
    p->last = entry;
    p->entries++;
}

/* ---- The heap: largest name on top ---- */

static bool is_above(const struct lake_part *a, const struct lake_part *b)
{
    return span_cmp(lake_part_name(a), lake_part_name(b)) > 0;
}

static void heap_push(struct lake_index *ix, struct lake_part *p)
{
    if (ix->count == ix->cap) {
        ix->cap = ix->cap == 0 ? 64 : 2 * ix->cap;
        ix->parts = mem_grow(ix->parts, ix->cap * sizeof(struct lake_part *));
    }
    size_t at = ix->count++;
    for (; at > 0 && is_above(p, ix->parts[(at - 1) / 2]); at = (at - 1) / 2)
        ix->parts[at] = ix->parts[(at - 1) / 2];
    ix->parts[at] = p;
}

static struct lake_part *heap_pop(struct lake_index *ix)
{
    struct lake_part *top = ix->parts[0];
    struct lake_part *moved = ix->parts[--ix->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= ix->count)
            break;
        if (child + 1 < ix->count && is_above(ix->parts[child + 1], ix->parts[child]))
            child++;
        if (!is_above(ix->parts[child], moved))
            break;
        ix->parts[at] = ix->parts[child];
        at = child;
    }
    if (ix->count > 0)
        ix->parts[at] = moved;
    return top;
}

/* ---- Parts ---- */

static uint64_t part_bytes(const struct lake_part *p)
{
    return PART_BYTES + p->name_len;
}

static void part_free(struct lake_index *ix, struct lake_part *p)
{
    ix->bytes -= part_bytes(p);
    mem_free(p->name);
    mem_free(p);
}

static void mark_unwanted(struct lake_index *ix, uint64_t id)
{
    uint64_t limit = ix->bytes_max / UNWANTED_SHARE / MAP_SLOT_BYTES;
    if (ix->unwanted >= limit && ix->unwanted >= UNWANTED_MIN) {
        (void)map64_remove(&ix->by_id, id);
        return;
    }
    (void)map64_put(&ix->by_id, id, &unwanted_mark);
    ix->unwanted++;
}

/* Every part collected has this one's name? */
static bool is_only_name(const struct lake_index *ix, const struct lake_part *p)
{
    for (size_t i = 0; i < ix->count; i++) {
        if (!span_eq(lake_part_name(ix->parts[i]), lake_part_name(p)))
            return false;
    }
    return true;
}

/* All that is left is one name: its positions go, and names behind it wait. */
static void stream_rest(struct lake_index *ix)
{
    for (size_t i = 0; i < ix->count; i++) {
        drop_entries(ix, ix->parts[i]);
        ix->parts[i]->streamed = true;
    }
    buf_reset(&ix->upper);
    buf_put_span(&ix->upper, lake_part_name(ix->parts[0]));
    buf_putc(&ix->upper, '\0'); /* the name's immediate successor */
    ix->has_upper = true;
}

/* Drops the largest name, which is not the only one. */
static void drop_largest(struct lake_index *ix)
{
    buf_reset(&ix->upper);
    buf_put_span(&ix->upper, lake_part_name(ix->parts[0]));
    ix->has_upper = true;
    while (ix->count > 0 && span_eq(lake_part_name(ix->parts[0]), buf_span(&ix->upper))) {
        struct lake_part *p = heap_pop(ix);
        drop_entries(ix, p);
        mark_unwanted(ix, p->id);
        part_free(ix, p);
    }
}

static void make_room(struct lake_index *ix)
{
    while (ix->bytes > ix->bytes_max) {
        /* With a smaller name at the bottom the top is not the only one: looked at first, so that
         * the full look stays rare. */
        if (!is_above(ix->parts[0], ix->parts[ix->count - 1]) && is_only_name(ix, ix->parts[0])) {
            if (!ix->parts[0]->streamed)
                stream_rest(ix);
            break;
        }
        drop_largest(ix);
    }
    if (ix->bytes > ix->bytes_peak)
        ix->bytes_peak = ix->bytes;
}

void lake_index_init(struct lake_index *ix, uint64_t bytes_max)
{
    *ix = (struct lake_index){.bytes_max = bytes_max, .free = LAKE_INDEX_NONE};
}

static void clear(struct lake_index *ix)
{
    for (size_t i = 0; i < ix->count; i++) {
        drop_entries(ix, ix->parts[i]);
        part_free(ix, ix->parts[i]);
    }
    ix->count = 0;
    map64_deinit(&ix->by_id);
    ix->by_id = MAP64_INIT;
    ix->unwanted = 0;
}

void lake_index_deinit(struct lake_index *ix)
{
    clear(ix);
    mem_free(ix->parts);
    for (size_t i = 0; i < ix->n_chunks; i++)
        mem_free(ix->chunks[i]);
    mem_free(ix->chunks);
    buf_deinit(&ix->lower);
    buf_deinit(&ix->upper);
}

void lake_index_begin(struct lake_index *ix)
{
    if (ix->count > 0) {
        buf_reset(&ix->lower);
        buf_put_span(&ix->lower, lake_part_name(ix->parts[ix->count - 1]));
        ix->has_lower = true;
    }
    clear(ix);
    ix->has_upper = false;
}

enum lake_index_answer lake_index_add(struct lake_index *ix, uint64_t id, uint64_t position)
{
    struct lake_part *p = map64_get(&ix->by_id, id);
    if (p == NULL)
        return LAKE_INDEX_NEW_ID;
    if (p == &unwanted_mark)
        return LAKE_INDEX_NOT_WANTED;
    if (!p->streamed) {
        append_entry(ix, p, position);
        make_room(ix);
    }
    return LAKE_INDEX_TAKEN;
}

void lake_index_add_named(struct lake_index *ix, uint64_t id, struct span name, uint64_t position)
{
    bool written = ix->has_lower && span_cmp(name, buf_span(&ix->lower)) <= 0;
    bool later = ix->has_upper && span_cmp(name, buf_span(&ix->upper)) >= 0;
    if (written || later) {
        mark_unwanted(ix, id);
        return;
    }
    struct lake_part *p = mem_new(sizeof(*p));
    p->name = span_dup(name);
    p->name_len = name.len;
    p->id = id;
    p->first = p->last = LAKE_INDEX_NONE;
    /* A second incarnation of a name that is streamed is streamed too. */
    p->streamed =
        ix->count > 0 && ix->parts[0]->streamed && span_eq(lake_part_name(ix->parts[0]), name);
    ix->bytes += part_bytes(p);
    heap_push(ix, p);
    (void)map64_put(&ix->by_id, id, p);
    if (!p->streamed)
        append_entry(ix, p, position);
    make_room(ix);
}

static int compare_parts(const void *a, const void *b)
{
    const struct lake_part *x = *(struct lake_part *const *)a;
    const struct lake_part *y = *(struct lake_part *const *)b;
    int order = span_cmp(lake_part_name(x), lake_part_name(y));
    return order != 0 ? order : x->id < y->id ? -1 : x->id > y->id;
}

void lake_index_sort(struct lake_index *ix)
{
    if (ix->count > 0)
        qsort(ix->parts, ix->count, sizeof(struct lake_part *), compare_parts);
    for (size_t i = 0; i < ix->count; i++)
        ix->parts[i]->at = ix->parts[i]->first;
}

const struct lake_part *lake_index_part(const struct lake_index *ix, uint64_t id)
{
    const struct lake_part *p = map64_get(&ix->by_id, id);
    return p == &unwanted_mark ? NULL : p;
}
