/* Queue logs: what is appended comes back, by position, stamp, and partition and offset; opening
 * cuts; retention; a full disk; losing power. Most tests run on the real disk and on the simulated
 * one. */
#include "store/qlog.h"

#include "base/mem.h"
#include "lib/counted_disk.h"
#include "unit/store/qlog_fixture.h"
#include "unit/store/qlog_model.h"

#define SEGMENT 2000u

static void fill(struct fixture *f, struct model *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK_EQ(model_append(m, f->q, &f->error), ERR_OK);
}

static void check(struct fixture *f, const struct model *m, size_t first)
{
    enum err err = model_check(m, f->q, first, true, &f->error);
    if (err != ERR_OK)
        print_error("%s\n", f->error.text);
    CHECK_EQ(err, ERR_OK);
}

static void reopen(struct fixture *f, uint64_t start, uint64_t length)
{
    enum err err = fixture_reopen(f, start, length);
    if (err != ERR_OK)
        print_error("%s\n", f->error.text);
    CHECK_EQ(err, ERR_OK);
}

TEST(a_new_log_is_empty_and_has_no_folder)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, true, SEGMENT);
    model_init(&m, 1, 3, 10);
    CHECK_EQ(qlog_id(f.q), FIXTURE_ID);
    CHECK_EQ(qlog_disk_bytes(f.q), 0);
    check(&f, &m, 0);
    uint64_t *ids;
    size_t n;
    CHECK_EQ(qlog_set_list(f.set, &ids, &n, &f.error), ERR_OK);
    CHECK_EQ(n, 0);
    mem_free(ids);
    reopen(&f, 0, 0);
    check(&f, &m, 0);
    CHECK_EQ(qlog_destroy(f.q, &f.error), ERR_OK);
    fixture_deinit(&f);
}

static void round_trip(bool real, unsigned partitions, uint32_t payload_max, uint64_t segment_bytes,
                       size_t runs)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, real, segment_bytes);
    model_init(&m, runs + partitions, partitions, payload_max);
    fill(&f, &m, runs);
    check(&f, &m, 0);
    reopen(&f, 0, model_end(&m));
    check(&f, &m, 0);
    fill(&f, &m, 5);
    check(&f, &m, 0);
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST(what_was_appended_comes_back)
{
    for (int real = 0; real < 2; real++) {
        round_trip(real, 1, 30, SEGMENT, 60);          /* one partition: long chains */
        round_trip(real, 40, 30, SEGMENT, 60);         /* many, mostly absent from a segment */
        round_trip(real, 8, 3000, 30000, 60);          /* runs on both sides of the page size */
        round_trip(real, 3, 20, 64 * 1024 * 1024, 80); /* one segment */
        round_trip(real, 3, 20, 1, 20);                /* a segment for every run */
    }
}

/* Goal: blocks of three levels, and their borders, are found right.
 * Method: in one segment more runs than two levels index (127 x 127), then more of them behind. */
TEST(a_large_segment_has_an_index_of_three_levels)
{
    for (unsigned partitions = 1; partitions <= 64; partitions += 63) {
        struct fixture f;
        struct model m;
        fixture_init(&f, true, 5 * 1000 * 1000);
        model_init(&m, partitions, partitions, 0);
        while (fixture_files(&f) < 2)
            fill(&f, &m, 100);
        CHECK(m.n > 127 * 127);
        CHECK_EQ(model_check(&m, f.q, 0, false, &f.error), ERR_OK);
        model_deinit(&m);
        fixture_deinit(&f);
    }
}

/* A run of one small record. */
static void append_one(struct fixture *f, uint64_t partition_id, uint64_t offset, int64_t stamp)
{
    const struct qlog_record record = {.payload = SPAN_LIT("{}")};
    const struct qlog_run run = {.partition_id = partition_id,
                                 .partition = SPAN_LIT("p"),
                                 .first_offset = offset,
                                 .stamp = stamp,
                                 .records = &record,
                                 .count = 1};
    CHECK_EQ(qlog_append(f->q, &run, NULL, &f->error), ERR_OK);
}

