/* The log's writer and its public face; formats in format.h, recovery in recover.c and walk.c.
 *
 * wal_write() is the hot path of the broker: no allocation once its two arrays have grown, one
 * write of gathered parts with the padding included, one fdatasync, in space that was preallocated
 * and zeroed.
 *
 * Failures. ERR_NO_SPACE comes back before anything of a write counts: what reached the file is
 * wiped at its header, so a restart cannot find a write whose caller was refused. After any other
 * error nobody knows what a restart will find; the log refuses everything from then on.
 *
 * wal_release() and wal_prepare() run on other threads: they share the lists of segments and spares
 * under the mutex, and never touch the tail. */
#include "wal/internal.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/mem.h"

#define SEGMENT_BYTES_MIN (4u * WAL_BLOCK)
#define SMALL_SEGMENT_SHARE 16 /* of a segment */

static const uint8_t zeros[WAL_BLOCK];

/* Two segments and a spare fit into the share of the disk. */
static enum err set_segment_bytes(struct wal *w, uint64_t wanted, struct error *error)
{
    struct disk_usage usage = {0};
    TRY(disk_usage(w->disk, &usage, error));
    uint64_t size = usage.total_bytes / WAL_SHARE_OF_DISK / 3;
    if (wanted < size)
        size = wanted;
    if (size < SEGMENT_BYTES_MIN)
        size = SEGMENT_BYTES_MIN;
    if (size > WAL_SEGMENT_MAX)
        size = WAL_SEGMENT_MAX;
    w->segment_bytes = size / WAL_BLOCK * WAL_BLOCK;
    return ERR_OK;
}

enum err wal_open(const struct wal_options *options, uint64_t applied, struct wal **wal_out,
                  struct error *error)
{
    ASSERT(applied <= WAL_NUMBER_MAX);
    struct wal *w = mem_new(sizeof(*w));
    w->disk = options->disk;
    w->entropy = options->entropy;
    w->dir = mem_copy(options->dir, strlen(options->dir) + 1);
    pthread_mutex_init(&w->shared.mutex, NULL);
    w->shared.bytes = WAL_HARD_SIZE;

    enum err err = disk_make_dirs(w->disk, w->dir, error);
    if (err == ERR_OK)
        err = set_segment_bytes(w, options->segment_bytes, error);
    if (err == ERR_OK)
        err = wal_recover(w, applied, error);
    if (err == ERR_OK) {
        *wal_out = w;
        w = NULL; /* moved to the caller */
    }
    wal_close(w);
    return err;
}

void wal_close(struct wal *w)
{
    if (w == NULL)
        return;
    disk_close(w->disk, w->tail);
    pthread_mutex_destroy(&w->shared.mutex);
    mem_free(w->shared.segments);
    mem_free(w->heads);
    mem_free(w->parts);
    mem_free(w->dir);
    mem_free(w);
}

uint64_t wal_first_index(const struct wal *w)
{
    struct wal *locked = (struct wal *)w;
    pthread_mutex_lock(&locked->shared.mutex);
    uint64_t first = w->shared.segments[0].first_index;
    pthread_mutex_unlock(&locked->shared.mutex);
    return first <= w->end.last_index ? first : 0;
}

uint64_t wal_last_index(const struct wal *w)
{
    return w->end.last_index;
}

uint64_t wal_term(const struct wal *w)
{
    return w->hard.term;
}

uint64_t wal_bytes(const struct wal *w)
{
    return __atomic_load_n(&w->shared.bytes, __ATOMIC_RELAXED);
}

enum err wal_replay(struct wal *w, uint64_t after, wal_entry_fn fn, void *ctx, struct error *error)
{
    pthread_mutex_lock(&w->shared.mutex);
    size_t n = w->shared.n_segments, from = n - 1;
    struct wal_segment_header *segments =
        mem_copy(w->shared.segments, n * sizeof(*w->shared.segments));
    pthread_mutex_unlock(&w->shared.mutex);
    while (from > 0 && segments[from].first_index > after + 1)
        from--;

