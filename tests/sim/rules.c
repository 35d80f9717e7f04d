/* The storage rules of docs/architecture.md, each with the failure it is there for, played on
 * purpose: `sim --rule N`.
 *
 * A schedule is told again and again from one seed, each time with the failure a step later or with
 * other luck of what survives (`turn`), until it says that there is no further turn. Planted
 * mistakes (planted/rule-*.patch) show that each fails when its rule is switched off. */
#include "sim/refusals.h"
#include "sim/world_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#include <stdio.h>

#define LUCK 8u /* times that a power cut is tried at the same place */

/* --- what schedules are made of --- */

static void settle(struct world *w)
{
    while (node_pump_log(w->node) || world_pump_apply(w)) {
    }
}

/* Acknowledged, in an entry of its own. */
static void push(struct world *w, unsigned queue, size_t n)
{
    sim_clock_advance(&w->clock, 1000);
    world_push(w, queue, n);
    settle(w);
}

static void checkpoint(struct world *w)
{
    if (!node_pump_checkpoint(w->node))
        world_fail(w, "a checkpoint was not made");
}

static void kill_process(struct world *w)
{
    world_drop(w);
    world_trace(w, "killed");
    sim_disk_kill(w->disk);
}

static void cut_power(struct world *w)
{
    world_drop(w);
    world_trace(w, "power cut");
    sim_disk_crash(w->disk, &w->prng);
}

/* Every acknowledged record is read back in it. */
static void boot(struct world *w)
{
    if (w->result->ok && !world_open_node(w))
        world_fail(w, "the node does not open");
}

static struct node_status status(struct world *w)
{
    struct node_status s;
    node_status(w->node, &s);
    return s;
}

/* --- 1: nothing is applied before its WAL write is durable --- */

/* The sync of a write fails, or the process dies before it; what is found afterwards in the page
 * cache is served only when it is durable: the next power cut must not take it back. */
static bool durable_before_applied(struct world *w, unsigned turn)
{
    push(w, 0, 5);
    int64_t safe_time = node_safe_time(w->node);
    uint64_t applied = status(w).applied;
    world_push(w, 0, 3);
    if (turn % 2 == 0)
        sim_disk_crash_after(w->disk, 1); /* behind the write */
    else
        sim_disk_fail_next(w->disk, SIM_DISK_DATASYNC, ERR_IO, 0);
    (void)node_pump_log(w->node);
    if (node_pump_apply(w->node) || status(w).applied != applied ||
        node_safe_time(w->node) != safe_time)
        world_fail(w, "applied without a sync");
    kill_process(w);
    boot(w);
    uint64_t found = w->result->ok ? status(w).applied : 0;
    cut_power(w);
    boot(w);
    if (w->result->ok && status(w).applied < found)
        world_fail(w, "entry %llu was served and is gone after a power cut",
                   (unsigned long long)found);
    return turn + 1 < 4 * LUCK;
}

/* --- 2: the chain of the WAL's writes --- */

static bool wal_chain(struct world *w, unsigned turn)
{
    if (turn == 0) { /* acknowledged and damaged, with a write behind it that says so */
        for (unsigned i = 0; i < 4; i++)
            push(w, 0, 1);
        kill_process(w);
        mem_free(refusal_damage(w, "wal", "tx-2"));
        refusal_expect(w, ".", "damaged write");
        return true;
    }
    /* Torn in the middle of segments that lived before: what stands behind the end is old. */
    for (unsigned i = 0; i < 40 + turn && w->result->ok; i++) {
        push(w, i % 3, 1 + i % 4);
        if (i % 8 == 7)
            checkpoint(w);
    }
    world_push(w, 0, 40);
    sim_disk_crash_after(w->disk, 0);
    (void)node_pump_log(w->node);
    cut_power(w);
    boot(w);
    if (w->result->ok)
        push(w, 1, 2);
    cut_power(w);
    boot(w);
    return true;
}

#define ROLL_CHANGES 150u /* of the disk, which several rolls and releases make */

