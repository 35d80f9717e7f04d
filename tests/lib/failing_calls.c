/* Makes chosen file calls of a program under test fail, fall short or stand still (LD_PRELOAD).
 *
 * FAILING_CALLS names a file of rules, one a line:
 *
 *     <call> <pattern> <skip> <times> <action>
 *
 *   call     fsync fdatasync syncfs read write open create rename unlink rmdir mkdir ftruncate
 *            fallocate mmap; a name stands for its whole family (write: write, pwrite, pwritev)
 *   pattern  of the absolute path (fnmatch; * crosses slashes); of a rename either name may match
 *   skip     how many matching calls pass first
 *   times    how many are hit after these; 0: all
 *   action   an error name or number; `short`: half of the bytes; `note`: only noted; `lie`: a sync
 *            that does nothing and says it did; `hold`: the thread stands still before the call until
 *            the rules change; `held`: behind the call
 *
 * The file may be replaced (renamed over) at any time; counting then begins anew. Every hit is a line
 * "<call> <action> <path>" of <file>.log, written before a `hold` and behind the call of a `held`.
 *
 * Calls are made as system calls, so nothing of this depends on who else stands before libc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <dlfcn.h>

#define RULES_MAX 16
#define PATH_SIZE (PATH_MAX + 64)
#define HOLD_LOOK_US 5000

enum action { ACTION_ERROR, ACTION_SHORT, ACTION_NOTE, ACTION_LIE, ACTION_HOLD, ACTION_HELD };

struct rule {
    char call[16], pattern[PATH_MAX], word[16];
    unsigned long skip, times, seen;
    enum action action;
    int error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX]; /* under lock, like all below */
static size_t n_rules;
static struct stat read_from; /* the file that they are of */
static const char *rules_path, *log_path;

static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS},
              {"EACCES", EACCES}, {"EMFILE", EMFILE}, {"EINTR", EINTR}};

static void set_action(struct rule *r)
{
    static const char *const words[] = {"short", "note", "lie", "hold", "held"};
    r->action = ACTION_ERROR;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(r->word, words[i]) == 0)
            r->action = (enum action)(ACTION_SHORT + i);
    }
    r->error = (int)strtol(r->word, NULL, 10);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strcmp(r->word, errors[i].name) == 0)
            r->error = errors[i].number;
    }
    if (r->action == ACTION_ERROR && r->error <= 0)
        abort(); /* a mistake in the test */
}

static void parse(char *text)
{
    n_rules = 0;
    for (char *line = text; *line != '\0' && n_rules < RULES_MAX;) {
        char *end = strchrnul(line, '\n');
        char *next = *end == '\0' ? end : end + 1;
        *end = '\0';
        struct rule r = {.seen = 0};
        if (sscanf(line, "%15s %4095s %lu %lu %15s", r.call, r.pattern, &r.skip, &r.times,
                   r.word) == 5) {
            set_action(&r);
            rules[n_rules++] = r;
        }
        line = next;
    }
}

/* Reads the rules when their file is another than last time. Lock held. */
static void look_at_rules(void)
{
    static char text[16 * 1024];
    struct stat now;
    if (stat(rules_path, &now) != 0)
        return;
    if (now.st_ino == read_from.st_ino && now.st_mtim.tv_sec == read_from.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == read_from.st_mtim.tv_nsec)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, rules_path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    long n = syscall(SYS_read, fd, text, sizeof(text) - 1);
    (void)syscall(SYS_close, fd);
    if (n < 0)
        return;
    text[n] = '\0';
    parse(text);
    read_from = now;
}

static void note(const struct rule *r, const char *path)
{
    char line[PATH_SIZE + 64];
    int len = snprintf(line, sizeof(line), "%s %s %s\n", r->call, r->word, path);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                          0644);
    if (fd < 0 || len < 0)
        abort();
    (void)syscall(SYS_write, fd, line, len < (int)sizeof(line) ? len : (int)sizeof(line) - 1);
    (void)syscall(SYS_close, fd);
}

