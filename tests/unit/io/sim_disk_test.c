/* The simulated disk's own promises: what a crash may take and what it may not. */
#include "sim/sim_disk.h"

#include "base/mem.h"
#include "lib/test.h"

#define SEEDS 300

static struct disk_file *make(struct disk *d, const char *path)
{
    struct disk_file *f = NULL;
    CHECK_EQ(disk_open(d, path, DISK_WRITE | DISK_CREATE, &f, NULL), ERR_OK);
    return f;
}

static void fill(struct disk *d, struct disk_file *f, uint64_t at, size_t len, uint8_t byte)
{
    uint8_t *bytes = mem_new(len);
    memset(bytes, byte, len);
    struct span part = span_make(bytes, len);
    CHECK_EQ(disk_write(d, f, at, &part, 1, NULL), ERR_OK);
    mem_free(bytes);
}

static void write_text(struct disk *d, const char *path, const char *text)
{
    struct disk_file *f = make(d, path);
    struct span part = span_str(text);
    CHECK_EQ(disk_write(d, f, 0, &part, 1, NULL), ERR_OK);
    CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
    disk_close(d, f);
}

/* 0 when missing. */
static char first_byte(struct disk *d, const char *path)
{
    struct buf out = BUF_INIT;
    char byte = 0;
    if (sim_disk_get(d, path, &out) && out.len > 0)
        byte = (char)out.ptr[0];
    buf_deinit(&out);
    return byte;
}

TEST(synced_bytes_survive_every_power_cut)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        struct disk_file *f = make(d, "f");
        fill(d, f, 0, 5000, 'a');
        CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
        CHECK_EQ(disk_sync_dir(d, ".", NULL), ERR_OK);
        fill(d, f, 2000, 1000, 'b');
        fill(d, f, 5000, 1000, 'c');
        disk_close(d, f);
        sim_disk_crash(d, &rng);
        struct buf out = BUF_INIT;
        CHECK(sim_disk_get(d, "f", &out));
        CHECK(out.len >= 5000 && out.len <= 6000);
        for (size_t i = 0; i < 5000; i++)
            CHECK(out.ptr[i] == 'a' || (i >= 2000 && i < 3000 && out.ptr[i] == 'b'));
        for (size_t i = 5000; i < out.len; i++)
            CHECK(out.ptr[i] == 'c' || out.ptr[i] == 0);
        buf_deinit(&out);
        sim_disk_free(d);
    }
}

/* Goal: every outcome does happen: all kept, all lost, mixed, torn inside a sector. */
TEST(power_cut_has_every_outcome)
{
    unsigned kept = 0, lost = 0, mixed = 0, torn = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        struct disk_file *f = make(d, "f");
        fill(d, f, 0, 8192, 'a');
        CHECK_EQ(disk_sync_all(d, NULL), ERR_OK);
        fill(d, f, 0, 8192, 'b');
        disk_close(d, f);
        sim_disk_crash(d, &rng);
        struct buf out = BUF_INIT;
        CHECK(sim_disk_get(d, "f", &out));
        size_t changed = 0, borders = 0;
        for (size_t i = 0; i < 8192; i++) {
            changed += out.ptr[i] == 'b';
            borders += i % 512 != 0 && out.ptr[i] != out.ptr[i - 1];
        }
        kept += changed == 8192;
        lost += changed == 0;
        mixed += changed > 0 && changed < 8192;
        torn += borders > 0;
        buf_deinit(&out);
        sim_disk_free(d);
    }
    CHECK(kept > 10 && lost > 10 && mixed > 10 && torn > 10);
}

TEST(names_survive_only_when_the_folder_was_synced)
{
    unsigned made = 0, old_names = 0, new_names = 0, both = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        write_text(d, "keep", "k");
        write_text(d, "old", "o");
        CHECK_EQ(disk_sync_dir(d, ".", NULL), ERR_OK);
        write_text(d, "fresh", "f");
        CHECK_EQ(disk_rename(d, "old", "new", NULL), ERR_OK);
        sim_disk_crash(d, &rng);
        CHECK_EQ(first_byte(d, "keep"), 'k');
        made += first_byte(d, "fresh") == 'f';
        old_names += first_byte(d, "old") == 'o';
        new_names += first_byte(d, "new") == 'o';
        both += (first_byte(d, "old") != 0) == (first_byte(d, "new") != 0);
        sim_disk_free(d);
    }
    CHECK(made > 10 && made < SEEDS - 10 && old_names > 10 && new_names > 10);
    CHECK_EQ(both, 0); /* a rename is atomic */
}

TEST(replaced_file_is_the_old_or_the_new_one)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        CHECK_EQ(disk_replace_file(d, "f", SPAN_LIT("old"), NULL), ERR_OK);
        sim_disk_crash_after(d, seed % 6);
        enum err err = disk_replace_file(d, "f", SPAN_LIT("new"), NULL);
        if (seed % 2 == 0)
            sim_disk_kill(d);
        else
            sim_disk_crash(d, &rng);
        struct buf out = BUF_INIT;
        CHECK_EQ(disk_read_file(d, "f", 10, &out, NULL), ERR_OK);
        bool is_new = span_eq(buf_span(&out), SPAN_LIT("new"));
        CHECK(is_new || (err != ERR_OK && span_eq(buf_span(&out), SPAN_LIT("old"))));
        buf_deinit(&out);
        sim_disk_free(d);
    }
}

