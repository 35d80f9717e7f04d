/* What befalls the storage of a world: a single operation of the disk or of the state database
 * fails, or the disk is slow for a while.
 *
 * A fault is armed and strikes one of the next operations of its kind, at a boot too. After a
 * failed sync, write or rename the node must be stopped when the step is over: nobody knows what is
 * on the disk (storage rule 5). Want of space must not stop it. After any other fault it may be
 * stopped, or go on. Whatever it was, the disk is healed by the reboot, and what was acknowledged
 * before is there then. */
#include "sim/world_internal.h"

#include "base/timefmt.h"

#define ARM_PER_100000 36u /* of the decisions about what befalls */
#define SLOW_PER_100000 24u
#define SLOW_FOR_US (20 * US_PER_SEC)

static const struct disk_fault {
    enum sim_disk_op op;
    enum err err;
    bool stops; /* the node must not go on */
    unsigned skip_max;
} disk_faults[] = {
    {SIM_DISK_DATASYNC, ERR_IO, true, 12},
    {SIM_DISK_DATASYNC, ERR_NO_SPACE, true, 12}, /* as good as any other failure */
    {SIM_DISK_SYNC_ALL, ERR_IO, true, 3},
    {SIM_DISK_SYNC_DIR, ERR_IO, true, 3},
    {SIM_DISK_WRITE, ERR_IO, true, 40},
    {SIM_DISK_WRITE, ERR_NO_SPACE, false, 40},
    {SIM_DISK_RENAME, ERR_IO, true, 3},
    {SIM_DISK_TRUNCATE, ERR_IO, false, 3},
    {SIM_DISK_PREALLOCATE, ERR_IO, false, 3},
    {SIM_DISK_PREALLOCATE, ERR_NO_SPACE, false, 3},
    {SIM_DISK_MKDIR, ERR_IO, false, 2},
    {SIM_DISK_MKDIR, ERR_NO_SPACE, false, 2},
    {SIM_DISK_OPEN, ERR_IO, false, 12},
    {SIM_DISK_READ, ERR_IO, false, 60},
    {SIM_DISK_LIST, ERR_IO, false, 2},
    {SIM_DISK_UNLINK, ERR_IO, false, 4},
    {SIM_DISK_RMDIR, ERR_IO, false, 1},
};

#define DISK_FAULTS (sizeof(disk_faults) / sizeof(disk_faults[0]))

enum db_fault { DB_FULL, DB_FULL_LATE, DB_WRITE, DB_WRITE_DONE, DB_READ, DB_FAULTS };

static void arm_disk(struct world *w)
{
    const struct disk_fault *f = &disk_faults[prng_below(&w->prng, DISK_FAULTS)];
    uint64_t skip = prng_below(&w->prng, f->skip_max + 1);
    sim_disk_fail_next(w->disk, f->op, f->err, skip);
    w->fault_stops = f->stops;
    world_detail(w, "a %s of the disk will fail: %s", sim_disk_op_name(f->op), err_text(f->err));
}

static void arm_db(struct world *w)
{
    static const char *const names[DB_FAULTS] = {"full", "full, but late", "write fails",
                                                 "write fails, but is done", "read fails"};
    enum db_fault fault = (enum db_fault)prng_below(&w->prng, DB_FAULTS);
    if (w->db_armed)
        return; /* which of two it was could not be told */
    w->db_armed = true;
    switch (fault) {
    case DB_FULL:
        sim_db_fail_next_write(w->db, ERR_NO_SPACE);
        break;
    case DB_FULL_LATE:
        sim_db_fail_next_write_late(w->db, ERR_NO_SPACE);
        break;
    case DB_WRITE:
    case DB_WRITE_DONE:
        sim_db_crash_next_write(w->db, fault == DB_WRITE_DONE);
        break;
    case DB_READ:
        sim_db_fail_next_read(w->db, prng_below(&w->prng, 40));
        break;
    case DB_FAULTS:
        break;
    }
    w->db_fault_stops = fault == DB_WRITE || fault == DB_WRITE_DONE;
    world_detail(w, "the state database: %s", names[fault]);
}

