/* The state database: RocksDB and the simulator's model behave alike; each survives what it must.
 */
#include "store/db.h"

#include "base/mem.h"
#include "io/disk.h"
#include "lib/prng.h"
#include "lib/test.h"
#include "sim/sim_db.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

struct fixture {
    bool rocks;
    char root[64]; /* of RocksDB */
    struct sim_db_state *state;
    struct db *db;
    struct error error;
};

static void open_db(struct fixture *f)
{
    if (!f->rocks) {
        f->db = sim_db_new(f->state);
        return;
    }
    const struct db_rocks_options options = {
        .path = f->root, .block_cache_bytes = 1024 * 1024, .write_buffer_bytes = 256 * 1024};
    enum err err = db_rocks_open(&options, &f->db, &f->error);
    if (err != ERR_OK)
        print_error("%s\n", f->error.text);
    CHECK_EQ(err, ERR_OK);
}

static void init(struct fixture *f, bool rocks)
{
    *f = (struct fixture){.rocks = rocks};
    if (rocks) {
        memcpy(f->root, "/tmp/db-test-XXXXXX", 20);
        CHECK(mkdtemp(f->root) != NULL);
    } else {
        f->state = sim_db_state_new();
    }
    open_db(f);
}

static void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char sub[512];
        int len = snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name);
        CHECK(len > 0 && len < (int)sizeof(sub));
        if (e->d_name[0] != '.')
            CHECK_EQ(unlink(sub), 0);
    }
    closedir(dir);
    CHECK_EQ(rmdir(path), 0);
}

static void deinit(struct fixture *f)
{
    f->db->ops->close(f->db);
    if (f->rocks)
        remove_folder(f->root);
    sim_db_state_free(f->state);
}

static void reopen(struct fixture *f)
{
    f->db->ops->close(f->db);
    open_db(f);
}

static enum err put(struct fixture *f, struct span key, struct span value)
{
    struct db_batch *b = f->db->ops->batch_new(f->db);
    f->db->ops->batch_put(b, key, value);
    enum err err = f->db->ops->batch_write(f->db, b, &f->error);
    f->db->ops->batch_free(b);
    return err;
}

static void expect(struct fixture *f, struct span key, struct span want)
{
    struct buf value = BUF_INIT;
    CHECK_EQ(f->db->ops->get(f->db, key, &value, &f->error), ERR_OK);
    CHECK_SPAN(buf_span(&value), want);
    buf_deinit(&value);
}

static void expect_none(struct fixture *f, struct span key)
{
    struct buf value = BUF_INIT;
    CHECK_EQ(f->db->ops->get(f->db, key, &value, &f->error), ERR_NOT_FOUND);
    CHECK_EQ(value.len, 0);
    buf_deinit(&value);
}

/* Keys and values of the iterator from `from` on as "k=v k=v". */
static void expect_rows(struct db *db, struct db_iter *it, struct span from, const char *want)
{
    struct buf got = BUF_INIT;
    struct error error;
    for (db->ops->iter_seek(it, from); db->ops->iter_valid(it); db->ops->iter_next(it)) {
        if (got.len > 0)
            buf_putc(&got, ' ');
        buf_put_span(&got, db->ops->iter_key(it));
        buf_putc(&got, '=');
        buf_put_span(&got, db->ops->iter_value(it));
    }
    CHECK_EQ(db->ops->iter_error(it, &error), ERR_OK);
    CHECK_TEXT(buf_span(&got), want);
    buf_deinit(&got);
}

static void expect_all(struct fixture *f, const char *want)
{
    struct db_iter *it = f->db->ops->iter_new(f->db, SPAN_LIT(""));
    expect_rows(f->db, it, SPAN_LIT(""), want);
    f->db->ops->iter_free(it);
}

