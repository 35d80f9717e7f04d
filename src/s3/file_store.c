/* Operations on a bucket that is a folder: HEAD, PUT, GET (LIST is in file_list.c).
 *
 * Durability: a PUT that answered OK survives a power cut. The bytes are synced before the rename,
 * the object's folder after it. A folder is new at most once, so the entry of each folder on the
 * way up to <path> is synced once and then remembered in `synced`; a folder that had to be made
 * (again) is forgotten first. A folder whose entry is known to be durable hangs from folders of
 * which the same is known, so the walk upwards ends at the first such one.
 *
 * The bucket's own folder is made when it is missing at first, its parent never. A bucket that was
 * there and is gone is not made again: most likely its volume was unmounted, and objects would go
 * to the disk below.
 *
 * Keys come from lake_key_*() and are trusted to be relative; a segment that is empty, "." or ".."
 * is refused all the same. Errors are texts for an operator: objects.md 10, "transport: ...". */
#include "s3/file_store.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/pct.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_SIZE (1u << 20)     /* of a transfer, between looks at `cancel` */
#define SYNCED_MAX 4096           /* folders remembered; then all are forgotten and synced again */
#define INSTANCE_MAX 128          /* bytes of the instance in a temporary file's name */
#define TMP_SUFFIX (2 * (1 + 16)) /* "-<incarnation>-<random>" */

struct file_store {
    char *path; /* parent of the bucket's folder */
    char *root; /* the bucket's folder */
    char *instance;
    struct entropy *entropy;
    uint64_t incarnation;
    pthread_mutex_t lock;
    struct {
        struct map synced; /* folders (relative to root) whose entries are durable */
        bool seen;         /* the bucket's folder was there, its entry is durable */
        bool cleaned;
    } shared;
};

/* ---- Outcomes ---- */

static void fail(struct bucket_request *r, enum bucket_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct bucket_request *r, enum bucket_outcome outcome, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->error, sizeof(r->error), format, args); /* cut to fit */
    va_end(args);
    r->outcome = outcome;
    r->code = 0;
}

void file_succeed(struct bucket_request *r, enum bucket_outcome outcome)
{
    r->outcome = outcome;
    r->code = 200;
    r->error[0] = '\0';
}

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "; free space there, the sink goes on by itself";
    case EROFS:
        return "; make it writable (remount), the sink goes on by itself";
    case EACCES:
    case EPERM:
        return "; let the broker's user read and write there";
    case ENOTDIR:
    case EISDIR:
        return "; something else is in the way there: move it";
    default:
        return "";
    }
}

void file_fail_sys(struct bucket_request *r, const char *call, const char *path, int error)
{
    const char *text = strerrordesc_np(error);
    fail(r, error == ENAMETOOLONG ? BUCKET_TERMINAL : BUCKET_RETRIABLE, "transport: %s %s: %s%s",
         call, path, text != NULL ? text : "unknown error", advice(error));
}

static bool cancelled(struct bucket_request *r, const atomic_bool *cancel)
{
    if (!atomic_load(cancel))
        return false;
    r->outcome = BUCKET_CANCELLED;
    r->code = 0;
    return true;
}

/* ---- Names ---- */

static char *join(const char *folder, struct span name)
{
    struct buf b = BUF_INIT;
    buf_puts(&b, folder);
    buf_putc(&b, '/');
    buf_put_span(&b, name);
    buf_putc(&b, '\0');
    return (char *)b.ptr; /* mem_free() */
}

static bool segment_is_safe(struct span s)
{
    return s.len > 0 && !span_eq(s, SPAN_LIT(".")) && !span_eq(s, SPAN_LIT(".."));
}

/* Is the key a relative path that stays below the bucket, outside the temporary folder? */
static bool key_is_safe(struct span key)
{
    if (key.len == 0 || memchr(key.ptr, '\0', key.len) != NULL)
        return false;
    size_t start = 0;
    for (size_t i = 0; i <= key.len; i++) {
        if (i < key.len && key.ptr[i] != '/')
            continue;
        struct span segment = span_sub(key, start, i);
        if (!segment_is_safe(segment) || (start == 0 && span_eq(segment, SPAN_LIT(FILE_STORE_TMP))))
            return false;
        start = i + 1;
    }
    return true;
}

/* The folder part of a key or folder, without the slash; empty at the bucket's root. */
static struct span parent_of(struct span key)
{
    size_t i = key.len;
    while (i > 0 && key.ptr[i - 1] != '/')
        i--;
    return span_sub(key, 0, i == 0 ? 0 : i - 1);
}