TEST(kill_keeps_everything_but_makes_nothing_durable)
{
    unsigned lost = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        CHECK_EQ(disk_mkdir(d, "dir", NULL), ERR_OK);
        struct disk_file *f = make(d, "dir/f");
        fill(d, f, 0, 100, 'a');
        CHECK_EQ(disk_lock(d, f, NULL), ERR_OK);
        sim_disk_kill(d);
        uint8_t byte;
        CHECK_EQ(disk_read(d, f, 0, &byte, 1, NULL), ERR_IO); /* stale */
        struct disk_file *again = make(d, "dir/f");
        CHECK_EQ(disk_lock(d, again, NULL), ERR_OK);
        CHECK_EQ(disk_read(d, again, 99, &byte, 1, NULL), ERR_OK);
        CHECK_EQ(byte, 'a');
        disk_close(d, f);
        disk_close(d, again);
        sim_disk_crash(d, &rng);
        lost += first_byte(d, "dir/f") == 0;
        sim_disk_free(d);
    }
    CHECK(lost > 10 && lost < SEEDS);
}

/* The page cache keeps what a failed sync did not write; the next sync does not try again. */
TEST(failed_sync_is_not_repaired_by_the_next)
{
    unsigned lost = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct disk *d = sim_disk_new(seed);
        struct prng rng;
        prng_init(&rng, seed);
        struct disk_file *f = make(d, "f");
        CHECK_EQ(disk_sync_dir(d, ".", NULL), ERR_OK);
        fill(d, f, 0, 100, 'a');
        sim_disk_fail_next(d, SIM_DISK_DATASYNC, ERR_IO, 0);
        CHECK_EQ(disk_datasync(d, f, NULL), ERR_IO);
        CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
        CHECK_EQ(first_byte(d, "f"), 'a');
        disk_close(d, f);
        sim_disk_crash(d, &rng);
        lost += first_byte(d, "f") == 0;
        sim_disk_free(d);
    }
    CHECK(lost > 10 && lost < SEEDS - 10);
}

TEST(down_from_the_chosen_change_on)
{
    struct disk *d = sim_disk_new(1);
    struct disk_file *f = make(d, "f");
    fill(d, f, 0, 10, 'a');
    sim_disk_crash_after(d, 2);
    fill(d, f, 0, 10, 'b');
    uint8_t byte;
    CHECK_EQ(disk_read(d, f, 0, &byte, 1, NULL), ERR_OK); /* does not count */
    CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
    CHECK(!sim_disk_down(d));
    CHECK_EQ(disk_truncate(d, f, 0, NULL), ERR_IO);
    CHECK(sim_disk_down(d));
    CHECK_EQ(disk_read(d, f, 0, &byte, 1, NULL), ERR_IO);
    CHECK_EQ(disk_mkdir(d, "dir", NULL), ERR_IO);
    disk_close(d, f);
    sim_disk_kill(d);
    CHECK(!sim_disk_down(d));
    CHECK_EQ(disk_mkdir(d, "dir", NULL), ERR_OK);
    sim_disk_free(d);
}

TEST(capacity_is_a_limit_and_comes_back)
{
    struct disk *d = sim_disk_new(1);
    sim_disk_set_capacity(d, 10000);
    struct disk_file *f = make(d, "f"), *g = make(d, "g");
    fill(d, f, 0, 6000, 'a');
    uint8_t bytes[5000] = {0};
    struct span part = span_make(bytes, sizeof(bytes));
    CHECK_EQ(disk_write(d, g, 0, &part, 1, NULL), ERR_NO_SPACE);
    uint64_t size;
    CHECK_EQ(disk_size(d, g, &size, NULL), ERR_OK);
    CHECK_EQ(size, 4000);     /* what fitted */
    fill(d, f, 0, 6000, 'b'); /* takes no space */
    CHECK_EQ(disk_preallocate(d, g, 5000, NULL), ERR_NO_SPACE);
    CHECK_EQ(disk_truncate(d, g, 5000, NULL), ERR_NO_SPACE);
    CHECK_EQ(disk_unlink(d, "f", NULL), ERR_OK);
    CHECK_EQ(sim_disk_used(d), 10000); /* still open */
    disk_close(d, f);
    CHECK_EQ(sim_disk_used(d), 4000);
    CHECK_EQ(disk_preallocate(d, g, 9000, NULL), ERR_OK);
    struct disk_usage usage;
    CHECK_EQ(disk_usage(d, &usage, NULL), ERR_OK);
    CHECK(usage.total_bytes == 10000 && usage.free_bytes == 1000);
    disk_close(d, g);
    CHECK_EQ(disk_rename(d, "g", "h", NULL), ERR_OK);
    write_text(d, "g", "x");
    CHECK_EQ(disk_rename(d, "h", "g", NULL), ERR_OK);
    CHECK_EQ(sim_disk_used(d), 9000);
    sim_disk_free(d);
}