    struct wal_walk walk = {.fn = fn, .ctx = ctx, .after = after};
    struct wal_position end;
    enum err err = wal_walk_segments(w, segments + from, n - from, &walk, &end, error);
    if (err == ERR_OK && end.last_index != w->end.last_index)
        err = error_set(error, ERR_IO, "%s: the log reads differently the second time", w->dir);
    mem_free(segments);
    return err;
}

/* Bytes of the entries of a write; *parts_out is how many parts it is gathered from. */
static uint64_t measure(const struct wal *w, const struct wal_append *entries, size_t n,
                        size_t *parts_out)
{
    uint64_t length = 0;
    size_t parts = 2; /* header and padding */
    for (size_t i = 0; i < n; i++) {
        ASSERT(entries[i].index == w->end.last_index + 1 + i);
        uint64_t payload = 0;
        for (size_t j = 0; j < entries[i].n_parts; j++)
            payload += entries[i].parts[j].len;
        ASSERT(payload <= WAL_ENTRY_MAX);
        length += WAL_ENTRY_HEADER_SIZE + payload;
        parts += 1 + entries[i].n_parts;
    }
    *parts_out = parts;
    return length;
}

static void reserve(struct wal *w, size_t heads, size_t parts)
{
    if (heads > w->heads_cap) {
        w->heads_cap = 2 * heads;
        w->heads = mem_grow(w->heads, w->heads_cap);
    }
    if (parts > w->parts_cap) {
        w->parts_cap = 2 * parts;
        w->parts = mem_grow(w->parts, w->parts_cap * sizeof(*w->parts));
    }
}

/* Puts one entry at head and its payload into w->parts; returns its CRC. */
static uint32_t encode_entry(struct wal *w, const struct wal_append *entry, uint32_t crc,
                             uint8_t *head, size_t *n_parts)
{
    struct wal_entry_header h = {.index = entry->index, .term = w->hard.term};
    for (size_t i = 0; i < entry->n_parts; i++)
        h.len += (uint32_t)entry->parts[i].len;
    wal_entry_header_put(&h, head);
    w->parts[(*n_parts)++] = span_make(head, WAL_ENTRY_HEADER_SIZE);
    crc = crc32c(crc, head + 4, WAL_ENTRY_HEADER_SIZE - 4);
    for (size_t i = 0; i < entry->n_parts; i++) {
        crc = crc32c(crc, entry->parts[i].ptr, entry->parts[i].len);
        w->parts[(*n_parts)++] = entry->parts[i];
    }
    le32_put(head, crc);
    return crc;
}

/* Fills w->parts with the whole write; returns its chain value. */
static uint32_t encode(struct wal *w, const struct wal_append *entries, size_t n, uint64_t length,
                       size_t *n_parts_out)
{
    struct wal_write_header h = {
        .salt = w->tail_header.salt,
        .number = w->end.number,
        .synced_through = w->end.last_index,
        .first_index = w->end.last_index + 1,
        .length = length,
        .prev_chain = w->end.chain,
        .entries = (uint32_t)n,
    };
    wal_write_header_put(&h, w->heads);
    size_t n_parts = 0;
    w->parts[n_parts++] = span_make(w->heads, WAL_WRITE_HEADER_SIZE);
    uint32_t crc = h.crc;
    for (size_t i = 0; i < n; i++)
        crc = encode_entry(w, &entries[i], crc,
                           w->heads + WAL_WRITE_HEADER_SIZE + i * WAL_ENTRY_HEADER_SIZE, &n_parts);
    uint64_t used = WAL_WRITE_HEADER_SIZE + length;
    w->parts[n_parts++] = span_make(zeros, (size_t)(wal_align(used) - used));
    *n_parts_out = n_parts;
    return crc;
}

