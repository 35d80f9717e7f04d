/* The log as its users see it: on the simulated disk, and once on a real one. */
#include "wal/wal.h"

#include "io/pool.h"
#include "scene.h"

#include <stdatomic.h>
#include <unistd.h>

TEST(new_log_is_empty_and_terms_rise)
{
    struct scene *s = scene_new(1);
    scene_open_checked(s);
    CHECK_EQ(wal_first_index(s->wal), 0);
    CHECK_EQ(wal_last_index(s->wal), 0);
    CHECK_EQ(wal_term(s->wal), 1);
    CHECK(wal_bytes(s->wal) > SCENE_SEGMENT);
    scene_close(s);
    scene_open_checked(s);
    CHECK_EQ(wal_term(s->wal), 2);
    scene_free(s);
}

/* Goal: every size of entry and write comes back, over segment borders and restarts.
 * Method: sizes around the block and segment size, several restarts, all in one log. */
TEST(entries_come_back_byte_for_byte)
{
    static const size_t sizes[] = {0, 1, 100, 4007, 4008, 4009, 8100, 12200, 12287, 12288, 50000};
    struct scene *s = scene_new(2);
    for (unsigned round = 0; round < 4; round++) {
        scene_open_checked(s);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            CHECK_EQ(scene_write(s, 1, sizes[i]), ERR_OK);
            CHECK_EQ(scene_write(s, 3, sizes[i]), ERR_OK);
            CHECK_EQ(wal_last_index(s->wal), s->acked);
        }
        CHECK_EQ(wal_first_index(s->wal), 1);
        scene_check(s);
        scene_close(s);
    }
    scene_open_checked(s);
    CHECK_EQ(s->acked, 4 * 4 * sizeof(sizes) / sizeof(sizes[0]));
    scene_free(s);
}

TEST(replay_starts_after_any_index)
{
    struct scene *s = scene_new(3);
    scene_open_checked(s);
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQ(scene_write(s, 3, 900), ERR_OK);
    for (uint64_t after = 0; after <= 30; after++) {
        struct scene_check check = {s, after + 1};
        CHECK_EQ(wal_replay(s->wal, after, scene_check_entry, &check, NULL), ERR_OK);
        CHECK_EQ(check.next, 31);
    }
    scene_free(s);
}

static enum err stop_at_five(void *ctx, const struct wal_entry *entry, struct error *error)
{
    (void)ctx;
    return entry->index == 5 ? error_set(error, ERR_STOPPED, "five") : ERR_OK;
}

TEST(error_of_the_callback_ends_the_replay)
{
    struct scene *s = scene_new(4);
    scene_open_checked(s);
    CHECK_EQ(scene_write(s, 9, 10), ERR_OK);
    CHECK_EQ(wal_replay(s->wal, 0, stop_at_five, NULL, &s->error), ERR_STOPPED);
    CHECK(strcmp(s->error.text, "five") == 0);
    scene_free(s);
}

/* Goal: a write on the hot path is one write and one sync. */
TEST(a_write_costs_one_write_and_one_sync)
{
    struct scene *s = scene_new(5);
    s->segment_bytes = 1024 * 1024;
    scene_open_checked(s);
    uint64_t writes = sim_disk_count(s->disk, SIM_DISK_WRITE);
    uint64_t syncs = sim_disk_count(s->disk, SIM_DISK_DATASYNC);
    uint64_t changes = sim_disk_changes(s->disk);
    for (unsigned i = 0; i < 20; i++)
        CHECK_EQ(scene_write(s, 5, 500), ERR_OK);
    CHECK_EQ(sim_disk_count(s->disk, SIM_DISK_WRITE) - writes, 20);
    CHECK_EQ(sim_disk_count(s->disk, SIM_DISK_DATASYNC) - syncs, 20);
    CHECK_EQ(sim_disk_changes(s->disk) - changes, 40);
    scene_free(s);
}

/* Goal: a log that is released as it grows stays small, and reuses its files without preallocating.
 */
TEST(released_segments_are_recycled)
{
    struct scene *s = scene_new(6);
    scene_open_checked(s);
    uint64_t bytes_max = 0, preallocations = 0;
    for (unsigned i = 0; i < 200; i++) {
        if (i == 30)
            preallocations = sim_disk_count(s->disk, SIM_DISK_PREALLOCATE);
        CHECK_EQ(scene_write(s, 2, 1500), ERR_OK);
        s->applied = s->acked - 1;
        CHECK_EQ(wal_release(s->wal, s->applied, &s->error), ERR_OK);
        CHECK(wal_first_index(s->wal) <= s->acked);
        bytes_max = wal_bytes(s->wal) > bytes_max ? wal_bytes(s->wal) : bytes_max;
    }
    CHECK_EQ(sim_disk_count(s->disk, SIM_DISK_PREALLOCATE), preallocations);
    CHECK(bytes_max <= 5 * SCENE_SEGMENT);
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    scene_check(s);
    scene_close(s);
    scene_open_checked(s);
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    scene_free(s);
}