/* Goal: every key of a large index is found, also where blocks begin and end, and where a partition
 * begins or ends with a block.
 * Method: every partition has one run; offsets below, in and behind it. Ids come in no order. */
TEST(every_key_of_a_large_index_is_found)
{
    const uint64_t partitions = 127 * 127 + 300;
    struct fixture f;
    uint64_t got;
    fixture_init(&f, true, 5 * 1000 * 1000);
    for (uint64_t i = 0; i < partitions; i++)
        append_one(&f, i * 7919 % partitions, 5, (int64_t)i);
    uint64_t size = qlog_end(f.q) / partitions;
    while (fixture_files(&f) < 2) /* seals the segment */
        append_one(&f, UINT64_MAX, qlog_end(f.q), (int64_t)partitions);
    for (uint64_t i = 0; i < partitions; i++) {
        uint64_t partition_id = i * 7919 % partitions;
        for (uint64_t offset = 4; offset <= 5; offset++) {
            CHECK_EQ(qlog_find(f.q, partition_id, offset, &got, &f.error), ERR_OK);
            CHECK_EQ(got, i * size);
        }
        CHECK_EQ(qlog_find(f.q, partition_id, 6, &got, &f.error), ERR_NOT_FOUND);
    }
    CHECK_EQ(qlog_find(f.q, partitions, 0, &got, &f.error), ERR_NOT_FOUND);
    fixture_deinit(&f);
}

/* Goal: finding a record costs a few small reads, however many segments there are.
 * Method: more than 100 segments with all partitions in each of them. */
TEST(finding_costs_few_reads)
{
    struct fixture f;
    fixture_init(&f, false, 5000);
    uint64_t offsets = 0;
    while (fixture_files(&f) < 130) {
        for (uint64_t p = 0; p < 4; p++)
            append_one(&f, p, offsets, (int64_t)offsets);
        offsets++;
    }
    for (uint64_t offset = 0; offset < offsets; offset++) {
        uint64_t got;
        uint64_t before = sim_disk_count(f.disk, SIM_DISK_READ);
        CHECK_EQ(qlog_find(f.q, offset % 4, offset, &got, &f.error), ERR_OK);
        /* A bisection of 130 segments, a block in each (two at a border), and the run's header. */
        CHECK(sim_disk_count(f.disk, SIM_DISK_READ) - before <= 2 * 8 + 1);
        before = sim_disk_count(f.disk, SIM_DISK_READ);
        CHECK_EQ(qlog_find(f.q, 77, offset, &got, &f.error), ERR_NOT_FOUND);
        CHECK_EQ(sim_disk_count(f.disk, SIM_DISK_READ), before); /* no segment's range has it */
        before = sim_disk_count(f.disk, SIM_DISK_READ);
        CHECK_EQ(qlog_seek_stamp(f.q, (int64_t)offset, &got, &f.error), ERR_OK);
        CHECK(sim_disk_count(f.disk, SIM_DISK_READ) - before <= 3);
    }
    fixture_deinit(&f);
}

/* Bytes read to find the stamp of run i, told of run `near`; -1 = of nothing. */
static uint64_t seek_costs(struct fixture *f, const struct model *m, size_t i, ssize_t near_i,
                           int64_t below)
{
    struct counted_disk counted;
    const struct model_run *told = near_i < 0 ? NULL : &m->runs[near_i];
    struct qlog_near near = {.below = below};
    uint64_t got;
    if (told != NULL) {
        near.partition_id = told->partition_id;
        near.offset = told->first_offset + told->count - 1;
    }
    counted_disk_begin(&counted, f->disk);
    CHECK_EQ(
        qlog_seek_stamp_near(f->q, m->runs[i].stamp, told != NULL ? &near : NULL, &got, &f->error),
        ERR_OK);
    counted_disk_end(&counted, f->disk);
    CHECK_EQ(got, m->runs[i].position);
    return counted.bytes_read;
}

