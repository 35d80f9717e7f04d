/* The log on a disk with little room: spares are slack, and a small segment is better than none. */
#include "wal/wal.h"

#include "scene.h"

#define SEGMENT (256u * 1024)

static struct scene *space_scene(uint64_t seed)
{
    struct scene *s = scene_new(seed);
    s->segment_bytes = SEGMENT;
    scene_open_checked(s);
    return s;
}

static size_t count_files(struct scene *s, const char *head)
{
    struct disk_list list = {0};
    size_t n = 0;
    CHECK_EQ(disk_list(s->disk, "wal", &list, &s->error), ERR_OK);
    for (size_t i = 0; i < list.count; i++)
        n += strncmp(list.entries[i].name, head, strlen(head)) == 0;
    disk_list_deinit(&list);
    return n;
}

/* Writes until a roll is next; the segment's rest is less than a write of 60,000 bytes. */
static void fill_segment(struct scene *s)
{
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(scene_write(s, 1, 50000), ERR_OK);
}

TEST(spares_are_given_up_on_demand)
{
    struct scene *s = space_scene(1);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    uint64_t bytes = wal_bytes(s->wal), used = sim_disk_used(s->disk);
    CHECK_EQ(count_files(s, "spare"), 1);
    CHECK(wal_drop_spares(s->wal));
    CHECK_EQ(count_files(s, "spare"), 0);
    CHECK_EQ(bytes - wal_bytes(s->wal), SEGMENT);
    CHECK_EQ(used - sim_disk_used(s->disk), SEGMENT);
    CHECK(!wal_drop_spares(s->wal));
    fill_segment(s);
    CHECK_EQ(scene_write(s, 1, 60000), ERR_OK); /* makes one for itself */
    scene_close(s);
    scene_open_checked(s);
    scene_free(s);
}

TEST(a_spare_that_cannot_be_unlinked_makes_no_room)
{
    struct scene *s = space_scene(6);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    uint64_t bytes = wal_bytes(s->wal);
    sim_disk_fail_next(s->disk, SIM_DISK_UNLINK, ERR_IO, 0);
    CHECK(!wal_drop_spares(s->wal));
    CHECK_EQ(wal_bytes(s->wal), bytes);
    fill_segment(s);
    CHECK_EQ(scene_write(s, 1, 60000), ERR_OK); /* the log goes on */
    scene_close(s);
    scene_open_checked(s);
    scene_free(s);
}

TEST(spares_are_given_up_before_the_log_is_open)
{
    struct scene *s = space_scene(2);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    CHECK_EQ(scene_write(s, 3, 1000), ERR_OK);
    scene_close(s);
    CHECK(wal_unlink_spares(s->disk, "wal"));
    CHECK_EQ(count_files(s, "spare"), 0);
    CHECK_EQ(count_files(s, "seg"), 1);
    CHECK(!wal_unlink_spares(s->disk, "wal"));
    CHECK(!wal_unlink_spares(s->disk, "missing"));
    scene_open_checked(s);
    scene_free(s);
}

TEST(a_roll_takes_a_small_segment_where_a_whole_one_does_not_fit)
{
    struct scene *s = space_scene(3);
    fill_segment(s);
    sim_disk_set_capacity(s->disk, sim_disk_used(s->disk) + SEGMENT / 2);
    CHECK_EQ(scene_write(s, 1, 60000), ERR_OK);
    CHECK_EQ(count_files(s, "seg"), 2);
    CHECK_EQ(scene_write(s, 1, 100), ERR_OK);
    scene_close(s);
    scene_open_checked(s);
    sim_disk_set_capacity(s->disk, sim_disk_used(s->disk) + 8192);
    CHECK_EQ(scene_write(s, 1, 60000), ERR_NO_SPACE);
    CHECK_EQ(count_files(s, "tmp"), 0);
    s->applied = s->acked;
    CHECK_EQ(wal_release(s->wal, s->applied, &s->error), ERR_OK); /* odd sizes are not kept */
    CHECK_EQ(scene_write(s, 1, 60000), ERR_OK);
    scene_close(s);
    scene_open_checked(s);
    scene_free(s);
}

TEST(the_last_tenth_of_the_disk_is_not_taken_for_spares)
{
    struct scene *s = space_scene(4);
    uint64_t used = sim_disk_used(s->disk);
    sim_disk_set_capacity(s->disk, used + SEGMENT + SEGMENT / 4);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    CHECK_EQ(count_files(s, "spare"), 0);
    sim_disk_set_capacity(s->disk, (uint64_t)64 << 20);
    CHECK_EQ(wal_prepare(s->wal, &s->error), ERR_OK);
    CHECK_EQ(count_files(s, "spare"), 1);
    scene_free(s);
}

TEST_MAIN()
