/* The real disk: Linux system calls relative to one root folder.
 *
 * The root is opened once, before anything is written, and serves two purposes: every path is
 * resolved against it (openat and friends), and sync_all() is syncfs() on it. The kernel reports a
 * write-back error to a descriptor only when it was opened before the error happened, so opening
 * one at the time of the call could miss exactly the failure it is there to find.
 *
 * Calls interrupted by a signal or done in part go on where they stopped. ENOSPC and EDQUOT become
 * ERR_NO_SPACE everywhere but in the three syncs: there data may be lost already, so it is ERR_IO
 * and nobody tries again. */
#include "io/disk.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILE_MODE 0666 /* cut by the umask, which is the operator's */
#define DIR_MODE 0777
#define ZEROS_SIZE (256u * 1024)
#define PARTS_MAX IOV_MAX /* parts of one system call */

struct real_disk {
    struct disk disk;
    int root; /* descriptor: paths and syncfs */
};

struct disk_file {
    int fd;
    char *path; /* for messages */
};

static const uint8_t zeros[ZEROS_SIZE];

static int root_of(struct disk *d)
{
    return ((struct real_disk *)d)->root;
}

static enum err code_of(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case EMFILE:
    case ENFILE:
        return ERR_AGAIN; /* says nothing about the disk */
    default:
        return ERR_IO;
    }
}

/* Names the call, the path and errno. */
static enum err fail(struct error *error, enum err code, const char *call, const char *path)
{
    int number = errno;
    char text[128];
    return error_set(error, code, "%s %s: %s", call, path, strerror_r(number, text, sizeof(text)));
}

static enum err fail_errno(struct error *error, const char *call, const char *path)
{
    return fail(error, code_of(errno), call, path);
}

/* A read or write: names the offset too. */
static enum err fail_at(struct error *error, const char *call, const char *path, uint64_t at)
{
    int number = errno;
    char text[128];
    return error_set(error, code_of(number), "%s %s: offset %llu: %s", call, path,
                     (unsigned long long)at, strerror_r(number, text, sizeof(text)));
}