static bool is_armed(void)
{
    if (rules_path == NULL) {
        rules_path = getenv("FAILING_CALLS");
        static char path[PATH_MAX];
        if (rules_path != NULL)
            (void)snprintf(path, sizeof(path), "%s.log", rules_path);
        log_path = path;
    }
    if (rules_path == NULL)
        return false;
    look_at_rules();
    return n_rules > 0;
}

/* The rule that hits this call, if any. Lock held. */
static struct rule *match(const char *call, const char *path, const char *other)
{
    for (size_t i = 0; i < n_rules; i++) {
        struct rule *r = &rules[i];
        if (strcmp(r->call, call) != 0 || (fnmatch(r->pattern, path, 0) != 0 &&
                                           (other == NULL || fnmatch(r->pattern, other, 0) != 0)))
            continue;
        unsigned long number = r->seen++;
        if (number >= r->skip && (r->times == 0 || number < r->skip + r->times))
            return r;
    }
    return NULL;
}

static bool rules_changed(const struct stat *before)
{
    pthread_mutex_lock(&lock);
    look_at_rules();
    bool changed = read_from.st_ino != before->st_ino ||
                   read_from.st_mtim.tv_sec != before->st_mtim.tv_sec ||
                   read_from.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
    pthread_mutex_unlock(&lock);
    return changed;
}

struct verdict {
    enum action action;
    int error; /* of ACTION_ERROR */
    struct rule rule;
    struct stat rules;
    char path[PATH_SIZE];
};

static void stand_still(const struct verdict *v)
{
    while (!rules_changed(&v->rules))
        (void)usleep(HOLD_LOOK_US);
}

/* What becomes of a call; false: nothing, it is made as it is. */
static bool judge(const char *call, const char *path, const char *other, struct verdict *v)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    struct rule *r = is_armed() ? match(call, path, other) : NULL;
    if (r != NULL) {
        v->action = r->action;
        v->error = r->error;
        v->rule = *r;
        v->rules = read_from;
        (void)snprintf(v->path, sizeof(v->path), "%s", path);
        if (r->action != ACTION_HELD)
            note(r, path);
    }
    pthread_mutex_unlock(&lock);
    if (r != NULL && v->action == ACTION_HOLD)
        stand_still(v);
    errno = saved;
    return r != NULL;
}

static void path_of_fd(int fd, char path[PATH_SIZE])
{
    char name[64];
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlink, name, path, PATH_SIZE - 1);
    path[n < 0 ? 0 : n] = '\0';
}

static void path_at(int dir, const char *name, char path[PATH_SIZE])
{
    size_t len = 0;
    if (name[0] != '/') {
        if (dir == AT_FDCWD) {
            if (syscall(SYS_getcwd, path, PATH_SIZE) < 0)
                path[0] = '\0';
        } else {
            path_of_fd(dir, path);
        }
        len = strlen(path);
        path[len++] = '/';
    }
    (void)snprintf(path + len, PATH_SIZE - len, "%s", name);
}

/* Nothing is looked up while no rules are named: then a call costs a comparison. */
static bool is_on(void)
{
    static int known; /* 0: not looked yet */
    if (known == 0)
        known = getenv("FAILING_CALLS") != NULL ? 1 : -1;
    return known > 0;
}

static bool judge_fd(const char *call, int fd, struct verdict *v)
{
    char path[PATH_SIZE];
    int saved = errno;
    if (!is_on() || fd < 0)
        return false;
    path_of_fd(fd, path);
    errno = saved;
    return path[0] == '/' && judge(call, path, NULL, v);
}

static bool judge_at(const char *call, int dir, const char *name, struct verdict *v)
{
    char path[PATH_SIZE];
    int saved = errno;
    if (!is_on())
        return false;
    path_at(dir, name, path);
    errno = saved;
    return judge(call, path, NULL, v);
}

