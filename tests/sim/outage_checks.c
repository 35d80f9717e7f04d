/* A bucket that is away for ten minutes under traffic, or from the boot on for hours. */
#include "sim/story.h"

static bool told_apart(enum sim_outage outage)
{
    return outage != OUTAGE_503 && outage != OUTAGE_429;
}

/* A window that cannot be uploaded stays as it was begun and nothing is buffered behind it: the rest
 * waits in the log. */
static void check_buffers(struct story *s)
{
    uint64_t most = (uint64_t)s->w->queues * ((1u << 20) + PUSH_BYTES_MOST), sum = 0;
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        if (instance_alive(&s->w->instances[n]))
            sum += instance_status_number(&s->w->instances[n], "bufferedBytes");
    }
    if (sum > most)
        world_fail(s->w, "%llu bytes are buffered", (unsigned long long)sum);
    if (sum > s->buffered_most)
        s->buffered_most = sum;
}

/* What /status says while it is away. */
static void check_away(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    if (!w->result->ok)
        return;
    bool down = instance_status_has(s->a, "\"reachable\":false");
    if (down != told_apart(outage))
        world_fail(w, "%s: reachable=%s", sim_outage_name(outage), down ? "false" : "true");
    if (instance_status_has(s->a, "\"error\":null,\"name\":\"lake\""))
        world_fail(w, "%s: the bucket's error is not shown", sim_outage_name(outage));
    check_buffers(s);
}

/* Also of one that has nothing to ship any more: it looks itself. */
static bool all_reachable(const struct story *s)
{
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        struct instance *i = &s->w->instances[n];
        if (instance_alive(i) && !(instance_status_has(i, "\"reachable\":true") &&
                                   instance_status_has(i, "\"error\":null,\"name\":\"lake\"")))
            return false;
    }
    return true;
}

static void come_back(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    if (s->answered_late)
        world_fail(w, "pushes wait while the bucket is away");
    w->store.outage = OUTAGE_NONE;
    s->push_every_us = 0;
    int64_t from = w->clock.mono;
    int64_t limit = CATCH_UP + (outage == OUTAGE_HANG ? SIM_BUCKET_HANG_US : 0) +
                    (w->store.prompt ? 0 : SIM_BUCKET_HICCUP_US);
    w->store.prompt = true;
    if (!story_run_until(s, limit, story_shipped))
        world_fail(w, "not everything is shipped %.0f s after the bucket is back",
                   (double)limit / 1e6);
    story_note(s, " %zu records, %llu KiB buffered at most, caught up after %.1f s;", w->ledger.n,
               (unsigned long long)s->buffered_most >> 10, (double)(w->clock.mono - from) / 1e6);
    int64_t left = from + limit - w->clock.mono;
    if (!story_run_until(s, left < 0 ? 0 : left, all_reachable))
        world_fail(w, "the bucket is back, and a sink shows trouble");
    story_end(s);
}

/* Two instances under traffic; ten minutes without a bucket. */
static void ten_minutes(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    story_open(s);
    s->push_every_us = US_PER_SEC / 2;
    s->free_most = WORLD_QUEUES_MAX;
    for (unsigned q = 0; q < w->queues; q++)
        world_push(w, q, 1);
    story_start(s, s->a);
    story_start(s, s->b);
    story_run_for(s, 6 * TTL); /* shared */
    unsigned moves = watch_moves(w);
    w->store.outage = outage;
    w->result->outages++;
    story_run_for(s, REQUEST_MOST + 10 * US_PER_SEC);
    for (unsigned minute = 4; minute <= 10 && w->result->ok; minute++) {
        check_away(s, outage);
        if (w->result->ok && !instance_status_has(s->a, "\"lastError\":{"))
            world_fail(w, "%s: no queue shows an error", sim_outage_name(outage));
        story_run_for(s, 60 * US_PER_SEC);
    }
    bool fails = outage == OUTAGE_401 || outage == OUTAGE_403 || outage == OUTAGE_NO_BUCKET;
    if (!fails && watch_moves(w) != moves) /* one that fails gives its lease back */
        world_fail(w, "queues move because the bucket is away");
    come_back(s, outage);
}

/* Away at boot, for hours. */
static void at_boot(struct story *s, enum sim_outage outage)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    story_open(s);
    w->store.outage = outage;
    w->result->outages++;
    s->push_every_us = 10 * US_PER_SEC;
    s->free_most = WORLD_QUEUES_MAX;
    story_start(s, s->a);
    story_run_for(s, REQUEST_MOST + 10 * US_PER_SEC);
    check_away(s, outage);
    story_run_for(s, 2 * US_PER_HOUR);
    check_away(s, outage);
    come_back(s, outage);
}

