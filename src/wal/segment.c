/* Life of a segment file: made (tmp), waiting (spare), in the log (seg), recycled or unlinked.
 *
 * Every step leaves a state that recovery understands. A file is preallocated and synced under its
 * tmp name, so a spare is always whole. The header is written and synced under the spare name, and
 * only then the file becomes seg-<n>, synced in the folder before the first write goes there. A
 * segment that is no longer needed gets its spare name durably before it may be taken again: if a
 * power cut undid that rename after the header had been overwritten, an old number would show a new
 * header. */
#include "wal/internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

static const uint8_t zeros[WAL_BLOCK];

char *wal_file_path(const struct wal *w, const char *kind, uint64_t number)
{
    size_t size = strlen(w->dir) + strlen(kind) + sizeof("/-0123456789abcdef.wal");
    char *path = mem_new(size);
    (void)snprintf(path, size, "%s/%s-%016" PRIx64 ".wal", w->dir, kind, number); /* fits */
    return path;
}

void wal_bytes_add(struct wal *w, int64_t delta)
{
    __atomic_fetch_add(&w->shared.bytes, (uint64_t)delta, __ATOMIC_RELAXED);
}

void wal_segment_push(struct wal *w, const struct wal_segment_header *h)
{
    if (w->shared.n_segments == w->shared.segments_cap) {
        w->shared.segments_cap = w->shared.segments_cap == 0 ? 8 : 2 * w->shared.segments_cap;
        w->shared.segments =
            mem_grow(w->shared.segments, w->shared.segments_cap * sizeof(*w->shared.segments));
    }
    w->shared.segments[w->shared.n_segments++] = *h;
}

/* Of a file that nothing needs, so a failure is not looked at, EIO included: nothing promised
 * depends on it, a start unlinks what is left or refuses, and a disk that does not work fails a call
 * that matters soon. False when it may still take its room. */
static bool unlink_quietly(struct wal *w, const char *path)
{
    return disk_unlink(w->disk, path, NULL) == ERR_OK;
}

/* Looks before it takes room: for a moment it would have the last of it, and others would meet a
 * full disk. */
static enum err fill_file(struct wal *w, const char *path, uint64_t size, struct error *error)
{
    struct disk_file *f = NULL;
    struct disk_usage usage;
    if (disk_usage(w->disk, &usage, NULL) == ERR_OK && usage.free_bytes < size)
        return error_set(error, ERR_NO_SPACE, "%s: no room for %llu bytes", path,
                         (unsigned long long)size);
    TRY(disk_open(w->disk, path, DISK_WRITE | DISK_CREATE | DISK_TRUNCATE, &f, error));
    enum err err = disk_preallocate(w->disk, f, size, error);
    if (err == ERR_OK)
        err = disk_datasync(w->disk, f, error);
    disk_close(w->disk, f);
    return err;
}

/* Makes a spare of `size` bytes, not in the list yet. */
static enum err make_spare(struct wal *w, uint64_t size, uint64_t *id_out, struct error *error)
{
    pthread_mutex_lock(&w->shared.mutex);
    uint64_t id = w->shared.next_id++;
    pthread_mutex_unlock(&w->shared.mutex);

    char *tmp = wal_file_path(w, "tmp", id), *spare = wal_file_path(w, "spare", id);
    enum err err = fill_file(w, tmp, size, error);
    if (err == ERR_OK)
        err = disk_rename(w->disk, tmp, spare, error);
    if (err == ERR_OK) {
        wal_bytes_add(w, (int64_t)size);
        *id_out = id;
    } else {
        (void)unlink_quietly(w, tmp);
    }
    mem_free(tmp);
    mem_free(spare);
    return err;
}

static bool take_spare(struct wal *w, uint64_t size, uint64_t *id_out)
{
    bool found = false;
    pthread_mutex_lock(&w->shared.mutex);
    for (size_t i = 0; i < w->shared.n_spares && !found; i++) {
        if (w->shared.spares[i].size != size)
            continue;
        *id_out = w->shared.spares[i].id;
        w->shared.spares[i] = w->shared.spares[--w->shared.n_spares];
        found = true;
    }
    pthread_mutex_unlock(&w->shared.mutex);
    return found;
}

/* Puts a spare into the list, or unlinks it when enough are there. */
static void give_spare(struct wal *w, uint64_t id, uint64_t size)
{
    pthread_mutex_lock(&w->shared.mutex);
    bool kept = size == w->segment_bytes && w->shared.n_spares < WAL_SPARES_MAX;
    if (kept)
        w->shared.spares[w->shared.n_spares++] = (struct wal_spare){id, size};
    pthread_mutex_unlock(&w->shared.mutex);
    if (kept)
        return;
    char *path = wal_file_path(w, "spare", id);
    if (unlink_quietly(w, path))
        wal_bytes_add(w, -(int64_t)size);
    mem_free(path);
}

static enum err write_header(struct wal *w, struct disk_file *f, const struct wal_segment_header *h,
                             struct error *error)
{
    uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
    wal_segment_header_put(h, bytes);
    struct span parts[] = {{bytes, sizeof(bytes)}, {zeros, WAL_BLOCK - sizeof(bytes)}};
    TRY(disk_write(w->disk, f, 0, parts, 2, error));
    return disk_datasync(w->disk, f, error);
}