/* The power goes at every change of a log that rolls and is released all the time. */
static void power_in_a_roll(struct world *w, unsigned place)
{
    sim_disk_crash_after(w->disk, place);
    for (unsigned i = 0; i < 60 && !sim_disk_down(w->disk); i++) {
        push(w, i % 3, 12);
        if (i % 2 == 1)
            (void)node_pump_checkpoint(w->node);
    }
    cut_power(w);
    boot(w);
    if (w->result->ok)
        push(w, 1, 2);
    cut_power(w);
    boot(w);
}

static bool log_chain(struct world *w, unsigned turn)
{
    if (turn < 4 * LUCK)
        return wal_chain(w, turn);
    power_in_a_roll(w, (turn - 4 * LUCK) / 2);
    return turn + 1 < 4 * LUCK + 2 * ROLL_CHANGES;
}

/* --- 3: queue logs, then one batch, then the WAL --- */

/* The power goes before the batch and behind it, and at every change of the disk that a checkpoint
 * makes. */
static bool checkpoint_order(struct world *w, unsigned turn)
{
    unsigned place = turn / LUCK;
    for (unsigned i = 0; i < 30 && w->result->ok; i++) {
        push(w, i % 3, 4);
        if (i == 9)
            checkpoint(w);
    }
    if (place < 2)
        sim_db_crash_next_write(w->db, place == 1);
    else
        sim_disk_crash_after(w->disk, place - 2);
    (void)node_pump_checkpoint(w->node);
    bool struck = place < 2 || sim_disk_down(w->disk);
    cut_power(w);
    boot(w);
    return struck || turn % LUCK + 1 < LUCK;
}

/* --- 4: recovery --- */

static uint64_t log_bytes(struct world *w)
{
    uint64_t bytes = 0;
    struct queue **queues = NULL;
    struct state *s = node_read_begin(w->node);
    size_t n = state_queue_list_all(s, &queues);
    for (size_t i = 0; i < n; i++)
        bytes += queues[i]->log == NULL ? 0 : qlog_end(queues[i]->log);
    node_read_end(w->node);
    mem_free(queues);
    return bytes;
}

/* Entries between the checkpoint and the log's first one are gone. */
static void gap_is_refused(struct world *w)
{
    struct error error = {0};
    for (unsigned i = 0; i < 60; i++)
        push(w, 0, 2);
    kill_process(w);
    struct disk_list list = {0};
    bool listed = disk_list(w->disk, "wal", &list, &error) == ERR_OK;
    for (size_t i = 0, segments = 0; listed && i < list.count; i++) {
        char path[64];
        snprintf(path, sizeof(path), "wal/%s", list.entries[i].name);
        if (strncmp(list.entries[i].name, "seg-", 4) == 0 && segments++ == 0)
            listed = disk_unlink(w->disk, path, &error) == ERR_OK;
    }
    disk_list_deinit(&list);
    if (!listed)
        world_fail(w, "%s", error.text);
    refusal_expect(w, ".", "are missing");
}

/* The database as of an earlier checkpoint, below which the log has gone: nothing may be cut to what
 * it knows. */
static void older_database_is_refused(struct world *w)
{
    push(w, 0, 5);
    checkpoint(w);
    struct sim_db_state *older = sim_db_state_copy(w->db_state);
    for (unsigned i = 0; i < 60; i++)
        push(w, 0, 4);
    checkpoint(w);
    kill_process(w);
    sim_db_state_free(w->db_state);
    w->db_state = older;
    refusal_expect(w, ".", "are missing");
}

/* In a segment that is sealed: when it is read. In the last one: at boot. */
static void damage_below_stops(struct world *w, bool sealed)
{
    char last[48];
    for (unsigned i = 0; i < (sealed ? 60u : 3u); i++)
        push(w, 0, 4);
    push(w, 0, 1); /* the last run */
    checkpoint(w);
    if (!sealed)
        kill_process(w);
    snprintf(last, sizeof(last), "%s", w->ledger.records[w->ledger.n - 1]->transaction_id);
    char *path = refusal_damage(w, "qlog/1", sealed ? "tx-1" : last);
    if (!sealed) {
        refusal_expect(w, "qlog", path == NULL ? "" : path);
    } else if (w->result->ok) {
        node_pump_scrub(w->node);
        struct node_status s = status(w);
        if (!s.stopped || strstr(s.failure, path) == NULL || strstr(s.failure, "at byte ") == NULL)
            world_fail(w, "damage in a sealed segment does not stop the node: %s", s.failure);
    }
    mem_free(path);
}