/* More comes in than a window holds. */
static void outage_no_answer(struct story *s)
{
    s->push_most = 20;
    ten_minutes(s, OUTAGE_NO_ANSWER);
}

static void outage_hang(struct story *s)
{
    ten_minutes(s, OUTAGE_HANG);
}

static void outage_503(struct story *s)
{
    ten_minutes(s, OUTAGE_503);
}

static void outage_429(struct story *s)
{
    ten_minutes(s, OUTAGE_429);
}

static void outage_401(struct story *s)
{
    ten_minutes(s, OUTAGE_401);
}

static void outage_403(struct story *s)
{
    s->push_most = 20;
    ten_minutes(s, OUTAGE_403);
}

static void outage_no_bucket(struct story *s)
{
    ten_minutes(s, OUTAGE_NO_BUCKET);
}

static void boot_no_answer(struct story *s)
{
    at_boot(s, OUTAGE_NO_ANSWER);
}

static void boot_hang(struct story *s)
{
    at_boot(s, OUTAGE_HANG);
}

static void boot_403(struct story *s)
{
    at_boot(s, OUTAGE_403);
}

static void boot_no_bucket(struct story *s)
{
    at_boot(s, OUTAGE_NO_BUCKET);
}

static void boot_503(struct story *s)
{
    at_boot(s, OUTAGE_503);
}

/* Two thirds of all requests go wrong, half of these after they took effect or before; some hang. */
static void outage_flaky(struct story *s)
{
    struct world *w = s->w;
    w->queues = WORLD_QUEUES;
    story_open(s);
    s->push_every_us = US_PER_SEC / 2;
    s->free_most = WORLD_QUEUES_MAX;
    story_start(s, s->a);
    w->store.prompt = false;
    if (w->result->ok)
        s->a->bucket->fault_percent = 66;
    story_run_for(s, 600 * US_PER_SEC);
    if (w->store.rewrites == 0)
        world_fail(w, "no PUT was repeated behind a lost answer");
    if (w->result->ok)
        s->a->bucket->fault_percent = 0;
    come_back(s, OUTAGE_NONE);
}

static bool a_failed(const struct story *s)
{
    return instance_status_has(s->a, "\"state\":\"failed\"");
}

static bool a_sees_b(const struct story *s)
{
    return instance_status_has(s->a, "\"heldBy\":\"sim-2/node-2\"");
}

/* The queue that met the outage goes elsewhere while it ends: the first sink has no reason left to ask for anything. */
static void outage_moved(struct story *s)
{
    struct world *w = s->w;
    w->queues = 1;
    story_open(s);
    s->push_every_us = US_PER_SEC / 2;
    world_push(w, 0, 1);
    story_start(s, s->a);
    story_run_for(s, TTL);
    story_start(s, s->b);
    w->store.outage = OUTAGE_401;
    w->result->outages++;
    story_expect(s, TTL, a_failed, "fails after");
    story_freeze(s, s->a, 2 * TTL);
    w->store.outage = OUTAGE_NONE;
    story_expect(s, 4 * TTL, a_sees_b, "held elsewhere after");
    if (w->result->ok && !instance_status_has(s->a, "\"reachable\":false"))
        world_fail(w, "a sink that asked for nothing knows that the bucket is back");
    come_back(s, OUTAGE_NONE);
}

/* --- the table --- */

static const struct check checks[] = {
    {"outage-no-answer", CHECK_OUTAGE, outage_no_answer},
    {"outage-hang", CHECK_OUTAGE, outage_hang},
    {"outage-503", CHECK_OUTAGE, outage_503},
    {"outage-429", CHECK_OUTAGE, outage_429},
    {"outage-401", CHECK_OUTAGE, outage_401},
    {"outage-403", CHECK_OUTAGE, outage_403},
    {"outage-no-bucket", CHECK_OUTAGE, outage_no_bucket},
    {"outage-flaky", CHECK_OUTAGE, outage_flaky},
    {"outage-moved", CHECK_OUTAGE, outage_moved},
    {"boot-no-answer", CHECK_OUTAGE, boot_no_answer},
    {"boot-hang", CHECK_OUTAGE, boot_hang},
    {"boot-403", CHECK_OUTAGE, boot_403},
    {"boot-no-bucket", CHECK_OUTAGE, boot_no_bucket},
    {"boot-503", CHECK_OUTAGE, boot_503},
};

const struct check_list outage_checks = {checks, sizeof(checks) / sizeof(checks[0])};
