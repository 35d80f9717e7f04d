/* Files behind an interface: the real disk (disk_real.c) and the simulator's (tests/sim) implement
 * struct disk_ops. Everything that is durable goes through here, so a simulated power cut can lose
 * exactly what was not synced.
 *
 * Paths are NUL-terminated and relative to the root given when the disk was made. All calls block.
 * Errors: ERR_NO_SPACE for ENOSPC/EDQUOT from write, fallocate, create or mkdir; ERR_NOT_FOUND for
 * a missing file; ERR_EXISTS; ERR_AGAIN where no descriptor is free; ERR_IO for everything else,
 * *error naming the call, the path, the offset of a read or write and the system's text. A failed
 * sync (any of the three) is always ERR_IO, ENOSPC included: it is never retried
 * (docs/architecture.md, storage rule 5). Any thread, unless two calls change one file. */
#ifndef IO_DISK_H
#define IO_DISK_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

struct disk_file; /* an open file */

enum disk_open_flags {
    DISK_READ = 1,      /* read only when DISK_WRITE is not given too */
    DISK_WRITE = 2,     /* read and write */
    DISK_CREATE = 4,    /* create when missing */
    DISK_EXCLUSIVE = 8, /* with CREATE: ERR_EXISTS when there */
    DISK_TRUNCATE = 16,
};

struct disk_usage {
    uint64_t total_bytes, free_bytes; /* of the filesystem, as df counts: free is what this
                                        * process may still use, total that and what is used */
};

struct disk_entry {
    char *name;
    bool is_dir;
    uint64_t size; /* of a file */
};

struct disk_list {
    struct disk_entry *entries; /* sorted bytewise by name, "." and ".." left out */
    size_t count;
};

struct disk;

struct disk_ops {
    enum err (*open)(struct disk *d, const char *path, unsigned flags, struct disk_file **out,
                     struct error *error);
    void (*close)(struct disk *d, struct disk_file *f);
    /* Reads exactly len bytes or fails: ERR_SHORT at the end of the file. */
    enum err (*read)(struct disk *d, struct disk_file *f, uint64_t at, void *out, size_t len,
                     struct error *error);
    /* Writes all the parts one after another from `at` on. */
    enum err (*write)(struct disk *d, struct disk_file *f, uint64_t at, const struct span *parts,
                      size_t n, struct error *error);
    enum err (*size)(struct disk *d, struct disk_file *f, uint64_t *out, struct error *error);
    enum err (*truncate)(struct disk *d, struct disk_file *f, uint64_t size, struct error *error);
    /* Allocates [0, size) and writes zeros over it, so that later writes change no metadata. */
    enum err (*preallocate)(struct disk *d, struct disk_file *f, uint64_t size,
                            struct error *error);
    /* Allocates [0, size) without writing there: fast. ERR_IO also where the filesystem cannot. */
    enum err (*reserve)(struct disk *d, struct disk_file *f, uint64_t size, struct error *error);
    enum err (*datasync)(struct disk *d, struct disk_file *f, struct error *error); /* fdatasync */
    enum err (*sync_dir)(struct disk *d, const char *path, struct error *error);    /* fsync */
    enum err (*sync_all)(struct disk *d, struct error *error); /* syncfs, descriptor opened early */
    enum err (*rename)(struct disk *d, const char *from, const char *to, struct error *error);
    enum err (*unlink)(struct disk *d, const char *path, struct error *error);
    enum err (*mkdir)(struct disk *d, const char *path, struct error *error); /* ERR_EXISTS */
    enum err (*rmdir)(struct disk *d, const char *path, struct error *error);
    enum err (*list)(struct disk *d, const char *path, struct disk_list *out, struct error *error);
    enum err (*usage)(struct disk *d, struct disk_usage *out, struct error *error);
    /* Advisory exclusive lock on an open file, held until it is closed; ERR_LOCKED. */
    enum err (*lock)(struct disk *d, struct disk_file *f, struct error *error);
};

struct disk {
    const struct disk_ops *ops;
};

/* The real disk under an absolute or relative folder, which is created (with its parents) when
 * missing. Opens the syncfs descriptor before anything is written. */