TEST(release_keeps_the_tail_and_what_is_above)
{
    struct scene *s = scene_new(7);
    scene_open_checked(s);
    for (unsigned i = 0; i < 12; i++)
        CHECK_EQ(scene_write(s, 1, 3000), ERR_OK);
    CHECK_EQ(wal_release(s->wal, 0, &s->error), ERR_OK);
    CHECK_EQ(wal_first_index(s->wal), 1);
    CHECK_EQ(wal_release(s->wal, 5, &s->error), ERR_OK); /* three entries a segment */
    CHECK_EQ(wal_first_index(s->wal), 4);
    CHECK_EQ(wal_release(s->wal, 12, &s->error), ERR_OK);
    CHECK_EQ(wal_first_index(s->wal), 10);
    s->applied = 12;
    scene_close(s);
    scene_open_checked(s);
    CHECK_EQ(wal_last_index(s->wal), 12);
    CHECK_EQ(scene_write(s, 1, 10), ERR_OK);
    CHECK_EQ(s->acked, 13);
    scene_check(s);
    scene_free(s);
}

TEST(large_segments_are_not_kept)
{
    struct scene *s = scene_new(8);
    scene_open_checked(s);
    CHECK_EQ(scene_write(s, 1, 200000), ERR_OK);
    CHECK_EQ(scene_write(s, 1, 10), ERR_OK);
    scene_check(s);
    CHECK_EQ(wal_release(s->wal, 1, &s->error), ERR_OK);
    CHECK(wal_bytes(s->wal) < 200000);
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    s->applied = 1;
    scene_check(s);
    scene_free(s);
}

TEST(prepared_segment_is_used)
{
    struct scene *s = scene_new(9);
    scene_open_checked(s);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    uint64_t count = sim_disk_count(s->disk, SIM_DISK_PREALLOCATE);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK); /* one is enough */
    for (unsigned i = 0; i < 6; i++)
        CHECK_EQ(scene_write(s, 1, 3000), ERR_OK);
    CHECK_EQ(sim_disk_count(s->disk, SIM_DISK_PREALLOCATE), count);
    scene_free(s);
}

TEST(segments_shrink_with_the_disk)
{
    struct scene *s = scene_new(10);
    s->segment_bytes = 64 * 1024 * 1024;
    sim_disk_set_capacity(s->disk, 6 * 1024 * 1024);
    scene_open_checked(s);
    CHECK(sim_disk_used(s->disk) <= 6 * 1024 * 1024 / 10);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    CHECK(sim_disk_used(s->disk) <= 6 * 1024 * 1024 / 10);
    CHECK_EQ(scene_write(s, 1, 1000000), ERR_OK);
    scene_check(s);
    scene_free(s);
}

/* Goal: a full disk refuses a write without a trace, and the same log goes on when there is room.
 * Method: capacity exactly used up; then "no space" from every operation of a roll. */
TEST(full_disk_refuses_and_goes_on)
{
    struct scene *s = scene_new(11);
    scene_open_checked(s);
    sim_disk_set_capacity(s->disk, sim_disk_used(s->disk) + 100);
    while (scene_write(s, 1, 3000) == ERR_OK)
        continue;
    CHECK_EQ(s->error.code, ERR_NO_SPACE);
    CHECK_EQ(s->acked, 3);
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    CHECK_EQ(scene_write(s, 1, 100000), ERR_NO_SPACE);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK); /* beyond a tenth of this disk */
    scene_check(s);

    sim_disk_set_capacity(s->disk, UINT64_C(1) << 30);
    CHECK_EQ(scene_write(s, 1, 3000), ERR_OK);
    CHECK_EQ(scene_write(s, 1, 100000), ERR_OK);
    scene_check(s);
    scene_close(s);
    scene_open_checked(s);
    CHECK_EQ(s->acked, 5);
    scene_free(s);
}

/* Goal: a write that was refused is not there after a restart, even when all of it but some padding
 * had reached the file. Method: "no space" from each operation in turn, then a kill or a power cut.
 */