/* Of the disk, within an operation. */
static void pace(void *ctx, enum sim_disk_op op)
{
    struct world *w = ctx;
    bool waits = op == SIM_DISK_DATASYNC || op == SIM_DISK_SYNC_ALL || op == SIM_DISK_SYNC_DIR ||
                 op == SIM_DISK_WRITE || op == SIM_DISK_READ;
    if (!waits || w->clock.mono >= w->slow_until_us)
        return;
    bool stall = prng_chance(&w->prng, 5);
    sim_clock_advance(&w->clock, (int64_t)prng_below(&w->prng, stall ? 4 * US_PER_SEC : 30000));
    w->disturbed_us = w->clock.mono; /* whatever waited for the disk was late */
}

void storage_init(struct world *w)
{
    sim_disk_set_pace(w->disk, pace, w);
}

void storage_befall_boot(struct world *w)
{
    if (prng_chance(&w->prng, 4))
        arm_disk(w);
}

void storage_befall(struct world *w)
{
    uint64_t roll = prng_below(&w->prng, 100000);
    if (w->calm || w->node == NULL || storage_failed(w))
        return;
    if (roll < ARM_PER_100000 * 2 / 3) {
        arm_disk(w);
    } else if (roll < ARM_PER_100000) {
        arm_db(w);
    } else if (roll < ARM_PER_100000 + SLOW_PER_100000) {
        w->slow_until_us = w->clock.mono + (int64_t)prng_below(&w->prng, SLOW_FOR_US);
        w->result->slow++;
        world_trace(w, "the disk is slow");
    }
}

bool storage_failed(const struct world *w)
{
    return sim_disk_failed(w->disk) != SIM_DISK_OPS || sim_db_state_failed(w->db_state);
}

bool storage_read_rows(struct world *w, struct kv_op *op, int64_t now, struct kv_result *out)
{
    struct tenant_id tenant = TENANT_DEFAULT;
    struct error error = {0};
    bool due;
    sim_db_spare_reads(w->db, true);
    enum err err = kv_read(node_read_begin(w->node), &tenant, op, 1, now, now, out, &due, &error);
    node_read_end(w->node);
    sim_db_spare_reads(w->db, false);
    if (err != ERR_OK && !sim_disk_down(w->disk))
        world_fail(w, "the rows cannot be read: %s", error.text);
    return err == ERR_OK;
}

/* What the node must make of a fault that struck within this step. */
void storage_look(struct world *w)
{
    struct node_status status;
    enum sim_disk_op op = sim_disk_failed(w->disk);
    bool disk = op != SIM_DISK_OPS, db = sim_db_state_failed(w->db_state);
    if (disk == w->disk_struck && db == w->db_struck)
        return;
    bool stops =
        (disk && !w->disk_struck && w->fault_stops) || (db && !w->db_struck && w->db_fault_stops);
    w->disk_struck = disk;
    w->db_struck = db;
    w->disturbed_us = w->clock.mono; /* it may be full for a while */
    w->result->storage_faults++;
    world_trace(w, "a failure of the storage: %s", disk ? sim_disk_op_name(op) : "state database");
    if (w->node == NULL || sim_disk_down(w->disk))
        return;
    node_status(w->node, &status);
    w->result->storage_stops += status.stopped;
    if (stops && !status.stopped)
        world_fail(w, "a %s failed and the node goes on", disk ? sim_disk_op_name(op) : "write");
}

/* The machine is repaired while it is down. */
void storage_heal(struct world *w)
{
    sim_db_state_crash(w->db_state, &w->prng);
    w->disk_struck = w->db_struck = w->db_armed = false;
    w->fault_stops = w->db_fault_stops = false;
    w->slow_until_us = 0;
}
