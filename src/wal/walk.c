/* The walk along the log: one function that recovery uses to check, to write back and to replay.
 *
 * It follows the chain write by write. Where no further write joins, either the segment or the log
 * ends there, or something is damaged:
 *   - the next segment's header continues exactly here: the segment ended;
 *   - there is a next segment, but it continues elsewhere: writes are missing, since its header was
 *     made when everything before was durable;
 *   - there is none: the rest of the segment is looked through at every 4 KiB boundary. A write of
 * this life of the file that was made when a higher index was known durable proves damage.
 * Otherwise the log ends here, and what follows is a torn write or nothing. A stale write cannot
 * prove anything wrong: one of an earlier life has another salt, and one of a lost batch was made
 * when nothing above the entries before that batch was durable.
 *
 * The very last write has nothing after it, so damage to it looks like a torn write; the hard
 * state's synced_through narrows that to writes since the last start. */
#include "wal/internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#define SCAN_CHUNK (256u * 1024) /* multiple of WAL_BLOCK */

struct walker {
    struct wal *w;
    const struct wal_walk *walk;
    struct wal_position position;

    struct disk_file *file;
    const char *path;
    const struct wal_segment_header *segment;
    uint8_t *bytes; /* the write being looked at, from its header to the end of its padding */
    size_t bytes_cap;
    bool dirty; /* written back, not synced yet */
};

static enum err reserve(struct walker *k, size_t size, struct error *error)
{
    if (size <= k->bytes_cap)
        return ERR_OK;
    size_t cap = size > 2 * k->bytes_cap ? size : 2 * k->bytes_cap;
    uint8_t *bytes = mem_try(cap);
    if (bytes == NULL)
        return error_set(error, ERR_NOMEM, "%s: no memory for a write of %zu bytes", k->path, size);
    if (k->bytes != NULL)
        memcpy(bytes, k->bytes, k->bytes_cap);
    mem_free(k->bytes);
    k->bytes = bytes;
    k->bytes_cap = cap;
    return ERR_OK;
}

static bool header_joins(const struct walker *k, const struct wal_write_header *h)
{
    return h->salt == k->segment->salt && h->number == k->position.number &&
           h->prev_chain == k->position.chain && h->first_index == k->position.last_index + 1 &&
           wal_align(WAL_WRITE_HEADER_SIZE + h->length) <= k->segment->size - k->position.at;
}

/* Checks the entries of the write in k->bytes; *after_out is the position behind it. */
static bool entries_join(const struct walker *k, const struct wal_write_header *h,
                         struct wal_position *after_out)
{
    struct wal_position after = k->position;
    struct span body = span_make(k->bytes + WAL_WRITE_HEADER_SIZE, (size_t)h->length);
    after.chain = h->crc;
    for (uint32_t i = 0; i < h->entries; i++) {
        struct wal_entry_header entry;
        struct span payload;
        if (!wal_entry_get(&body, after.chain, &entry, &payload) ||
            entry.index != after.last_index + 1 || entry.term < after.last_term)
            return false;
        after.chain = entry.crc;
        after.last_index = entry.index;
        after.last_term = entry.term;
    }
    if (body.len != 0)
        return false;
    after.number++;
    after.at += wal_align(WAL_WRITE_HEADER_SIZE + h->length);
    *after_out = after;
    return true;
}

/* Reads the write at the position. *found_out is false when none joins there. */
static enum err read_write(struct walker *k, bool *found_out, struct wal_write_header *header_out,
                           struct wal_position *after_out, struct error *error)
{
    *found_out = false;
    if (k->segment->size - k->position.at < WAL_BLOCK)
        return ERR_OK;
    TRY(disk_read(k->w->disk, k->file, k->position.at, k->bytes, WAL_BLOCK, error));
    if (!wal_write_header_get(k->bytes, header_out) || !header_joins(k, header_out))
        return ERR_OK;
    size_t size = (size_t)wal_align(WAL_WRITE_HEADER_SIZE + header_out->length);
    TRY(reserve(k, size, error));
    if (size > WAL_BLOCK)
        TRY(disk_read(k->w->disk, k->file, k->position.at + WAL_BLOCK, k->bytes + WAL_BLOCK,
                      size - WAL_BLOCK, error));
    *found_out = entries_join(k, header_out, after_out);
    return ERR_OK;
}

