/* Damage: what recovery makes of a log that no crash can have left.
 *
 * Never an altered entry; never a durable entry silently lost. What may go unnoticed is damage to
 * the very last write, and only when the log was not opened since. */
#include "scene.h"

#include <inttypes.h>

#define WRITES 8u
#define ENTRIES_PER_WRITE 2u

/* Two segments of three writes and one of two; the log was opened before the last `since`
 * writes. Closed. */
static struct scene *make_log(unsigned since)
{
    struct scene *s = scene_new(42);
    scene_open_checked(s);
    for (unsigned i = 0; i < WRITES; i++) {
        if (i == WRITES - since) {
            scene_close(s);
            scene_open_checked(s);
        }
        CHECK_EQ(scene_write(s, ENTRIES_PER_WRITE, 20 + i), ERR_OK);
    }
    scene_close(s);
    return s;
}

static void segment_path(char path[64], uint64_t n)
{
    (void)snprintf(path, 64, "wal/seg-%016" PRIx64 ".wal", n);
}

/* All names and bytes of the folder in one text. */
static void describe(struct disk *d, struct buf *out)
{
    struct disk_list list;
    CHECK_EQ(disk_list(d, "wal", &list, NULL), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "wal/%s", list.entries[i].name);
        buf_puts(out, path);
        CHECK(sim_disk_get(d, path, out));
    }
    disk_list_deinit(&list);
}

enum outcome { REFUSED, WHOLE, LAST_LOST };

/* Opens the damaged disk d instead of the scene's own and says what came of it. */
static enum outcome try_open(struct scene *s, struct disk *d)
{
    struct disk *own = s->disk;
    uint64_t acked = s->acked;
    struct buf before = BUF_INIT, after = BUF_INIT;
    describe(d, &before);
    s->disk = d;
    enum err err = scene_open(s);
    enum outcome outcome = REFUSED;
    if (err == ERR_OK) {
        outcome = wal_last_index(s->wal) == acked ? WHOLE : LAST_LOST;
        if (outcome == LAST_LOST)
            s->acked -= ENTRIES_PER_WRITE;
        scene_check(s);
        CHECK_EQ(scene_write(s, 1, 100), ERR_OK); /* and it goes on from there */
        scene_check(s);
        scene_close(s);
        scene_open_checked(s);
    } else {
        CHECK(err == ERR_CORRUPT || err == ERR_VERSION);
        CHECK(strncmp(s->error.text, "wal", 3) == 0);
        describe(d, &after);
        CHECK_SPAN(buf_span(&after), buf_span(&before));
    }
    scene_close(s);
    buf_deinit(&before);
    buf_deinit(&after);
    s->disk = own;
    return outcome;
}

/* The same for a copy of the log with one bit changed. */
static enum outcome try_flip(struct scene *s, const char *path, size_t at, unsigned bit)
{
    struct disk *d = sim_disk_copy(s->disk, 1);
    struct buf bytes = BUF_INIT;
    struct scene *copy = mem_copy(s, sizeof(*s));
    CHECK(sim_disk_get(d, path, &bytes));
    uint8_t byte = (uint8_t)(bytes.ptr[at] ^ (1u << bit));
    sim_disk_damage(d, path, at, span_make(&byte, 1));
    enum outcome outcome = try_open(copy, d);
    mem_free(copy);
    buf_deinit(&bytes);
    sim_disk_free(d);
    return outcome;
}

/* Bytes of write w that are covered by a checksum. */
static size_t covered(unsigned w)
{
    return WAL_WRITE_HEADER_SIZE + ENTRIES_PER_WRITE * (WAL_ENTRY_HEADER_SIZE + 20 + w);
}

static void flip_writes(unsigned since)
{
    struct scene *s = make_log(since);
    for (unsigned w = 0; w < WRITES; w++) {
        char path[64];
        segment_path(path, 1 + w / 3);
        size_t start = (1 + w % 3) * (size_t)WAL_BLOCK;
        for (size_t at = 0; at < covered(w); at++) {
            unsigned bit = (unsigned)prng_below(&s->prng, 8);
            bool last = w == WRITES - 1;
            CHECK_EQ(try_flip(s, path, start + at, bit), last && since > 0 ? LAST_LOST : REFUSED);
        }
    }
    scene_free(s);
}

