/* The contract of struct disk, run against the real disk and the simulated one alike. */
#include "io/disk.h"

#include "base/mem.h"
#include "lib/test.h"
#include "sim/sim_disk.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct bench {
    struct disk *real, *sim;
    char root[32];
};

static void set_up(struct bench *b)
{
    *b = (struct bench){.root = "/tmp/disk_test_XXXXXX"};
    CHECK(mkdtemp(b->root) != NULL);
    CHECK_EQ(disk_real_open(b->root, &b->real, NULL), ERR_OK);
    b->sim = sim_disk_new(1);
}

/* Removes what a test left below path. */
static void clear(struct disk *d, const char *path)
{
    struct disk_list list;
    CHECK_EQ(disk_list(d, path, &list, NULL), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        char child[256];
        (void)snprintf(child, sizeof(child), "%s/%s", path, list.entries[i].name);
        if (list.entries[i].is_dir) {
            clear(d, child);
            CHECK_EQ(disk_rmdir(d, child, NULL), ERR_OK);
        } else {
            CHECK_EQ(disk_unlink(d, child, NULL), ERR_OK);
        }
    }
    disk_list_deinit(&list);
}

static void tear_down(struct bench *b)
{
    clear(b->real, ".");
    clear(b->sim, ".");
    disk_real_close(b->real);
    sim_disk_free(b->sim);
    CHECK_EQ(rmdir(b->root), 0);
}

static void on_both(void (*test)(struct disk *d))
{
    struct bench b;
    set_up(&b);
    test(b.real);
    test(b.sim);
    tear_down(&b);
}

static struct disk_file *make(struct disk *d, const char *path)
{
    struct disk_file *f = NULL;
    CHECK_EQ(disk_open(d, path, DISK_WRITE | DISK_CREATE, &f, NULL), ERR_OK);
    return f;
}

static void opening(struct disk *d)
{
    struct disk_file *f = NULL;
    struct error error;
    CHECK_EQ(disk_open(d, "a", DISK_READ, &f, &error), ERR_NOT_FOUND);
    CHECK(strstr(error.text, "open a") != NULL);
    CHECK_EQ(disk_open(d, "no/a", DISK_WRITE | DISK_CREATE, &f, NULL), ERR_NOT_FOUND);
    CHECK(f == NULL);
    f = make(d, "a");
    struct span text = SPAN_LIT("text");
    CHECK_EQ(disk_write(d, f, 0, &text, 1, NULL), ERR_OK);
    disk_close(d, f);
    f = NULL;
    CHECK_EQ(disk_open(d, "a", DISK_WRITE | DISK_CREATE | DISK_EXCLUSIVE, &f, NULL), ERR_EXISTS);
    CHECK(f == NULL);
    uint64_t size;
    CHECK_EQ(disk_open(d, "a", DISK_WRITE | DISK_CREATE, &f, NULL), ERR_OK);
    CHECK_EQ(disk_size(d, f, &size, NULL), ERR_OK);
    CHECK_EQ(size, 4);
    disk_close(d, f);
    CHECK_EQ(disk_open(d, "a", DISK_WRITE | DISK_TRUNCATE, &f, NULL), ERR_OK);
    CHECK_EQ(disk_size(d, f, &size, NULL), ERR_OK);
    CHECK_EQ(size, 0);
    disk_close(d, f);
    disk_close(d, NULL);
}

TEST(open_obeys_its_flags)
{
    on_both(opening);
}