/* Goal: told of a record shortly below the stamp, a search reads a few blocks instead of what lies
 * between two marks. Told of one that lies below the mark it reads not a byte more, or, when that is
 * not said, no more than the look into the index costs.
 * Method: runs of some 600 bytes, in a large sealed segment. */
TEST(a_search_that_is_told_of_a_record_below_reads_less)
{
    struct fixture f;
    struct model m;
    uint64_t told = 0, untold = 0;
    fixture_init(&f, false, 4u << 20);
    model_init(&m, 3, 20, 500);
    while (fixture_files(&f) < 2)
        fill(&f, &m, 1);
    for (size_t i = 1; i < m.n - 1; i += 37) {
        while (m.runs[i - 1].stamp == m.runs[i].stamp) /* to the first run of a push */
            i++;
        int64_t stamp = m.runs[i].stamp;
        uint64_t with = seek_costs(&f, &m, i, (ssize_t)i - 1, stamp);
        uint64_t without = seek_costs(&f, &m, i, -1, 0);
        CHECK(with <= without + 3 * 4096);
        CHECK(with <= 10 * 4096);
        CHECK_EQ(seek_costs(&f, &m, i, 0, 0), without);
        CHECK(seek_costs(&f, &m, i, 0, stamp) <= without + 3 * 4096);
        told += with;
        untold += without;
    }
    CHECK(told < untold / 5);
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST(a_run_larger_than_a_segment_gets_one_of_its_own)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, true, SEGMENT);
    model_init(&m, 5, 4, 20);
    fill(&f, &m, 2);
    size_t before = fixture_files(&f);
    CHECK_EQ(model_append_large(&m, f.q, 3 * 1024 * 1024, &f.error), ERR_OK);
    CHECK_EQ(fixture_files(&f), before + 1);
    fill(&f, &m, 1);
    CHECK_EQ(fixture_files(&f), before + 2);
    CHECK_EQ(model_append_large(&m, f.q, 1024 * 1024, &f.error), ERR_OK);
    check(&f, &m, 0);
    reopen(&f, 0, model_end(&m));
    check(&f, &m, 0);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* Goal: the log can be cut at every run, whatever lies behind; nothing of that stays, and it goes
 * on. Method: for every number of runs, the full log is opened at that length; what follows is
 * appended again and must be equal. Then with other segments than before. */
TEST(opening_cuts_at_every_run)
{
    for (int real = 0; real < 2; real++) {
        for (size_t cut = 0; cut <= 40; cut++) {
            struct fixture f;
            struct model m;
            fixture_init(&f, real, SEGMENT);
            model_init(&m, 3, 5, 40);
            fill(&f, &m, 40);
            model_cut(&m, cut);
            f.segment_bytes = cut % 3 == 0 ? SEGMENT : cut % 3 == 1 ? 300 : 1000000;
            reopen(&f, 0, model_end(&m));
            check(&f, &m, 0);
            CHECK(fixture_files(&f) <= cut);
            fill(&f, &m, 20);
            check(&f, &m, 0);
            reopen(&f, 0, model_end(&m));
            check(&f, &m, 0);
            model_deinit(&m);
            fixture_deinit(&f);
        }
    }
}