TEST(rows_come_back_and_survive_a_reopen)
{
    for (int rocks = 0; rocks < 2; rocks++) {
        struct fixture f;
        init(&f, rocks);
        expect_none(&f, SPAN_LIT("a"));
        expect_all(&f, "");
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT(""), SPAN_LIT("empty key")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT("b"), SPAN_LIT("")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT("a\0z\xff"), SPAN_LIT("\0\0")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("2")), ERR_OK);
        for (int i = 0; i < 2; i++) {
            expect(&f, SPAN_LIT("a"), SPAN_LIT("2"));
            expect(&f, SPAN_LIT(""), SPAN_LIT("empty key"));
            expect(&f, SPAN_LIT("b"), SPAN_LIT(""));
            expect(&f, SPAN_LIT("a\0z\xff"), SPAN_LIT("\0\0"));
            expect_none(&f, SPAN_LIT("a\0"));
            reopen(&f);
        }
        CHECK(f.db->ops->bytes(f.db) > 0);
        deinit(&f);
    }
}

TEST(get_appends_to_the_buffer)
{
    for (int rocks = 0; rocks < 2; rocks++) {
        struct fixture f;
        struct buf value = BUF_INIT;
        init(&f, rocks);
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_OK);
        buf_puts(&value, "x");
        CHECK_EQ(f.db->ops->get(f.db, SPAN_LIT("a"), &value, NULL), ERR_OK);
        CHECK_TEXT(buf_span(&value), "x1");
        buf_deinit(&value);
        deinit(&f);
    }
}

TEST(a_batch_applies_in_order_and_as_a_whole)
{
    for (int rocks = 0; rocks < 2; rocks++) {
        struct fixture f;
        init(&f, rocks);
        const struct db_ops *ops = f.db->ops;
        CHECK_EQ(put(&f, SPAN_LIT("old"), SPAN_LIT("1")), ERR_OK);
        struct db_batch *b = ops->batch_new(f.db);
        ops->batch_put(b, SPAN_LIT("a"), SPAN_LIT("1"));
        ops->batch_put(b, SPAN_LIT("b"), SPAN_LIT("2"));
        ops->batch_put(b, SPAN_LIT("c"), SPAN_LIT("3"));
        ops->batch_put(b, SPAN_LIT("d"), SPAN_LIT("4"));
        ops->batch_delete(b, SPAN_LIT("a"));
        ops->batch_delete(b, SPAN_LIT("absent"));
        ops->batch_delete_range(b, SPAN_LIT("b"), SPAN_LIT("d")); /* without d */
        ops->batch_put(b, SPAN_LIT("c"), SPAN_LIT("5"));
        ops->batch_delete(b, SPAN_LIT("old"));
        expect_all(&f, "old=1"); /* nothing before it is written */
        CHECK_EQ(ops->batch_write(f.db, b, &f.error), ERR_OK);
        ops->batch_free(b);
        expect_all(&f, "c=5 d=4");
        reopen(&f);
        expect_all(&f, "c=5 d=4");
        deinit(&f);
    }
}

TEST(an_iterator_sees_the_rows_of_its_beginning)
{
    for (int rocks = 0; rocks < 2; rocks++) {
        struct fixture f;
        init(&f, rocks);
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT("b"), SPAN_LIT("2")), ERR_OK);
        struct db_iter *it = f.db->ops->iter_new(f.db, SPAN_LIT(""));
        CHECK(!f.db->ops->iter_valid(it));
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("changed")), ERR_OK);
        CHECK_EQ(put(&f, SPAN_LIT("c"), SPAN_LIT("3")), ERR_OK);
        expect_rows(f.db, it, SPAN_LIT(""), "a=1 b=2");
        expect_rows(f.db, it, SPAN_LIT("a"), "a=1 b=2");
        expect_rows(f.db, it, SPAN_LIT("aa"), "b=2");
        expect_rows(f.db, it, SPAN_LIT("c"), "");
        f.db->ops->iter_free(it);
        expect_all(&f, "a=changed b=2 c=3");
        deinit(&f);
    }
}