/* ---- Leftovers ---- */

static bool is_hex16(const char *s)
{
    for (unsigned i = 0; i < 16; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    }
    return true;
}

/* A temporary name of this instance, of another incarnation? */
static bool is_leftover(const struct file_store *s, const char *name)
{
    size_t len = strlen(s->instance);
    if (strlen(name) != len + TMP_SUFFIX || strncmp(name, s->instance, len) != 0)
        return false;
    const char *suffix = name + len;
    if (suffix[0] != '-' || !is_hex16(suffix + 1) || suffix[17] != '-' || !is_hex16(suffix + 18))
        return false;
    char own[17];
    (void)snprintf(own, sizeof(own), "%016llx", (unsigned long long)s->incarnation);
    return strncmp(suffix + 1, own, 16) != 0;
}

/* Best effort: what stays costs room, nothing else. */
static void clean_leftovers(struct file_store *s)
{
    char *path = join(s->root, SPAN_LIT(FILE_STORE_TMP));
    DIR *dir = opendir(path);
    if (dir != NULL) {
        struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
            if (is_leftover(s, entry->d_name))
                (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
        (void)closedir(dir);
        s->shared.cleaned = true;
    }
    mem_free(path);
}

struct file_store *file_store_new(const struct file_store_options *options)
{
    struct file_store *s = mem_new(sizeof(*s));
    struct buf instance = BUF_INIT;
    buf_put_pct_short(&instance, options->instance, INSTANCE_MAX);
    s->instance = span_dup(buf_span(&instance));
    buf_deinit(&instance);
    s->path = span_dup(options->path);
    s->root = join(options->path.len == 1 ? "" : s->path, options->bucket); /* of "/": "/B" */
    s->entropy = options->entropy;
    s->incarnation = entropy_u64(options->entropy);
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    clean_leftovers(s);
    return s;
}

void file_store_free(struct file_store *s)
{
    if (s == NULL)
        return;
    map_deinit(&s->shared.synced);
    (void)pthread_mutex_destroy(&s->lock); /* unlocked: nothing is outstanding */
    mem_free(s->path);
    mem_free(s->root);
    mem_free(s->instance);
    mem_free(s);
}

/* ---- Folders ---- */

static bool sync_folder(struct bucket_request *r, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        file_fail_sys(r, "open", path, errno);
        return false;
    }
    bool ok = fsync(fd) == 0;
    if (!ok)
        file_fail_sys(r, "fsync", path, errno);
    (void)close(fd); /* a folder: nothing was written through it */
    return ok;
}

/* Makes the entry of the bucket's folder durable. Its parent may be closed to us: then the whole
 * file system is synced through the folder itself. */
static bool sync_root_entry(struct file_store *s, struct bucket_request *r)
{
    if (access(s->path, R_OK) == 0)
        return sync_folder(r, s->path);
    int fd = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && syncfs(fd) == 0;
    if (!ok)
        file_fail_sys(r, "syncfs", s->root, errno);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static bool make_root(struct file_store *s, struct bucket_request *r)
{
    if (mkdir(s->root, 0777) == 0 || errno == EEXIST)
        return true;
    int error = errno;
    struct stat st;
    if (stat(s->root, &st) == 0)
        return true; /* it is there, in a folder that we may not write to */
    if (error == ENOENT)
        fail(r, BUCKET_RETRIABLE,
             "transport: mkdir %s: there is no folder %s; make it, or mount its volume: only the "
             "bucket's own folder in it is made by the sink",
             s->root, s->path);
    else
        file_fail_sys(r, "mkdir", s->root, error);
    return false;
}

static bool check_root(struct file_store *s, struct bucket_request *r)
{
    struct stat st;
    if (stat(s->root, &st) != 0) {
        if (errno == ENOENT && s->shared.seen)
            fail(r, BUCKET_RETRIABLE,
                 "transport: the bucket's folder %s was there and is gone; mount its volume again, "
                 "or make the folder",
                 s->root);
        else
            file_fail_sys(r, "stat", s->root, errno);
        return false;
    }
    if (!S_ISDIR(st.st_mode)) {
        file_fail_sys(r, "open", s->root, ENOTDIR);
        return false;
    }
    return true;
}

/* The bucket's folder is there and its entry is durable; else false with the failure in r. */
static bool ensure_root(struct file_store *s, struct bucket_request *r)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    bool ok = s->shared.seen || make_root(s, r);
    ok = ok && check_root(s, r) && (s->shared.seen || sync_root_entry(s, r));
    if (ok) {
        s->shared.seen = true;
        if (!s->shared.cleaned)
            clean_leftovers(s);
    }
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return ok;
}

