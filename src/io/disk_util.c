/* What every user of a disk needs, written over the interface: so the simulator's disk has it too.
 */
#include "io/disk.h"

#include "base/mem.h"

#define READ_CHUNK (64u * 1024)

void disk_list_deinit(struct disk_list *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->count; i++)
        mem_free(list->entries[i].name);
    mem_free(list->entries);
    *list = (struct disk_list){0};
}

static enum err read_open_file(struct disk *d, struct disk_file *f, const char *path, size_t max,
                               struct buf *out, struct error *error)
{
    uint64_t size;
    TRY(disk_size(d, f, &size, error));
    if (size > max)
        return error_set(error, ERR_TOO_LARGE, "%s has %llu bytes, at most %zu are read", path,
                         (unsigned long long)size, max);
    uint8_t chunk[READ_CHUNK];
    size_t limit = out->len + (size_t)size;
    for (uint64_t at = 0; at < size;) {
        size_t len = size - at < READ_CHUNK ? (size_t)(size - at) : READ_CHUNK;
        TRY(disk_read(d, f, at, chunk, len, error));
        enum err err = buf_try_append(out, chunk, len, limit);
        if (err != ERR_OK)
            return error_set(error, err, "read %s: %s", path, err_text(err));
        at += len;
    }
    return ERR_OK;
}

/* Appends to out, which keeps its length on failure. */
enum err disk_read_file(struct disk *d, const char *path, size_t max, struct buf *out,
                        struct error *error)
{
    struct disk_file *f;
    TRY(disk_open(d, path, DISK_READ, &f, error));
    size_t before = out->len;
    enum err err = read_open_file(d, f, path, max, out, error);
    if (err != ERR_OK)
        out->len = before;
    disk_close(d, f);
    return err;
}

/* The folder that holds path; mem_free(). */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return mem_copy(".", 2);
    return span_dup(span_make(path, (size_t)(slash - path)));
}

static enum err write_synced(struct disk *d, const char *path, struct span bytes,
                             struct error *error)
{
    struct disk_file *f;
    TRY(disk_open(d, path, DISK_WRITE | DISK_CREATE | DISK_TRUNCATE, &f, error));
    enum err err = disk_write(d, f, 0, &bytes, 1, error);
    if (err == ERR_OK)
        err = disk_datasync(d, f, error);
    disk_close(d, f);
    return err;
}

enum err disk_replace_file(struct disk *d, const char *path, struct span bytes, struct error *error)
{
    struct buf tmp = BUF_INIT;
    buf_puts(&tmp, path);
    buf_append(&tmp, ".tmp", sizeof(".tmp")); /* with the NUL */
    const char *tmp_path = (const char *)tmp.ptr;
    char *parent = parent_of(path);

    enum err err = write_synced(d, tmp_path, bytes, error);
    if (err == ERR_OK)
        err = disk_rename(d, tmp_path, path, error);
    if (err == ERR_OK) {
        err = disk_sync_dir(d, parent, error);
    } else if (err == ERR_NO_SPACE) {
        enum err ignored = disk_unlink(d, tmp_path, NULL); /* gives its space back, or stays */
        (void)ignored;
    }
    mem_free(parent);
    buf_deinit(&tmp);
    return err;
}

/* The parents' entries are synced even for folders that are there already: the process that made
 * them may have been killed before it came to that. */
enum err disk_make_dirs(struct disk *d, const char *path, struct error *error)
{
    size_t len = strlen(path);
    enum err err = ERR_OK;
    for (size_t i = 1; err == ERR_OK && i <= len; i++) {
        if ((i < len && path[i] != '/') || path[i - 1] == '/')
            continue;
        char *prefix = span_dup(span_make(path, i));
        char *parent = parent_of(prefix);
        err = strcmp(prefix, ".") == 0 ? ERR_EXISTS : disk_mkdir(d, prefix, error);
        if (err == ERR_OK || err == ERR_EXISTS)
            err = disk_sync_dir(d, parent, error);
        mem_free(parent);
        mem_free(prefix);
    }
    return err;
}