TEST(an_iterator_ends_before_its_bound)
{
    for (int rocks = 0; rocks < 2; rocks++) {
        struct fixture f;
        init(&f, rocks);
        for (char key = 'a'; key <= 'd'; key++)
            CHECK_EQ(put(&f, span_make(&key, 1), SPAN_LIT("1")), ERR_OK);
        char to[] = "c";
        struct db_iter *it = f.db->ops->iter_new(f.db, span_make(to, 1));
        to[0] = 'z'; /* it has its own */
        expect_rows(f.db, it, SPAN_LIT(""), "a=1 b=1");
        expect_rows(f.db, it, SPAN_LIT("b"), "b=1");
        expect_rows(f.db, it, SPAN_LIT("bb"), "");
        expect_rows(f.db, it, SPAN_LIT("c"), "");
        expect_rows(f.db, it, SPAN_LIT("d"), "");
        CHECK_EQ(f.db->ops->iter_error(it, &f.error), ERR_OK);
        f.db->ops->iter_free(it);
        deinit(&f);
    }
}

/* Goal: both databases hold the same after the same batches.
 * Method: random batches over few keys, all rows compared after each reopen. */
TEST(the_model_and_rocksdb_agree)
{
    struct fixture f[2];
    struct prng rng;
    prng_init(&rng, 5);
    init(&f[0], false);
    init(&f[1], true);
    for (unsigned round = 0; round < 40; round++) {
        struct db_batch *b[2];
        for (int i = 0; i < 2; i++)
            b[i] = f[i].db->ops->batch_new(f[i].db);
        for (uint64_t n = prng_below(&rng, 60); n > 0; n--) {
            char key[8], to[8], value[16];
            uint64_t k = prng_below(&rng, 300);
            snprintf(key, sizeof(key), "%03u", (unsigned)k);
            snprintf(to, sizeof(to), "%03u", (unsigned)(k + prng_below(&rng, 20)));
            snprintf(value, sizeof(value), "%u", (unsigned)prng_below(&rng, 1000));
            uint64_t kind = prng_below(&rng, 10);
            for (int i = 0; i < 2; i++) {
                if (kind < 7)
                    f[i].db->ops->batch_put(b[i], span_str(key), span_str(value));
                else if (kind < 9)
                    f[i].db->ops->batch_delete(b[i], span_str(key));
                else
                    f[i].db->ops->batch_delete_range(b[i], span_str(key), span_str(to));
            }
        }
        struct buf all = BUF_INIT;
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(f[i].db->ops->batch_write(f[i].db, b[i], &f[i].error), ERR_OK);
            f[i].db->ops->batch_free(b[i]);
            if (round % 8 == 7)
                reopen(&f[i]);
        }
        struct db *model = f[0].db;
        struct db_iter *it = model->ops->iter_new(model, SPAN_LIT(""));
        for (model->ops->iter_seek(it, SPAN_LIT("")); model->ops->iter_valid(it);
             model->ops->iter_next(it)) {
            if (all.len > 0)
                buf_putc(&all, ' ');
            buf_put_span(&all, model->ops->iter_key(it));
            buf_putc(&all, '=');
            buf_put_span(&all, model->ops->iter_value(it));
        }
        model->ops->iter_free(it);
        buf_putc(&all, 0);
        expect_all(&f[1], (const char *)all.ptr);
        buf_deinit(&all);
    }
    deinit(&f[0]);
    deinit(&f[1]);
}

/* Goal: RocksDB's small buffers go to files, and come back, with the options chosen. */
TEST(more_than_the_buffers_hold_comes_back)
{
    struct fixture f;
    init(&f, true);
    struct buf value = BUF_INIT;
    memset(buf_extend(&value, 1000), 'v', 1000);
    for (unsigned batch = 0; batch < 20; batch++) {
        struct db_batch *b = f.db->ops->batch_new(f.db);
        for (unsigned i = 0; i < 100; i++) {
            uint8_t key[4] = {(uint8_t)batch, (uint8_t)i, 0, 1};
            f.db->ops->batch_put(b, span_make(key, 4), buf_span(&value));
        }
        CHECK_EQ(f.db->ops->batch_write(f.db, b, &f.error), ERR_OK);
        f.db->ops->batch_free(b);
    }
    CHECK(f.db->ops->bytes(f.db) > 100 * 1000);
    for (int round = 0; round < 2; round++) {
        for (unsigned batch = 0; batch < 20; batch++) {
            for (unsigned i = 0; i < 100; i++) {
                uint8_t key[4] = {(uint8_t)batch, (uint8_t)i, 0, 1};
                expect(&f, span_make(key, 4), buf_span(&value));
            }
        }
        reopen(&f);
    }
    buf_deinit(&value);
    deinit(&f);
}