/* Goal: a length that no run ends at is refused, and nothing on disk changes. */
TEST(a_length_inside_a_run_is_refused)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, false, SEGMENT);
    model_init(&m, 3, 5, 40);
    fill(&f, &m, 20);
    uint64_t end = model_end(&m);
    for (uint64_t length = 0; length <= end + 1; length++) {
        bool boundary = length == 0;
        for (size_t i = 0; i < m.n; i++)
            boundary |= m.runs[i].next == length;
        if (boundary)
            continue;
        CHECK_EQ(fixture_reopen(&f, 0, length), ERR_CORRUPT);
        CHECK(strstr(f.error.text, "data/qlog/7") != NULL);
    }
    reopen(&f, 0, end);
    check(&f, &m, 0);
    CHECK_EQ(fixture_reopen(&f, end + 1, end), ERR_CORRUPT);
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST(disk_bytes_are_those_of_the_files)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, true, SEGMENT);
    model_init(&m, 3, 5, 40);
    for (int round = 0; round < 4; round++) {
        struct disk_list list = {0};
        fill(&f, &m, 11);
        if (round == 1)
            reopen(&f, 0, model_end(&m));
        if (round == 2)
            CHECK_EQ(qlog_trim(f.q, m.runs[15].position, &f.error), ERR_OK);
        CHECK_EQ(disk_list(f.disk, "data/qlog/7", &list, &f.error), ERR_OK);
        uint64_t sum = 0;
        for (size_t i = 0; i < list.count; i++)
            sum += list.entries[i].size;
        disk_list_deinit(&list);
        CHECK_EQ(qlog_disk_bytes(f.q), sum);
    }
    model_deinit(&m);
    fixture_deinit(&f);
}

/* ---- Retention ---- */

/* First run of the model that the log still has. */
static size_t first_run(const struct fixture *f, const struct model *m)
{
    size_t first = 0;
    while (first < m->n && m->runs[first].position < qlog_start(f->q))
        first++;
    return first;
}

TEST(trim_removes_whole_sealed_segments_below_the_position)
{
    for (int real = 0; real < 2; real++) {
        struct fixture f;
        struct model m;
        fixture_init(&f, real, SEGMENT);
        model_init(&m, 9, 5, 40);
        fill(&f, &m, 60);
        size_t files = fixture_files(&f);
        CHECK(files > 5);
        for (size_t i = 0; i < m.n; i += 7) {
            CHECK_EQ(qlog_trim(f.q, m.runs[i].position, &f.error), ERR_OK);
            CHECK(qlog_start(f.q) <= m.runs[i].position);
            check(&f, &m, first_run(&f, &m));
        }
        CHECK(fixture_files(&f) < 3);
        CHECK_EQ(qlog_trim(f.q, qlog_end(f.q), &f.error), ERR_OK);
        CHECK_EQ(fixture_files(&f), 1); /* the active one stays */
        uint64_t start = qlog_start(f.q);

        struct qlog_run_data data = {0};
        struct qlog_run_head head;
        size_t n;
        uint64_t next;
        CHECK_EQ(qlog_read(f.q, m.runs[0].position, &data, &f.error), ERR_NOT_FOUND);
        CHECK_EQ(qlog_scan(f.q, 0, qlog_end(f.q), &head, 1, &n, &next, &f.error), ERR_NOT_FOUND);
        CHECK_EQ(qlog_read(f.q, qlog_end(f.q), &data, &f.error), ERR_NOT_FOUND);
        qlog_run_data_deinit(&data);

        reopen(&f, start, model_end(&m));
        check(&f, &m, first_run(&f, &m));
        CHECK_EQ(fixture_reopen(&f, start - 1, model_end(&m)), ERR_CORRUPT);
        reopen(&f, model_end(&m), model_end(&m));
        check(&f, &m, first_run(&f, &m));
        model_deinit(&m);
        fixture_deinit(&f);
    }
}

/* Goal: after a crash any of the files below start may be back or gone; those in front of a gap go.
 */