/* Behind the call: stands still where that was asked for; hands on the result. */
static long finish(bool hit, const struct verdict *v, long result)
{
    int saved = errno;
    if (hit && v->action == ACTION_HELD) {
        note(&v->rule, v->path);
        stand_still(v);
    }
    errno = saved;
    return result;
}

#define FAILS(hit, v) ((hit) && (v).action == ACTION_ERROR)
#define FAIL(v) (errno = (v).error, -1)

/* A function under libc's name, whatever libc's headers make of that name; and another name for it. */
#define CALL(type, function, name, ...)                                                            \
    type function(__VA_ARGS__) __asm__(#name);                                                     \
    type function(__VA_ARGS__)
#define ALSO(type, function, name, original, ...)                                                  \
    type function(__VA_ARGS__) __asm__(#name) __attribute__((alias(#original)))

/* ---- Syncs ---- */

CALL(int, call_fsync, fsync, int fd)
{
    struct verdict v;
    bool hit = judge_fd("fsync", fd, &v);
    if (hit && v.action == ACTION_LIE)
        return 0;
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_fsync, fd));
}

CALL(int, call_fdatasync, fdatasync, int fd)
{
    struct verdict v;
    bool hit = judge_fd("fdatasync", fd, &v);
    if (hit && v.action == ACTION_LIE)
        return 0;
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_fdatasync, fd));
}

CALL(int, call_syncfs, syncfs, int fd)
{
    struct verdict v;
    bool hit = judge_fd("syncfs", fd, &v);
    if (hit && v.action == ACTION_LIE)
        return 0;
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_syncfs, fd));
}

/* ---- Bytes ---- */

static size_t cut(bool hit, const struct verdict *v, size_t n)
{
    return hit && v->action == ACTION_SHORT && n > 1 ? n / 2 : n;
}

CALL(ssize_t, call_write, write, int fd, const void *bytes, size_t n)
{
    struct verdict v;
    bool hit = judge_fd("write", fd, &v);
    return FAILS(hit, v) ? FAIL(v)
                         : finish(hit, &v, syscall(SYS_write, fd, bytes, cut(hit, &v, n)));
}

CALL(ssize_t, call_pwrite, pwrite64, int fd, const void *bytes, size_t n, off_t at)
{
    struct verdict v;
    bool hit = judge_fd("write", fd, &v);
    return FAILS(hit, v) ? FAIL(v)
                         : finish(hit, &v, syscall(SYS_pwrite64, fd, bytes, cut(hit, &v, n), at));
}
ALSO(ssize_t, also_pwrite, pwrite, pwrite64, int fd, const void *bytes, size_t n, off_t at);

CALL(ssize_t, call_pwritev, pwritev64, int fd, const struct iovec *parts, int n, off_t at)
{
    struct verdict v;
    bool hit = judge_fd("write", fd, &v);
    if (FAILS(hit, v))
        return FAIL(v);
    if (hit && v.action == ACTION_SHORT) /* some of the first part only */
        return syscall(SYS_pwrite64, fd, parts[0].iov_base, cut(hit, &v, parts[0].iov_len), at);
    return finish(hit, &v, syscall(SYS_pwritev, fd, parts, (long)n, (long)at, 0L));
}
ALSO(ssize_t, also_pwritev, pwritev, pwritev64, int fd, const struct iovec *parts, int n, off_t at);

CALL(ssize_t, call_read, read, int fd, void *bytes, size_t n)
{
    struct verdict v;
    bool hit = judge_fd("read", fd, &v);
    return FAILS(hit, v) ? FAIL(v) : finish(hit, &v, syscall(SYS_read, fd, bytes, cut(hit, &v, n)));
}

CALL(ssize_t, call_pread, pread64, int fd, void *bytes, size_t n, off_t at)
{
    struct verdict v;
    bool hit = judge_fd("read", fd, &v);
    return FAILS(hit, v) ? FAIL(v)
                         : finish(hit, &v, syscall(SYS_pread64, fd, bytes, cut(hit, &v, n), at));
}
ALSO(ssize_t, also_pread, pread, pread64, int fd, void *bytes, size_t n, off_t at);