ERR_CHECK enum err disk_real_open(const char *root, struct disk **out, struct error *error);
void disk_real_close(struct disk *d); /* NULL is allowed */

static inline ERR_CHECK enum err disk_open(struct disk *d, const char *path, unsigned flags,
                                           struct disk_file **out, struct error *error)
{
    return d->ops->open(d, path, flags, out, error);
}

static inline void disk_close(struct disk *d, struct disk_file *f) /* NULL is allowed */
{
    if (f != NULL)
        d->ops->close(d, f);
}

static inline ERR_CHECK enum err disk_read(struct disk *d, struct disk_file *f, uint64_t at,
                                           void *out, size_t len, struct error *error)
{
    return d->ops->read(d, f, at, out, len, error);
}

static inline ERR_CHECK enum err disk_write(struct disk *d, struct disk_file *f, uint64_t at,
                                            const struct span *parts, size_t n, struct error *error)
{
    return d->ops->write(d, f, at, parts, n, error);
}

static inline ERR_CHECK enum err disk_size(struct disk *d, struct disk_file *f, uint64_t *out,
                                           struct error *error)
{
    return d->ops->size(d, f, out, error);
}

static inline ERR_CHECK enum err disk_truncate(struct disk *d, struct disk_file *f, uint64_t size,
                                               struct error *error)
{
    return d->ops->truncate(d, f, size, error);
}

static inline ERR_CHECK enum err disk_preallocate(struct disk *d, struct disk_file *f,
                                                  uint64_t size, struct error *error)
{
    return d->ops->preallocate(d, f, size, error);
}

static inline ERR_CHECK enum err disk_reserve(struct disk *d, struct disk_file *f, uint64_t size,
                                              struct error *error)
{
    return d->ops->reserve(d, f, size, error);
}

static inline ERR_CHECK enum err disk_datasync(struct disk *d, struct disk_file *f,
                                               struct error *error)
{
    return d->ops->datasync(d, f, error);
}

static inline ERR_CHECK enum err disk_sync_dir(struct disk *d, const char *path,
                                               struct error *error)
{
    return d->ops->sync_dir(d, path, error);
}

static inline ERR_CHECK enum err disk_sync_all(struct disk *d, struct error *error)
{
    return d->ops->sync_all(d, error);
}

static inline ERR_CHECK enum err disk_rename(struct disk *d, const char *from, const char *to,
                                             struct error *error)
{
    return d->ops->rename(d, from, to, error);
}

static inline ERR_CHECK enum err disk_unlink(struct disk *d, const char *path, struct error *error)
{
    return d->ops->unlink(d, path, error);
}

static inline ERR_CHECK enum err disk_mkdir(struct disk *d, const char *path, struct error *error)
{
    return d->ops->mkdir(d, path, error);
}

static inline ERR_CHECK enum err disk_rmdir(struct disk *d, const char *path, struct error *error)
{
    return d->ops->rmdir(d, path, error);
}

static inline ERR_CHECK enum err disk_list(struct disk *d, const char *path, struct disk_list *out,
                                           struct error *error)
{
    return d->ops->list(d, path, out, error);
}

static inline ERR_CHECK enum err disk_usage(struct disk *d, struct disk_usage *out,
                                            struct error *error)
{
    return d->ops->usage(d, out, error);
}

static inline ERR_CHECK enum err disk_lock(struct disk *d, struct disk_file *f, struct error *error)
{
    return d->ops->lock(d, f, error);
}

void disk_list_deinit(struct disk_list *list);
/* Whole file, ERR_TOO_LARGE above max. */
ERR_CHECK enum err disk_read_file(struct disk *d, const char *path, size_t max, struct buf *out,
                                  struct error *error);
/* Atomic and durable replacement: <path>.tmp written, synced, renamed, folder synced. */
ERR_CHECK enum err disk_replace_file(struct disk *d, const char *path, struct span bytes,
                                     struct error *error);
/* mkdir that accepts an existing folder and makes the parents; new entries are synced. */
ERR_CHECK enum err disk_make_dirs(struct disk *d, const char *path, struct error *error);

#endif
