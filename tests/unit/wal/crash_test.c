/* Crashes: the promise of the log under kill -9, power cuts and failing syncs.
 *
 * A script writes, rolls over segments, releases, restarts. It is run again and again, each time
 * ended at the next operation that changes the disk; then the machine is rebooted (page cache kept
 * or lost), perhaps again in the middle of the recovery. After that every acknowledged entry must
 * be there and the write in doubt whole or not at all. What the recovery showed must then survive a
 * power cut at once: it may have been in the page cache only. */
#include "scene.h"

enum reboot { KILL, POWER_CUT };

static bool script_write(struct scene *s)
{
    static const size_t sizes[] = {10, 700, 3000, 5000, 11000, 20000};
    size_t len = sizes[prng_below(&s->prng, 6)];
    return scene_write(s, 1 + prng_below(&s->prng, 3), len) == ERR_OK;
}

/* False as soon as something fails. */
static bool script_steps(struct scene *s, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        uint64_t what = prng_below(&s->prng, 10);
        if (what == 0) {
            scene_close(s);
            if (scene_open(s) != ERR_OK)
                return false;
            scene_check(s);
        } else if (what <= 2 && s->acked > s->applied) {
            s->applied += prng_below(&s->prng, s->acked - s->applied + 1);
            if (wal_release(s->wal, s->applied, &s->error) != ERR_OK)
                return false;
        } else if (what == 3) {
            if (wal_prepare(s->wal, &s->error) != ERR_OK)
                return false;
        } else if (!script_write(s)) {
            return false;
        }
    }
    return true;
}

static void restart(struct scene *s, enum reboot reboot)
{
    scene_close(s);
    if (reboot == KILL)
        sim_disk_kill(s->disk);
    else
        sim_disk_crash(s->disk, &s->prng);
}

/* Reboots in the middle of recovery some times, then recovers for good. */
static void recover_at_last(struct scene *s)
{
    while (prng_chance(&s->prng, 50)) {
        sim_disk_crash_after(s->disk, prng_below(&s->prng, 12));
        if (scene_open(s) == ERR_OK)
            scene_check(s);
        restart(s, prng_chance(&s->prng, 50) ? KILL : POWER_CUT);
    }
    scene_open_checked(s);
}

/* Runs the script up to its crash_at'th change. False when it ends before. */
static bool run(uint64_t seed, uint64_t crash_at, enum reboot reboot)
{
    struct scene *s = scene_new(seed);
    sim_disk_crash_after(s->disk, crash_at);
    bool done = scene_open(s) == ERR_OK && script_steps(s, 25);
    if (!done && !sim_disk_down(s->disk))
        print_error("%s\n", s->error.text);
    CHECK(done || sim_disk_down(s->disk));
    restart(s, reboot);
    recover_at_last(s);
    restart(s, POWER_CUT);
    scene_open_checked(s);
    CHECK(script_steps(s, 5));
    restart(s, POWER_CUT);
    scene_open_checked(s);
    scene_free(s);
    return !done;
}

static void run_everywhere(uint64_t seed, enum reboot reboot)
{
    uint64_t crash_at = 0;
    while (run(seed, crash_at, reboot))
        crash_at++;
    CHECK(crash_at > 40);
}

TEST(kill_at_every_change)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        run_everywhere(seed, KILL);
}

TEST(power_cut_at_every_change)
{
    for (uint64_t seed = 101; seed <= 105; seed++)
        run_everywhere(seed, POWER_CUT);
}

/* Goal: what the page cache shows after a failed sync is made durable before it is used.
 * Method: the n-th sync fails; the process is killed, recovers, and loses power. */
TEST(failed_sync_then_kill_then_power_cut)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct scene *s = scene_new(seed);
        scene_open_checked(s);
        sim_disk_fail_next(s->disk, SIM_DISK_DATASYNC, ERR_IO, seed % 30);
        bool done = script_steps(s, 20);
        (void)done; /* either way */
        restart(s, KILL);
        scene_open_checked(s);
        restart(s, POWER_CUT);
        scene_open_checked(s);
        scene_free(s);
    }
}

/* Goal: a recycled segment's old writes never come back, whatever part of the new ones is lost.
 * Method: all writes have one size, so old ones stand exactly where new ones would; the crash comes
 * at every point of the second life of the files. */
TEST(stale_writes_of_recycled_segments_stay_dead)
{
    for (uint64_t crash_at = 0; crash_at < 120; crash_at++) {
        struct scene *s = scene_new(crash_at);
        scene_open_checked(s);
        for (unsigned i = 0; i < 9; i++)
            CHECK_EQ(scene_write(s, 1, 3000), ERR_OK);
        sim_disk_crash_after(s->disk, crash_at % 60);
        while (!sim_disk_down(s->disk)) {
            s->applied = s->acked - 1;
            if (wal_release(s->wal, s->applied, NULL) == ERR_OK)
                (void)(scene_write(s, 1, 3000) == ERR_OK);
        }
        restart(s, crash_at < 60 ? POWER_CUT : KILL);
        scene_open_checked(s);
        for (unsigned i = 0; i < 5; i++)
            CHECK_EQ(scene_write(s, 1, 3000), ERR_OK);
        restart(s, POWER_CUT);
        scene_open_checked(s);
        scene_free(s);
    }
}

TEST_MAIN()