/* What the state database reads its logs with. Fails like the read below it. */
CALL(size_t, call_fread, fread_unlocked, void *bytes, size_t size, size_t n, FILE *file)
{
    static size_t (*real)(void *, size_t, size_t, FILE *);
    struct verdict v;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fread_unlocked");
    bool hit = judge_fd("read", fileno(file), &v);
    if (FAILS(hit, v)) {
        errno = v.error;
        return 0;
    }
    return real(bytes, size, n, file);
}

/* ---- Names ---- */

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    struct verdict v;
    bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    bool hit = judge_at(creates ? "create" : "open", dir, path, &v);
    return FAILS(hit, v) ? FAIL(v)
                         : (int)finish(hit, &v, syscall(SYS_openat, dir, path, flags, mode));
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

CALL(int, call_open, open64, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_at(AT_FDCWD, path, flags, mode);
}
ALSO(int, also_open, open, open64, const char *path, int flags, ...);

CALL(int, call_openat, openat64, int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_at(dir, path, flags, mode);
}
ALSO(int, also_openat, openat, openat64, int dir, const char *path, int flags, ...);

CALL(int, call_renameat, renameat, int from_dir, const char *from, int to_dir, const char *to)
{
    struct verdict v;
    char a[PATH_SIZE], b[PATH_SIZE];
    bool hit = false;
    if (is_on()) {
        path_at(from_dir, from, a);
        path_at(to_dir, to, b);
        hit = judge("rename", a, b, &v);
    }
    return FAILS(hit, v) ? FAIL(v)
                         : (int)finish(hit, &v, syscall(SYS_renameat, from_dir, from, to_dir, to));
}

CALL(int, call_rename, rename, const char *from, const char *to)
{
    return call_renameat(AT_FDCWD, from, AT_FDCWD, to);
}

CALL(int, call_unlinkat, unlinkat, int dir, const char *path, int flags)
{
    struct verdict v;
    bool hit = judge_at((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", dir, path, &v);
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_unlinkat, dir, path, flags));
}

CALL(int, call_unlink, unlink, const char *path)
{
    return call_unlinkat(AT_FDCWD, path, 0);
}

CALL(int, call_rmdir, rmdir, const char *path)
{
    return call_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

CALL(int, call_mkdirat, mkdirat, int dir, const char *path, mode_t mode)
{
    struct verdict v;
    bool hit = judge_at("mkdir", dir, path, &v);
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_mkdirat, dir, path, mode));
}

CALL(int, call_mkdir, mkdir, const char *path, mode_t mode)
{
    return call_mkdirat(AT_FDCWD, path, mode);
}

/* ---- Sizes ---- */

CALL(int, call_ftruncate, ftruncate64, int fd, off_t size)
{
    struct verdict v;
    bool hit = judge_fd("ftruncate", fd, &v);
    return FAILS(hit, v) ? FAIL(v) : (int)finish(hit, &v, syscall(SYS_ftruncate, fd, size));
}
ALSO(int, also_ftruncate, ftruncate, ftruncate64, int fd, off_t size);

CALL(int, call_fallocate, fallocate64, int fd, int mode, off_t at, off_t size)
{
    struct verdict v;
    bool hit = judge_fd("fallocate", fd, &v);
    return FAILS(hit, v) ? FAIL(v)
                         : (int)finish(hit, &v, syscall(SYS_fallocate, fd, mode, at, size));
}
ALSO(int, also_fallocate, fallocate, fallocate64, int fd, int mode, off_t at, off_t size);

CALL(void *, call_mmap, mmap64, void *where, size_t n, int prot, int flags, int fd, off_t at)
{
    struct verdict v;
    bool hit = (flags & MAP_ANONYMOUS) == 0 && judge_fd("mmap", fd, &v);
    if (FAILS(hit, v)) {
        errno = v.error;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, where, n, prot, flags, fd, at);
}
ALSO(void *, also_mmap, mmap, mmap64, void *where, size_t n, int prot, int flags, int fd, off_t at);