TEST(gaps_below_the_start_are_no_damage)
{
    for (unsigned mask = 0; mask < 16; mask++) {
        struct fixture f;
        struct model m;
        fixture_init(&f, false, SEGMENT);
        model_init(&m, 9, 5, 40);
        fill(&f, &m, 60);
        size_t files = fixture_files(&f);
        char paths[5][FIXTURE_PATH_MAX];
        for (size_t i = 0; i < 5; i++)
            fixture_path(&f, i, paths[i]);
        uint64_t start = strtoull(strstr(paths[4], "seg-") + 4, NULL, 16);
        qlog_set_close(f.set);
        for (size_t i = 0; i < 4; i++) {
            if (mask >> i & 1)
                CHECK_EQ(disk_unlink(f.disk, paths[i], &f.error), ERR_OK);
        }
        fixture_set_open(&f);
        reopen(&f, start, model_end(&m));
        check(&f, &m, first_run(&f, &m));
        CHECK(qlog_start(f.q) <= start);
        size_t unbroken = 0; /* files right in front of the start */
        while (unbroken < 4 && !(mask >> (3 - unbroken) & 1))
            unbroken++;
        CHECK_EQ(fixture_files(&f), files - 4 + unbroken);
        model_deinit(&m);
        fixture_deinit(&f);
    }
}

/* Goal: a log whose last segment was trimmed away goes on at its length. */
TEST(a_log_without_files_goes_on_at_its_length)
{
    struct fixture f;
    struct model m;
    fixture_init(&f, true, SEGMENT);
    model_init(&m, 9, 5, 40);
    fill(&f, &m, 30);
    uint64_t end = model_end(&m);
    qlog_set_close(f.set);
    fixture_remove(f.disk, "data/qlog/7");
    fixture_set_open(&f);
    CHECK_EQ(fixture_reopen(&f, 0, end), ERR_CORRUPT);
    reopen(&f, end, end);
    CHECK_EQ(qlog_start(f.q), end);
    fill(&f, &m, 30);
    check(&f, &m, 30);
    reopen(&f, end, model_end(&m));
    check(&f, &m, 30);
    model_deinit(&m);
    fixture_deinit(&f);
}

/* ---- The set ---- */

/* Goal: more logs than files may be open.
 * Method: ten logs, three handles; appends and reads go round. */
TEST(many_logs_share_few_handles)
{
    struct fixture f;
    struct model m[10];
    struct qlog *q[10];
    fixture_init(&f, true, SEGMENT);
    for (unsigned i = 0; i < 10; i++) {
        model_init(&m[i], i, 4, 40);
        CHECK_EQ(qlog_create(f.set, 100 + i, &q[i], &f.error), ERR_OK);
    }
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 10; i++)
            CHECK_EQ(model_append(&m[i], q[i], &f.error), ERR_OK);
    }
    for (unsigned i = 0; i < 10; i++) {
        CHECK_EQ(model_check(&m[i], q[i], 0, true, &f.error), ERR_OK);
        model_deinit(&m[i]);
    }
    struct disk_list fds = {0};
    struct disk *proc;
    CHECK_EQ(disk_real_open("/proc/self", &proc, &f.error), ERR_OK);
    CHECK_EQ(disk_list(proc, "fd", &fds, &f.error), ERR_OK);
    CHECK(fds.count < 3 + 3 + 8);
    disk_list_deinit(&fds);
    disk_real_close(proc);
    fixture_deinit(&f);
}

TEST(destroy_and_create_leave_nothing_of_the_old_log)
{
    for (int real = 0; real < 2; real++) {
        struct fixture f;
        struct model m;
        struct qlog *other;
        fixture_init(&f, real, SEGMENT);
        model_init(&m, 9, 5, 40);
        fill(&f, &m, 30);
        CHECK_EQ(qlog_create(f.set, 1000, &other, &f.error), ERR_OK);
        struct model m2;
        model_init(&m2, 9, 5, 40);
        CHECK_EQ(model_append(&m2, other, &f.error), ERR_OK);

        uint64_t *ids = NULL;
        size_t n = 0;
        CHECK_EQ(qlog_set_list(f.set, &ids, &n, &f.error), ERR_OK);
        CHECK_EQ(n, 2);
        CHECK_EQ(ids[0], FIXTURE_ID);
        CHECK_EQ(ids[1], 1000);
        mem_free(ids);
        CHECK_EQ(qlog_destroy(other, &f.error), ERR_OK);

        /* A folder that a crash left. */
        qlog_set_close(f.set);
        fixture_set_open(&f);
        CHECK_EQ(qlog_create(f.set, FIXTURE_ID, &f.q, &f.error), ERR_OK);
        CHECK_EQ(fixture_files(&f), 0);
        model_cut(&m, 0);
        fill(&f, &m, 30);
        check(&f, &m, 0);
        CHECK_EQ(qlog_destroy(f.q, &f.error), ERR_OK);
        CHECK_EQ(qlog_set_list(f.set, &ids, &n, &f.error), ERR_OK);
        CHECK_EQ(n, 0);
        mem_free(ids);
        model_deinit(&m);
        model_deinit(&m2);
        fixture_deinit(&f);
    }
}