static bool is_synced(struct file_store *s, struct span folder)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    bool known = map_get(&s->shared.synced, folder) != NULL;
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return known;
}

static void remember_synced(struct file_store *s, struct span folder)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    if (s->shared.synced.count >= SYNCED_MAX) {
        map_deinit(&s->shared.synced);
        s->shared.synced = MAP_INIT;
    }
    (void)map_put(&s->shared.synced, folder, s); /* any value that is not NULL */
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
}

static void forget_synced(struct file_store *s, struct span folder)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    (void)map_remove(&s->shared.synced, folder);
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
}

/* Makes the folders of a key, top down. */
static bool make_folders(struct file_store *s, struct bucket_request *r, struct span key)
{
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] != '/')
            continue;
        struct span folder = span_sub(key, 0, i);
        char *path = join(s->root, folder);
        bool made = mkdir(path, 0777) == 0;
        bool ok = made || errno == EEXIST;
        if (made)
            forget_synced(s, folder);
        else if (!ok)
            file_fail_sys(r, "mkdir", path, errno);
        mem_free(path);
        if (!ok)
            return false;
    }
    return true;
}

/* Syncs the object's folder, then upwards what is not known to be durable. */
static bool sync_folders(struct file_store *s, struct bucket_request *r, struct span key)
{
    struct span folder = parent_of(key);
    for (;;) {
        char *path = folder.len == 0 ? span_dup(span_str(s->root)) : join(s->root, folder);
        bool ok = sync_folder(r, path);
        mem_free(path);
        if (!ok)
            return false;
        if (folder.len == 0 || is_synced(s, folder))
            break;
        folder = parent_of(folder);
    }
    /* Top down, so that a remembered folder always hangs from remembered ones. */
    for (size_t i = folder.len + 1; i < key.len; i++) {
        if (key.ptr[i] == '/')
            remember_synced(s, span_sub(key, 0, i));
    }
    return true;
}

/* ---- Operations ---- */

static bool write_whole(struct bucket_request *r, int fd, const char *path, struct span bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            file_fail_sys(r, "write", path, errno);
            return false;
        }
        bytes = span_sub(bytes, (size_t)n, bytes.len);
    }
    return true;
}

/* Reads up to len bytes of the body at `at` into scratch, or points into the body. */
static bool body_piece(struct bucket_request *r, uint64_t at, size_t len, uint8_t *scratch,
                       struct span *piece_out)
{
    if (r->body.fd < 0) {
        *piece_out = span_sub(r->body.bytes, at, at + len);
        return true;
    }
    size_t have = 0;
    while (have < len) {
        ssize_t n = pread(r->body.fd, scratch + have, len - have, (off_t)(at + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            file_fail_sys(r, "read", "the object's spool file", n < 0 ? errno : EIO);
            return false;
        }
        have += (size_t)n;
    }
    *piece_out = span_make(scratch, len);
    return true;
}

static bool write_body(struct bucket_request *r, int fd, const char *path,
                       const atomic_bool *cancel)
{
    uint64_t size = r->body.fd >= 0 ? r->body.size : r->body.bytes.len;
    uint8_t *scratch = r->body.fd >= 0 ? mem_new(PIECE_SIZE) : NULL;
    bool ok = true;
    for (uint64_t at = 0; ok && at < size;) {
        size_t len = size - at < PIECE_SIZE ? (size_t)(size - at) : PIECE_SIZE;
        struct span piece;
        ok = !cancelled(r, cancel) && body_piece(r, at, len, scratch, &piece) &&
             write_whole(r, fd, path, piece);
        at += len;
    }
    mem_free(scratch);
    return ok;
}

/* Opens a new temporary file, making its folder when it is missing. */
static int open_temporary(struct file_store *s, struct bucket_request *r, char **path_out)
{
    char *folder = join(s->root, SPAN_LIT(FILE_STORE_TMP));
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s/%s-%016llx-%016llx", folder, s->instance, (unsigned long long)s->incarnation,
               (unsigned long long)entropy_u64(s->entropy));
    buf_putc(&b, '\0');
    char *path = (char *)b.ptr;
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT && (mkdir(folder, 0777) == 0 || errno == EEXIST))
        fd = open(path, flags, 0666);
    if (fd < 0) {
        file_fail_sys(r, "create", path, errno);
        mem_free(path);
    } else {
        *path_out = path;
    }
    mem_free(folder);
    return fd;
}