static enum err visit_entries(struct walker *k, const struct wal_write_header *h,
                              struct error *error)
{
    struct span body = span_make(k->bytes + WAL_WRITE_HEADER_SIZE, (size_t)h->length);
    uint32_t crc = h->crc;
    for (uint32_t i = 0; i < h->entries; i++) {
        struct wal_entry_header header;
        struct wal_entry entry;
        ASSERT(wal_entry_get(&body, crc, &header, &entry.payload)); /* it did so just before */
        crc = header.crc;
        if (header.index <= k->walk->after)
            continue;
        entry.index = header.index;
        entry.term = header.term;
        TRY(k->walk->fn(k->walk->ctx, &entry, error));
    }
    return ERR_OK;
}

static enum err use_write(struct walker *k, const struct wal_write_header *h, uint64_t last_index,
                          struct error *error)
{
    if (last_index <= k->walk->after)
        return ERR_OK;
    if (k->walk->write_back) {
        struct span all = span_make(k->bytes, (size_t)wal_align(WAL_WRITE_HEADER_SIZE + h->length));
        TRY(disk_write(k->w->disk, k->file, k->position.at, &all, 1, error));
        k->dirty = true;
    }
    return k->walk->fn == NULL ? ERR_OK : visit_entries(k, h, error);
}

static enum err walk_writes(struct walker *k, struct error *error)
{
    for (;;) {
        bool found;
        struct wal_write_header header;
        struct wal_position after;
        TRY(read_write(k, &found, &header, &after, error));
        if (!found)
            break;
        TRY(use_write(k, &header, after.last_index, error));
        k->position = after;
    }
    if (k->dirty)
        TRY(disk_datasync(k->w->disk, k->file, error));
    k->dirty = false;
    return ERR_OK;
}

static enum err damaged(const struct walker *k, struct error *error)
{
    return error_set(
        error, ERR_CORRUPT, "%s: offset %llu: damaged write after index %llu, which was durable",
        k->path, (unsigned long long)k->position.at, (unsigned long long)k->position.last_index);
}

/* Looks for a write that proves the one at the position was durable once. */
static enum err look_on(struct walker *k, struct error *error)
{
    TRY(reserve(k, SCAN_CHUNK, error));
    uint64_t size = k->segment->size;
    for (uint64_t at = k->position.at; at < size;) {
        size_t len = size - at < SCAN_CHUNK ? (size_t)(size - at) : SCAN_CHUNK;
        TRY(disk_read(k->w->disk, k->file, at, k->bytes, len, error));
        for (size_t i = 0; i < len; i += WAL_BLOCK) {
            struct wal_write_header h;
            if (wal_write_header_get(k->bytes + i, &h) && h.salt == k->segment->salt &&
                h.synced_through > k->position.last_index)
                return damaged(k, error);
        }
        at += len;
    }
    return ERR_OK;
}

static bool segment_joins(const struct walker *k, const struct wal_segment_header *next)
{
    return next->first_write == k->position.number && next->prev_chain == k->position.chain &&
           next->first_index == k->position.last_index + 1;
}

static enum err walk_segment(struct walker *k, const struct wal_segment_header *next,
                             struct error *error)
{
    unsigned flags = k->walk->write_back ? DISK_WRITE : DISK_READ;
    TRY(disk_open(k->w->disk, k->path, flags, &k->file, error));
    k->position.at = WAL_BLOCK;
    enum err err = walk_writes(k, error);
    if (err == ERR_OK && next == NULL)
        err = look_on(k, error);
    else if (err == ERR_OK && !segment_joins(k, next))
        err = damaged(k, error);
    disk_close(k->w->disk, k->file);
    k->file = NULL;
    return err;
}

enum err wal_walk_segments(struct wal *w, const struct wal_segment_header *segments, size_t n,
                           const struct wal_walk *walk, struct wal_position *end_out,
                           struct error *error)
{
    struct walker k = {
        .w = w,
        .walk = walk,
        .position =
            {
                .at = WAL_BLOCK,
                .number = segments[0].first_write,
                .last_index = segments[0].first_index - 1,
                .chain = segments[0].prev_chain,
            },
    };
    enum err err = reserve(&k, WAL_BLOCK, error);
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        char *path = wal_file_path(w, "seg", segments[i].n);
        k.path = path;
        k.segment = &segments[i];
        err = walk_segment(&k, i + 1 < n ? &segments[i + 1] : NULL, error);
        mem_free(path);
    }
    mem_free(k.bytes);
    if (err == ERR_OK)
        *end_out = k.position;
    return err;
}