static enum err real_open(struct disk *d, const char *path, unsigned flags, struct disk_file **out,
                          struct error *error)
{
    int os_flags = O_CLOEXEC | ((flags & DISK_WRITE) != 0 ? O_RDWR : O_RDONLY);
    if ((flags & DISK_CREATE) != 0)
        os_flags |= O_CREAT;
    if ((flags & DISK_EXCLUSIVE) != 0)
        os_flags |= O_EXCL;
    if ((flags & DISK_TRUNCATE) != 0)
        os_flags |= O_TRUNC;
    int fd;
    do {
        fd = openat(root_of(d), path, os_flags, FILE_MODE);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail_errno(error, "open", path);
    struct disk_file *f = mem_new(sizeof(*f));
    f->fd = fd;
    f->path = mem_copy(path, strlen(path) + 1);
    *out = f;
    return ERR_OK;
}

static void real_close(struct disk *d, struct disk_file *f)
{
    (void)d;
    (void)close(f->fd); /* what matters was synced before; EINTR closes too */
    mem_free(f->path);
    mem_free(f);
}

static enum err real_read(struct disk *d, struct disk_file *f, uint64_t at, void *out, size_t len,
                          struct error *error)
{
    (void)d;
    uint8_t *to = out;
    while (len > 0) {
        ssize_t n = pread(f->fd, to, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_at(error, "read", f->path, at);
        if (n == 0)
            return error_set(error, ERR_SHORT, "read %s: file ends at %llu, %zu bytes missing",
                             f->path, (unsigned long long)at, len);
        to += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return ERR_OK;
}

/* Fills iov from parts[*part] on, leaving out the first `skip` bytes of that one. */
static int gather(const struct span *parts, size_t n, size_t part, size_t skip, struct iovec *iov)
{
    int count = 0;
    for (; part < n && count < PARTS_MAX; part++, skip = 0) {
        if (parts[part].len == skip)
            continue;
        iov[count].iov_base = (void *)(uintptr_t)(parts[part].ptr + skip);
        iov[count].iov_len = parts[part].len - skip;
        count++;
    }
    return count;
}

static enum err real_write(struct disk *d, struct disk_file *f, uint64_t at,
                           const struct span *parts, size_t n, struct error *error)
{
    (void)d;
    struct iovec iov[PARTS_MAX];
    size_t part = 0, skip = 0; /* what was written: parts before `part`, `skip` bytes of it */
    for (;;) {
        int count = gather(parts, n, part, skip, iov);
        if (count == 0)
            return ERR_OK;
        ssize_t done = pwritev(f->fd, iov, count, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = EIO; /* would never end */
        if (done <= 0)
            return fail_at(error, "write", f->path, at);
        at += (uint64_t)done;
        size_t left = (size_t)done;
        while (left > 0) {
            size_t rest = parts[part].len - skip;
            size_t take = left < rest ? left : rest;
            left -= take;
            skip += take;
            if (skip == parts[part].len) {
                part++;
                skip = 0;
            }
        }
    }
}

static enum err real_size(struct disk *d, struct disk_file *f, uint64_t *out, struct error *error)
{
    (void)d;
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return fail(error, ERR_IO, "stat", f->path);
    *out = (uint64_t)st.st_size;
    return ERR_OK;
}

static enum err real_truncate(struct disk *d, struct disk_file *f, uint64_t size,
                              struct error *error)
{
    (void)d;
    while (ftruncate(f->fd, (off_t)size) != 0) {
        if (errno != EINTR)
            return fail_errno(error, "truncate", f->path);
    }
    return ERR_OK;
}

static enum err real_preallocate(struct disk *d, struct disk_file *f, uint64_t size,
                                 struct error *error)
{
    while (size > 0 && fallocate(f->fd, 0, 0, (off_t)size) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS)
            break; /* the zeros below allocate as well, only less contiguously */
        if (errno != EINTR)
            return fail_errno(error, "fallocate", f->path);
    }
    for (uint64_t at = 0; at < size;) {
        size_t len = size - at < ZEROS_SIZE ? (size_t)(size - at) : ZEROS_SIZE;
        struct span part = span_make(zeros, len);
        TRY(real_write(d, f, at, &part, 1, error));
        at += len;
    }
    return ERR_OK;
}

static enum err real_reserve(struct disk *d, struct disk_file *f, uint64_t size,
                             struct error *error)
{
    (void)d;
    while (fallocate(f->fd, 0, 0, (off_t)size) != 0) {
        if (errno != EINTR)
            return fail_errno(error, "fallocate", f->path);
    }
    return ERR_OK;
}

static enum err real_datasync(struct disk *d, struct disk_file *f, struct error *error)
{
    (void)d;
    if (fdatasync(f->fd) != 0)
        return fail(error, ERR_IO, "fdatasync", f->path);
    return ERR_OK;
}

/* The folder's descriptor, for fsync and for reading. */
static enum err open_dir(struct disk *d, const char *path, int *fd_out, struct error *error)
{
    int fd;
    do {
        fd = openat(root_of(d), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail_errno(error, "open folder", path);
    *fd_out = fd;
    return ERR_OK;
}

static enum err real_sync_dir(struct disk *d, const char *path, struct error *error)
{
    int fd = -1;
    TRY(open_dir(d, path, &fd, error));
    enum err err = ERR_OK;
    if (fsync(fd) != 0)
        err = fail(error, ERR_IO, "fsync folder", path);
    (void)close(fd); /* read only */
    return err;
}

static enum err real_sync_all(struct disk *d, struct error *error)
{
    if (syncfs(root_of(d)) != 0)
        return fail(error, ERR_IO, "syncfs", "the data folder");
    return ERR_OK;
}

static enum err real_rename(struct disk *d, const char *from, const char *to, struct error *error)
{
    if (renameat(root_of(d), from, root_of(d), to) != 0)
        return fail_errno(error, "rename", from);
    return ERR_OK;
}

static enum err real_unlink(struct disk *d, const char *path, struct error *error)
{
    if (unlinkat(root_of(d), path, 0) != 0)
        return fail_errno(error, "unlink", path);
    return ERR_OK;
}

static enum err real_mkdir(struct disk *d, const char *path, struct error *error)
{
    if (mkdirat(root_of(d), path, DIR_MODE) != 0)
        return fail_errno(error, "mkdir", path);
    return ERR_OK;
}

static enum err real_rmdir(struct disk *d, const char *path, struct error *error)
{
    if (unlinkat(root_of(d), path, AT_REMOVEDIR) == 0)
        return ERR_OK;
    if (errno == EEXIST) /* some filesystems say so for a folder that is not empty */
        errno = ENOTEMPTY;
    return fail_errno(error, "rmdir", path);
}

static int compare_entries(const void *a, const void *b)
{
    const struct disk_entry *left = a, *right = b;
    return strcmp(left->name, right->name);
}

/* Adds one name; a file that went away meanwhile is left out. */
static enum err list_add(int dir_fd, const char *name, struct disk_list *list, size_t *cap,
                         const char *path, struct error *error)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return ERR_OK;
        return fail(error, ERR_IO, "stat in", path);
    }
    if (list->count == *cap) {
        *cap = *cap == 0 ? 16 : 2 * *cap;
        list->entries = mem_grow(list->entries, *cap * sizeof(*list->entries));
    }
    list->entries[list->count++] = (struct disk_entry){
        .name = mem_copy(name, strlen(name) + 1),
        .is_dir = S_ISDIR(st.st_mode),
        .size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
    };
    return ERR_OK;
}

static enum err real_list(struct disk *d, const char *path, struct disk_list *out,
                          struct error *error)
{
    int fd = -1;
    TRY(open_dir(d, path, &fd, error));
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        enum err err = fail(error, ERR_IO, "open folder", path);
        (void)close(fd); /* read only */
        return err;
    }
    struct disk_list list = {0};
    size_t cap = 0;
    enum err err = ERR_OK;
    while (err == ERR_OK) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0)
                err = fail(error, ERR_IO, "read folder", path);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            err = list_add(fd, entry->d_name, &list, &cap, path, error);
    }
    (void)closedir(dir); /* read only */
    if (err != ERR_OK) {
        disk_list_deinit(&list);
        return err;
    }
    if (list.count > 0)
        qsort(list.entries, list.count, sizeof(*list.entries), compare_entries);
    *out = list;
    return ERR_OK;
}