static bool recovery(struct world *w, unsigned turn)
{
    if (turn == 0) {
        gap_is_refused(w);
    } else if (turn < 3) {
        damage_below_stops(w, turn == 1);
    } else if (turn == 3) {
        older_database_is_refused(w);
    } else { /* what is above the checkpoint is cut and made again, once */
        push(w, 0, 5);
        checkpoint(w);
        for (unsigned i = 0; i < 30; i++)
            push(w, i % 2, 1 + i % 3);
        uint64_t bytes = log_bytes(w);
        if (turn % 2 == 0)
            kill_process(w);
        else
            cut_power(w);
        boot(w);
        if (w->result->ok && log_bytes(w) != bytes)
            world_fail(w, "the queue logs have %llu bytes after a restart, %llu before",
                       (unsigned long long)log_bytes(w), (unsigned long long)bytes);
    }
    return turn + 1 < 4 + LUCK;
}

/* --- reading --- */

static uint64_t readable_in(struct world *w, struct partition *p)
{
    uint64_t offset = 0;
    struct qlog *log = p->queue->log;
    while (offset < p->next_offset && w->result->ok) {
        struct qlog_run_data run = {0};
        struct error error = {0};
        uint64_t position;
        enum err err = qlog_find(log, p->id, offset, &position, &error);
        if (err == ERR_OK)
            err = qlog_read(log, position, &run, &error);
        if (err == ERR_OK && run.head.first_offset != offset)
            err = error_set(&error, ERR_CORRUPT, "offset %llu is missing",
                            (unsigned long long)offset);
        if (err != ERR_OK)
            world_fail(w, "the state counts %llu records that cannot be read: %s",
                       (unsigned long long)p->next_offset, error.text);
        offset += run.head.count;
        qlog_run_data_deinit(&run);
    }
    return offset;
}

/* How many records all partitions have together, each of them read. */
static uint64_t readable(struct world *w)
{
    uint64_t n = 0;
    struct state *s = node_read_begin(w->node);
    for (size_t i = 0; i < (size_t)w->queues * WORLD_PARTITIONS && w->result->ok; i++) {
        struct span queue = span_str(world_queue_names[i / WORLD_PARTITIONS]);
        struct span partition = span_str(world_partition_names[i % WORLD_PARTITIONS]);
        struct queue *q = state_queue_find(s, &TENANT_DEFAULT, queue);
        struct partition *p = q == NULL ? NULL : state_partition_find(s, q, partition);
        n += p == NULL ? 0 : readable_in(w, p);
    }
    node_read_end(w->node);
    return n;
}

/* --- 5: a failed sync stops the node; a write without space does not --- */

static uint64_t syncs(struct world *w)
{
    return sim_disk_count(w->disk, SIM_DISK_DATASYNC) + sim_disk_count(w->disk, SIM_DISK_SYNC_ALL);
}

static void sync_fails(struct world *w, bool in_checkpoint, enum err how)
{
    sim_disk_fail_next(w->disk, in_checkpoint ? SIM_DISK_SYNC_ALL : SIM_DISK_DATASYNC, how, 0);
    world_push(w, 0, 3);
    settle(w);
    (void)node_pump_checkpoint(w->node);
    uint64_t before = syncs(w);
    if (!status(w).stopped)
        world_fail(w, "a failed sync does not stop the node");
    world_push(w, 0, 2);
    settle(w);
    (void)node_pump_checkpoint(w->node);
    if (syncs(w) != before)
        world_fail(w, "there are syncs after one that failed");
    cut_power(w);
    boot(w);
}