TEST(opening_reports_why_it_failed)
{
    struct fixture f;
    struct db *second = (struct db *)(void *)&f; /* must stay untouched */
    init(&f, true);
    struct db_rocks_options options = {
        .path = f.root, .block_cache_bytes = 1024 * 1024, .write_buffer_bytes = 256 * 1024};
    CHECK_EQ(db_rocks_open(&options, &second, &f.error), ERR_LOCKED);
    CHECK_EQ(f.error.code, ERR_LOCKED);
    CHECK(strstr(f.error.text, "LOCK") != NULL);
    options.path = "/proc/no/such/place";
    CHECK_EQ(db_rocks_open(&options, &second, &f.error), ERR_IO);
    CHECK(strstr(f.error.text, "/proc/no/such/place") != NULL);
    CHECK(second == (struct db *)(void *)&f);
    deinit(&f);
}

/* Goal: damage to a table file is found when it is read.
 * Method: the rows go into a file (by a reopen, which flushes the recovered buffer), one byte of it
 * is changed. */
TEST(a_damaged_table_file_is_refused)
{
    struct fixture f;
    init(&f, true);
    struct buf value = BUF_INIT;
    for (unsigned i = 0; i < 4000; i++)
        buf_putc(&value, (uint8_t)(i * 7919 >> 3));
    CHECK_EQ(put(&f, SPAN_LIT("a"), buf_span(&value)), ERR_OK);
    reopen(&f);
    f.db->ops->close(f.db);

    struct disk *disk;
    struct disk_list list = {0};
    CHECK_EQ(disk_real_open(f.root, &disk, &f.error), ERR_OK);
    CHECK_EQ(disk_list(disk, ".", &list, &f.error), ERR_OK);
    unsigned damaged = 0;
    for (size_t i = 0; i < list.count; i++) {
        const char *name = list.entries[i].name;
        if (strlen(name) < 4 || strcmp(name + strlen(name) - 4, ".sst") != 0)
            continue;
        struct disk_file *file;
        uint8_t byte;
        struct span part = {&byte, 1};
        CHECK_EQ(disk_open(disk, name, DISK_WRITE, &file, &f.error), ERR_OK);
        CHECK_EQ(disk_read(disk, file, 1000, &byte, 1, &f.error), ERR_OK);
        byte ^= 1;
        CHECK_EQ(disk_write(disk, file, 1000, &part, 1, &f.error), ERR_OK);
        disk_close(disk, file);
        damaged++;
    }
    CHECK_EQ(damaged, 1);
    disk_list_deinit(&list);
    disk_real_close(disk);

    open_db(&f);
    struct buf got = BUF_INIT;
    CHECK_EQ(f.db->ops->get(f.db, SPAN_LIT("a"), &got, &f.error), ERR_CORRUPT);
    CHECK_EQ(got.len, 0);
    struct db_iter *it = f.db->ops->iter_new(f.db, SPAN_LIT(""));
    f.db->ops->iter_seek(it, SPAN_LIT(""));
    CHECK(!f.db->ops->iter_valid(it));
    CHECK_EQ(f.db->ops->iter_error(it, &f.error), ERR_CORRUPT);
    f.db->ops->iter_free(it);
    buf_deinit(&got);
    buf_deinit(&value);
    deinit(&f);
}

