/* A disk, a set of queue logs on it, and one log: for the tests of store/qlog*.c. */
#ifndef TESTS_UNIT_STORE_QLOG_FIXTURE_H
#define TESTS_UNIT_STORE_QLOG_FIXTURE_H

#include "store/qlog.h"
#include "sim/sim_disk.h"
#include "lib/test.h"

#include <stdlib.h>
#include <unistd.h>

#define FIXTURE_ID 7u

struct fixture {
    struct disk *disk;
    bool real;
    char root[64]; /* of a real disk */
    uint64_t segment_bytes;
    struct qlog_set *set;
    struct qlog *q;
    struct error error;
};

static inline void fixture_set_open(struct fixture *f)
{
    const struct qlog_set_options options = {
        .disk = f->disk, .dir = "data/qlog", .segment_bytes = f->segment_bytes, .handles_max = 3};
    CHECK_EQ(qlog_set_open(&options, &f->set, &f->error), ERR_OK);
}

#define FIXTURE_PATH_MAX 512

static inline void fixture_join(char out[FIXTURE_PATH_MAX], const char *folder, const char *name)
{
    int len = snprintf(out, FIXTURE_PATH_MAX, "%s/%s", folder, name);
    CHECK(len > 0 && len < FIXTURE_PATH_MAX);
}

/* An empty log on a new disk. */
static inline void fixture_init(struct fixture *f, bool real, uint64_t segment_bytes)
{
    *f = (struct fixture){.real = real, .segment_bytes = segment_bytes};
    if (real) {
        memcpy(f->root, "/tmp/qlog-test-XXXXXX", 22);
        CHECK(mkdtemp(f->root) != NULL);
        CHECK_EQ(disk_real_open(f->root, &f->disk, &f->error), ERR_OK);
    } else {
        f->disk = sim_disk_new(1);
    }
    fixture_set_open(f);
    CHECK_EQ(qlog_create(f->set, FIXTURE_ID, &f->q, &f->error), ERR_OK);
}

static inline void fixture_remove(struct disk *d, const char *path)
{
    struct disk_list list = {0};
    CHECK_EQ(disk_list(d, path, &list, NULL), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        char sub[FIXTURE_PATH_MAX];
        fixture_join(sub, path, list.entries[i].name);
        if (list.entries[i].is_dir)
            fixture_remove(d, sub);
        else
            CHECK_EQ(disk_unlink(d, sub, NULL), ERR_OK);
    }
    disk_list_deinit(&list);
    CHECK_EQ(disk_rmdir(d, path, NULL), ERR_OK);
}

static inline void fixture_deinit(struct fixture *f)
{
    qlog_set_close(f->set);
    if (f->real) {
        fixture_remove(f->disk, "data");
        disk_real_close(f->disk);
        CHECK_EQ(rmdir(f->root), 0);
    } else {
        sim_disk_free(f->disk);
    }
}

/* Closes everything and opens the log again as a boot does; fixture.q is NULL on failure. */
static inline enum err fixture_reopen(struct fixture *f, uint64_t start, uint64_t length)
{
    qlog_set_close(f->set);
    f->q = NULL;
    fixture_set_open(f);
    return qlog_open(f->set, FIXTURE_ID, start, length, &f->q, &f->error);
}

/* Files in the log's folder; a missing folder has none. */
static inline size_t fixture_files(struct fixture *f)
{
    struct disk_list list = {0};
    enum err err = disk_list(f->disk, "data/qlog/7", &list, &f->error);
    CHECK(err == ERR_OK || err == ERR_NOT_FOUND);
    size_t count = list.count;
    disk_list_deinit(&list);
    return count;
}

/* Path of the i-th segment file. */
static inline void fixture_path(struct fixture *f, size_t i, char out[FIXTURE_PATH_MAX])
{
    struct disk_list list = {0};
    CHECK_EQ(disk_list(f->disk, "data/qlog/7", &list, &f->error), ERR_OK);
    CHECK(i < list.count);
    fixture_join(out, "data/qlog/7", list.entries[i].name);
    disk_list_deinit(&list);
}

#endif