TEST(refused_write_never_comes_back)
{
    static const enum sim_disk_op ops[] = {SIM_DISK_WRITE,       SIM_DISK_OPEN,  SIM_DISK_WRITE,
                                           SIM_DISK_PREALLOCATE, SIM_DISK_WRITE, SIM_DISK_RENAME};
    unsigned refused = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct scene *s = scene_new(seed);
        scene_open_checked(s);
        sim_disk_fail_next(s->disk, ops[seed % 6], ERR_NO_SPACE, seed / 6 % 7);
        enum err err = ERR_OK;
        for (unsigned i = 0; i < 7 && err == ERR_OK; i++)
            err = scene_write(s, 2, 500);
        CHECK(err == ERR_OK || err == ERR_NO_SPACE);
        refused += err == ERR_NO_SPACE;
        sim_disk_fail_next(s->disk, SIM_DISK_OPEN, ERR_IO, UINT64_MAX); /* disarms */
        scene_check(s);
        if (seed % 4 >= 2)
            CHECK_EQ(scene_write(s, 2, 500), ERR_OK);
        scene_close(s);
        if (seed % 2 == 0)
            sim_disk_kill(s->disk);
        else
            sim_disk_crash(s->disk, &s->prng);
        scene_open_checked(s);
        scene_free(s);
    }
    CHECK(refused > 100);
}

TEST(nothing_is_written_after_an_error)
{
    struct scene *s = scene_new(12);
    scene_open_checked(s);
    CHECK_EQ(scene_write(s, 1, 10), ERR_OK);
    sim_disk_fail_next(s->disk, SIM_DISK_DATASYNC, ERR_NO_SPACE, 0); /* of a sync: ERR_IO */
    CHECK_EQ(scene_write(s, 1, 10), ERR_IO);
    CHECK(strstr(s->error.text, "seg-0000000000000001.wal") != NULL); /* its name by now */
    uint64_t changes = sim_disk_changes(s->disk);
    CHECK_EQ(scene_write(s, 1, 10), ERR_IO);
    CHECK_EQ(sim_disk_changes(s->disk), changes);
    scene_free(s);
}

struct releaser {
    struct wal *wal;
    atomic_ulong durable;
    atomic_bool stop;
};

static void release_all_along(void *ctx)
{
    struct releaser *r = (struct releaser *)ctx;
    while (!atomic_load(&r->stop)) {
        CHECK_EQ(wal_release(r->wal, atomic_load(&r->durable), NULL), ERR_OK);
        CHECK_EQ(wal_prepare(r->wal, NULL), ERR_OK);
        CHECK(wal_bytes(r->wal) > 0);
    }
}

TEST(release_beside_the_writer)
{
    struct scene *s = scene_new(13);
    scene_open_checked(s);
    struct releaser r = {.wal = s->wal};
    struct thread *thread = thread_start("release", release_all_along, &r);
    for (unsigned i = 0; i < 1500; i++) {
        CHECK_EQ(scene_write(s, 2, i % 7 == 0 ? 9000 : 300), ERR_OK);
        atomic_store(&r.durable, s->acked - 1);
    }
    atomic_store(&r.stop, true);
    thread_join(thread);
    s->applied = s->acked - 1;
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    scene_close(s);
    scene_open_checked(s);
    CHECK_EQ(s->acked, 3000);
    scene_free(s);
}

TEST(works_on_a_real_disk)
{
    char root[] = "/tmp/wal_test_XXXXXX";
    CHECK(mkdtemp(root) != NULL);
    struct disk *disk;
    CHECK_EQ(disk_real_open(root, &disk, NULL), ERR_OK);
    struct scene *s = scene_new(14);
    sim_disk_free(s->disk);
    s->disk = disk;
    for (unsigned round = 0; round < 3; round++) {
        scene_open_checked(s);
        for (unsigned i = 0; i < 20; i++)
            CHECK_EQ(scene_write(s, 3, i * 1000), ERR_OK);
        s->applied = s->acked - 20;
        CHECK_EQ(wal_release(s->wal, s->applied, &s->error), ERR_OK);
        scene_close(s);
    }
    scene_open_checked(s);
    scene_close(s);

    struct disk_list list;
    CHECK_EQ(disk_list(disk, "wal", &list, NULL), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "wal/%s", list.entries[i].name);
        CHECK_EQ(disk_unlink(disk, path, NULL), ERR_OK);
    }
    disk_list_deinit(&list);
    CHECK_EQ(disk_rmdir(disk, "wal", NULL), ERR_OK);
    disk_real_close(disk);
    CHECK_EQ(rmdir(root), 0);
    s->disk = NULL;
    scene_free(s);
}

TEST_MAIN()