static void reading(struct disk *d)
{
    struct disk_file *f = make(d, "a");
    struct span parts[] = {SPAN_LIT("one"), SPAN_LIT(""), SPAN_LIT("two"), {NULL, 0}};
    char out[16] = {0};
    CHECK_EQ(disk_write(d, f, 2, parts, 4, NULL), ERR_OK);
    CHECK_EQ(disk_write(d, f, 0, parts, 0, NULL), ERR_OK);
    CHECK_EQ(disk_read(d, f, 0, out, 8, NULL), ERR_OK);
    CHECK(memcmp(out, "\0\0onetwo", 8) == 0);
    CHECK_EQ(disk_read(d, f, 5, out, 3, NULL), ERR_OK);
    CHECK_EQ(disk_read(d, f, 5, out, 4, NULL), ERR_SHORT);
    CHECK_EQ(disk_read(d, f, 100, out, 1, NULL), ERR_SHORT);
    CHECK_EQ(disk_read(d, f, 8, out, 0, NULL), ERR_OK);
    CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
    CHECK_EQ(disk_truncate(d, f, 4, NULL), ERR_OK);
    CHECK_EQ(disk_truncate(d, f, 6, NULL), ERR_OK);
    CHECK_EQ(disk_read(d, f, 0, out, 6, NULL), ERR_OK);
    CHECK(memcmp(out, "\0\0on\0\0", 6) == 0);
    disk_close(d, f);
}

TEST(bytes_come_back)
{
    on_both(reading);
}

/* More parts than one system call takes, of uneven sizes, some empty. */
static void many_parts(struct disk *d)
{
    enum { PARTS = 5000 };
    static uint8_t bytes[PARTS * 7], out[PARTS * 7];
    static struct span parts[PARTS];
    size_t used = 0;
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = span_make(bytes + used, i % 7);
        used += i % 7;
    }
    for (size_t i = 0; i < used; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 251);
    struct disk_file *f = make(d, "many");
    CHECK_EQ(disk_write(d, f, 0, parts, PARTS, NULL), ERR_OK);
    uint64_t size;
    CHECK_EQ(disk_size(d, f, &size, NULL), ERR_OK);
    CHECK_EQ(size, used);
    CHECK_EQ(disk_read(d, f, 0, out, used, NULL), ERR_OK);
    CHECK(memcmp(bytes, out, used) == 0);
    disk_close(d, f);
}

TEST(parts_beyond_the_system_limit_are_written)
{
    on_both(many_parts);
}

static void preallocating(struct disk *d)
{
    struct disk_file *f = make(d, "a");
    struct span text = SPAN_LIT("text");
    uint8_t *out = mem_new(700000), *zeros = mem_new(700000);
    CHECK_EQ(disk_write(d, f, 699990, &text, 1, NULL), ERR_OK);
    CHECK_EQ(disk_preallocate(d, f, 700000, NULL), ERR_OK);
    CHECK_EQ(disk_read(d, f, 0, out, 700000, NULL), ERR_OK);
    CHECK(memcmp(out, zeros, 700000) == 0);
    mem_free(out);
    mem_free(zeros);
    disk_close(d, f);
}

TEST(preallocated_space_is_zero)
{
    on_both(preallocating);
}

static void naming(struct disk *d)
{
    CHECK_EQ(disk_mkdir(d, "dir", NULL), ERR_OK);
    CHECK_EQ(disk_mkdir(d, "dir", NULL), ERR_EXISTS);
    CHECK_EQ(disk_mkdir(d, "no/dir", NULL), ERR_NOT_FOUND);
    disk_close(d, make(d, "dir/b"));
    disk_close(d, make(d, "dir/a"));
    CHECK_EQ(disk_rmdir(d, "dir", NULL), ERR_IO);
    CHECK_EQ(disk_rename(d, "dir/b", "dir/c", NULL), ERR_OK);
    CHECK_EQ(disk_rename(d, "dir/b", "dir/c", NULL), ERR_NOT_FOUND);
    CHECK_EQ(disk_mkdir(d, "dir/Z", NULL), ERR_OK);
    struct disk_list list;
    CHECK_EQ(disk_list(d, "dir", &list, NULL), ERR_OK);
    CHECK_EQ(list.count, 3);
    CHECK(strcmp(list.entries[0].name, "Z") == 0 && list.entries[0].is_dir);
    CHECK(strcmp(list.entries[1].name, "a") == 0 && !list.entries[1].is_dir);
    CHECK(strcmp(list.entries[2].name, "c") == 0);
    disk_list_deinit(&list);
    CHECK_EQ(disk_list(d, "none", &list, NULL), ERR_NOT_FOUND);
    CHECK_EQ(disk_sync_dir(d, "dir", NULL), ERR_OK);
    CHECK_EQ(disk_sync_dir(d, ".", NULL), ERR_OK);
    CHECK_EQ(disk_sync_all(d, NULL), ERR_OK);
    CHECK_EQ(disk_unlink(d, "dir/c", NULL), ERR_OK);
    CHECK_EQ(disk_unlink(d, "dir/c", NULL), ERR_NOT_FOUND);
    CHECK_EQ(disk_unlink(d, "dir/a", NULL), ERR_OK);
    CHECK_EQ(disk_rmdir(d, "dir/Z", NULL), ERR_OK);
    CHECK_EQ(disk_rmdir(d, "dir", NULL), ERR_OK);
    CHECK_EQ(disk_list(d, ".", &list, NULL), ERR_OK);
    CHECK_EQ(list.count, 0);
    disk_list_deinit(&list);
    CHECK_EQ(disk_rmdir(d, "dir", NULL), ERR_NOT_FOUND);
}

