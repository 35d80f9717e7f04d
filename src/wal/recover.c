/* Opening: what is in the folder, whether it is a whole log, and making it durable.
 *
 * Order matters. First everything is read and checked; as long as that goes on nothing is changed,
 * so a refusal leaves the evidence as it was. Then files that are not needed go, and the entries
 * above the checkpoint are written back in place and synced (after a kill they may be in the page
 * cache only, and a sync that failed before may have left clean pages that never reached the disk).
 * Last, the hard state takes the next term.
 *
 * Segment numbers are consecutive but for one legal case: a release that a power cut undid in part
 * may leave old segments in front of a gap. So the log is the last run of consecutive numbers; that
 * it starts at or below applied + 1 is checked. */
#include "wal/internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <stdio.h>

struct found_file {
    uint64_t number, size;
};

struct found_files {
    struct found_file *files;
    size_t n;
};

struct recovery {
    struct wal *w;
    uint64_t applied;
    bool has_hard;
    struct found_files segs, spares, tmps; /* ascending */
    size_t run;                            /* the log starts at segs.files[run] */
    struct wal_segment_header *headers;    /* of segs.files[run...] */
    size_t n_headers;
};

static bool hex_digit(char c, uint64_t *out)
{
    if (c >= '0' && c <= '9')
        *out = (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
        *out = (uint64_t)(c - 'a' + 10);
    else
        return false;
    return true;
}

/* <kind>-<16 hex digits>.wal */
static bool parse_name(const char *name, const char *kind, uint64_t *number_out)
{
    size_t len = strlen(kind);
    if (strlen(name) != len + sizeof("-0123456789abcdef.wal") - 1 ||
        strncmp(name, kind, len) != 0 || name[len] != '-' || strcmp(name + len + 17, ".wal") != 0)
        return false;
    uint64_t number = 0;
    for (size_t i = 0; i < 16; i++) {
        uint64_t digit;
        if (!hex_digit(name[len + 1 + i], &digit))
            return false;
        number = number << 4 | digit;
    }
    *number_out = number;
    return number <= WAL_NUMBER_MAX;
}

static void add_file(struct found_files *list, size_t max, uint64_t number, uint64_t size)
{
    if (list->files == NULL)
        list->files = MEM_ARRAY(struct found_file, max);
    list->files[list->n++] = (struct found_file){number, size};
}

static enum err read_folder(struct recovery *r, struct error *error)
{
    struct disk_list list = {0};
    TRY(disk_list(r->w->disk, r->w->dir, &list, error));
    for (size_t i = 0; i < list.count; i++) {
        const struct disk_entry *entry = &list.entries[i];
        uint64_t number = 0;
        if (entry->is_dir)
            continue;
        if (strcmp(entry->name, "hard") == 0)
            r->has_hard = true;
        else if (parse_name(entry->name, "seg", &number))
            add_file(&r->segs, list.count, number, entry->size);
        else if (parse_name(entry->name, "spare", &number))
            add_file(&r->spares, list.count, number, entry->size);
        else if (parse_name(entry->name, "tmp", &number))
            add_file(&r->tmps, list.count, number, entry->size);
    }
    disk_list_deinit(&list);
    r->run = r->segs.n == 0 ? 0 : r->segs.n - 1;
    while (r->run > 0 && r->segs.files[r->run - 1].number + 1 == r->segs.files[r->run].number)
        r->run--;
    return ERR_OK;
}

bool wal_unlink_spares(struct disk *disk, const char *dir)
{
    struct disk_list list = {0};
    bool any = false;
    uint64_t number;
    if (disk_list(disk, dir, &list, NULL) != ERR_OK)
        return false;
    for (size_t i = 0; i < list.count; i++) {
        struct buf path = BUF_INIT;
        if (list.entries[i].is_dir || !parse_name(list.entries[i].name, "spare", &number))
            continue;
        buf_printf(&path, "%s/%s", dir, list.entries[i].name);
        char *text = span_dup(buf_span(&path));
        any = disk_unlink(disk, text, NULL) == ERR_OK || any;
        mem_free(text);
        buf_deinit(&path);
    }
    disk_list_deinit(&list);
    return any;
}

static enum err save_hard(struct wal *w, const struct wal_hard *hard, struct error *error)
{
    uint8_t bytes[WAL_HARD_SIZE];
    wal_hard_put(hard, bytes);
    size_t size = strlen(w->dir) + sizeof("/hard");
    char *path = mem_new(size);
    (void)snprintf(path, size, "%s/hard", w->dir); /* fits */
    enum err err = disk_replace_file(w->disk, path, span_make(bytes, sizeof(bytes)), error);
    mem_free(path);
    if (err == ERR_OK)
        w->hard = *hard;
    return err;
}

static enum err load_hard(struct wal *w, struct error *error)
{
    size_t size = strlen(w->dir) + sizeof("/hard");
    char *path = mem_new(size);
    (void)snprintf(path, size, "%s/hard", w->dir); /* fits */
    struct buf bytes = BUF_INIT;
    enum err err = disk_read_file(w->disk, path, WAL_HARD_SIZE, &bytes, error);
    if (err == ERR_TOO_LARGE || (err == ERR_OK && bytes.len != WAL_HARD_SIZE)) {
        err = error_set(error, ERR_CORRUPT, "%s: not %u bytes", path, WAL_HARD_SIZE);
    } else if (err == ERR_OK) {
        err = wal_hard_get(bytes.ptr, &w->hard);
        if (err != ERR_OK)
            (void)error_set(error, err, "%s: %s", path, err_text(err));
    }
    buf_deinit(&bytes);
    mem_free(path);
    return err;
}

static enum err load_header(struct recovery *r, const struct found_file *file,
                            struct wal_segment_header *out, struct error *error)
{
    struct wal *w = r->w;
    char *path = wal_file_path(w, "seg", file->number);
    uint8_t bytes[WAL_SEGMENT_HEADER_SIZE];
    struct disk_file *f = NULL;
    enum err err = disk_open(w->disk, path, DISK_READ, &f, error);
    if (err == ERR_OK)
        err = disk_read(w->disk, f, 0, bytes, sizeof(bytes), error);
    disk_close(w->disk, f);
    if (err == ERR_SHORT)
        err = error_set(error, ERR_CORRUPT, "%s: offset 0: file cut short", path);
    if (err != ERR_OK)
        goto out;
    err = wal_segment_header_get(bytes, out);
    if (err != ERR_OK)
        (void)error_set(error, err, "%s: offset 0: segment header: %s", path, err_text(err));
    else if (out->log_id != w->hard.log_id || out->n != file->number)
        err = error_set(error, ERR_CORRUPT, "%s: offset 0: belongs to another log", path);
    else if (out->size != file->size)
        err = error_set(error, ERR_CORRUPT, "%s: offset %llu: file has %llu bytes, made with %llu",
                        path, (unsigned long long)file->size, (unsigned long long)file->size,
                        (unsigned long long)out->size);
out:
    mem_free(path);
    return err;
}

static enum err load_headers(struct recovery *r, struct error *error)
{
    size_t n = r->segs.n - r->run;
    if (n == 0)
        return ERR_OK;
    r->headers = MEM_ARRAY(struct wal_segment_header, n);
    for (size_t i = 0; i < n; i++)
        TRY(load_header(r, &r->segs.files[r->run + i], &r->headers[i], error));
    r->n_headers = n;
    return ERR_OK;
}

/* The log as a whole against the checkpoint and the hard state. */
static enum err check_bounds(const struct recovery *r, const struct wal_position *end,
                             struct error *error)
{
    const struct wal *w = r->w;
    uint64_t first = r->headers[0].first_index, last = end->last_index;
    uint64_t needed = r->applied > w->hard.synced_through ? r->applied : w->hard.synced_through;
    if (first > r->applied + 1)
        return error_set(error, ERR_CORRUPT,
                         "%s: entries %llu to %llu are missing: the state is at %llu, the log "
                         "starts at %llu",
                         w->dir, (unsigned long long)r->applied + 1, (unsigned long long)first - 1,
                         (unsigned long long)r->applied, (unsigned long long)first);
    if (last < needed)
        return error_set(
            error, ERR_CORRUPT,
            "%s/seg-%016llx.wal: offset %llu: the log ends at index %llu, but %llu was "
            "durable",
            w->dir, (unsigned long long)r->headers[r->n_headers - 1].n, (unsigned long long)end->at,
            (unsigned long long)last, (unsigned long long)needed);
    if (end->last_term > w->hard.term)
        return error_set(error, ERR_CORRUPT, "%s/hard: term %llu, but the log has term %llu",
                         w->dir, (unsigned long long)w->hard.term,
                         (unsigned long long)end->last_term);
    return ERR_OK;
}

/* Checks without changing anything; loads the hard state, the headers and the end of the log. */
static enum err check(struct recovery *r, struct error *error)
{
    struct wal *w = r->w;
    if (!r->has_hard) {
        if (r->segs.n > 0 || r->applied > 0)
            return error_set(error, ERR_CORRUPT,
                             "%s/hard is missing, but the state is at %llu and there are %zu "
                             "segments",
                             w->dir, (unsigned long long)r->applied, r->segs.n);
        return ERR_OK;
    }
    TRY(load_hard(w, error));
    TRY(load_headers(r, error));
    if (r->n_headers == 0) {
        if (w->hard.term > 0 || r->applied > 0)
            return error_set(error, ERR_CORRUPT, "%s: no segment is left, the state is at %llu",
                             w->dir, (unsigned long long)r->applied);
        return ERR_OK;
    }
    struct wal_walk walk = {.after = UINT64_MAX};
    TRY(wal_walk_segments(w, r->headers, r->n_headers, &walk, &w->end, error));
    return check_bounds(r, &w->end, error);
}

/* Segments whose entries are all at or below applied are left alone. */
static enum err write_back(struct recovery *r, struct error *error)
{
    size_t from = r->n_headers - 1;
    while (from > 0 && r->headers[from].first_index > r->applied + 1)
        from--;
    struct wal_walk walk = {.after = r->applied, .write_back = true};
    struct wal_position end;
    TRY(wal_walk_segments(r->w, r->headers + from, r->n_headers - from, &walk, &end, error));
    if (end.at != r->w->end.at || end.number != r->w->end.number || end.chain != r->w->end.chain)
        return error_set(error, ERR_IO, "%s: the log reads differently the second time", r->w->dir);
    return ERR_OK;
}

static enum err open_tail(struct recovery *r, struct error *error)
{
    struct wal *w = r->w;
    w->tail_header = r->headers[r->n_headers - 1];
    char *path = wal_file_path(w, "seg", w->tail_header.n);
    enum err err = disk_open(w->disk, path, DISK_WRITE, &w->tail, error);
    mem_free(path);
    for (size_t i = 0; i < r->n_headers; i++) {
        wal_segment_push(w, &r->headers[i]);
        wal_bytes_add(w, (int64_t)r->headers[i].size);
    }
    return err;
}

static enum err unlink_file(struct wal *w, const char *kind, uint64_t number, struct error *error)
{
    char *path = wal_file_path(w, kind, number);
    enum err err = disk_unlink(w->disk, path, error);
    mem_free(path);
    return err;
}

/* Lists the spares that fit; unlinks the others, unfinished files and segments in front of a gap.
 */
static enum err clean_up(struct recovery *r, struct error *error)
{
    struct wal *w = r->w;
    for (size_t i = 0; i < r->tmps.n; i++)
        TRY(unlink_file(w, "tmp", r->tmps.files[i].number, error));
    for (size_t i = 0; i < r->spares.n; i++) {
        const struct found_file *file = &r->spares.files[i];
        if (file->size == w->segment_bytes && w->shared.n_spares < WAL_SPARES_MAX) {
            w->shared.spares[w->shared.n_spares++] = (struct wal_spare){file->number, file->size};
            wal_bytes_add(w, (int64_t)file->size);
        } else {
            TRY(unlink_file(w, "spare", file->number, error));
        }
    }
    for (size_t i = 0; i < r->run; i++)
        TRY(unlink_file(w, "seg", r->segs.files[i].number, error));
    return ERR_OK;
}

/* Above every number in use: no rename may meet an existing file. */
static void set_next_id(struct recovery *r)
{
    uint64_t next = 1;
    if (r->spares.n > 0)
        next = r->spares.files[r->spares.n - 1].number + 1;
    if (r->tmps.n > 0 && r->tmps.files[r->tmps.n - 1].number >= next)
        next = r->tmps.files[r->tmps.n - 1].number + 1;
    r->w->shared.next_id = next;
}

static enum err make_log(struct recovery *r, struct error *error)
{
    struct wal *w = r->w;
    if (!r->has_hard) {
        struct wal_hard hard = {.log_id = entropy_u64(w->entropy)};
        TRY(save_hard(w, &hard, error));
    }
    w->end = (struct wal_position){.at = WAL_BLOCK, .number = 1};
    return wal_segment_start(w, w->segment_bytes, error);
}

static enum err recover(struct recovery *r, struct error *error)
{
    struct wal *w = r->w;
    TRY(read_folder(r, error));
    TRY(check(r, error));
    /* A process that was killed may have left names that are not durable yet. */
    TRY(disk_sync_dir(w->disk, w->dir, error));
    set_next_id(r);
    TRY(clean_up(r, error));
    if (r->n_headers == 0) {
        TRY(make_log(r, error));
    } else {
        TRY(write_back(r, error));
        TRY(open_tail(r, error));
    }
    if (w->hard.term >= WAL_NUMBER_MAX)
        return error_set(error, ERR_CORRUPT, "%s/hard: no term is left", w->dir);
    struct wal_hard hard = w->hard;
    hard.term++;
    hard.vote = 0;
    hard.synced_through = w->end.last_index;
    return save_hard(w, &hard, error);
}

enum err wal_recover(struct wal *w, uint64_t applied, struct error *error)
{
    struct recovery r = {.w = w, .applied = applied};
    enum err err = recover(&r, error);
    mem_free(r.segs.files);
    mem_free(r.spares.files);
    mem_free(r.tmps.files);
    mem_free(r.headers);
    return err;
}
