/* The bucket in a local folder, on a real file system.
 *
 * fsync() is replaced by one that notes what was synced, and can fail. Entropy is zero, so that the
 * waits between attempts are the shortest: 0.1, 0.2, 0.4, 0.8, 1.6 s. */
#include "s3/bucket.h"

#include "base/mem.h"
#include "io/pool.h"
#include "lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_SIZE 512

/* ---- fsync ---- */

static struct {
    pthread_mutex_t lock;
    char paths[64][PATH_SIZE];
    size_t n;
    int fail_errno;
    unsigned fail_after, fail_count; /* calls that succeed before, that fail then */
} synced = {.lock = PTHREAD_MUTEX_INITIALIZER};

int fsync(int fd)
{
    char link[64];
    (void)pthread_mutex_lock(&synced.lock);
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (synced.n < 64) {
        ssize_t len = readlink(link, synced.paths[synced.n], PATH_SIZE - 1);
        synced.paths[synced.n][len > 0 ? len : 0] = '\0';
        synced.n++;
    }
    bool fail = synced.fail_after == 0 && synced.fail_count > 0;
    synced.fail_after -= synced.fail_after > 0;
    synced.fail_count -= fail;
    int error = synced.fail_errno;
    (void)pthread_mutex_unlock(&synced.lock);
    if (fail) {
        errno = error;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

/* ---- Fixture ---- */

static void no_entropy(struct entropy *e, void *out, size_t len)
{
    static atomic_uint counter; /* names must still differ */
    (void)e;
    memset(out, 0, len);
    /* The last byte: multiples of 256 of a wait's range in microseconds do not matter. */
    if (len >= 2) {
        unsigned n = atomic_fetch_add(&counter, 1);
        memcpy((uint8_t *)out, &n, 2);
    }
}

struct fixture {
    char path[64]; /* a folder of its own */
    struct pool_executor executor;
    struct entropy entropy;
    struct bucket *bucket;
};

static void open_as(struct fixture *f, const char *instance)
{
    struct error error;
    CHECK_EQ(file_bucket_open(&(struct file_bucket_options){.path = span_str(f->path),
                                                            .bucket = SPAN_LIT("lake"),
                                                            .instance = span_str(instance),
                                                            .executor = &f->executor.base,
                                                            .clock = clock_real(),
                                                            .entropy = &f->entropy},
                              &f->bucket, &error),
             ERR_OK);
}

static void init(struct fixture *f)
{
    *f = (struct fixture){.entropy.fill = no_entropy};
    memcpy(f->path, "/tmp/file-bucket-test-XXXXXX", 29);
    CHECK(mkdtemp(f->path) != NULL);
    pool_executor_init(&f->executor, pool_new("test", 4));
    open_as(f, "node-1@host/node-1");
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void deinit(struct fixture *f)
{
    bucket_close(f->bucket);
    pool_free(f->executor.pool);
    CHECK_EQ(nftw(f->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A path below the fixture's folder; of a few static buffers. */
static const char *path_of(const struct fixture *f, const char *name)
{
    static char buffers[4][PATH_SIZE];
    static unsigned next;
    char *out = buffers[next++ % 4];
    (void)snprintf(out, PATH_SIZE, "%s/%s", f->path, name);
    return out;
}

/* One request and its end. */
struct call {
    struct bucket_request r;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    unsigned attempts, answered;
    char first_error[ERROR_TEXT_MAX];
};

static void on_attempt(struct bucket_request *r, unsigned code, struct span error)
{
    struct call *c = r->ctx;
    (void)pthread_mutex_lock(&c->lock);
    if (c->attempts++ == 0)
        (void)snprintf(c->first_error, sizeof(c->first_error), SPAN_FMT, SPAN_ARG(error));
    c->answered += code == 200;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

static void on_done(struct bucket_request *r)
{
    struct call *c = r->ctx;
    (void)pthread_mutex_lock(&c->lock);
    c->done = true;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

static void call_init(struct call *c, enum bucket_op op, const char *key)
{
    *c = (struct call){
        .r = {.op = op,
              .key = span_str(key),
              .body.fd = -1,
              .get_max = SIZE_MAX,
              .done = on_done,
              .attempt = on_attempt},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    c->r.ctx = c;
}

static void wait_for_attempt(struct call *c)
{
    (void)pthread_mutex_lock(&c->lock);
    while (c->attempts == 0)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}

static void wait_for_end(struct call *c)
{
    (void)pthread_mutex_lock(&c->lock);
    while (!c->done)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}

static enum bucket_outcome run(struct fixture *f, struct call *c)
{
    bucket_submit(f->bucket, &c->r);
    wait_for_end(c);
    return c->r.outcome;
}

static void put_span(struct fixture *f, const char *key, struct span bytes)
{
    struct call c;
    call_init(&c, BUCKET_PUT, key);
    c.r.content_type = "text/plain";
    c.r.body.bytes = bytes;
    c.r.body.size = bytes.len;
    if (run(f, &c) != BUCKET_OK)
        print_error("%s\n", c.r.error);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    CHECK_EQ(c.r.code, 200);
    CHECK_EQ(c.attempts, 1);
    bucket_request_deinit(&c.r);
}

static void put(struct fixture *f, const char *key, const char *text)
{
    put_span(f, key, span_str(text));
}

static void check_get(struct fixture *f, const char *key, struct span want)
{
    struct call c;
    call_init(&c, BUCKET_GET, key);
    CHECK_EQ(run(f, &c), BUCKET_OK);
    CHECK_EQ(c.r.code, 200);
    CHECK(span_eq(buf_span(&c.r.out), want));
    bucket_request_deinit(&c.r);
}

static void check_absent(struct fixture *f, const char *key)
{
    struct call c;
    call_init(&c, BUCKET_GET, key);
    CHECK_EQ(run(f, &c), BUCKET_ABSENT);
    CHECK_EQ(c.r.code, 200);
    CHECK_EQ(c.r.error[0], 0);
    CHECK_EQ(c.attempts, 1);
    bucket_request_deinit(&c.r);
}

static size_t files_in(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

/* ---- PUT, GET ---- */

TEST(an_object_is_a_file)
{
    struct fixture f;
    struct stat st;
    init(&f);
    put(&f, "queen/tenant=t/dt=2026-10-03/w-1.jsonl", "hello\n");
    check_get(&f, "queen/tenant=t/dt=2026-10-03/w-1.jsonl", SPAN_LIT("hello\n"));
    CHECK_EQ(stat(path_of(&f, "lake/queen/tenant=t/dt=2026-10-03/w-1.jsonl"), &st), 0);
    CHECK_EQ(st.st_size, 6);
    put(&f, "queen/tenant=t/dt=2026-10-03/w-1.jsonl", "other");
    check_get(&f, "queen/tenant=t/dt=2026-10-03/w-1.jsonl", SPAN_LIT("other"));
    put(&f, "top", "");
    check_get(&f, "top", (struct span){0});
    put(&f, "a%2Fb/~x=", "escaped names are names");
    check_get(&f, "a%2Fb/~x=", SPAN_LIT("escaped names are names"));
    CHECK_EQ(files_in(path_of(&f, "lake/.queen-tmp")), 0);
    deinit(&f);
}

TEST(bodies_may_be_files_and_large)
{
    struct fixture f;
    init(&f);
    size_t size = (3u << 20) + 12345;
    uint8_t *bytes = mem_new(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 4096);
    put_span(&f, "memory", span_make(bytes, size));
    check_get(&f, "memory", span_make(bytes, size));

    int fd = open(f.path, O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, bytes, size), size);
    struct call c;
    call_init(&c, BUCKET_PUT, "file");
    c.r.body.fd = fd;
    c.r.body.size = size;
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    bucket_request_deinit(&c.r);
    check_get(&f, "file", span_make(bytes, size));
    CHECK_EQ(close(fd), 0);
    mem_free(bytes);
    deinit(&f);
}

TEST(what_is_not_there_is_absent)
{
    struct fixture f;
    init(&f);
    put(&f, "a/b", "x");
    check_absent(&f, "c");
    check_absent(&f, "a");     /* a folder */
    check_absent(&f, "a/b/c"); /* below a file */
    check_absent(&f, "x/y/z");
    deinit(&f);
}

TEST(a_body_beyond_get_max_is_refused)
{
    struct fixture f;
    init(&f);
    put(&f, "k", "12345");
    for (size_t max = 4; max <= 5; max++) {
        struct call c;
        call_init(&c, BUCKET_GET, "k");
        c.r.get_max = max;
        CHECK_EQ(run(&f, &c), max == 4 ? BUCKET_TERMINAL : BUCKET_OK);
        CHECK((strncmp(c.r.error, "body: ", 6) == 0) == (max == 4));
        CHECK_EQ(c.attempts, 1);
        bucket_request_deinit(&c.r);
    }
    deinit(&f);
}

/* Goal: no key leaves the bucket's folder or touches the temporary one. */
TEST(unsafe_keys_are_refused)
{
    static const char *const keys[] = {"",   "/a",   "a//b",         "a/",
                                       "..", "../x", "a/../b",       "a/..",
                                       ".",  "./a",  ".queen-tmp/x", ".queen-tmp"};
    struct fixture f;
    init(&f);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (int put_it = 0; put_it < 2; put_it++) {
            struct call c;
            call_init(&c, put_it ? BUCKET_PUT : BUCKET_GET, keys[i]);
            CHECK_EQ(run(&f, &c), BUCKET_TERMINAL);
            CHECK_EQ(c.r.code, 0);
            CHECK(strncmp(c.r.error, "transport: ", 11) == 0);
            bucket_request_deinit(&c.r);
        }
    }
    struct call c;
    call_init(&c, BUCKET_LIST, "../x");
    CHECK_EQ(run(&f, &c), BUCKET_TERMINAL);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

TEST(a_name_longer_than_a_file_may_have_is_terminal)
{
    struct fixture f;
    char key[300];
    init(&f);
    memset(key, 'n', 256);
    key[256] = '\0';
    struct call c;
    call_init(&c, BUCKET_PUT, key);
    CHECK_EQ(run(&f, &c), BUCKET_TERMINAL);
    bucket_request_deinit(&c.r);
    CHECK_EQ(files_in(path_of(&f, "lake/.queen-tmp")), 0);
    deinit(&f);
}

/* ---- Durability ---- */

static void forget_syncs(void)
{
    (void)pthread_mutex_lock(&synced.lock);
    synced.n = 0;
    (void)pthread_mutex_unlock(&synced.lock);
}

/* What was synced since forget_syncs(), the temporary file first, then these below the bucket. */
static void check_synced(const struct fixture *f, const char *const *want, size_t n)
{
    CHECK_EQ(synced.n, n + 1);
    CHECK(strstr(synced.paths[0], "/lake/.queen-tmp/") != NULL);
    for (size_t i = 0; i < n; i++) {
        char path[PATH_SIZE];
        (void)snprintf(path, sizeof(path), "%s/lake%s%s", f->path, want[i][0] ? "/" : "", want[i]);
        CHECK(strcmp(synced.paths[i + 1], path) == 0);
    }
    forget_syncs();
}

/* Goal: every folder a new object hangs from is synced, once per process. */
TEST(new_folders_are_synced_up_to_the_bucket)
{
    struct fixture f;
    init(&f);
    struct call c;
    call_init(&c, BUCKET_HEAD, "queen/");
    forget_syncs();
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_EQ(synced.n, 1); /* the entry of the bucket's own folder */
    CHECK(strcmp(synced.paths[0], f.path) == 0);
    bucket_request_deinit(&c.r);

    forget_syncs();
    put(&f, "q/t/dt=1/hour=1/a", "x");
    check_synced(&f, (const char *[]){"q/t/dt=1/hour=1", "q/t/dt=1", "q/t", "q", ""}, 5);
    put(&f, "q/t/dt=1/hour=1/b", "x");
    check_synced(&f, (const char *[]){"q/t/dt=1/hour=1"}, 1);
    put(&f, "q/t/dt=1/hour=2/a", "x");
    check_synced(&f, (const char *[]){"q/t/dt=1/hour=2", "q/t/dt=1"}, 2);
    put(&f, "q/t/dt=2/hour=1/a", "x");
    check_synced(&f, (const char *[]){"q/t/dt=2/hour=1", "q/t/dt=2", "q/t"}, 3);
    put(&f, "top", "x");
    check_synced(&f, (const char *[]){""}, 1);

    /* Somebody removes a folder: it is new again. */
    CHECK_EQ(nftw(path_of(&f, "lake/q/t/dt=1"), remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    put(&f, "q/t/dt=1/hour=1/a", "x");
    check_synced(&f, (const char *[]){"q/t/dt=1/hour=1", "q/t/dt=1", "q/t"}, 3);

    /* Another process knows nothing of what this one synced. */
    bucket_close(f.bucket);
    open_as(&f, "node-1@host/node-1");
    call_init(&c, BUCKET_HEAD, "queen/");
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    bucket_request_deinit(&c.r);
    forget_syncs();
    put(&f, "q/t/dt=1/hour=1/a", "x");
    check_synced(&f, (const char *[]){"q/t/dt=1/hour=1", "q/t/dt=1", "q/t", "q", ""}, 5);
    deinit(&f);
}

/* Goal: a sync that fails is never taken for success. Method: each of the four syncs of a PUT
 * (file, two folders, bucket) fails once; the PUT must be made again from its start. */
TEST(a_failed_sync_is_tried_again)
{
    for (unsigned nth = 0; nth < 4; nth++) {
        struct fixture f;
        struct call c;
        init(&f);
        put(&f, "warm", "x"); /* the bucket's folder is there */
        synced.fail_errno = EIO;
        synced.fail_after = nth;
        synced.fail_count = 1;
        forget_syncs();
        call_init(&c, BUCKET_PUT, "d/e/k");
        c.r.body.bytes = SPAN_LIT("body");
        CHECK_EQ(run(&f, &c), BUCKET_OK);
        CHECK_EQ(c.attempts, 2);
        CHECK_EQ(c.answered, 1);
        CHECK_EQ(synced.n, nth + 1 + 4); /* nothing is taken as synced that was not */
        CHECK(strncmp(c.first_error, "transport: fsync ", 17) == 0);
        CHECK(strstr(c.first_error, "Input/output error") != NULL);
        bucket_request_deinit(&c.r);
        check_get(&f, "d/e/k", SPAN_LIT("body"));
        CHECK_EQ(files_in(path_of(&f, "lake/.queen-tmp")), 0);
        deinit(&f);
    }
}

/* ---- HEAD and trouble with the folder ---- */

TEST(the_buckets_folder_is_made_its_parent_is_not)
{
    struct fixture f;
    struct stat st;
    struct call c;
    init(&f);
    CHECK(stat(path_of(&f, "lake"), &st) != 0); /* opening makes nothing */
    call_init(&c, BUCKET_HEAD, "queen/");
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_EQ(stat(path_of(&f, "lake"), &st), 0);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

/* Six attempts, each told of, the waits between them; then it appears. */
TEST(a_missing_parent_is_tried_six_times)
{
    struct fixture f;
    struct call c;
    init(&f);
    CHECK_EQ(rmdir(f.path), 0);
    call_init(&c, BUCKET_HEAD, "queen/");
    int64_t start = clock_mono_us(clock_real());
    CHECK_EQ(run(&f, &c), BUCKET_RETRIABLE);
    int64_t took = clock_mono_us(clock_real()) - start;
    CHECK(took >= 3100000 && took < 6000000);
    CHECK_EQ(c.attempts, 6);
    CHECK_EQ(c.answered, 0);
    CHECK_EQ(c.r.code, 0);
    CHECK(strncmp(c.r.error, "transport: mkdir ", 17) == 0);
    CHECK(strstr(c.r.error, f.path) != NULL);
    CHECK(strstr(c.r.error, "make it, or mount its volume") != NULL);
    CHECK_EQ(c.r.retry_after_us, -1);
    bucket_request_deinit(&c.r);

    call_init(&c, BUCKET_PUT, "k");
    c.r.body.bytes = SPAN_LIT("x");
    bucket_submit(f.bucket, &c.r);
    wait_for_attempt(&c);
    CHECK_EQ(mkdir(f.path, 0777), 0);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    CHECK_EQ(c.r.error[0], 0);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

/* An unmounted volume must not be written to behind its back. */
TEST(a_bucket_that_vanished_is_not_made_again)
{
    struct fixture f;
    struct call c;
    struct stat st;
    init(&f);
    put(&f, "k", "x");
    CHECK_EQ(rename(path_of(&f, "lake"), path_of(&f, "away")), 0);
    call_init(&c, BUCKET_GET, "k");
    bucket_submit(f.bucket, &c.r);
    wait_for_attempt(&c);
    CHECK(strstr(c.first_error, "was there and is gone") != NULL);
    CHECK(stat(path_of(&f, "lake"), &st) != 0);
    CHECK_EQ(rename(path_of(&f, "away"), path_of(&f, "lake")), 0);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

TEST(something_else_in_the_way_is_named)
{
    struct fixture f;
    struct call c;
    init(&f);
    put(&f, "a", "a file");
    call_init(&c, BUCKET_PUT, "a/b");
    bucket_submit(f.bucket, &c.r);
    wait_for_attempt(&c);
    CHECK(strstr(c.first_error, "/lake/a") != NULL);
    CHECK_EQ(unlink(path_of(&f, "lake/a")), 0);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

/* Runs in a mount namespace of its own, where that is allowed. */
static bool mount_small(const char *path)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", path, "tmpfs", 0, "size=1m") == 0;
}

struct in_namespace {
    void (*check)(struct fixture *f);
};

static void check_full(struct fixture *f)
{
    struct call c;
    size_t size = 2u << 20;
    uint8_t *bytes = mem_new(size);
    put(f, "small", "x");
    put_span(f, "ballast", span_make(bytes, 700u << 10));
    call_init(&c, BUCKET_PUT, "large");
    c.r.body.bytes = span_make(bytes, 600u << 10);
    bucket_submit(f->bucket, &c.r);
    wait_for_attempt(&c);
    CHECK(strstr(c.first_error, "No space left on device; free space there") != NULL);
    CHECK_EQ(unlink(path_of(f, "lake/ballast")), 0);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    bucket_request_deinit(&c.r);
    CHECK_EQ(files_in(path_of(f, "lake/.queen-tmp")), 0);
    mem_free(bytes);
}

static void check_read_only(struct fixture *f)
{
    static const enum bucket_op ops[] = {BUCKET_PUT, BUCKET_HEAD};
    put(f, "k", "x");
    CHECK_EQ(mount(NULL, f->path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    check_get(f, "k", SPAN_LIT("x"));
    for (unsigned i = 0; i < 2; i++) {
        struct call c;
        call_init(&c, ops[i], "l");
        bucket_submit(f->bucket, &c.r);
        wait_for_attempt(&c);
        CHECK(strstr(c.first_error, "Read-only file system; make it writable") != NULL);
        CHECK_EQ(mount(NULL, f->path, NULL, MS_REMOUNT, NULL), 0);
        wait_for_end(&c);
        CHECK_EQ(c.r.outcome, BUCKET_OK);
        bucket_request_deinit(&c.r);
        CHECK_EQ(mount(NULL, f->path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    }
    CHECK_EQ(mount(NULL, f->path, NULL, MS_REMOUNT, NULL), 0);
}

/* The namespace is the calling thread's, and those of the threads it starts later. */
static void with_small_disk(void (*check)(struct fixture *f))
{
    struct fixture f;
    char path[] = "/tmp/file-bucket-small-XXXXXX";
    CHECK(mkdtemp(path) != NULL);
    if (!mount_small(path)) {
        (void)rmdir(path);
        skip();
    }
    f = (struct fixture){.entropy.fill = no_entropy};
    memcpy(f.path, path, sizeof(path));
    pool_executor_init(&f.executor, pool_new("test", 2));
    open_as(&f, "i");
    check(&f);
    bucket_close(f.bucket);
    pool_free(f.executor.pool);
    CHECK_EQ(umount(path), 0);
    CHECK_EQ(rmdir(path), 0);
}

TEST(a_full_folder_is_tried_again)
{
    with_small_disk(check_full);
}

TEST(a_read_only_folder_is_tried_again)
{
    with_small_disk(check_read_only);
}

/* ---- Cancelling ---- */

TEST(cancel_ends_a_wait_at_once)
{
    struct fixture f;
    struct call c[8];
    init(&f);
    CHECK_EQ(rmdir(f.path), 0);
    for (unsigned i = 0; i < 8; i++) {
        call_init(&c[i], BUCKET_HEAD, "queen/");
        bucket_submit(f.bucket, &c[i].r);
    }
    for (unsigned i = 0; i < 8; i++)
        wait_for_attempt(&c[i]);
    int64_t start = clock_mono_us(clock_real());
    bucket_cancel(f.bucket);
    for (unsigned i = 0; i < 8; i++) {
        wait_for_end(&c[i]);
        CHECK_EQ(c[i].r.outcome, BUCKET_CANCELLED);
        CHECK_EQ(c[i].r.code, 0);
    }
    CHECK(clock_mono_us(clock_real()) - start < 90000); /* less than the shortest wait */
    CHECK_EQ(mkdir(f.path, 0777), 0);
    struct call late;
    call_init(&late, BUCKET_HEAD, "queen/");
    CHECK_EQ(run(&f, &late), BUCKET_CANCELLED);
    CHECK_EQ(late.attempts, 0);
    for (unsigned i = 0; i < 8; i++)
        bucket_request_deinit(&c[i].r);
    deinit(&f);
}

/* ---- Temporary files ---- */

static void touch(const struct fixture *f, const char *name)
{
    int fd = open(path_of(f, name), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(close(fd), 0);
}

TEST(only_our_own_leftovers_are_cleaned)
{
#define NUMBERS "-0123456789abcdef-fedcba9876543210"
    static const char *const kept[] = {
        "lake/.queen-tmp/b" NUMBERS,          "lake/.queen-tmp/a-b" NUMBERS,
        "lake/.queen-tmp/a-0123456789abcdef", "lake/.queen-tmp/a-0123456789abcdeF-fedcba9876543210",
        "lake/.queen-tmp/aa" NUMBERS,         "lake/.queen-tmp/a" NUMBERS "0",
    };
    static const char *const cleaned[] = {"lake/.queen-tmp/a" NUMBERS};
    struct fixture f;
    struct stat st;
    init(&f);
    bucket_close(f.bucket);
    CHECK_EQ(mkdir(path_of(&f, "lake"), 0777), 0);
    CHECK_EQ(mkdir(path_of(&f, "lake/.queen-tmp"), 0777), 0);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        touch(&f, kept[i]);
    touch(&f, cleaned[0]);
    open_as(&f, "a");
    CHECK(stat(path_of(&f, cleaned[0]), &st) != 0);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        CHECK_EQ(stat(path_of(&f, kept[i]), &st), 0);
    /* What stands there is never listed. */
    struct call c;
    call_init(&c, BUCKET_LIST, "");
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_EQ(c.r.n_keys, 0);
    bucket_request_deinit(&c.r);
    deinit(&f);
}

/* ---- LIST ---- */

static void check_list(struct fixture *f, const char *prefix, const char *after,
                       const char *const *want, size_t n)
{
    struct call c;
    call_init(&c, BUCKET_LIST, prefix);
    c.r.start_after = span_str(after);
    CHECK_EQ(run(f, &c), BUCKET_OK);
    CHECK_EQ(c.r.n_keys, n);
    CHECK(!c.r.truncated);
    for (size_t i = 0; i < n; i++)
        CHECK_TEXT(c.r.keys[i], want[i]);
    bucket_request_deinit(&c.r);
}

/* Folders sort among files as their keys do: '-' < '.' < '/' < '0'. */
TEST(lists_are_in_key_order)
{
    static const char *const keys[] = {"a-b", "a.b", "a/b", "a/c/d", "a0", "b\xC3\xA8", "b\xFF"};
    struct fixture f;
    init(&f);
    for (size_t i = 7; i > 0; i--)
        put(&f, keys[i - 1], "x");
    CHECK_EQ(mkdir(path_of(&f, "lake/a/empty"), 0777), 0);
    check_list(&f, "", "", keys, 7);
    check_list(&f, "a", "", keys, 5);
    check_list(&f, "a/", "", keys + 2, 2);
    check_list(&f, "a/c", "", keys + 3, 1);
    check_list(&f, "a/c/", "", keys + 3, 1);
    check_list(&f, "b", "", keys + 5, 2);
    check_list(&f, "x/", "", NULL, 0);
    check_list(&f, "a0/", "", NULL, 0); /* a file */
    for (size_t i = 0; i < 7; i++)
        check_list(&f, "", keys[i], keys + i + 1, 6 - i);
    check_list(&f, "a", "a/b", keys + 3, 2);
    check_list(&f, "a", "a/b!", keys + 3, 2);
    check_list(&f, "a", "a/c/d/e", keys + 4, 1);
    check_list(&f, "a/", "zzz", NULL, 0);
    deinit(&f);
}

TEST(long_lists_come_in_pages)
{
    enum { N = 5500 }; /* more than a folder's names are kept for */
    struct fixture f;
    init(&f);
    put(&f, "p/checkpoint/0000000000.json.zst", "x");
    for (unsigned i = 1; i < N; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "lake/p/checkpoint/%010u.json.zst", i * 7 % N);
        touch(&f, name);
    }
    put(&f, "p/checkpoint/folder/x", "x");
    struct buf after = BUF_INIT;
    unsigned seen = 0;
    bool more = true;
    while (more) {
        struct call c;
        call_init(&c, BUCKET_LIST, "p/checkpoint/");
        c.r.start_after = buf_span(&after);
        CHECK_EQ(run(&f, &c), BUCKET_OK);
        CHECK(c.r.n_keys == 1000 || !c.r.truncated);
        for (size_t i = 0; i < c.r.n_keys && seen < N; i++, seen++) {
            char want[64];
            (void)snprintf(want, sizeof(want), "p/checkpoint/%010u.json.zst", seen);
            CHECK_TEXT(c.r.keys[i], want);
        }
        more = c.r.truncated;
        struct span last = c.r.keys[c.r.n_keys - 1];
        buf_reset(&after);
        buf_put_span(&after, last);
        bucket_request_deinit(&c.r);
    }
    CHECK_EQ(seen, N);
    CHECK_TEXT(buf_span(&after), "p/checkpoint/folder/x");
    buf_deinit(&after);
    deinit(&f);
}

/* A full page that is the last one is not called cut. */
TEST(a_page_of_1000_keys_is_whole)
{
    struct fixture f;
    init(&f);
    put(&f, "p/0000", "x");
    for (unsigned n = 1; n <= 1001; n++) {
        char name[32];
        if (n >= 999) {
            struct call c;
            call_init(&c, BUCKET_LIST, "p/");
            CHECK_EQ(run(&f, &c), BUCKET_OK);
            CHECK_EQ(c.r.n_keys, n < 1000 ? n : 1000);
            CHECK(c.r.truncated == (n > 1000));
            bucket_request_deinit(&c.r);
        }
        (void)snprintf(name, sizeof(name), "lake/p/%04u", n);
        touch(&f, name);
    }
    deinit(&f);
}

/* ---- Many at once ---- */

TEST(many_requests_at_once)
{
    enum { N = 200 };
    struct fixture f;
    static struct call calls[N];
    static char keys[N][64];
    init(&f);
    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "q/%u/%u/%u", i % 3, i % 7, i % 50);
        call_init(&calls[i], BUCKET_PUT, keys[i]);
        calls[i].r.body.bytes = span_str(keys[i]);
    }
    for (unsigned i = 0; i < N; i++)
        bucket_submit(f.bucket, &calls[i].r);
    for (unsigned i = 0; i < N; i++) {
        wait_for_end(&calls[i]);
        CHECK_EQ(calls[i].r.outcome, BUCKET_OK);
        bucket_request_deinit(&calls[i].r);
    }
    for (unsigned i = 0; i < N; i++)
        check_get(&f, keys[i], span_str(keys[i]));
    CHECK_EQ(files_in(path_of(&f, "lake/.queen-tmp")), 0);
    deinit(&f);
}

TEST(options_are_checked)
{
    struct bucket *b;
    struct error error;
    struct file_bucket_options o = {.path = SPAN_LIT("relative"), .bucket = SPAN_LIT("b")};
    CHECK_EQ(file_bucket_open(&o, &b, &error), ERR_INVALID);
    o.path = SPAN_LIT("/tmp");
    static const char *const names[] = {"", ".", "..", "a/b"};
    for (size_t i = 0; i < 4; i++) {
        o.bucket = span_str(names[i]);
        CHECK_EQ(file_bucket_open(&o, &b, &error), ERR_INVALID);
    }
}

TEST(operations_have_labels)
{
    CHECK(strcmp(bucket_op_label(BUCKET_HEAD), "head") == 0);
    CHECK(strcmp(bucket_op_label(BUCKET_PUT), "put") == 0);
    CHECK(strcmp(bucket_op_label(BUCKET_GET), "get") == 0);
    CHECK(strcmp(bucket_op_label(BUCKET_LIST), "list") == 0);
    bucket_request_deinit(NULL);
}

TEST_MAIN()