TEST(a_set_refuses_settings_it_cannot_keep)
{
    struct disk *disk = sim_disk_new(1);
    struct qlog_set *s = NULL;
    struct qlog_set_options options = {.disk = disk, .dir = "qlog", .handles_max = 1};
    CHECK_EQ(qlog_set_open(&options, &s, NULL), ERR_INVALID);
    options.segment_bytes = UINT64_C(1) << 32;
    CHECK_EQ(qlog_set_open(&options, &s, NULL), ERR_INVALID);
    options.segment_bytes = 1000;
    options.dir = "";
    CHECK_EQ(qlog_set_open(&options, &s, NULL), ERR_INVALID);
    CHECK(s == NULL);
    sim_disk_free(disk);
}

/* ---- A full disk ---- */

/* Goal: an append that finds the disk full changes nothing, and a later one goes on, at whatever
 * call of the disk it struck: creating, writing, sealing. Method: the next, next but one, ... write
 * or open of every append fails. */
TEST(a_full_disk_leaves_the_log_as_it_was)
{
    const enum sim_disk_op ops[] = {SIM_DISK_WRITE, SIM_DISK_OPEN, SIM_DISK_MKDIR};
    for (size_t o = 0; o < 3; o++) {
        for (uint64_t skip = 0; skip < 2; skip++) {
            struct fixture f;
            struct model m;
            fixture_init(&f, false, 600);
            model_init(&m, 11, 5, 40);
            unsigned failures = 0;
            for (size_t i = 0; i < 60; i++) {
                sim_disk_fail_next(f.disk, ops[o], ERR_NO_SPACE, skip);
                enum err err = model_append(&m, f.q, &f.error);
                sim_disk_fail_next(f.disk, ops[o], ERR_OK, UINT64_MAX);
                if (err != ERR_OK) {
                    CHECK_EQ(err, ERR_NO_SPACE);
                    failures++;
                    check(&f, &m, 0);
                    if (i % 2 == 0)
                        reopen(&f, 0, model_end(&m));
                    CHECK_EQ(model_append(&m, f.q, &f.error), ERR_OK);
                }
            }
            CHECK(failures > 0 || skip > 0);
            check(&f, &m, 0);
            reopen(&f, 0, model_end(&m));
            check(&f, &m, 0);
            model_deinit(&m);
            fixture_deinit(&f);
        }
    }
}

/* The same with a disk that is really full, also when the torn bytes cannot be cut off. */
TEST(a_disk_that_fills_up_and_is_freed)
{
    for (uint64_t room = 0; room < 700; room += 13) {
        struct fixture f;
        struct model m;
        fixture_init(&f, false, 600);
        model_init(&m, room, 5, 40);
        for (size_t i = 0; i < 25; i++) {
            sim_disk_set_capacity(f.disk, sim_disk_used(f.disk) + room);
            if (room % 2 == 0)
                sim_disk_fail_next(f.disk, SIM_DISK_TRUNCATE, ERR_IO, 0);
            enum err err = model_append(&m, f.q, &f.error);
            sim_disk_set_capacity(f.disk, UINT64_C(1) << 40);
            sim_disk_fail_next(f.disk, SIM_DISK_TRUNCATE, ERR_OK, UINT64_MAX);
            if (err != ERR_OK) {
                CHECK_EQ(err, ERR_NO_SPACE);
                check(&f, &m, 0);
                CHECK_EQ(model_append(&m, f.q, &f.error), ERR_OK);
            }
        }
        check(&f, &m, 0);
        reopen(&f, 0, model_end(&m));
        check(&f, &m, 0);
        model_deinit(&m);
        fixture_deinit(&f);
    }
}

