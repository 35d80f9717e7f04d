/* Queue logs with damage below their length: it is always found, by opening, scanning, reading,
 * finding or seeking, as ERR_CORRUPT that names the file; and a wrong record never comes back. */
#include "store/qlog_format.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "unit/store/qlog_fixture.h"
#include "unit/store/qlog_model.h"

#define RUNS 14u

/* A log of two sealed segments and an active one, on the simulated disk. */
static void small_log(struct fixture *f, struct model *m)
{
    fixture_init(f, false, 1300);
    model_init(m, 21, 3, 30);
    for (unsigned i = 0; i < RUNS; i++)
        CHECK_EQ(model_append(m, f->q, &f->error), ERR_OK);
    CHECK_EQ(fixture_files(f), 3);
}

/* Opens and reads everything. model_check() ends the test at the first wrong thing. */
static enum err open_and_read(struct fixture *f, const struct model *m)
{
    TRY(fixture_reopen(f, 0, model_end(m)));
    return model_check(m, f->q, 0, false, &f->error);
}

static void expect_corrupt(struct fixture *f, const struct model *m, const char *path)
{
    enum err err = open_and_read(f, m);
    if (err != ERR_CORRUPT)
        print_error("%s: %s\n", path, err == ERR_OK ? "nothing found" : f->error.text);
    CHECK_EQ(err, ERR_CORRUPT);
    CHECK(strstr(f->error.text, path) != NULL);
}

TEST(every_bit_flip_is_found)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    for (size_t file = 0; file < 3; file++) {
        char path[FIXTURE_PATH_MAX];
        struct buf bytes = BUF_INIT;
        fixture_path(&f, file, path);
        CHECK(sim_disk_get(f.disk, path, &bytes));
        for (size_t bit = 0; bit < 8 * bytes.len; bit++) {
            uint8_t byte = bytes.ptr[bit / 8];
            uint8_t flipped = byte ^ (uint8_t)(1u << (bit % 8));
            if (byte == 0 && bit > 8 * 2000 && bit % 8 != bit / 8 % 8)
                continue; /* one bit of each byte will do in the index's zeros */
            sim_disk_damage(f.disk, path, bit / 8, span_make(&flipped, 1));
            expect_corrupt(&f, &m, path);
            CHECK(strstr(f.error.text, " at byte ") != NULL);
            if (file == 2) /* above the last seal everything is read at boot */
                CHECK(f.q == NULL);
            sim_disk_damage(f.disk, path, bit / 8, span_make(&byte, 1));
        }
        buf_deinit(&bytes);
    }
    CHECK_EQ(open_and_read(&f, &m), ERR_OK);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: a file that is too short is found, wherever it ends. */
TEST(every_truncation_is_found)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    for (size_t file = 0; file < 3; file++) {
        char path[FIXTURE_PATH_MAX];
        struct buf bytes = BUF_INIT;
        fixture_path(&f, file, path);
        CHECK(sim_disk_get(f.disk, path, &bytes));
        for (size_t len = 0; len < bytes.len; len++) {
            sim_disk_put(f.disk, path, span_make(bytes.ptr, len));
            expect_corrupt(&f, &m, path);
        }
        sim_disk_put(f.disk, path, buf_span(&bytes));
        buf_deinit(&bytes);
    }
    CHECK_EQ(open_and_read(&f, &m), ERR_OK);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: bytes behind the runs of the last segment mean nothing; bytes behind a footer are damage.
 */
TEST(bytes_behind_the_length_are_cut)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    for (size_t file = 0; file < 3; file++) {
        char path[FIXTURE_PATH_MAX];
        struct buf bytes = BUF_INIT;
        fixture_path(&f, file, path);
        CHECK(sim_disk_get(f.disk, path, &bytes));
        size_t len = bytes.len;
        for (size_t more = 1; more < 300; more += 7) {
            bytes.len = len;
            memset(buf_extend(&bytes, more), (int)more, more);
            sim_disk_put(f.disk, path, buf_span(&bytes));
            if (file < 2)
                expect_corrupt(&f, &m, path);
            else
                CHECK_EQ(open_and_read(&f, &m), ERR_OK);
        }
        sim_disk_put(f.disk, path, span_make(bytes.ptr, len));
        buf_deinit(&bytes);
    }
    CHECK_EQ(open_and_read(&f, &m), ERR_OK);
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST(a_missing_segment_is_named)
{
    for (size_t file = 0; file < 3; file++) {
        struct fixture f;
        struct model m;
        char path[FIXTURE_PATH_MAX];
        small_log(&f, &m);
        fixture_path(&f, file, path);
        CHECK_EQ(disk_unlink(f.disk, path, &f.error), ERR_OK);
        CHECK_EQ(fixture_reopen(&f, 0, model_end(&m)), ERR_CORRUPT);
        /* Without the last file the one before it is taken for the last, and it is too short. */
        CHECK(strstr(f.error.text, file == 1 ? path : "data/qlog/7") != NULL);
        CHECK_EQ(fixture_files(&f), 2); /* nothing was touched */
        model_deinit(&m);
        fixture_deinit(&f);
    }
}

TEST(a_missing_folder_is_found)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    qlog_set_close(f.set);
    fixture_remove(f.disk, "data/qlog/7");
    fixture_set_open(&f);
    CHECK_EQ(fixture_reopen(&f, 0, model_end(&m)), ERR_CORRUPT);
    CHECK(strstr(f.error.text, "data/qlog/7") != NULL);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: whole, valid files at a wrong place are found.
 * Method: each segment's bytes under another's name, and the log of another queue. */