TEST(the_model_fails_and_crashes_as_told)
{
    struct fixture f;
    init(&f, false);
    CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_OK);
    sim_db_fail_next_write(f.db, ERR_NO_SPACE);
    CHECK_EQ(put(&f, SPAN_LIT("b"), SPAN_LIT("1")), ERR_NO_SPACE);
    CHECK_EQ(put(&f, SPAN_LIT("c"), SPAN_LIT("1")), ERR_OK);
    expect_all(&f, "a=1 c=1");
    sim_db_crash_next_write(f.db, true);
    CHECK_EQ(put(&f, SPAN_LIT("d"), SPAN_LIT("1")), ERR_IO);
    CHECK_EQ(put(&f, SPAN_LIT("e"), SPAN_LIT("1")), ERR_IO);
    reopen(&f);
    expect_all(&f, "a=1 c=1 d=1");
    sim_db_crash_next_write(f.db, false);
    CHECK_EQ(put(&f, SPAN_LIT("f"), SPAN_LIT("1")), ERR_IO);
    reopen(&f);
    expect_all(&f, "a=1 c=1 d=1");
    CHECK_EQ(put(&f, SPAN_LIT("f"), SPAN_LIT("1")), ERR_OK);
    CHECK_EQ(sim_db_state_rows(f.state), 4);
    CHECK_EQ(sim_db_state_writes(f.state), 4);
    struct sim_db_state *copy = sim_db_state_copy(f.state);
    CHECK_EQ(put(&f, SPAN_LIT("g"), SPAN_LIT("1")), ERR_OK);
    CHECK_EQ(sim_db_state_rows(copy), 4);
    sim_db_state_free(copy);
    deinit(&f);
}

TEST(what_a_failed_write_left_comes_back_with_a_crash_or_never)
{
    struct prng prng;
    unsigned back = 0;
    prng_init(&prng, 1);
    for (unsigned i = 0; i < 20; i++) {
        struct fixture f;
        init(&f, false);
        sim_db_fail_next_write_late(f.db, ERR_NO_SPACE);
        CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_NO_SPACE);
        CHECK(sim_db_state_failed(f.state));
        expect_all(&f, "");
        if (i % 2 == 0) /* it is older than what is written behind it */
            CHECK_EQ(put(&f, SPAN_LIT("b"), SPAN_LIT("1")), ERR_OK);
        sim_db_state_crash(f.state, &prng);
        CHECK(!sim_db_state_failed(f.state));
        reopen(&f);
        if (i % 2 == 0)
            expect_all(&f, "b=1");
        else
            back += sim_db_state_rows(f.state) == 1;
        deinit(&f);
    }
    CHECK(back > 0 && back < 10);
}

TEST(the_model_fails_to_read_as_told)
{
    struct fixture f;
    struct buf value = BUF_INIT;
    init(&f, false);
    CHECK_EQ(put(&f, SPAN_LIT("a"), SPAN_LIT("1")), ERR_OK);
    CHECK_EQ(put(&f, SPAN_LIT("b"), SPAN_LIT("1")), ERR_OK);
    sim_db_fail_next_read(f.db, 1);
    struct db_iter *it = f.db->ops->iter_new(f.db, SPAN_LIT(""));
    f.db->ops->iter_seek(it, SPAN_LIT(""));
    CHECK(f.db->ops->iter_valid(it));
    f.db->ops->iter_next(it);
    CHECK(!f.db->ops->iter_valid(it));
    CHECK_EQ(f.db->ops->iter_error(it, &f.error), ERR_IO);
    f.db->ops->iter_free(it);
    CHECK_EQ(f.db->ops->get(f.db, SPAN_LIT("a"), &value, &f.error), ERR_OK);
    sim_db_fail_next_read(f.db, 0);
    sim_db_spare_reads(f.db, true);
    CHECK_EQ(f.db->ops->get(f.db, SPAN_LIT("a"), &value, &f.error), ERR_OK);
    sim_db_spare_reads(f.db, false);
    CHECK_EQ(f.db->ops->get(f.db, SPAN_LIT("a"), &value, &f.error), ERR_IO);
    expect_all(&f, "a=1 b=1");
    buf_deinit(&value);
    deinit(&f);
}

TEST_MAIN()