/* Goal: torn bytes that could neither be cut off nor written over are cut when the segment is
 * sealed. Method: a large run fails in part; another, small one takes its place, and one that does
 * not fit any more seals the segment while torn bytes still stand behind its footer. */
TEST(torn_bytes_do_not_survive_a_seal)
{
    unsigned longer = 0;
    for (uint64_t round = 0; round < 20; round++) {
        struct fixture f;
        struct model m;
        fixture_init(&f, false, 100 * 1000);
        model_init(&m, 100 + round, 5, 40);
        fill(&f, &m, 3);
        sim_disk_set_capacity(f.disk, sim_disk_used(f.disk) + 1000 * round);
        sim_disk_fail_next(f.disk, SIM_DISK_TRUNCATE, ERR_IO, 0);
        CHECK_EQ(model_append_large(&m, f.q, 50 * 1000, &f.error), ERR_NO_SPACE);
        sim_disk_set_capacity(f.disk, UINT64_C(1) << 40);
        sim_disk_fail_next(f.disk, SIM_DISK_TRUNCATE, ERR_OK, UINT64_MAX);
        longer += sim_disk_used(f.disk) > qlog_disk_bytes(f.q) + 10 * 1000;
        fill(&f, &m, 1);
        CHECK_EQ(model_append_large(&m, f.q, 100 * 1000, &f.error), ERR_OK);
        CHECK_EQ(fixture_files(&f), 2);
        CHECK_EQ(sim_disk_used(f.disk), qlog_disk_bytes(f.q));
        reopen(&f, 0, model_end(&m));
        check(&f, &m, 0);
        model_deinit(&m);
        fixture_deinit(&f);
    }
    CHECK(longer > 0);
}

/* ---- Losing power ---- */

/* Goal: what lies below a recorded length survives every power cut, whatever happened since; what
 * is appended again afterwards is equal. Method: rounds of appends, trims and checkpoints; the
 * power goes at any operation that changes something, or between two; boot opens at the recorded
 * length and start. */
static void power_cut_rounds(uint64_t seed)
{
    struct fixture f;
    struct model m;
    struct prng rng;
    prng_init(&rng, seed);
    fixture_init(&f, false, 300 + prng_below(&rng, 2000));
    model_init(&m, seed, 6, 60);
    size_t durable = 0; /* runs below the recorded length */
    uint64_t start = 0; /* recorded */
    for (unsigned round = 0; round < 12; round++) {
        if (prng_chance(&rng, 70))
            sim_disk_crash_after(f.disk, prng_below(&rng, 60));
        for (size_t i = prng_below(&rng, 60); i > 0; i--) {
            if (model_append(&m, f.q, &f.error) != ERR_OK)
                break;
            if (prng_chance(&rng, 10)) { /* a checkpoint */
                if (disk_sync_all(f.disk, &f.error) != ERR_OK)
                    break;
                durable = m.n;
                if (start > qlog_start(f.q) && qlog_trim(f.q, start, &f.error) != ERR_OK)
                    break;
                uint64_t later = m.runs[prng_below(&rng, m.n)].position;
                if (later > start)
                    start = later;
            }
        }
        sim_disk_crash(f.disk, &rng);
        CHECK(model_end(&m) >= (durable > 0 ? m.runs[durable - 1].next : 0));
        model_cut(&m, durable);
        reopen(&f, start, model_end(&m));
        check(&f, &m, first_run(&f, &m));
    }
    model_deinit(&m);
    fixture_deinit(&f);
}

TEST(what_a_checkpoint_covered_survives_a_power_cut)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        power_cut_rounds(seed);
}

TEST_MAIN()