static enum err real_usage(struct disk *d, struct disk_usage *out, struct error *error)
{
    struct statvfs st;
    while (fstatvfs(root_of(d), &st) != 0) {
        if (errno != EINTR)
            return fail(error, ERR_IO, "statvfs", "the data folder");
    }
    /* As df counts: a reserve that this process may not use is neither used nor free. */
    out->total_bytes = (uint64_t)(st.f_blocks - st.f_bfree + st.f_bavail) * st.f_frsize;
    out->free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return ERR_OK;
}

static enum err real_lock(struct disk *d, struct disk_file *f, struct error *error)
{
    (void)d;
    while (flock(f->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return fail(error, ERR_LOCKED, "lock", f->path);
        if (errno != EINTR)
            return fail(error, ERR_IO, "lock", f->path);
    }
    return ERR_OK;
}

static const struct disk_ops real_ops = {
    .open = real_open,
    .close = real_close,
    .read = real_read,
    .write = real_write,
    .size = real_size,
    .truncate = real_truncate,
    .preallocate = real_preallocate,
    .reserve = real_reserve,
    .datasync = real_datasync,
    .sync_dir = real_sync_dir,
    .sync_all = real_sync_all,
    .rename = real_rename,
    .unlink = real_unlink,
    .mkdir = real_mkdir,
    .rmdir = real_rmdir,
    .list = real_list,
    .usage = real_usage,
    .lock = real_lock,
};

/* Makes one folder of the way to the root and syncs its entry in the parent. */
static enum err make_root_step(const char *path, struct error *error)
{
    if (mkdir(path, DIR_MODE) != 0)
        return errno == EEXIST ? ERR_OK : fail_errno(error, "mkdir", path);

    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL   ? mem_copy(".", 2)
                   : slash == path ? mem_copy("/", 2)
                                   : span_dup(span_make(path, (size_t)(slash - path)));
    enum err err = ERR_OK;
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        err = fail(error, ERR_IO, "fsync folder", parent);
    if (fd >= 0)
        (void)close(fd); /* read only */
    mem_free(parent);
    return err;
}

static enum err make_root(const char *root, struct error *error)
{
    size_t len = strlen(root);
    enum err err = ERR_OK;
    for (size_t i = 1; err == ERR_OK && i <= len; i++) {
        if ((i < len && root[i] != '/') || root[i - 1] == '/')
            continue;
        char *prefix = span_dup(span_make(root, i));
        err = make_root_step(prefix, error);
        mem_free(prefix);
    }
    return err;
}

enum err disk_real_open(const char *root, struct disk **out, struct error *error)
{
    TRY(make_root(root, error));
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(error, "open folder", root);
    struct real_disk *d = mem_new(sizeof(*d));
    d->disk.ops = &real_ops;
    d->root = fd;
    *out = &d->disk;
    return ERR_OK;
}

void disk_real_close(struct disk *d)
{
    if (d == NULL)
        return;
    (void)close(root_of(d)); /* read only */
    mem_free(d);
}