TEST(injected_error_strikes_once_at_its_place)
{
    struct disk *d = sim_disk_new(1);
    struct disk_file *f = make(d, "f");
    sim_disk_fail_next(d, SIM_DISK_WRITE, ERR_NO_SPACE, 1);
    CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
    fill(d, f, 0, 10, 'a');
    struct span part = SPAN_LIT("bbbb");
    CHECK_EQ(disk_write(d, f, 0, &part, 1, NULL), ERR_NO_SPACE);
    CHECK_EQ(disk_write(d, f, 0, &part, 1, NULL), ERR_OK);
    disk_close(d, f);
    sim_disk_fail_next(d, SIM_DISK_RENAME, ERR_IO, 0);
    CHECK_EQ(disk_rename(d, "f", "g", NULL), ERR_IO);
    CHECK_EQ(first_byte(d, "f"), 'b');
    CHECK_EQ(sim_disk_count(d, SIM_DISK_WRITE), 3);
    CHECK_EQ(sim_disk_count(d, SIM_DISK_RENAME), 1);
    CHECK_EQ(sim_disk_failed(d), SIM_DISK_RENAME);
    sim_disk_kill(d);
    CHECK_EQ(sim_disk_failed(d), SIM_DISK_OPS);
    sim_disk_free(d);
}

static void count_syncs(void *ctx, enum sim_disk_op op)
{
    *(unsigned *)ctx += op == SIM_DISK_DATASYNC;
}

TEST(every_operation_takes_its_time)
{
    struct disk *d = sim_disk_new(1);
    unsigned syncs = 0;
    sim_disk_set_pace(d, count_syncs, &syncs);
    struct disk_file *f = make(d, "f");
    fill(d, f, 0, 10, 'a');
    CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
    CHECK_EQ(syncs, 1);
    disk_close(d, f);
    sim_disk_free(d);
}

/* Runs some operations and a crash; appends what is left. */
static void run_script(uint64_t seed, struct buf *out)
{
    struct disk *d = sim_disk_new(seed);
    struct prng rng;
    prng_init(&rng, seed);
    for (unsigned i = 0; i < 200; i++) {
        char path[32], other[32];
        (void)snprintf(path, sizeof(path), "f%u", (unsigned)prng_below(&rng, 20));
        (void)snprintf(other, sizeof(other), "f%u", (unsigned)prng_below(&rng, 20));
        struct disk_file *f = make(d, path);
        fill(d, f, prng_below(&rng, 3000), 1 + (size_t)prng_below(&rng, 3000), (uint8_t)i);
        if (prng_chance(&rng, 30))
            CHECK_EQ(disk_datasync(d, f, NULL), ERR_OK);
        disk_close(d, f);
        if (prng_chance(&rng, 30))
            CHECK_EQ(disk_rename(d, path, other, NULL), ERR_OK);
        if (prng_chance(&rng, 10))
            CHECK_EQ(disk_sync_dir(d, ".", NULL), ERR_OK);
        if (prng_chance(&rng, 5))
            sim_disk_crash(d, &rng);
    }
    struct disk_list list;
    CHECK_EQ(disk_list(d, ".", &list, NULL), ERR_OK);
    uint64_t used = 0;
    for (size_t i = 0; i < list.count; i++) {
        buf_puts(out, list.entries[i].name);
        used += list.entries[i].size;
        CHECK(sim_disk_get(d, list.entries[i].name, out));
    }
    CHECK_EQ(used, sim_disk_used(d));
    disk_list_deinit(&list);
    sim_disk_free(d);
}

TEST(same_seed_same_disk)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct buf a = BUF_INIT, b = BUF_INIT;
        run_script(seed, &a);
        run_script(seed, &b);
        CHECK(a.len > 0);
        CHECK(span_eq(buf_span(&a), buf_span(&b)));
        buf_deinit(&a);
        buf_deinit(&b);
    }
}

TEST(scenes_are_set_and_damaged)
{
    struct disk *d = sim_disk_new(1);
    struct prng rng;
    prng_init(&rng, 1);
    sim_disk_put(d, "a/b/f", SPAN_LIT("text"));
    sim_disk_put(d, "a/b/f", SPAN_LIT("new text"));
    sim_disk_damage(d, "a/b/f", 0, SPAN_LIT("N"));
    struct disk *copy = sim_disk_copy(d, 2);
    sim_disk_put(d, "a/b/f", SPAN_LIT("other"));
    sim_disk_crash(copy, &rng);
    struct buf out = BUF_INIT;
    CHECK(sim_disk_get(copy, "a/b/f", &out));
    CHECK_TEXT(buf_span(&out), "New text");
    CHECK(!sim_disk_get(copy, "a/c", &out));
    CHECK_EQ(sim_disk_used(copy), 8);
    buf_deinit(&out);
    sim_disk_free(copy);
    sim_disk_free(d);
    sim_disk_free(NULL);
}

TEST_MAIN()