TEST(names_are_made_moved_listed_and_removed)
{
    on_both(naming);
}

static void unlinked(struct disk *d)
{
    struct disk_file *f = make(d, "a");
    struct span text = SPAN_LIT("text");
    char out[4];
    CHECK_EQ(disk_unlink(d, "a", NULL), ERR_OK);
    CHECK_EQ(disk_write(d, f, 0, &text, 1, NULL), ERR_OK);
    CHECK_EQ(disk_read(d, f, 0, out, 4, NULL), ERR_OK);
    disk_close(d, f);
}

TEST(unlinked_file_lives_until_closed)
{
    on_both(unlinked);
}

static void locking(struct disk *d)
{
    struct disk_file *first = make(d, "LOCK"), *second = make(d, "LOCK");
    CHECK_EQ(disk_lock(d, first, NULL), ERR_OK);
    CHECK_EQ(disk_lock(d, first, NULL), ERR_OK);
    CHECK_EQ(disk_lock(d, second, NULL), ERR_LOCKED);
    disk_close(d, first);
    CHECK_EQ(disk_lock(d, second, NULL), ERR_OK);
    disk_close(d, second);
}

TEST(lock_excludes_until_closed)
{
    on_both(locking);
}

static void reading_files(struct disk *d)
{
    struct buf out = BUF_INIT;
    CHECK_EQ(disk_read_file(d, "f", 100, &out, NULL), ERR_NOT_FOUND);
    CHECK_EQ(disk_replace_file(d, "f", SPAN_LIT("first"), NULL), ERR_OK);
    CHECK_EQ(disk_read_file(d, "f", 5, &out, NULL), ERR_OK);
    CHECK_TEXT(buf_span(&out), "first");
    CHECK_EQ(disk_read_file(d, "f", 4, &out, NULL), ERR_TOO_LARGE);
    CHECK_TEXT(buf_span(&out), "first");
    CHECK_EQ(disk_replace_file(d, "f", SPAN_LIT(""), NULL), ERR_OK);
    buf_reset(&out);
    CHECK_EQ(disk_read_file(d, "f", 0, &out, NULL), ERR_OK);
    CHECK_EQ(out.len, 0);

    uint8_t *large = mem_new(300001);
    memset(large, 'x', 300001);
    CHECK_EQ(disk_replace_file(d, "f", span_make(large, 300001), NULL), ERR_OK);
    CHECK_EQ(disk_read_file(d, "f", 300001, &out, NULL), ERR_OK);
    CHECK_SPAN(buf_span(&out), span_make(large, 300001));
    mem_free(large);
    buf_deinit(&out);
    struct disk_list list;
    CHECK_EQ(disk_list(d, ".", &list, NULL), ERR_OK);
    CHECK_EQ(list.count, 1); /* no .tmp is left */
    disk_list_deinit(&list);
}

TEST(whole_files_are_replaced_and_read)
{
    on_both(reading_files);
}