TEST(damaged_write_is_refused_unless_it_is_the_last)
{
    flip_writes(WRITES);
}

/* The hard state knows what was durable at the last start, so even the last write is covered then.
 */
TEST(damaged_last_write_is_refused_after_a_restart)
{
    struct scene *s = make_log(1);
    scene_open_checked(s);
    scene_close(s);
    char path[64];
    segment_path(path, 3);
    for (size_t at = 0; at < covered(WRITES - 1); at++)
        CHECK_EQ(try_flip(s, path, 2 * WAL_BLOCK + at, (unsigned)at % 8), REFUSED);
    scene_free(s);
}

/* A segment's header was made when all before it was durable: no damage in the segment before it
 * can pass for a torn write, even if nothing was written after the roll. */
TEST(damaged_write_before_an_empty_segment_is_refused)
{
    struct scene *s = scene_new(43);
    scene_open_checked(s);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(scene_write(s, ENTRIES_PER_WRITE, 20), ERR_OK);
    sim_disk_fail_next(s->disk, SIM_DISK_WRITE, ERR_NO_SPACE, 1); /* 0 is the header */
    CHECK_EQ(scene_write(s, 1, 20), ERR_NO_SPACE);
    scene_close(s);
    char path[64];
    segment_path(path, 1);
    for (size_t at = 0; at < 64; at++)
        CHECK_EQ(try_flip(s, path, 3 * WAL_BLOCK + at, (unsigned)at % 8), REFUSED);
    CHECK_EQ(try_flip(s, path, 3 * WAL_BLOCK + 4000, 1), WHOLE);
    scene_free(s);
}

TEST(damage_between_the_writes_does_no_harm)
{
    struct scene *s = make_log(WRITES);
    for (uint64_t n = 1; n <= 3; n++) {
        char path[64];
        segment_path(path, n);
        for (size_t at = 300; at < SCENE_SEGMENT; at += 97)
            if (at % WAL_BLOCK >= 300)
                CHECK_EQ(try_flip(s, path, at, (unsigned)at % 8), WHOLE);
    }
    scene_free(s);
}

TEST(damaged_headers_are_refused)
{
    struct scene *s = make_log(WRITES);
    for (uint64_t n = 1; n <= 3; n++) {
        char path[64];
        segment_path(path, n);
        for (size_t bit = 0; bit < 8 * WAL_SEGMENT_HEADER_SIZE; bit += 3)
            CHECK_EQ(try_flip(s, path, bit / 8, bit % 8), REFUSED);
    }
    for (size_t bit = 0; bit < 8 * WAL_HARD_SIZE; bit++)
        CHECK_EQ(try_flip(s, "wal/hard", bit / 8, bit % 8), REFUSED);
    scene_free(s);
}

TEST(every_truncation_is_refused)
{
    struct scene *s = make_log(WRITES);
    struct disk_list list;
    CHECK_EQ(disk_list(s->disk, "wal", &list, NULL), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        char path[64];
        struct buf bytes = BUF_INIT;
        (void)snprintf(path, sizeof(path), "wal/%s", list.entries[i].name);
        CHECK(sim_disk_get(s->disk, path, &bytes));
        for (size_t len = 0; len < bytes.len; len += len < 100 ? 1 : 512) {
            struct disk *d = sim_disk_copy(s->disk, 1);
            sim_disk_put(d, path, span_make(bytes.ptr, len));
            CHECK_EQ(try_open(s, d), REFUSED);
            sim_disk_free(d);
        }
        buf_deinit(&bytes);
    }
    disk_list_deinit(&list);
    scene_free(s);
}

TEST(missing_files_are_refused)
{
    struct scene *s = make_log(0);
    scene_open_checked(s);
    scene_close(s);
    static const char *const names[] = {"wal/hard", "wal/seg-0000000000000001.wal",
                                        "wal/seg-0000000000000002.wal",
                                        "wal/seg-0000000000000003.wal"};
    for (size_t i = 0; i < 4; i++) {
        struct disk *d = sim_disk_copy(s->disk, 1);
        CHECK_EQ(disk_unlink(d, names[i], NULL), ERR_OK);
        CHECK_EQ(try_open(s, d), REFUSED);
        sim_disk_free(d);
    }
    struct disk *d = sim_disk_copy(s->disk, 1);
    for (size_t i = 1; i < 4; i++)
        CHECK_EQ(disk_unlink(d, names[i], NULL), ERR_OK);
    CHECK_EQ(try_open(s, d), REFUSED);
    sim_disk_free(d);
    scene_free(s);
}