/* What was refused stays so, whatever of it had reached the disk. */
static void write_without_space(struct world *w, bool goes_on, bool with_deletions)
{
    if (with_deletions)
        checkpoint(w); /* which prepares a segment: something to give up */
    sim_disk_fail_next(w->disk, SIM_DISK_WRITE, ERR_NO_SPACE, 0);
    world_push(w, 0, 1);
    for (unsigned q = 1; q < 3 && with_deletions; q++)
        world_delete(w, q); /* they need no room, and go into what was kept back */
    settle(w);
    if (w->outstanding > 0)
        world_fail(w, "%u requests have no answer", w->outstanding);
    if (status(w).stopped || w->ledger.records[5]->told != TOLD_REFUSED)
        world_fail(w, "a write without space is not just refused");
    if (goes_on) { /* with the gate's next look at the disk */
        sim_clock_advance(&w->clock, 2 * US_PER_SEC);
        node_pump_space(w->node);
        push(w, 0, 2);
    }
    kill_process(w);
    boot(w);
    uint64_t want = goes_on ? 7 : 5, got = w->result->ok ? readable(w) : want;
    if (got != want)
        world_fail(w, "%llu records after a restart instead of %llu: a refused one is back",
                   (unsigned long long)got, (unsigned long long)want);
}

static bool failed_sync(struct world *w, unsigned turn)
{
    push(w, 0, 5);
    if (turn % 3 < 2)
        sync_fails(w, turn % 3 == 1, turn % 2 == 0 ? ERR_IO : ERR_NO_SPACE);
    else
        write_without_space(w, turn % 2 == 0, turn / 6 % 2 == 0);
    return turn + 1 < 6 * LUCK;
}

/* --- 6: entries are whole --- */

/* What a full disk can be given back of the log. */
static uint64_t spare_bytes(struct world *w)
{
    uint64_t bytes = 0;
    struct disk_list list = {0};
    if (disk_list(w->disk, "wal", &list, NULL) != ERR_OK)
        world_fail(w, "the log's folder cannot be listed");
    for (size_t i = 0; i < list.count; i++)
        bytes += strncmp(list.entries[i].name, "spare-", 6) == 0 ? list.entries[i].size : 0;
    disk_list_deinit(&list);
    return bytes;
}

/* The disk has room for so many bytes of an entry that appends to many logs: whatever becomes of
 * the rest, no checkpoint makes half of it durable. */
static bool whole_entries(struct world *w, unsigned turn)
{
    for (unsigned q = 0; q < 3; q++)
        push(w, q, 5);
    checkpoint(w);
    push(w, 0, 1);                                 /* there is something for the next one */
    prng_init(&w->prng, w->options->seed / 10007); /* the same push every time */
    world_push_mixed(w, 12);
    uint64_t pushed = w->ledger.n;
    (void)node_pump_log(w->node);
    uint64_t before = status(w).applied;
    uint64_t most = sim_disk_used(w->disk) - spare_bytes(w) + 128 * (uint64_t)turn;
    sim_disk_set_capacity(w->disk, most);
    (void)node_pump_apply(w->node);
    bool fitted = status(w).applied > before;
    if (status(w).stopped)
        world_fail(w, "an entry that does not fit stops the node");
    sim_disk_set_capacity(w->disk, UINT64_C(1) << 40); /* room enough for the checkpoint */
    if (turn % 3 == 0 && (!node_pump_apply(w->node) && !fitted))
        world_fail(w, "an entry does not go on when there is room");
    (void)node_pump_checkpoint(w->node);
    if (turn % 2 == 0)
        kill_process(w);
    else
        cut_power(w);
    boot(w);
    uint64_t got = w->result->ok ? readable(w) : pushed;
    if (got != pushed)
        world_fail(w, "half an entry is durable: %llu records, %llu were logged",
                   (unsigned long long)got, (unsigned long long)pushed);
    return !fitted && turn < 2000;
}

/* --- 7: unlink late --- */

/* A queue is deleted; the power goes before the next checkpoint, and at every change it makes. */
static bool unlink_late(struct world *w, unsigned turn)
{
    struct disk_list list = {0};
    for (unsigned i = 0; i < 20; i++)
        push(w, 0, 4);
    checkpoint(w);
    world_delete(w, 0);
    settle(w);
    bool struck = turn < LUCK;
    if (turn >= LUCK) {
        sim_disk_crash_after(w->disk, turn / LUCK - 1);
        (void)node_pump_checkpoint(w->node);
        struck = sim_disk_down(w->disk);
    }
    cut_power(w);
    boot(w);
    if (!w->result->ok)
        return false;
    push(w, 1, 1);
    checkpoint(w);
    push(w, 1, 1);
    checkpoint(w);
    if (disk_list(w->disk, "qlog/1", &list, NULL) == ERR_OK)
        world_fail(w, "the deleted queue's log is still there");
    disk_list_deinit(&list);
    return struck || turn % LUCK + 1 < LUCK;
}