/* Wipes the header of a write that was refused. */
static enum err wipe(struct wal *w, struct error *error)
{
    struct span block = span_make(zeros, WAL_BLOCK);
    enum err err = disk_write(w->disk, w->tail, w->end.at, &block, 1, error);
    if (err == ERR_OK)
        err = disk_datasync(w->disk, w->tail, error);
    if (err == ERR_OK)
        return ERR_OK;
    error_wrap(error, "wiping a write the disk had no space for");
    return ERR_IO;
}

/* The next segment, for a write that needs `own` bytes of it; a small one on a disk that is nearly
 * full. */
static enum err roll(struct wal *w, uint64_t own, struct error *error)
{
    uint64_t small = w->segment_bytes / SMALL_SEGMENT_SHARE / WAL_BLOCK * WAL_BLOCK;
    enum err err = wal_segment_start(w, own > w->segment_bytes ? own : w->segment_bytes, error);
    if (own < small)
        own = small;
    if (err == ERR_NO_SPACE && own < w->segment_bytes)
        err = wal_segment_start(w, own, error);
    return err;
}

static enum err append(struct wal *w, const struct wal_append *entries, size_t n,
                       struct error *error)
{
    size_t n_parts = 0;
    uint64_t length = measure(w, entries, n, &n_parts);
    if (length > WAL_BODY_MAX || n > UINT32_MAX)
        return error_set(error, ERR_TOO_LARGE, "a write of %llu bytes", (unsigned long long)length);
    uint64_t size = wal_align(WAL_WRITE_HEADER_SIZE + length);
    if (size > w->tail_header.size - w->end.at) {
        TRY(roll(w, WAL_BLOCK + size, error));
    }
    reserve(w, WAL_WRITE_HEADER_SIZE + n * WAL_ENTRY_HEADER_SIZE, n_parts);
    uint32_t chain = encode(w, entries, n, length, &n_parts);

    enum err err = disk_write(w->disk, w->tail, w->end.at, w->parts, n_parts, error);
    if (err == ERR_NO_SPACE) {
        struct error wipe_error;
        if (wipe(w, &wipe_error) != ERR_OK)
            return error_set(error, ERR_IO, "%s", wipe_error.text);
        return err;
    }
    if (err == ERR_OK) {
        err = disk_datasync(w->disk, w->tail, error);
        if (err != ERR_OK)
            error_wrap(error, "offset %llu", (unsigned long long)w->end.at);
    }
    if (err != ERR_OK)
        return err;
    w->end = (struct wal_position){
        .at = w->end.at + size,
        .number = w->end.number + 1,
        .last_index = w->end.last_index + n,
        .last_term = w->hard.term,
        .chain = chain,
    };
    return ERR_OK;
}

enum err wal_write(struct wal *w, const struct wal_append *entries, size_t n, struct error *error)
{
    ASSERT(n > 0);
    if (w->failed)
        return error_set(error, ERR_IO, "%s: stopped after an earlier error", w->dir);
    enum err err = append(w, entries, n, error);
    if (err != ERR_OK && err != ERR_NO_SPACE && err != ERR_TOO_LARGE)
        w->failed = true;
    return err;
}

enum err wal_release(struct wal *w, uint64_t index, struct error *error)
{
    pthread_mutex_lock(&w->shared.mutex);
    struct wal_segment_header *segments = w->shared.segments;
    size_t n = 0; /* never the tail: its header says where the log stands */
    while (n + 1 < w->shared.n_segments && segments[n + 1].first_index - 1 <= index)
        n++;
    struct wal_segment_header *gone = n == 0 ? NULL : mem_copy(segments, n * sizeof(*segments));
    w->shared.n_segments -= n;
    memmove(segments, segments + n, w->shared.n_segments * sizeof(*segments));
    pthread_mutex_unlock(&w->shared.mutex);

    enum err err = wal_segments_retire(w, gone, n, error);
    mem_free(gone);
    return err;
}