bool wal_drop_spares(struct wal *w)
{
    bool any = false;
    uint64_t id = 0;
    while (take_spare(w, w->segment_bytes, &id)) {
        char *path = wal_file_path(w, "spare", id);
        if (unlink_quietly(w, path)) {
            wal_bytes_add(w, -(int64_t)w->segment_bytes);
            any = true;
        }
        mem_free(path);
    }
    return any;
}

/* Opens a renamed file again, so that messages name what is there. The old handle would do as well,
 * so it stays when that fails. */
static struct disk_file *reopen(struct wal *w, const char *path, struct disk_file *old)
{
    struct disk_file *f = NULL;
    if (disk_open(w->disk, path, DISK_WRITE, &f, NULL) != ERR_OK)
        return old;
    disk_close(w->disk, old);
    return f;
}

/* Turns spare `id` into the segment of header h. *file_out is open when this succeeds. */
static enum err spare_to_segment(struct wal *w, uint64_t id, const struct wal_segment_header *h,
                                 struct disk_file **file_out, struct error *error)
{
    char *spare = wal_file_path(w, "spare", id), *segment = wal_file_path(w, "seg", h->n);
    struct disk_file *f = NULL;
    enum err err = disk_open(w->disk, spare, DISK_WRITE, &f, error);
    if (err == ERR_OK)
        err = write_header(w, f, h, error);
    if (err == ERR_OK)
        err = disk_rename(w->disk, spare, segment, error);
    if (err == ERR_OK)
        err = disk_sync_dir(w->disk, w->dir, error);
    if (err == ERR_OK)
        *file_out = reopen(w, segment, f);
    else
        disk_close(w->disk, f);
    mem_free(spare);
    mem_free(segment);
    return err;
}

enum err wal_segment_start(struct wal *w, uint64_t size, struct error *error)
{
    uint64_t id = 0;
    if (!take_spare(w, size, &id))
        TRY(make_spare(w, size, &id, error));

    struct wal_segment_header h = {
        .log_id = w->hard.log_id,
        .n = w->tail_header.n + 1,
        .size = size,
        .first_write = w->end.number,
        .first_index = w->end.last_index + 1,
        .prev_chain = w->end.chain,
    };
    while (h.salt == 0)
        h.salt = entropy_u64(w->entropy);
    struct disk_file *f = NULL;
    enum err err = spare_to_segment(w, id, &h, &f, error);
    if (err == ERR_NO_SPACE)
        give_spare(w, id, size);
    if (err != ERR_OK)
        return err;

    disk_close(w->disk, w->tail);
    w->tail = f;
    w->tail_header = h;
    w->end.at = WAL_BLOCK;
    pthread_mutex_lock(&w->shared.mutex);
    wal_segment_push(w, &h);
    pthread_mutex_unlock(&w->shared.mutex);
    return ERR_OK;
}

/* Whether the log may keep `more` bytes that it does not need now: not the last of the disk. */
static bool may_keep(struct wal *w, uint64_t more)
{
    struct disk_usage usage;
    if (disk_usage(w->disk, &usage, NULL) != ERR_OK ||
        (more > 0 && usage.free_bytes < more + usage.total_bytes / WAL_SHARE_OF_DISK))
        return false;
    return wal_bytes(w) + more <= usage.total_bytes / WAL_SHARE_OF_DISK;
}

enum err wal_segments_retire(struct wal *w, const struct wal_segment_header *segments, size_t n,
                             struct error *error)
{
    if (n == 0)
        return ERR_OK;
    pthread_mutex_lock(&w->shared.mutex);
    size_t room = WAL_SPARES_MAX - w->shared.n_spares;
    uint64_t id = w->shared.next_id;
    w->shared.next_id += n;
    pthread_mutex_unlock(&w->shared.mutex);

    size_t kept = 0; /* segments that got spare names id .. id + kept */
    enum err err = ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        char *path = wal_file_path(w, "seg", segments[i].n);
        bool recycled = false;
        if (kept < room && segments[i].size == w->segment_bytes && may_keep(w, 0)) {
            char *spare = wal_file_path(w, "spare", id + kept);
            err = disk_rename(w->disk, path, spare, error);
            recycled = err == ERR_OK;
            mem_free(spare);
        }
        if (recycled) {
            kept++;
        } else if (err == ERR_OK ||
                   err == ERR_NO_SPACE) { /* no space for a name: free the file's */
            err = disk_unlink(w->disk, path, error);
            if (err == ERR_OK)
                wal_bytes_add(w, -(int64_t)segments[i].size);
        }
        mem_free(path);
    }
    if (err == ERR_OK)
        err = disk_sync_dir(w->disk, w->dir, error);
    for (size_t i = 0; err == ERR_OK && i < kept; i++)
        give_spare(w, id + i, w->segment_bytes);
    return err;
}

enum err wal_prepare(struct wal *w, struct error *error)
{
    pthread_mutex_lock(&w->shared.mutex);
    bool enough = w->shared.n_spares > 0;
    pthread_mutex_unlock(&w->shared.mutex);
    if (enough || !may_keep(w, w->segment_bytes))
        return ERR_OK;
    uint64_t id = 0;
    TRY(make_spare(w, w->segment_bytes, &id, error));
    give_spare(w, id, w->segment_bytes);
    return ERR_OK;
}