/* --- 8: a window is pinned by its intent --- */

/* Not of the given world: the sweep's story with a deletion at every step. */
static void window_pin(const struct world_options *options, struct world_result *out)
{
    static const enum sweep_event events[] = {SWEEP_DELETE, SWEEP_DELETE_KILL, SWEEP_GONE_KILL};
    struct world_options ours = *options;
    ours.with_sink = true;
    for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        bool more = true;
        for (unsigned at = 0; more; at++) {
            struct world_result result;
            more = sweep_run(&ours, events[i], at, &result);
            out->steps += result.steps;
            out->virtual_us += result.virtual_us;
            if (result.ok)
                continue;
            out->ok = false;
            snprintf(out->why, sizeof(out->why), "%s at step %u: %.1000s",
                     sweep_event_name(events[i]), at, result.why);
            return;
        }
    }
}

/* --- 10: the segments' indexes --- */

/* Every record is found by partition and offset, in sealed segments and in the active one, also
 * when that was begun in an earlier life. */
static bool segment_index(struct world *w, unsigned turn)
{
    for (unsigned i = 0; i < 30 + turn; i++) {
        push(w, i % 2, 1 + i % 5);
        if (i % 9 == 8)
            checkpoint(w);
    }
    world_check_log(w);
    if (turn % 2 == 0)
        kill_process(w);
    else
        cut_power(w);
    boot(w);
    if (!w->result->ok)
        return false;
    for (unsigned i = 0; i < 10; i++)
        push(w, i % 2, 1 + i % 5);
    world_check_log(w);
    kill_process(w);
    boot(w);
    return turn + 1 < 2 * LUCK;
}

/* --- the table --- */

static const struct {
    const char *name;
    bool (*run)(struct world *w, unsigned turn); /* false: that was the last turn */
} RULES_TABLE[RULES] = {
    {"rule-1-durable-before-applied", durable_before_applied},
    {"rule-2-wal-chain", log_chain},
    {"rule-3-checkpoint-order", checkpoint_order},
    {"rule-4-recovery", recovery},
    {"rule-5-failed-sync", failed_sync},
    {"rule-6-whole-entries", whole_entries},
    {"rule-7-unlink-late", unlink_late},
    {"rule-8-window-pin", NULL},
    {"rule-9-lost-ranges", NULL},
    {"rule-10-segment-index", segment_index},
};

const char *rule_name(unsigned rule)
{
    return RULES_TABLE[rule - 1].name;
}

const char *rule_not_built(unsigned rule)
{
    return rule == 9 ? "retention is not built yet, so nothing is lost to it" : NULL;
}

static bool run_turn(unsigned rule, const struct world_options *options, unsigned turn,
                     struct world_result *out)
{
    struct world w;
    struct world_options ours = *options;
    struct world_result result;
    ours.seed = options->seed * 10007 + turn;
    ours.with_sink = false;
    ours.queues = WORLD_QUEUES;
    world_init(&w, &ours, &result);
    w.calm = true;
    w.ballast_bytes = 0;
    boot(&w);
    bool more = RULES_TABLE[rule - 1].run(&w, turn);
    if (w.node != NULL)
        world_drop(&w);
    out->steps++;
    out->virtual_us += w.clock.mono - w.start_us;
    if (!result.ok) {
        out->ok = false;
        snprintf(out->why, sizeof(out->why), "turn %u: %.1000s", turn, result.why);
    }
    world_deinit(&w);
    return more && out->ok;
}

void rule_run(unsigned rule, const struct world_options *options, struct world_result *out)
{
    *out = (struct world_result){.ok = true};
    if (rule == 8)
        window_pin(options, out);
    for (unsigned turn = 0; RULES_TABLE[rule - 1].run != NULL; turn++) {
        if (!run_turn(rule, options, turn, out))
            break;
    }
}