static void making_dirs(struct disk *d)
{
    CHECK_EQ(disk_make_dirs(d, "a/bb/ccc", NULL), ERR_OK);
    CHECK_EQ(disk_make_dirs(d, "a/bb/ccc", NULL), ERR_OK);
    CHECK_EQ(disk_make_dirs(d, "a/bb//d/", NULL), ERR_OK);
    CHECK_EQ(disk_make_dirs(d, ".", NULL), ERR_OK);
    disk_close(d, make(d, "a/bb/ccc/file"));
    disk_close(d, make(d, "a/bb/d/file"));
}

TEST(folders_are_made_with_their_parents)
{
    on_both(making_dirs);
}

static void using_space(struct disk *d)
{
    struct disk_usage usage = {0};
    CHECK_EQ(disk_usage(d, &usage, NULL), ERR_OK);
    CHECK(usage.total_bytes > 0 && usage.free_bytes <= usage.total_bytes);
}

TEST(usage_is_known)
{
    on_both(using_space);
}

/* Goal: a process out of descriptors does not take that for a broken disk. */
TEST(no_free_descriptor_is_not_an_error_of_the_disk)
{
    char root[] = "/tmp/disk_test_XXXXXX";
    struct rlimit before, none;
    struct error error;
    struct disk *d;
    struct disk_file *f = NULL;
    CHECK(mkdtemp(root) != NULL);
    CHECK_EQ(disk_real_open(root, &d, NULL), ERR_OK);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_EQ(disk_open(d, "f", DISK_WRITE | DISK_CREATE, &f, &error), ERR_AGAIN);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(strstr(error.text, "open f") != NULL);
    disk_real_close(d);
    CHECK_EQ(rmdir(root), 0);
}

TEST(root_is_made_with_its_parents)
{
    char root[] = "/tmp/disk_test_XXXXXX", path[64];
    CHECK(mkdtemp(root) != NULL);
    (void)snprintf(path, sizeof(path), "%s/a//b/", root);
    struct disk *d;
    CHECK_EQ(disk_real_open(path, &d, NULL), ERR_OK);
    disk_close(d, make(d, "f"));
    disk_real_close(d);
    (void)snprintf(path, sizeof(path), "%s/a/b/f/g", root); /* below a file */
    struct error error;
    CHECK_EQ(disk_real_open(path, &d, &error), ERR_IO);
    disk_real_close(NULL);
    static const char *const rest[] = {"a/b/f", "a/b", "a", ""};
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", root, rest[i]);
        CHECK(unlink(path) == 0 || rmdir(path) == 0);
    }
}

/* Goal: a full disk is told from other errors, and a part that fits may have been written.
 * Method: /dev/full is always full; a folder on it cannot be made, so only writes are tried. */
TEST(full_disk_is_no_space)
{
    struct disk *d;
    struct error error;
    CHECK_EQ(disk_real_open("/dev", &d, NULL), ERR_OK);
    struct disk_file *f;
    if (disk_open(d, "full", DISK_WRITE, &f, NULL) == ERR_OK) {
        struct span text = SPAN_LIT("text");
        CHECK_EQ(disk_write(d, f, 0, &text, 1, &error), ERR_NO_SPACE);
        CHECK(strstr(error.text, "write full") != NULL);
        disk_close(d, f);
    }
    disk_real_close(d);
}

/* Goal: a reserve for root or a quota does not shut the disk gate early. Method: the used bytes are df's, within what
 * others write meanwhile. */
TEST(usage_counts_as_df_does)
{
    char root[] = "/tmp/queen-usage-XXXXXX";
    struct disk *d = NULL;
    struct disk_usage usage;
    struct statvfs st;
    CHECK(mkdtemp(root) != NULL);
    CHECK_EQ(disk_real_open(root, &d, NULL), ERR_OK);
    CHECK_EQ(disk_usage(d, &usage, NULL), ERR_OK);
    CHECK_EQ(statvfs(root, &st), 0);
    double used = (double)(usage.total_bytes - usage.free_bytes);
    double by_df = (double)(st.f_blocks - st.f_bfree) * (double)st.f_frsize;
    double slack = 0.01 * (double)usage.total_bytes;
    CHECK(used > by_df - slack && used < by_df + slack);
    disk_real_close(d);
    CHECK_EQ(rmdir(root), 0);
}

TEST_MAIN()