TEST(a_file_from_elsewhere_is_found)
{
    struct fixture f;
    struct model m;
    char paths[3][FIXTURE_PATH_MAX];
    struct buf bytes[3] = {BUF_INIT, BUF_INIT, BUF_INIT};
    small_log(&f, &m);
    for (size_t i = 0; i < 3; i++) {
        fixture_path(&f, i, paths[i]);
        CHECK(sim_disk_get(f.disk, paths[i], &bytes[i]));
    }
    for (size_t to = 0; to < 3; to++) {
        for (size_t from = 0; from < 3; from++) {
            sim_disk_put(f.disk, paths[to], buf_span(&bytes[from]));
            if (from == to)
                CHECK_EQ(open_and_read(&f, &m), ERR_OK);
            else
                expect_corrupt(&f, &m, paths[to]);
        }
        sim_disk_put(f.disk, paths[to], buf_span(&bytes[to]));
    }
    struct qlog *other = NULL;
    for (size_t i = 0; i < 3; i++) {
        char path[FIXTURE_PATH_MAX];
        fixture_join(path, "data/qlog/8", strrchr(paths[i], '/') + 1);
        sim_disk_put(f.disk, path, buf_span(&bytes[i]));
        buf_deinit(&bytes[i]);
    }
    CHECK_EQ(qlog_open(f.set, 8, 0, model_end(&m), &other, &f.error), ERR_CORRUPT);
    CHECK(other == NULL);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: damage that comes while the log is open is found by what reads it, and only by that. */
TEST(damage_after_opening_is_found_by_reading)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    for (size_t i = 0; i < m.n; i++) {
        const struct model_run *run = &m.runs[i];
        char path[FIXTURE_PATH_MAX];
        uint64_t first = 0;
        for (size_t file = 0; file < 3; file++) {
            char name[FIXTURE_PATH_MAX];
            fixture_path(&f, file, name);
            uint64_t at = strtoull(strstr(name, "seg-") + 4, NULL, 16);
            if (at <= run->position) {
                memcpy(path, name, sizeof(path));
                first = at;
            }
        }
        struct buf bytes = BUF_INIT;
        CHECK(sim_disk_get(f.disk, path, &bytes));
        for (uint64_t at = run->position; at < run->next; at++) {
            struct qlog_run_data data = {.head = {.position = 99}};
            struct qlog_run_head heads[RUNS];
            size_t n = 99;
            uint64_t next = 99;
            size_t byte = (size_t)(at - first) + QLOG_SEGMENT_HEADER_SIZE;
            uint8_t flipped = bytes.ptr[byte] ^ 0x10;
            sim_disk_damage(f.disk, path, byte, span_make(&flipped, 1));
            CHECK_EQ(qlog_read(f.q, run->position, &data, &f.error), ERR_CORRUPT);
            CHECK(strstr(f.error.text, path) != NULL);
            CHECK_EQ(data.head.position, 99);
            enum err err = qlog_scan(f.q, 0, qlog_end(f.q), heads, RUNS, &n, &next, &f.error);
            CHECK_EQ(err, at < run->position + QLOG_RUN_HEADER_SIZE ? ERR_CORRUPT : ERR_OK);
            if (err != ERR_OK)
                CHECK(n == 99 && next == 99);
            for (size_t other = 0; other < m.n; other++) {
                if (other != i)
                    CHECK_EQ(model_check_run(&m, f.q, other, &data, &f.error), ERR_OK);
            }
            qlog_run_data_deinit(&data);
            sim_disk_damage(f.disk, path, byte, span_make(&bytes.ptr[byte], 1));
        }
        buf_deinit(&bytes);
    }
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: a file of a later format is not called damaged, but told apart. */
TEST(another_version_is_refused_by_name)
{
    struct fixture f;
    struct model m;
    char path[FIXTURE_PATH_MAX];
    struct buf bytes = BUF_INIT;
    small_log(&f, &m);
    fixture_path(&f, 2, path);
    CHECK(sim_disk_get(f.disk, path, &bytes));
    bytes.ptr[8] = 2;
    uint32_t crc = crc32c(0, bytes.ptr + 4, QLOG_SEGMENT_HEADER_SIZE - 4);
    le32_put(bytes.ptr, crc);
    sim_disk_put(f.disk, path, buf_span(&bytes));
    CHECK_EQ(fixture_reopen(&f, 0, model_end(&m)), ERR_VERSION);
    CHECK(strstr(f.error.text, path) != NULL);
    buf_deinit(&bytes);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: an error of the disk is passed on and is not called damage. */
TEST(read_errors_are_passed_on)
{
    struct fixture f;
    struct model m;
    small_log(&f, &m);
    for (uint64_t skip = 0;; skip++) {
        CHECK_EQ(fixture_reopen(&f, 0, model_end(&m)), ERR_OK);
        sim_disk_fail_next(f.disk, SIM_DISK_READ, ERR_IO, skip);
        enum err err = model_check(&m, f.q, 0, false, &f.error);
        sim_disk_fail_next(f.disk, SIM_DISK_READ, ERR_OK, UINT64_MAX);
        if (err == ERR_OK)
            break;
        CHECK_EQ(err, ERR_IO);
        const char *offset = strstr(f.error.text, "offset ");
        CHECK(offset != NULL && strstr(offset + 1, "offset ") == NULL);
    }
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST_MAIN()