static bool write_temporary(struct bucket_request *r, int fd, const char *path,
                            const atomic_bool *cancel)
{
    bool ok = write_body(r, fd, path, cancel);
    if (ok && fsync(fd) != 0) {
        file_fail_sys(r, "fsync", path, errno);
        ok = false;
    }
    if (close(fd) != 0 && ok) {
        file_fail_sys(r, "close", path, errno);
        ok = false;
    }
    return ok;
}

static void put(struct file_store *s, struct bucket_request *r, const atomic_bool *cancel)
{
    char *temporary;
    int fd = open_temporary(s, r, &temporary);
    if (fd < 0)
        return;
    char *path = join(s->root, r->key);
    bool renamed = false;
    if (write_temporary(r, fd, temporary, cancel) && make_folders(s, r, r->key)) {
        renamed = rename(temporary, path) == 0;
        if (!renamed)
            file_fail_sys(r, "rename to", path, errno);
    }
    if (!renamed)
        (void)unlink(temporary); /* else it is cleaned at the next start */
    else if (sync_folders(s, r, r->key))
        file_succeed(r, BUCKET_OK);
    mem_free(path);
    mem_free(temporary);
}

static bool read_whole(struct bucket_request *r, int fd, const char *path, size_t size,
                       const atomic_bool *cancel)
{
    buf_reset(&r->out);
    while (r->out.len < size) {
        size_t len = size - r->out.len < PIECE_SIZE ? size - r->out.len : PIECE_SIZE;
        if (cancelled(r, cancel))
            return false;
        uint8_t *at = buf_extend(&r->out, len);
        ssize_t n = read(fd, at, len);
        int error = n < 0 ? errno : EIO; /* EIO: the file shrank, which objects never do */
        if (n <= 0 && error != EINTR) {
            file_fail_sys(r, "read", path, error);
            return false;
        }
        r->out.len -= len - (n > 0 ? (size_t)n : 0);
    }
    return true;
}

static void get_open(struct bucket_request *r, int fd, const char *path, const atomic_bool *cancel)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        file_fail_sys(r, "stat", path, errno);
    else if (!S_ISREG(st.st_mode))
        file_succeed(r, BUCKET_ABSENT); /* a folder is no object */
    else if ((uint64_t)st.st_size > r->get_max)
        fail(r, BUCKET_TERMINAL, "body: %s has %lld bytes, more than the %zu that it may have",
             path, (long long)st.st_size, r->get_max);
    else if (read_whole(r, fd, path, (size_t)st.st_size, cancel))
        file_succeed(r, BUCKET_OK);
}

static void get(struct file_store *s, struct bucket_request *r, const atomic_bool *cancel)
{
    char *path = join(s->root, r->key);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a pipe's writer */
    if (fd >= 0) {
        get_open(r, fd, path, cancel);
        (void)close(fd); /* only read */
    } else if (errno == ENOENT || errno == ENOTDIR) {
        file_succeed(r, BUCKET_ABSENT);
    } else {
        file_fail_sys(r, "open", path, errno);
    }
    mem_free(path);
}

static bool check_writable(struct bucket_request *r, const char *path)
{
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    file_fail_sys(r, "write to", path, errno);
    return false;
}

static void head(struct file_store *s, struct bucket_request *r)
{
    char *folder = join(s->root, SPAN_LIT(FILE_STORE_TMP));
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        file_fail_sys(r, "mkdir", folder, errno);
    else if (check_writable(r, s->root) && check_writable(r, folder))
        file_succeed(r, BUCKET_OK);
    mem_free(folder);
}

static bool names_safe_path(const struct bucket_request *r)
{
    switch (r->op) {
    case BUCKET_PUT:
    case BUCKET_GET:
        return key_is_safe(r->key);
    case BUCKET_LIST:
        return parent_of(r->key).len == 0 || key_is_safe(parent_of(r->key));
    case BUCKET_HEAD:
        break; /* looks at the bucket only */
    }
    return true;
}

void file_store_attempt(struct file_store *s, struct bucket_request *r, const atomic_bool *cancel)
{
    if (!names_safe_path(r)) {
        fail(r, BUCKET_TERMINAL, "transport: key \"" SPAN_FMT "\" is not a path below the bucket",
             SPAN_ARG(r->key));
        return;
    }
    if (!ensure_root(s, r))
        return;
    switch (r->op) {
    case BUCKET_HEAD:
        head(s, r);
        break;
    case BUCKET_PUT:
        put(s, r, cancel);
        break;
    case BUCKET_GET:
        get(s, r, cancel);
        break;
    case BUCKET_LIST:
        file_list(s->root, r, cancel);
        break;
    }
}