TEST(gap_above_the_checkpoint_is_refused)
{
    struct scene *s = make_log(WRITES);
    s->applied = 6; /* the first segment holds 1 to 6 */
    scene_open_checked(s);
    CHECK_EQ(wal_release(s->wal, 6, NULL), ERR_OK);
    scene_close(s);
    s->applied = 5;
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    CHECK(strstr(s->error.text, "entries 6 to 6 are missing") != NULL);
    s->applied = 6;
    scene_open_checked(s);
    scene_free(s);
}

TEST(log_behind_the_checkpoint_is_refused)
{
    struct scene *s = make_log(WRITES);
    s->applied = s->acked + 1;
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    s->applied = 0;
    scene_open_checked(s);
    scene_free(s);

    s = scene_new(1); /* no log at all */
    s->applied = 1;
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    scene_free(s);
}

/* A release that a power cut undid in part may leave an old segment in front of a gap. */
TEST(old_segment_in_front_of_a_gap_is_dropped)
{
    struct scene *s = make_log(WRITES);
    struct buf bytes = BUF_INIT;
    CHECK(sim_disk_get(s->disk, "wal/seg-0000000000000001.wal", &bytes));
    s->applied = 12;
    scene_open_checked(s);
    CHECK_EQ(wal_release(s->wal, 12, NULL), ERR_OK); /* segments 1 and 2 */
    scene_close(s);
    sim_disk_put(s->disk, "wal/seg-0000000000000001.wal", buf_span(&bytes));
    scene_open_checked(s);
    CHECK_EQ(wal_first_index(s->wal), 13);
    CHECK_EQ(wal_bytes(s->wal), sim_disk_used(s->disk));
    scene_close(s);

    s->applied = 11; /* now the gap matters */
    sim_disk_put(s->disk, "wal/seg-0000000000000001.wal", buf_span(&bytes));
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    buf_deinit(&bytes);
    scene_free(s);
}

TEST(segment_of_another_log_is_refused)
{
    struct scene *s = make_log(WRITES), *other = scene_new(77);
    scene_open_checked(other);
    for (unsigned i = 0; i < WRITES; i++)
        CHECK_EQ(scene_write(other, ENTRIES_PER_WRITE, 20 + i), ERR_OK);
    struct buf bytes = BUF_INIT;
    CHECK(sim_disk_get(other->disk, "wal/seg-0000000000000002.wal", &bytes));
    sim_disk_put(s->disk, "wal/seg-0000000000000002.wal", buf_span(&bytes));
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    CHECK(strstr(s->error.text, "seg-0000000000000002") != NULL);
    buf_deinit(&bytes);
    scene_free(other);
    scene_free(s);
}

TEST(foreign_names_are_left_alone)
{
    struct scene *s = make_log(WRITES);
    static const char *const names[] = {"wal/seg-1.wal", "wal/seg-000000000000000G.wal",
                                        "wal/seg-0000000000000009.wal.bak", "wal/notes"};
    for (size_t i = 0; i < 4; i++)
        sim_disk_put(s->disk, names[i], SPAN_LIT("x"));
    CHECK_EQ(disk_mkdir(s->disk, "wal/seg-0000000000000009.wal", NULL), ERR_OK);
    scene_open_checked(s);
    struct buf bytes = BUF_INIT;
    for (size_t i = 0; i < 4; i++)
        CHECK(sim_disk_get(s->disk, names[i], &bytes));
    buf_deinit(&bytes);
    scene_free(s);
}

TEST(refusal_names_file_and_offset)
{
    struct scene *s = make_log(WRITES);
    uint8_t zero = 0;
    sim_disk_damage(s->disk, "wal/seg-0000000000000002.wal", 2 * WAL_BLOCK, span_make(&zero, 1));
    CHECK_EQ(scene_open(s), ERR_CORRUPT);
    CHECK(strstr(s->error.text, "wal/seg-0000000000000002.wal: offset 8192") != NULL);
    scene_free(s);
}

TEST_MAIN()
